//! One block of PEM (RFC 7468, in the lax form of section 3: any line width, any white space).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The largest file that is read, in bytes. cosign's key files have under 1 KiB.
pub const MAX_PEM_BYTES: usize = 64 << 10;

/// Why a text is not one block of PEM.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// More than [`MAX_PEM_BYTES`].
    #[error("it has {bytes} bytes; {MAX_PEM_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// No `-----BEGIN …-----` with its end.
    #[error("it has no PEM block (`-----BEGIN …-----` to `-----END …-----`)")]
    NoBlock,
    /// What stands between them is not base64.
    #[error("its PEM block is not base64")]
    NotBase64,
    /// A block of another kind.
    #[error("its PEM block is a `{found}`, not {expected}")]
    Kind {
        /// The block's label, or as much as fits a line.
        found: String,
        /// What would have been taken, in words.
        expected: &'static str,
    },
}

/// The bytes of the first block of `text`, whose label must be one of `labels`. Text before and after
/// it is passed over, as everywhere.
pub(super) fn decode(
    text: &[u8],
    labels: &[&str],
    expected: &'static str,
) -> Result<Vec<u8>, PemError> {
    if text.len() > MAX_PEM_BYTES {
        return Err(PemError::TooLarge { bytes: text.len() });
    }
    let text = std::str::from_utf8(text).map_err(|_| PemError::NoBlock)?;
    let mut lines = text.lines().map(str::trim);
    let begin = |line: &str| {
        Some(
            line.strip_prefix("-----BEGIN ")?
                .strip_suffix("-----")?
                .to_owned(),
        )
    };
    let label = lines.find_map(begin).ok_or(PemError::NoBlock)?;
    if !labels.contains(&label.as_str()) {
        let printable = label
            .chars()
            .filter(|c| !sconce_base::text::is_unprintable(*c));
        return Err(PemError::Kind {
            found: printable.take(60).collect(),
            expected,
        });
    }
    let end = format!("-----END {label}-----");
    let mut inside = String::new();
    loop {
        match lines.next() {
            None => return Err(PemError::NoBlock),
            Some(line) if line == end => break,
            Some(line) => inside.extend(line.split_whitespace()),
        }
    }
    STANDARD.decode(inside).map_err(|_| PemError::NotBase64)
}

/// A block, in lines of 64 characters.
pub(super) fn encode(label: &str, bytes: &[u8]) -> String {
    let body = STANDARD.encode(bytes);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [0, 1, 47, 48, 49, 96, 200] {
            let bytes: Vec<u8> = (0..length).collect();
            let text = encode("A KEY", &bytes);
            assert!(text.lines().all(|line| line.len() <= 64));
            assert_eq!(decode(text.as_bytes(), &["A KEY"], "a key"), Ok(bytes));
        }
        let lax = b"of mine\r\n-----BEGIN A-----\r\n  AA ==\r\n\r\n-----END A-----\r\nmore";
        assert_eq!(decode(lax, &["B", "A"], "a"), Ok(vec![0]));
    }

    #[test]
    fn anything_else_is_said() {
        let said = |text: &[u8]| decode(text, &["A"], "an A").unwrap_err();
        for none in [
            &b""[..],
            b"-----BEGIN A-----",
            b"-----BEGIN A-----\nAAAA\n-----END B-----",
            b"-----BEGIN -----",
            b"-----END A-----\n-----BEGIN A-----",
            b"\xff",
        ] {
            let said = said(none);
            assert!(
                matches!(said, PemError::NoBlock | PemError::Kind { .. }),
                "{said}"
            );
        }
        let other = said(b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n");
        assert!(other.to_string().contains("OPENSSH PRIVATE KEY"), "{other}");
        assert_eq!(
            said(b"-----BEGIN A-----\n!\n-----END A-----"),
            PemError::NotBase64
        );
        let large = vec![b'\n'; MAX_PEM_BYTES + 1];
        assert!(matches!(said(&large), PemError::TooLarge { .. }));
    }
}
