//! Files that somebody else wrote, or named by mistake: read whole, up to a size.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sconce_schema::Bytes;

/// More than any spec, lock, list of packages, key or configuration has: a lock of a thousand wheels
/// has less than 1 MiB.
const MOST: Bytes = Bytes::from_mib(64);

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or is larger than [`MOST`]: `/dev/zero` has no end.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    up_to(path, MOST)
}

/// The text of a file.
///
/// # Errors
/// Those of [`read_bytes`], and what is no UTF-8.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read_bytes(path)?).map_err(|error| wrong(error.utf8_error()))
}

fn up_to(path: &Path, most: Bytes) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more, to tell what ends there from what goes on.
    File::open(path)?
        .take(most.0.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most.0 {
        let text = format!("it is larger than {most}, as no such file is");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(up_to(&path, Bytes(5)).unwrap(), b"12345");
        let error = up_to(&path, Bytes(4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is larger than 4 B, as no such file is"
        );
        let error = up_to(Path::new("/dev/zero"), Bytes(4096)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(
            read_text(&path).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
