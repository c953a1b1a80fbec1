//! The language of patterns: an error's text with holes.
//!
//! | in a pattern | stands for |
//! |---|---|
//! | letters, digits, signs | themselves; upper and lower case alike |
//! | blanks, quotation marks, backslashes, `*`, `\|` | nothing: they are looked over in patterns and logs |
//! | `{..}` | up to [`MAX_GAP_BYTES`] bytes of anything |
//! | `{name:kind}` | a captured value of a [`PlaceholderKind`]; `{name}` is a word |
//! | `^` first, `$` last | begin and end of a line |
//! | `<` first, `>` last | begin and end of a word |
//!
//! Blanks count for nothing, so a text is found however it was wrapped, indented, quoted or framed.
//! Everything is bounded: a hole by [`MAX_CAPTURE_BYTES`], a gap by [`MAX_GAP_BYTES`], and after a hole nothing is tried
//! again, so that matching takes time linear in the log whatever the log holds.

use super::folded_text::{FoldedText, fold_literal};

/// The most bytes that `{..}` passes over.
pub const MAX_GAP_BYTES: usize = 400;

/// The most bytes of a captured value.
pub const MAX_CAPTURE_BYTES: usize = 256;

/// The shortest text that a pattern may begin with: what is shorter stands in every log.
pub const MIN_ANCHOR_BYTES: usize = 5;

/// The same for a pattern that begins with a word.
pub const WORD_ANCHOR: usize = 3;

/// What a hole takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceholderKind {
    /// Characters up to a blank, a quotation mark, a bracket, a comma or a semicolon.
    Word,
    /// Digits.
    Int,
    /// Digits with dots, and letters after them: `12.4`, `3.4.30`, `2.8.0+cu128`.
    Version,
    /// A number of bytes with its unit.
    Size,
    /// The driver's way to write a CUDA version, 12080; captured as `12.8`.
    Cuda,
    /// A compute capability without its dot, `90a`, `120`; captured as `9.0`, `12.0`.
    Sm,
    /// Anything up to what follows in the pattern, or to the line's end.
    Any,
}

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A hole that does not close, or has no name.
    #[error("`{0}` has a hole that is not `{{name}}`, `{{name:kind}}` or `{{..}}`")]
    Hole(String),
    /// No such kind.
    #[error("`{0}` has a hole of a kind that does not exist")]
    Kind(String),
    /// It begins with a gap, or with too little text to be told from other lines.
    #[error("`{0}` begins with less than {MIN_ANCHOR_BYTES} characters of text")]
    Anchor(String),
    /// A gap or a hole that takes anything, and no text after it that ends it.
    #[error("`{0}` has a gap that no text follows")]
    Gap(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(Box<[u8]>),
    Hole { name: String, kind: PlaceholderKind },
    Gap,
}

/// A pattern, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// A hole before the first text, read backwards.
    lead: Option<(String, PlaceholderKind)>,
    parts: Vec<Part>,
    start: Edge,
    end: Edge,
}

/// What a pattern's first or last text is next to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Anything,
    Word,
    Line,
}

/// Where a pattern was found, in positions of the folded text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateMatch {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<(String, String)>,
}

