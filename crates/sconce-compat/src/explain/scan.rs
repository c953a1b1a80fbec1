//! Reads a log piece by piece and notes where patterns stand.
//!
//! Memory is bounded whatever comes: a window of the log, the first and last places of each rule,
//! and the last exception.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::cards::{CardName, find_cards};
use super::folded_text::{FoldedText, printable_text};
use super::line::{LinePrefix, append_clean_text, is_exception, split_prefix};
use super::oom;
use super::rule::{Pattern, RuleSet};
use super::surroundings::Surroundings;

/// The longest piece of a line that is looked at at once, in bytes; a longer line is several pieces.
const MAX_CHUNK_BYTES: usize = 16 << 10;

/// How much is searched at once, in bytes.
const WINDOW_BYTES: usize = 256 << 10;

/// How much of it is kept for texts that go on behind it: more than a pattern can span.
const OVERLAP_BYTES: usize = 16 << 10;

/// Lines after an exception's first that still belong to it.
const EXCEPTION_LINES: u32 = 12;

/// Lines after a warning's first that still belong to it.
const WARNING_LINES: u32 = 3;

/// Places kept of each rule, from the first and from the last.
const MAX_HITS_PER_END: usize = 4;

/// Ranks and exceptions that are told apart.
const MAX_CAUSES_AND_RANKS: usize = 1024;

/// The code whose texts are taken apart.
pub(crate) const OUT_OF_MEMORY: &str = "out-of-memory";

/// A place where a pattern stands.
#[derive(Debug, Clone)]
pub(crate) struct PatternMatch {
    pub(crate) pattern: usize,
    /// Lines count from 1.
    pub(crate) line: u64,
    pub(crate) text: String,
    pub(crate) rank: Option<u32>,
    pub(crate) warning: bool,
    /// Which exception of the log it belongs to, from 1; 0: none.
    pub(crate) exception: u64,
    pub(crate) captures: Vec<(String, String)>,
    /// The text from here on, where it is taken apart.
    pub(crate) message: Vec<u8>,
}

/// All places of one rule.
#[derive(Debug, Default)]
pub(crate) struct RuleMatches {
    pub(crate) count: u64,
    pub(crate) first: Vec<PatternMatch>,
    pub(crate) last: VecDeque<PatternMatch>,
    /// The cards that all of its lines name, where it is a fault of cards.
    pub(super) cards: BTreeSet<CardName>,
}

impl RuleMatches {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PatternMatch> {
        self.first.iter().chain(&self.last)
    }

    fn latest(&self) -> Option<&PatternMatch> {
        self.last.back().or(self.first.last())
    }
}

/// An exception's place and text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exception {
    pub(crate) number: u64,
    pub(crate) line: u64,
    pub(crate) text: String,
}

/// What was noted of a log.
#[derive(Debug, Default)]
pub(crate) struct ScanSummary {
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) hits: BTreeMap<usize, RuleMatches>,
    pub(crate) last_exception: Option<Exception>,
    pub(crate) exceptions: u64,
    /// Exceptions that were "the direct cause of the following exception".
    pub(crate) causes: BTreeSet<u64>,
    /// Ranks that had an exception.
    pub(crate) ranks: BTreeSet<u32>,
    /// The last line that speaks of an error, and the last line.
    pub(crate) last_error: Option<(u64, String)>,
    pub(crate) last_line: Option<(u64, String)>,
}

/// A line in the window.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: usize,
    number: u64,
    prefix: LinePrefix,
    exception: u64,
}

/// Reads a log.
#[derive(Debug)]
pub(crate) struct Scanner<'r> {
    rules: &'r RuleSet,
    noted: ScanSummary,
    /// The part of a line that has come so far.
    partial: Vec<u8>,
    /// The line is longer than [`MAX_CHUNK_BYTES`], and this is not its first.
    continued: bool,
    cleaned: Vec<u8>,
    window: Vec<u8>,
    lines: Vec<Line>,
    in_exception: u32,
    in_warning: u32,
}

impl<'r> Scanner<'r> {
    pub(crate) fn new(rules: &'r RuleSet) -> Self {
        Self {
            rules,
            noted: ScanSummary::default(),
            partial: Vec::new(),
            continued: false,
            cleaned: Vec::new(),
            window: Vec::new(),
            lines: Vec::new(),
            in_exception: 0,
            in_warning: 0,
        }
    }

