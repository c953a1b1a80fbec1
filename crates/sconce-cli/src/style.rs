//! Colour on the terminal, or none.

use std::io::IsTerminal;

/// Whether text for people carries colour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputStyle {
    pub(crate) color: bool,
}

impl OutputStyle {
    /// For standard error: colour on a terminal unless `NO_COLOR` is set (no-color.org).
    pub(crate) fn for_stderr() -> Self {
        Self::decide(std::io::stderr().is_terminal())
    }

    /// For standard output.
    pub(crate) fn for_stdout() -> Self {
        Self::decide(std::io::stdout().is_terminal())
    }

    fn decide(terminal: bool) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            color: terminal && !forbidden && !dumb,
        }
    }

    /// The same for a report, with the terminal's width.
    pub(crate) fn for_reports(self) -> sconce_report::terminal::TerminalStyle {
        let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
        let width = size.map(|size| size.ws_col).filter(|&columns| columns > 0);
        sconce_report::terminal::TerminalStyle {
            color: self.color,
            width: width.unwrap_or(100),
        }
    }

    /// The columns of the terminal that standard output is; absent where it is none, and nothing has
    /// to fit.
    pub(crate) fn stdout_columns() -> Option<u16> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(size.ws_col).filter(|&columns| columns > 0)
    }

    pub(crate) fn error(&self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn hint(&self, text: &str) -> String {
        self.paint("36", text)
    }

    pub(crate) fn warn(&self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
