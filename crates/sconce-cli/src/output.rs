//! The only place that writes to the terminal, but for the live progress line. A closed pipe is
//! the reader's wish, not an error.

use std::io::Write;

use crate::failure::{CliError, Result};

/// Data: to standard output.
///
/// # Errors
/// [`CliError::File`] when it cannot take all of it: a full disk must not look like success.
pub(crate) fn data(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.map_err(|source| CliError::File {
            action: "write",
            path: "standard output".into(),
            source,
        })?),
    }
}

/// Bytes as they are: to standard output. False when nobody reads them any more.
///
/// # Errors
/// As [`data`].
pub(crate) fn bytes(bytes: &[u8]) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(CliError::File {
            action: "write",
            path: "standard output".into(),
            source,
        }
        .into()),
    }
}

/// What is said beside the data: to standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error.
pub(crate) fn error(text: &str) {
    say(text);
}