    /// Takes the next bytes, cut anywhere.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.noted.bytes += bytes.len() as u64;
        let mut pieces = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(mut piece) = pieces.next() {
            while self.partial.len() + piece.len() > MAX_CHUNK_BYTES {
                let (now, later) = piece.split_at(MAX_CHUNK_BYTES - self.partial.len());
                self.partial.extend_from_slice(now);
                self.take_piece();
                self.continued = true;
                piece = later;
            }
            if pieces.peek().is_some() {
                if self.partial.is_empty() {
                    self.take(piece);
                } else {
                    self.partial.extend_from_slice(piece);
                    self.take_piece();
                }
                self.continued = false;
            } else {
                self.partial.extend_from_slice(piece);
            }
        }
    }

    /// Ends the log.
    pub(crate) fn finish(mut self) -> ScanSummary {
        if !self.partial.is_empty() {
            self.take_piece();
        }
        self.search(true);
        self.noted
    }

    fn take_piece(&mut self) {
        let piece = std::mem::take(&mut self.partial);
        self.take(&piece);
        self.partial = piece;
        self.partial.clear();
    }

    /// Takes a line, or a piece of one.
    fn take(&mut self, raw: &[u8]) {
        self.noted.lines += u64::from(!self.continued);
        let mut cleaned = std::mem::take(&mut self.cleaned);
        cleaned.clear();
        append_clean_text(raw, &mut cleaned);
        for (index, part) in cleaned.split(|&byte| byte == b'\n').enumerate() {
            self.take_line(part, self.continued && index == 0);
        }
        self.cleaned = cleaned;
        if self.window.len() >= WINDOW_BYTES {
            self.search(false);
        }
    }

    fn take_line(&mut self, text: &[u8], continued: bool) {
        let number = self.noted.lines;
        if continued {
            self.window.extend_from_slice(text);
            return;
        }
        let (mut prefix, text) = split_prefix(text);
        if text.is_empty() {
            self.in_warning = 0;
            return;
        }
        if contains(text, b"Traceback (most recent") {
            self.in_exception = 0;
            self.in_warning = 0;
        } else if is_exception(text) {
            self.begin_exception(number, prefix, text);
        } else if contains(text, b"Warning:") {
            self.in_warning = WARNING_LINES + 1;
            self.in_exception = 0;
        } else if self.in_exception > 0 && contains(text, b"the direct cause of the following") {
            if self.noted.causes.len() < MAX_CAUSES_AND_RANKS {
                self.noted.causes.insert(self.noted.exceptions);
            }
            self.in_exception = 0;
        }
        prefix.warning |= self.in_warning > 0;
        let exception = match self.in_exception {
            0 => 0,
            _ => self.noted.exceptions,
        };
        self.in_exception = self.in_exception.saturating_sub(1);
        self.in_warning = self.in_warning.saturating_sub(1);
        self.note_text(number, exception, text);
        self.lines.push(Line {
            start: self.window.len(),
            number,
            prefix,
            exception,
        });
        self.window.push(b'\n');
        self.window.extend_from_slice(text);
    }

    fn begin_exception(&mut self, line: u64, prefix: LinePrefix, _text: &[u8]) {
        self.in_exception = EXCEPTION_LINES;
        self.in_warning = 0;
        self.noted.exceptions += 1;
        self.noted.last_exception = Some(Exception {
            number: self.noted.exceptions,
            line,
            text: String::new(),
        });
        if let Some(rank) = prefix.rank
            && self.noted.ranks.len() < MAX_CAUSES_AND_RANKS
        {
            self.noted.ranks.insert(rank);
        }
    }

    /// Keeps the texts that an unknown error is told by.
    fn note_text(&mut self, number: u64, exception: u64, text: &[u8]) {
        const MAX_EXCEPTION_TEXT_BYTES: usize = 1200;
        if exception > 0 {
            if let Some(last) = &mut self.noted.last_exception
                && last.text.len() < MAX_EXCEPTION_TEXT_BYTES
                && number < last.line + 6
            {
                if !last.text.is_empty() {
                    last.text.push('\n');
                }
                last.text.push_str(&printable_text(text));
            }
            return;
        }
        let set = |slot: &mut Option<(u64, String)>| {
            let (line, kept) = slot.get_or_insert_default();
            *line = number;
            kept.clear();
            kept.push_str(&String::from_utf8_lossy(&text[..text.len().min(300)]));
        };
        if speaks_of_error(text) {
            set(&mut self.noted.last_error);
        }
        set(&mut self.noted.last_line);
    }

    /// Searches the window, and keeps of it what a text may go on in.
    fn search(&mut self, last: bool) {
        let limit = match last {
            true => self.window.len(),
            false => {
                let limit = self.window.len().saturating_sub(OVERLAP_BYTES);
                // Lines are not torn apart, but for one that fills the window by itself.
                let line = self.lines.iter().rev().find(|line| line.start <= limit);
                match line {
                    Some(line) if line.start > 0 => line.start,
                    _ => limit,
                }
            }
        };
        let text = FoldedText::new(&self.window);
        for found in self
            .rules
            .search
            .find_overlapping_iter(text.bytes.as_slice())
        {
            let pattern = found.pattern().as_usize();
            let place = text.original_offset(found.start());
            if place >= limit {
                continue;
            }
            let Pattern {
                rule,
                template,
                weak,
                beside_gpu,
            } = &self.rules.patterns[pattern];
            let at = self.lines.partition_point(|line| line.start <= place);
            let line = at.checked_sub(1).map(|at| self.lines[at].number);
            let known = self.noted.hits.get(rule).and_then(RuleMatches::latest);
            // A line says a thing once, however often it says it.
            if let Some(known) = known
                && Some(known.line) == line
                && weight(self.rules, known) >= (!weak, template.literal_len())
            {
                continue;
            }
            let Some(place) = template.match_at(&text, found.start()) else {
                continue;
            };
            let Some(rule) = self.rules.rule_for_match(*rule, &place.captures) else {
                continue;
            };
            let start = text.original_offset(place.start);
            let end = text.place_of_end(place.end);
            let at = self.lines.partition_point(|line| line.start <= start);
            let Some(line) = at.checked_sub(1).and_then(|at| self.lines.get(at)) else {
                continue;
            };
            if *beside_gpu {
                let around = self.surroundings(at - 1, start, last);
                // A number that no fault has is a GPU's where its own line says so.
                let speak = match self.rules.is_unlisted_xid(rule) {
                    true => around.line_speaks_of_gpu(),
                    false => around.speak_of_gpu(),
                };
                if !speak {
                    continue;
                }
            }
            let line_start = line.start.max(start.saturating_sub(200));
            let line_end = self
                .lines
                .get(at)
                .map_or(self.window.len(), |line| line.start);
            let until = end.max(line_end.min(end + 200)).min(self.window.len());
            let is_oom = self.rules.rules[rule].code == OUT_OF_MEMORY;
            let hit = PatternMatch {
                pattern,
                line: line.number,
                text: printable_text(&self.window[line_start..until]),
                rank: line.prefix.rank,
                warning: line.prefix.warning,
                exception: line.exception,
                captures: place.captures,
                message: match is_oom {
                    true => self.window[start..]
                        .iter()
                        .take(oom::MAX_MESSAGE_BYTES)
                        .copied()
                        .collect(),
                    false => Vec::new(),
                },
            };
            note(&mut self.noted.hits, self.rules, rule, hit);
        }
        self.window.drain(..limit);
        let first = self.lines.partition_point(|line| line.start < limit);
        // The rest of a line that was torn apart is still that line.
        let torn = first.checked_sub(1).map(|at| self.lines[at]);
        self.lines.drain(..first);
        for line in &mut self.lines {
            line.start -= limit;
        }
        if let Some(torn) = torn
            && !self.window.is_empty()
            && self.lines.first().is_none_or(|line| line.start > 0)
        {
            self.lines.insert(0, Line { start: 0, ..torn });
        }
    }
}

