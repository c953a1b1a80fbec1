//! Files that somebody else wrote, or named by mistake: read whole, up to a size.

use std::io;
use std::path::Path;

use sconce_base::input::{self, InputFile};
use sconce_schema::Bytes;

/// Says that a FIFO is waited for until somebody writes to it.
pub type WaitMessage<'a> = &'a dyn Fn(&Path);

/// More than any spec, lock, list of packages, key or configuration has: a lock of a thousand wheels
/// has less than 1 MiB.
const MAX_INPUT_SIZE: Bytes = Bytes::from_mib(64);

/// The bytes of a regular file.
///
/// # Errors
/// It cannot be read, is another thing than a regular file, or is larger than [`MAX_INPUT_SIZE`].
pub fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    input::read_regular(path, MAX_INPUT_SIZE)
}

/// The text of a regular file.
///
/// # Errors
/// Those of [`read_bytes`], and what is no UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    decode(read_bytes(path)?)
}

/// As [`read_bytes`], also of a FIFO, which `<(command)` of a shell is: for keys, tokens and other files that
/// are read once.
///
/// # Errors
/// Those of [`open_stream`], and [`MAX_INPUT_SIZE`] bytes are not all.
pub fn read_stream_bytes(path: &Path, tell_wait: WaitMessage<'_>) -> io::Result<Vec<u8>> {
    input::read_up_to(open_stream(path, tell_wait)?, MAX_INPUT_SIZE)
}

/// The text of [`read_stream_bytes`].
///
/// # Errors
/// Those of [`read_stream_bytes`], and what is no UTF-8.
pub fn read_stream_text(path: &Path, tell_wait: WaitMessage<'_>) -> io::Result<String> {
    decode(read_stream_bytes(path, tell_wait)?)
}

/// Opens a regular file, or a FIFO, whose writer is waited for.
///
/// # Errors
/// What the system says; a device has no end.
pub fn open_stream(path: &Path, tell_wait: WaitMessage<'_>) -> io::Result<InputFile> {
    input::open_stream(path, &|| tell_wait(path))
}

fn decode(bytes: Vec<u8>) -> io::Result<String> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(bytes).map_err(|error| wrong(error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"\xff").unwrap();
        let streamed = read_stream_text(&path, &|_| {});
        for read in [read_text(&path), streamed] {
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
