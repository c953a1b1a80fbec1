//! `RECORD`: which files a wheel brought, with sizes and digests.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a wheel's own `RECORD` says of its files: name in the archive to digest and size.
pub(super) type WheelRecord = HashMap<String, ([u8; 32], Option<u64>)>;

/// Reads a `RECORD`. Lines without a SHA-256 are left out: their digests are computed instead.
pub(super) fn parse(text: &str) -> WheelRecord {
    let mut all = HashMap::new();
    for line in text.lines() {
        let fields = csv_fields(line);
        let [path, hash, size, ..] = fields.as_slice() else {
            continue;
        };
        let digest = hash
            .strip_prefix("sha256=")
            .and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        if let Some(digest) = digest {
            all.insert(path.clone(), (digest, size.trim().parse().ok()));
        }
    }
    all
}

/// Writes a line.
pub(super) fn format_line(path: &str, digest: &[u8; 32], size: u64) -> String {
    format!(
        "{},sha256={},{size}\n",
        quoted(path),
        URL_SAFE_NO_PAD.encode(digest)
    )
}

/// Writes the line of `RECORD` itself, which has neither digest nor size.
pub(super) fn own_line(path: &str) -> String {
    format!("{},,\n", quoted(path))
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// The fields of one line of CSV, as Python's `csv` module reads it.
fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars().peekable();
    let mut inside = false;
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            '"' if inside && chars.peek() == Some(&'"') => {
                chars.next();
                fields[last].push('"');
            }
            '"' if inside || fields[last].is_empty() => inside = !inside,
            ',' if !inside => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_build_tools_write() {
        let text = "numpy/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\r\n\
                    \"a,\"\"b\"\".py\",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,\n\
                    old.py,md5=abc,3\nshort\nnumpy-1.dist-info/RECORD,,\n";
        let all = parse(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all["numpy/__init__.py"].1, Some(0));
        assert_eq!(all["a,\"b\".py"].1, None);
        assert_eq!(all["numpy/__init__.py"].0[..2], [0xe3, 0xb0]);
    }

    proptest! {
        #[test]
        fn lines_survive(path in "[a-z,\"/]{1,20}", digest: [u8; 32], size: u64) {
            let all = parse(&format_line(&path, &digest, size));
            prop_assert_eq!(all.get(&path), Some(&(digest, Some(size))));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            parse(&text);
        }
    }
}