impl Template {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (start, rest) = match text.as_bytes() {
            [b'^', ..] => (Edge::Line, &text[1..]),
            [b'<', ..] => (Edge::Word, &text[1..]),
            _ => (Edge::Anything, text),
        };
        let (end, mut rest) = match rest.as_bytes() {
            [.., b'$'] => (Edge::Line, &rest[..rest.len() - 1]),
            [.., b'>'] => (Edge::Word, &rest[..rest.len() - 1]),
            _ => (Edge::Anything, rest),
        };
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (literal, hole) = rest
                .split_once('{')
                .map_or((rest, None), |(literal, rest)| (literal, Some(rest)));
            let literal = fold_literal(literal.as_bytes());
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            let Some(hole) = hole else { break };
            let Some((hole, after)) = hole.split_once('}') else {
                return Err(TemplateError::Hole(text.to_owned()));
            };
            parts.push(parse_hole(hole, text)?);
            rest = after;
        }
        let lead = match parts.first() {
            Some(Part::Hole { name, kind }) => {
                let lead = (name.clone(), *kind);
                parts.remove(0);
                Some(lead)
            }
            _ => None,
        };
        let shortest = match start {
            Edge::Word => WORD_ANCHOR,
            _ => MIN_ANCHOR_BYTES,
        };
        match parts.first() {
            Some(Part::Literal(literal)) if literal.len() >= shortest => {}
            _ => return Err(TemplateError::Anchor(text.to_owned())),
        }
        let open = |part: &Part| {
            matches!(
                part,
                Part::Gap
                    | Part::Hole {
                        kind: PlaceholderKind::Any,
                        ..
                    }
            )
        };
        let unended = parts
            .windows(2)
            .any(|pair| open(&pair[0]) && !is_literal(&pair[1]));
        if unended || matches!(parts.last(), Some(Part::Gap)) {
            return Err(TemplateError::Gap(text.to_owned()));
        }
        Ok(Self {
            lead,
            parts,
            start,
            end,
        })
    }

    /// The text that it begins with, folded.
    pub(crate) fn anchor(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Literal(literal)) => literal,
            _ => &[],
        }
    }

    /// How much of it is fixed text, in bytes: a longer pattern says more.
    pub(crate) fn literal_len(&self) -> usize {
        let length = |part: &Part| match part {
            Part::Literal(literal) => literal.len(),
            _ => 0,
        };
        self.parts.iter().map(length).sum()
    }

    /// All fixed text with blanks between its parts, for [`super::similar_rules`].
    pub(crate) fn literal_text(text: &str) -> String {
        let mut out = String::new();
        let mut depth = 0;
        for c in text.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    out.push(' ');
                }
                _ if depth == 0 => out.push(c),
                _ => {}
            }
        }
        out
    }

    /// Tries the pattern where its first text begins.
    pub(crate) fn match_at(&self, text: &FoldedText, at: usize) -> Option<TemplateMatch> {
        let mut found = TemplateMatch {
            start: at,
            end: at,
            captures: Vec::new(),
        };
        if let Some((name, kind)) = &self.lead {
            let start = backwards(text, at, *kind)?;
            found.start = start;
            found
                .captures
                .push((name.clone(), value(text, start, at, *kind)));
        }
        let begins = match self.start {
            Edge::Anything => true,
            Edge::Word => text.is_word_edge(found.start),
            Edge::Line => text.begins_line(found.start),
        };
        if !begins {
            return None;
        }
        let mut parts = self.parts.as_slice();
        let mut now = at;
        while let [part, rest @ ..] = parts {
            match part {
                Part::Literal(literal) => {
                    if !text.bytes[now..].starts_with(literal) {
                        return None;
                    }
                    now += literal.len();
                }
                Part::Gap => {
                    now = run_after(text, now, rest)?;
                }
                Part::Hole { name, kind } => {
                    let end = match (kind, rest.first()) {
                        (PlaceholderKind::Any, Some(Part::Literal(next))) => {
                            find(text, now, MAX_CAPTURE_BYTES, next)?
                        }
                        (PlaceholderKind::Any, _) => {
                            text.line_end(now).min(now + MAX_CAPTURE_BYTES)
                        }
                        (PlaceholderKind::Word, Some(Part::Literal(next))) => {
                            let end = forwards(text, now, *kind)?;
                            // The next text may be made of a word's characters.
                            find(text, now + 1, end - now, next).unwrap_or(end)
                        }
                        _ => forwards(text, now, *kind)?,
                    };
                    found
                        .captures
                        .push((name.clone(), value(text, now, end, *kind)));
                    now = end;
                }
            }
            parts = rest;
        }
        let ends = match self.end {
            Edge::Anything => true,
            Edge::Word => text.is_word_edge(now),
            Edge::Line => text.ends_line(now),
        };
        found.end = now;
        ends.then_some(found)
    }
}

fn is_literal(part: &Part) -> bool {
    matches!(part, Part::Literal(_))
}

fn parse_hole(hole: &str, text: &str) -> Result<Part, TemplateError> {
    if hole == ".." {
        return Ok(Part::Gap);
    }
    let (name, kind) = hole.split_once(':').unwrap_or((hole, "word"));
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(of_name) {
        return Err(TemplateError::Hole(text.to_owned()));
    }
    let kind = match kind {
        "word" => PlaceholderKind::Word,
        "int" => PlaceholderKind::Int,
        "version" => PlaceholderKind::Version,
        "size" => PlaceholderKind::Size,
        "cuda" => PlaceholderKind::Cuda,
        "sm" => PlaceholderKind::Sm,
        "any" => PlaceholderKind::Any,
        _ => return Err(TemplateError::Kind(text.to_owned())),
    };
    Ok(Part::Hole {
        name: name.to_owned(),
        kind,
    })
}

