//! Opening what lies in a folder of records. The folder may be anyone's, and the reader may be root.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. A link is not followed; a FIFO, a device or a socket, of which a
/// read might wait for ever or do something, is refused without a read.
///
/// # Errors
/// `InvalidData` where it is not a regular file; `ELOOP` where it is a link; what the kernel says.
pub(crate) fn open_regular_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    // Flags of open(2) fit an `int`.
    let file = (File::options().read(true))
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::LOOP) => not_regular("a link"),
            // A socket cannot be opened at all.
            Some(rustix::io::Errno::NXIO) => not_regular("a socket"),
            _ => error,
        })?;
    if !file.metadata()?.is_file() {
        return Err(not_regular("a folder, a pipe or a device"));
    }
    Ok(file)
}

fn not_regular(what: &str) -> io::Error {
    let text = format!("it is {what}, not a plain file");
    io::Error::new(io::ErrorKind::InvalidData, text)
}