impl Scanner<'_> {
    /// A line of the window, by its place among them, with its neighbours; of a long one what is around `at`.
    fn surroundings(&self, line: usize, at: usize, last: bool) -> Surroundings<'_> {
        const MAX_BYTES: usize = 1000;
        let text = |line: Option<usize>, around: Option<usize>| {
            let start = line
                .and_then(|line| self.lines.get(line))
                .map(|line| line.start);
            let (Some(line), Some(start)) = (line, start) else {
                return &[][..];
            };
            let end = self.lines.get(line + 1);
            let end = end.map_or(self.window.len(), |next| next.start);
            let around = around.unwrap_or(start);
            &self.window[start.max(around.saturating_sub(MAX_BYTES))..end.min(around + MAX_BYTES)]
        };
        Surroundings {
            before: text(line.checked_sub(1), None),
            line: text(Some(line), Some(at)),
            after: text(Some(line + 1), None),
            is_short: last && self.noted.lines <= super::MAX_QUESTION_LINES,
        }
    }
}

/// How much a hit's pattern says.
fn weight(rules: &RuleSet, hit: &PatternMatch) -> (bool, usize) {
    let pattern = &rules.patterns[hit.pattern];
    (!pattern.weak, pattern.template.literal_len())
}

/// Keeps a hit with its rule's; of one line only the longest pattern.
fn note(hits: &mut BTreeMap<usize, RuleMatches>, rules: &RuleSet, rule: usize, hit: PatternMatch) {
    let hits = hits.entry(rule).or_default();
    let before = match hits.last.is_empty() {
        true => hits.first.last_mut(),
        false => hits.last.back_mut(),
    };
    if let Some(before) = before
        && before.line == hit.line
    {
        if weight(rules, before) < weight(rules, &hit) {
            *before = hit;
        }
        return;
    }
    if rules.is_card_fault(rule) && hits.cards.len() < MAX_CAUSES_AND_RANKS {
        hits.cards.extend(find_cards(&hit.text));
    }
    hits.count += 1;
    if hits.first.len() < MAX_HITS_PER_END {
        hits.first.push(hit);
        return;
    }
    if hits.last.len() == MAX_HITS_PER_END {
        hits.last.pop_front();
    }
    hits.last.push_back(hit);
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    let text = &text[..text.len().min(1000)];
    let Some((&first, rest)) = part.split_first() else {
        return true;
    };
    let mut from = text;
    while let Some(at) = from.iter().position(|&byte| byte == first) {
        from = &from[at + 1..];
        if from.starts_with(rest) {
            return true;
        }
    }
    false
}

fn speaks_of_error(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 9] = [
        b"rror", b"ERROR", b"atal", b"FATAL", b"ailed", b"FAILED", b"Killed", b"cannot", b"Abort",
    ];
    WORDS.iter().any(|word| contains(text, word))
}