/// The first place within `most` bytes where `literal` stands.
fn find(text: &FoldedText, from: usize, most: usize, literal: &[u8]) -> Option<usize> {
    let end = (from + most + literal.len()).min(text.bytes.len());
    let within = text.bytes.get(from..end)?;
    find_literal(within, literal).map(|at| from + at)
}

/// Where a literal first stands.
pub(crate) fn find_literal(text: &[u8], literal: &[u8]) -> Option<usize> {
    let (&first, tail) = literal.split_first()?;
    let mut at = 0;
    while let Some(step) = text[at..].iter().position(|&byte| byte == first) {
        at += step + 1;
        if text[at..].starts_with(tail) {
            return Some(at - 1);
        }
    }
    None
}

/// After a gap: the first place where the text that follows stands, with the value after it, if it
/// has one.
fn run_after(text: &FoldedText, from: usize, rest: &[Part]) -> Option<usize> {
    let [Part::Literal(literal), after @ ..] = rest else {
        return None;
    };
    let mut at = from;
    let last = from + MAX_GAP_BYTES;
    // A number that must follow decides which of several places is meant.
    for _ in 0..8 {
        at = find(text, at, last.checked_sub(at)?, literal)?;
        let fits = match after.first() {
            Some(Part::Hole { kind, .. }) if *kind != PlaceholderKind::Any => {
                forwards(text, at + literal.len(), *kind).is_some()
            }
            _ => true,
        };
        if fits {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn of_word(byte: u8) -> bool {
    !matches!(
        byte,
        b',' | b';' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>'
    )
}

/// Where a value that begins at `from` ends; absent where there is none.
fn forwards(text: &FoldedText, from: usize, kind: PlaceholderKind) -> Option<usize> {
    let run = |of: &dyn Fn(u8) -> bool| {
        let most = text.bytes.len().min(from + MAX_CAPTURE_BYTES);
        let mut end = from;
        while end < most && of(text.bytes[end]) && (end == from || !text.gap_before(end)) {
            end += 1;
        }
        end
    };
    let end = match kind {
        PlaceholderKind::Int | PlaceholderKind::Cuda => run(&|byte| byte.is_ascii_digit()),
        PlaceholderKind::Sm => {
            let digits = run(&|byte| byte.is_ascii_digit());
            match text.bytes.get(digits) {
                Some(b'a' | b'f') if digits > from && !text.gap_before(digits) => digits + 1,
                _ => digits,
            }
        }
        PlaceholderKind::Version => {
            let starts = text.bytes.get(from).is_some_and(u8::is_ascii_digit);
            let of = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
            let mut end = if starts { run(&of) } else { from };
            while end > from && !text.bytes[end - 1].is_ascii_alphanumeric() {
                end -= 1;
            }
            end
        }
        PlaceholderKind::Size => {
            let number = run(&|byte| byte.is_ascii_digit() || byte == b'.');
            let rest = &text.bytes[number..];
            let units = [
                &b"bytes"[..],
                b"byte",
                b"kib",
                b"mib",
                b"gib",
                b"tib",
                b"kb",
                b"mb",
                b"gb",
                b"tb",
                b"b",
            ];
            let unit = units.iter().find(|unit| rest.starts_with(unit));
            match unit {
                Some(unit) if number > from => number + unit.len(),
                _ => from,
            }
        }
        PlaceholderKind::Word | PlaceholderKind::Any => run(&of_word),
    };
    (end > from).then_some(end)
}

/// Where a word that ends at `to` begins.
fn backwards(text: &FoldedText, to: usize, kind: PlaceholderKind) -> Option<usize> {
    let fits = |byte: u8| match kind {
        PlaceholderKind::Int => byte.is_ascii_digit(),
        PlaceholderKind::Version => byte.is_ascii_alphanumeric() || b".+-_".contains(&byte),
        _ => of_word(byte),
    };
    let mut start = to;
    while start > 0 && to - start < MAX_CAPTURE_BYTES && fits(text.bytes[start - 1]) {
        start -= 1;
        if text.gap_before(start) {
            break;
        }
    }
    (start < to).then_some(start)
}

/// A value as it is kept.
fn value(text: &FoldedText, from: usize, to: usize, kind: PlaceholderKind) -> String {
    let shown = text.printable_text(from, to);
    match kind {
        PlaceholderKind::Cuda => shown.parse::<u32>().map_or(shown, |number| {
            format!("{}.{}", number / 1000, number % 1000 / 10)
        }),
        PlaceholderKind::Sm => {
            let digits = shown.trim_end_matches(|c: char| !c.is_ascii_digit());
            match digits.len() {
                0 | 1 => digits.to_owned(),
                length => format!("{}.{}", &digits[..length - 1], &digits[length - 1..]),
            }
        }
        _ => shown.trim_end_matches(['.', ':']).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, log: &str) -> Option<Vec<String>> {
        let template = Template::parse(pattern).unwrap();
        let text = FoldedText::new(log.as_bytes());
        let anchor = template.anchor();
        let at = text.bytes.windows(anchor.len()).position(|w| w == anchor)?;
        let found = template.match_at(&text, at)?;
        Some(found.captures.into_iter().map(|(_, value)| value).collect())
    }

    #[test]
    fn texts_are_found_however_they_are_wrapped() {
        for (pattern, log, captures) in [
            ("out of memory", "CUDA out\n   of memory", Some(vec![])),
            ("out of memory", "CUDA out of mem\nory", Some(vec![])),
            (
                "not implemented for 'Half'",
                "\"x\" not implemented for `Half`",
                Some(vec![]),
            ),
            (
                "allocate {asked:size}",
                "Tried to ALLOCATE 20.00 MiB. GPU",
                Some(vec!["20.00 MiB"]),
            ),
            ("allocate {asked:size}", "Tried to allocate nothing", None),
            (
                "(found version {cuda:cuda})",
                "(found version 12080)",
                Some(vec!["12.8"]),
            ),
            (
                "capability sm_{sm:sm} is",
                "capability sm_120 is",
                Some(vec!["12.0"]),
            ),
            (
                "symbol: {symbol}",
                "undefined symbol: _ZN3c10, version X",
                Some(vec!["_ZN3c10"]),
            ),
            (
                "{library}: cannot open",
                "ImportError: libcudart.so.12: cannot open",
                Some(vec!["libcudart.so.12"]),
            ),
            (
                "version {v:version} of",
                "version 2.8.0+cu128 of",
                Some(vec!["2.8.0+cu128"]),
            ),
            (
                "version {v:version}",
                "version 12.4. Then",
                Some(vec!["12.4"]),
            ),
            (
                "first {..} then {n:int}",
                "first a then b then 7",
                Some(vec!["7"]),
            ),
            (
                "error {what:any} (code",
                "error it broke (code 1)",
                Some(vec!["it broke"]),
            ),
            (
                "error: {what:any}",
                "error: it broke\nnext",
                Some(vec!["it broke"]),
            ),
            (
                "library lib{name}.so",
                "library libcudart.so.12",
                Some(vec!["cudart"]),
            ),
            ("^Killed$", "a\nKilled\nb", Some(vec![])),
            ("^Killed$", "a\nKilled by", None),
        ] {
            let captures = captures.map(|captures: Vec<&str>| {
                captures.into_iter().map(str::to_owned).collect::<Vec<_>>()
            });
            assert_eq!(found(pattern, log), captures, "{pattern} in {log}");
        }
    }

    #[test]
    fn gaps_and_values_are_bounded() {
        let far = format!("first {} then 7", "x ".repeat(MAX_GAP_BYTES + 1));
        assert_eq!(found("first {..} then {n:int}", &far), None);
        let long = format!("symbol: {}", "x".repeat(MAX_CAPTURE_BYTES * 2));
        assert_eq!(
            found("symbol: {s}", &long).unwrap()[0].len(),
            MAX_CAPTURE_BYTES
        );
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for wrong in [
            "",
            "abc",
            "{..} abcdef",
            "abcdef {..}",
            "abcdef {",
            "abcdef {A}",
            "abcdef {a:b}",
            "abcdef {..}{b}",
        ] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
