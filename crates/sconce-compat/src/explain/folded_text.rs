//! A text as patterns are compared with it: lower case, and nothing of what wrapping, quoting and
//! framing add.

use sconce_base::text::is_unprintable;

/// A folded text that knows where each of its bytes stood.
#[derive(Debug, Default)]
pub(crate) struct FoldedText<'a> {
    text: &'a [u8],
    pub(crate) bytes: Vec<u8>,
    places: Vec<u32>,
}

/// Whether patterns look over it.
fn ignored(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b'*' | b'|')
}

/// How many bytes to look over: blanks and marks; typographic quotation marks (U+2018 to U+201F);
/// frames (U+2500 to U+257F).
fn skip(text: &[u8]) -> usize {
    match text {
        [byte, ..] if ignored(*byte) => 1,
        [0xe2, 0x80, 0x98..=0x9f, ..] | [0xe2, 0x94 | 0x95, _, ..] => 3,
        _ => 0,
    }
}

/// A pattern's fixed text, folded.
pub(crate) fn fold_literal(text: &[u8]) -> Vec<u8> {
    FoldedText::new(text).bytes
}

impl<'a> FoldedText<'a> {
    /// `text` must be shorter than 4 GiB; the rest of a longer one is left out.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let text = &text[..text.len().min(u32::MAX as usize)];
        let mut bytes = Vec::with_capacity(text.len());
        let mut places = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let skipped = skip(&text[at..]);
            if skipped > 0 {
                at += skipped;
                continue;
            }
            bytes.push(text[at].to_ascii_lowercase());
            places.push(at as u32);
            at += 1;
        }
        Self {
            text,
            bytes,
            places,
        }
    }

    /// Where the byte at `at` stood; the text's end for what is behind the last.
    pub(crate) fn original_offset(&self, at: usize) -> usize {
        self.places
            .get(at)
            .map_or(self.text.len(), |&place| place as usize)
    }

    /// Where the text up to `end` ends in the original.
    pub(crate) fn place_of_end(&self, end: usize) -> usize {
        end.checked_sub(1).map_or(0, |last| {
            (self.original_offset(last) + 1).min(self.text.len())
        })
    }

    /// Whether something was left out just before this byte.
    pub(crate) fn gap_before(&self, at: usize) -> bool {
        at == 0 || self.original_offset(at) != self.original_offset(at - 1) + 1
    }

    /// Whether a line begins with this byte.
    pub(crate) fn begins_line(&self, at: usize) -> bool {
        at == 0 || self.between(at).contains(&b'\n')
    }

    /// Whether a line ends before this byte.
    pub(crate) fn ends_line(&self, at: usize) -> bool {
        at >= self.bytes.len() || self.between(at).contains(&b'\n')
    }

    /// Whether a word ends before this byte, or begins with it.
    pub(crate) fn is_word_edge(&self, at: usize) -> bool {
        let of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_outside = |at: Option<usize>| {
            let byte = at.and_then(|at| self.bytes.get(at));
            !byte.is_some_and(|&byte| of_word(byte))
        };
        at >= self.bytes.len()
            || self.gap_before(at)
            || is_outside(at.checked_sub(1))
            || is_outside(Some(at))
    }

    /// What was left out before this byte.
    fn between(&self, at: usize) -> &[u8] {
        &self.text[self.place_of_end(at)..self.original_offset(at)]
    }

    /// The first byte of the next line.
    pub(crate) fn line_end(&self, from: usize) -> usize {
        let mut end = from;
        let most = self
            .bytes
            .len()
            .min(from + super::template::MAX_CAPTURE_BYTES);
        while end < most && (end == from || !self.ends_line(end)) {
            end += 1;
        }
        end
    }

    /// The original text, for people.
    pub(crate) fn printable_text(&self, from: usize, to: usize) -> String {
        if from >= to {
            return String::new();
        }
        printable_text(&self.text[self.original_offset(from)..self.place_of_end(to)])
    }
}

/// The longest excerpt that is kept, in bytes.
const MAX_EXCERPT_BYTES: usize = 600;

/// Bytes of a log as text for people: without control characters, `\u{fffd}` for others that may not be shown, blanks
/// joined, cut where long.
pub(crate) fn printable_text(text: &[u8]) -> String {
    let cut = &text[..text.len().min(MAX_EXCERPT_BYTES)];
    let mut out = String::new();
    for word in String::from_utf8_lossy(cut).split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        let kept = word.chars().filter(|c| !c.is_control());
        // Not left out: that would make a hostile name look like a well-known one.
        out.extend(kept.map(|c| match is_unprintable(c) {
            true => char::REPLACEMENT_CHARACTER,
            false => c,
        }));
    }
    if cut.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrapping_and_quoting_add_is_left_out() {
        let text = "│ “CUDA” Out\n  of `memory` │".as_bytes();
        let folded = FoldedText::new(text);
        assert_eq!(folded.bytes, b"cudaoutofmemory");
        assert_eq!(folded.printable_text(0, 7), "CUDA” Out");
        assert!(folded.gap_before(4) && !folded.gap_before(5));
        assert!(folded.begins_line(7) && !folded.begins_line(9));
    }

    #[test]
    fn excerpts_hold_nothing_that_a_terminal_obeys() {
        assert_eq!(printable_text(b"a\x1b[31m\x07 \xff b"), "a[31m \u{fffd} b");
        assert_eq!(
            printable_text("fl\u{202e}ash\u{2069}".as_bytes()),
            "fl\u{fffd}ash\u{fffd}"
        );
        assert_eq!(
            printable_text(&[b'x'; 4000]).chars().count(),
            MAX_EXCERPT_BYTES + 1
        );
    }
}
