//! How wide and for whom text is written: lines are broken between words where a terminal would
//! break them inside one, and what goes on stands below what began.

use std::os::fd::AsFd;

use crate::style::OutputStyle;

/// Lines narrower than this are left to the terminal.
const MIN_TEXT_COLUMNS: usize = 24;

/// Where text goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextLayout {
    pub(crate) style: OutputStyle,
    /// Columns of the terminal; absent where it is none, so that lines stay whole for programs.
    pub(crate) columns: Option<usize>,
    /// Whether the reader is root: commands need no `sudo`, which containers mostly lack.
    pub(crate) root: bool,
}

impl TextLayout {
    /// Standard output.
    pub(crate) fn for_stdout() -> Self {
        Self::for_stream(&std::io::stdout(), OutputStyle::for_stdout())
    }

    /// What standard error shows.
    pub(crate) fn for_stderr() -> Self {
        Self::for_stream(&std::io::stderr(), OutputStyle::for_stderr())
    }

    fn for_stream(stream: &impl AsFd, style: OutputStyle) -> Self {
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let columns = size.map(|size| usize::from(size.ws_col));
        Self {
            style,
            columns: columns.filter(|&columns| columns > 0),
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// A file: no colour, whole lines, for anybody.
    pub(crate) fn for_file() -> Self {
        Self {
            style: OutputStyle { color: false },
            columns: None,
            root: false,
        }
    }

    /// Whether a text of this many characters ends within the line that it begins in.
    pub(crate) fn fits(&self, begin: usize, text: &str) -> bool {
        let wide = begin + text.chars().count();
        self.columns.is_none_or(|columns| wide <= columns)
    }

    /// A text that begins in column `begin` (from 0), the lines after the first in column `indent`.
    /// A word that is wider than a line stays whole: paths and commands are copied.
    pub(crate) fn wrap_text(&self, text: &str, begin: usize, indent: usize) -> String {
        let columns = self
            .columns
            .filter(|wide| *wide >= indent + MIN_TEXT_COLUMNS);
        let Some(columns) = columns else {
            return text.to_owned();
        };
        let mut out = String::new();
        let mut at = begin;
        for word in text.split(' ') {
            let wide = word.chars().count();
            if out.is_empty() {
                at += wide;
            } else if at + 1 + wide > columns {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                at = indent + wide;
            } else {
                out.push(' ');
                at += 1 + wide;
            }
            out.push_str(word);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(columns: usize) -> TextLayout {
        TextLayout {
            columns: Some(columns),
            ..TextLayout::for_file()
        }
    }

    #[test]
    fn lines_are_broken_between_words() {
        let text = "the driver is loaded but /dev/nvidiactl is not there";
        assert_eq!(
            page(34).wrap_text(text, 7, 7),
            "the driver is loaded but\n       /dev/nvidiactl is not there"
        );
        assert_eq!(TextLayout::for_file().wrap_text(text, 7, 7), text);
        // Too narrow for anything.
        assert_eq!(page(20).wrap_text(text, 7, 7), text);
        let long = "see /a/very/long/path/that/nobody/can/break/anywhere now";
        assert_eq!(
            page(30).wrap_text(long, 0, 2),
            "see\n  /a/very/long/path/that/nobody/can/break/anywhere\n  now"
        );
        assert!(page(30).fits(10, "twenty characters ok"));
        assert!(!page(29).fits(10, "twenty characters ok"));
    }

    #[test]
    fn no_word_is_lost() {
        let text = "  a  é 電 /x/y\u{1b} mended:  once more and then again, and so on ";
        let words = |text: &str| {
            let words = text.split([' ', '\n']).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        for columns in 0..60 {
            for indent in [0, 7, 30] {
                let broken = page(columns).wrap_text(text, indent, indent);
                assert_eq!(words(&broken), words(text), "{columns} {indent}");
            }
        }
    }
}
