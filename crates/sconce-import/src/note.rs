//! What a person should know about a translation.

use serde::Serialize;

use sconce_base::text::redact_url_credentials;

/// What became of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// It has no counterpart in the spec.
    LeftOut,
    /// There was a choice, or it was translated to something else.
    Decided,
}

/// One remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ImportNote {
    /// Where in the source, from 1; `None` where it is about the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What became of it.
    pub outcome: NoteKind,
    /// The thing, as the source has it: one line, without credentials, shortened.
    pub what: String,
    /// Why, and what to do about it.
    pub why: String,
}

impl ImportNote {
    /// A note whose `what` can be shown.
    pub(super) fn new(outcome: NoteKind, line: Option<usize>, what: &str, why: String) -> Self {
        Self {
            line,
            outcome,
            what: redacted_line(what),
            why,
        }
    }
}

/// The longest [`ImportNote::what`], in characters.
const MAX_NOTE_CHARS: usize = 100;

/// One line that a terminal obeys nothing in, and that shows no password.
pub(super) fn redacted_line(text: &str) -> String {
    // Four times: what is cut away for its spaces or credentials still leaves enough.
    let some: String = text.chars().take(4 * MAX_NOTE_CHARS).collect();
    let plain: String = redact_url_credentials(&some)
        .chars()
        .map(|c| if is_plain(c) { c } else { ' ' })
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= MAX_NOTE_CHARS && text.chars().nth(4 * MAX_NOTE_CHARS).is_none() {
        return line;
    }
    let cut: String = line.chars().take(MAX_NOTE_CHARS - 1).collect();
    format!("{cut}…")
}

/// No control, and none of the characters that change the direction of text (Unicode TR 36).
fn is_plain(c: char) -> bool {
    !sconce_base::text::is_unprintable(c)
}

/// Several things with one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteGroup<'a> {
    /// What became of them.
    pub outcome: NoteKind,
    /// Each with its line.
    pub things: Vec<(Option<usize>, &'a str)>,
    /// The reason they share.
    pub why: &'a str,
}

/// The notes with those of one reason together: what was left out first.
#[must_use]
pub fn group_by_reason(notes: &[ImportNote]) -> Vec<NoteGroup<'_>> {
    let mut groups: Vec<NoteGroup<'_>> = Vec::new();
    for note in notes {
        let thing = (note.line, note.what.as_str());
        let same = groups
            .iter_mut()
            .find(|group| group.outcome == note.outcome && group.why == note.why);
        match same {
            Some(group) => group.things.push(thing),
            None => groups.push(NoteGroup {
                outcome: note.outcome,
                things: vec![thing],
                why: &note.why,
            }),
        }
    }
    groups.sort_by_key(|group| group.outcome);
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_shown_is_one_clean_line() {
        assert_eq!(redacted_line("a\n\tb\u{1b}[2Jc"), "a b [2Jc");
        assert_eq!(
            redacted_line("git+https://me:secret@git.example.org/x"),
            "git+https://git.example.org/x"
        );
        assert_eq!(
            redacted_line(&"x".repeat(10_000)).chars().count(),
            MAX_NOTE_CHARS
        );
    }

    #[test]
    fn one_reason_is_said_once() {
        let note = |line, outcome, what: &str, why: &str| {
            ImportNote::new(outcome, line, what, why.to_owned())
        };
        let notes = [
            note(Some(1), NoteKind::Decided, "a", "x"),
            note(Some(2), NoteKind::LeftOut, "b", "y"),
            note(None, NoteKind::LeftOut, "c", "y"),
        ];
        let groups = group_by_reason(&notes);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].things, [(Some(2), "b"), (None, "c")]);
    }

    proptest! {
        #[test]
        fn nothing_that_a_terminal_obeys(text in "(?s).{0,600}") {
            let shown = redacted_line(&text);
            prop_assert!(shown.chars().all(is_plain));
            prop_assert!(shown.chars().count() <= MAX_NOTE_CHARS);
        }
    }
}
