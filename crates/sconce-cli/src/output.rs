//! The only place that writes to the terminal, but for the live progress line. A closed pipe is
//! the reader's wish, not an error.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write};
use std::path::Path;

use sconce_base::output::BlockingWriter;
use sconce_base::text::{escape_json, is_unprintable, to_printable};
use serde::de::IgnoredAny;

use crate::progress;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;

/// Data: to standard output.
///
/// # Errors
/// [`AppError::File`] when it cannot take all of it: a full disk must not look like success.
pub(crate) fn write_data(text: &str) -> Result<()> {
    let text = make_printable(text);
    let mut out = BlockingWriter::new(std::io::stdout().lock());
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.map_err(|source| AppError::File {
            action: FileAction::Write,
            path: "standard output".into(),
            source,
        })?),
    }
}

/// What may be shown of a text, whoever wrote parts of it: what turns the direction of writing or is not seen is escaped
/// in JSON, which stays the same for its reader, and replaced elsewhere. Line ends and colours are our own, and texts
/// from outside lost theirs before.
fn make_printable(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| is_unprintable(c) && !c.is_ascii_control();
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    Cow::Owned(match values.all(|value| value.is_ok()) {
        true => escape_json(text.to_owned()),
        false => text.replace(is_hidden, "\u{fffd}"),
    })
}

/// Bytes as they are: to standard output. False when nobody reads them any more.
///
/// # Errors
/// As [`write_data`].
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<bool> {
    let mut out = BlockingWriter::new(std::io::stdout().lock());
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(AppError::File {
            action: FileAction::Write,
            path: "standard output".into(),
            source,
        }
        .into()),
    }
}

/// What is said beside the data: to standard error.
pub(crate) fn print_message(text: &str) {
    let text = make_printable(text);
    let _ = writeln!(BlockingWriter::new(std::io::stderr().lock()), "{text}");
}

/// A line of the log: to standard error, above the live progress line.
pub(crate) fn log_line(text: &str) {
    // A run may have the terminal in raw mode, where a line feed alone does not return to the left.
    let end = match std::io::stderr().is_terminal() {
        true => "\r\n",
        false => "\n",
    };
    let line = format!("{text}{end}");
    progress::above_live_line(|| {
        let _ = BlockingWriter::new(std::io::stderr().lock()).write_all(line.as_bytes());
    });
}

/// An error.
pub(crate) fn print_error(text: &str) {
    print_message(text);
}

/// A path for people, without what a terminal would obey: names of files are anyone's text.
pub(crate) fn format_path(path: &Path) -> String {
    let tame = |c: char| match is_unprintable(c) {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    path.to_string_lossy().chars().map(tame).collect()
}

/// Says that a file that is to be read is a FIFO to which nobody writes yet.
pub(crate) fn tell_fifo_wait(path: &Path) {
    let name = to_printable(&path.to_string_lossy(), 200);
    print_message(&format!(
        "waiting for somebody to write to {name}, which is a FIFO"
    ));
}

#[cfg(test)]
mod tests {
    use super::make_printable;

    #[test]
    fn json_is_escaped_and_other_text_replaced() {
        for (text, printable) in [
            ("{\"a\": \"x\u{202e}y\"}\n", "{\"a\": \"x\\u202ey\"}\n"),
            ("[\"\u{2066}\"]\n[\"b\"]\n", "[\"\\u2066\"]\n[\"b\"]\n"),
            ("[run] x\u{202e}y\n", "[run] x\u{fffd}y\n"),
            ("\u{1b}[31mred\u{1b}[0m\n", "\u{1b}[31mred\u{1b}[0m\n"),
        ] {
            assert_eq!(make_printable(text), printable);
        }
    }
}
