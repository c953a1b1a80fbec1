//! The only place that writes to the terminal, but for the live progress line. A closed pipe is
//! the reader's wish, not an error.

use std::io::Write;

/// Data: to standard output.
pub(crate) fn data(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = out.write_all(b"\n");
    }
    let _ = out.flush();
}

/// What is said beside the data: to standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error.
pub(crate) fn error(text: &str) {
    say(text);
}
