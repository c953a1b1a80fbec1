//! Small reads of files that the kernel makes, or that somebody else wrote.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No file of facts is larger; what follows is not read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text of a small file; `None` when it cannot be read. Bytes that are not UTF-8 are replaced.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    text_up_to(path, MAX_FILE_BYTES)
}

/// The first `most` bytes of a file as text.
pub(crate) fn text_up_to(path: &Path, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(most)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// A one-line file without its line end; `None` when it is absent or empty.
pub(crate) fn read_line(path: &Path) -> Option<String> {
    let text = read_text(path)?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// A file that holds one number.
pub(crate) fn read_number(path: &Path) -> Option<u64> {
    read_line(path)?.parse().ok()
}

/// The value after `key:` in a file of `key: value` lines (status, meminfo, the driver's files).
pub(crate) fn find_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        (name.trim() == key && !value.is_empty()).then_some(value)
    })
}
