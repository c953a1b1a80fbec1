//! Aligned rows: a dim label, and parts that are joined with dots and broken between parts.

use super::TerminalStyle;
use crate::format::printable_text;

/// How a text is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Dim,
    Strong,
    Good,
    Warning,
    Bad,
    Graph,
}

impl Tone {
    /// Parameters of "select graphic rendition" (ECMA-48, 8.3.117).
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Dim => Some("2"),
            Self::Strong => Some("1"),
            Self::Good => Some("32"),
            Self::Warning => Some("33"),
            Self::Bad => Some("1;31"),
            Self::Graph => Some("36"),
        }
    }
}

/// `text` in its tone. The text must be clean.
pub(super) fn paint(text: &str, tone: Tone, style: TerminalStyle) -> String {
    match tone.code() {
        Some(code) if style.color => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        _ => text.to_owned(),
    }
}

/// One figure or fact. Its text is cleaned here, so that nothing in a record steers the terminal.
#[derive(Debug)]
pub(super) struct TextSpan {
    text: String,
    tone: Tone,
}

/// A part as it is.
pub(super) fn plain_span(text: impl AsRef<str>) -> TextSpan {
    styled_span(text, Tone::Plain)
}

/// A part in a tone.
pub(super) fn styled_span(text: impl AsRef<str>, tone: Tone) -> TextSpan {
    TextSpan {
        text: printable_text(text.as_ref()),
        tone,
    }
}

const SEPARATOR: &str = " · ";
const INDENT: usize = 2;
const LABEL: usize = 14;

/// A report that grows row by row.
#[derive(Debug)]
pub(super) struct TextPage {
    style: TerminalStyle,
    text: String,
}

impl TextPage {
    pub(super) fn new(style: TerminalStyle) -> Self {
        Self {
            style,
            text: String::new(),
        }
    }

    /// Columns that the parts of a row may use.
    pub(super) fn available_columns(&self) -> usize {
        self.style.columns() - INDENT - LABEL
    }

    /// A line over the whole width.
    pub(super) fn write_title(&mut self, title: &str) {
        self.text += &paint(&printable_text(title), Tone::Strong, self.style);
        self.text.push('\n');
    }

    /// An empty line.
    pub(super) fn write_blank_line(&mut self) {
        self.text.push('\n');
    }

    /// A row. Without parts there is none.
    pub(super) fn write_row(&mut self, label: &str, parts: impl IntoIterator<Item = TextSpan>) {
        let lines = broken(parts, self.available_columns());
        for (n, line) in lines.iter().enumerate() {
            let label = if n == 0 { label } else { "" };
            self.text += &" ".repeat(INDENT);
            self.text += &paint(&format!("{label:LABEL$}"), Tone::Dim, self.style);
            for (n, part) in line.iter().enumerate() {
                if n > 0 {
                    self.text += &paint(SEPARATOR, Tone::Dim, self.style);
                }
                self.text += &paint(&part.text, part.tone, self.style);
            }
            self.text.push('\n');
        }
    }

    /// A row of parts with nothing between them, which must fit a line.
    pub(super) fn write_joined_row(
        &mut self,
        label: &str,
        parts: impl IntoIterator<Item = TextSpan>,
    ) {
        self.text += &" ".repeat(INDENT);
        self.text += &paint(&format!("{label:LABEL$}"), Tone::Dim, self.style);
        for part in parts {
            self.text += &paint(&part.text, part.tone, self.style);
        }
        self.text.push('\n');
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Parts in lines of at most `room` characters: broken between parts, inside a part only where
/// it is longer than a whole line.
fn broken(parts: impl IntoIterator<Item = TextSpan>, room: usize) -> Vec<Vec<TextSpan>> {
    let mut lines: Vec<Vec<TextSpan>> = Vec::new();
    let mut used = 0;
    for part in parts {
        for text in pieces(&part.text, room) {
            let length = text.chars().count();
            let with_separator = used + SEPARATOR.chars().count() + length;
            let piece = TextSpan {
                text,
                tone: part.tone,
            };
            match lines.last_mut() {
                Some(line) if with_separator <= room => {
                    line.push(piece);
                    used = with_separator;
                }
                _ => {
                    lines.push(vec![piece]);
                    used = length;
                }
            }
        }
    }
    lines
}

/// `text` in pieces of at most `room` characters, broken at spaces where there are any. No piece
/// has room for the first word of the next, so two of them never stand on one line.
fn pieces(text: &str, room: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length <= room {
            if let Some(piece) = pieces.last_mut() {
                piece.push(' ');
                piece.push_str(word);
            }
            used += 1 + length;
            continue;
        }
        if used > 0 {
            pieces.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            if used == room {
                pieces.push(String::new());
                used = 0;
            }
            if let Some(piece) = pieces.last_mut() {
                piece.push(c);
            }
            used += 1;
        }
    }
    pieces
}
