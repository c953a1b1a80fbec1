//! The extras of the project that a README installs it with.

use super::super::draft::{Draft, is_spec_name};
use super::super::project_table::{list_choices, not_chosen, note_choices};
use super::{FolderSurvey, ImportNote, NoteKind};

/// The spec's key.
const EXTRAS: &str = "extras";

impl FolderSurvey<'_> {
    /// Takes those of `extras` that the project has, and says so for the reason `why`, which "them" or "it" ends.
    pub(super) fn choose_extras(&mut self, extras: &[String], why: &str) {
        let known = &mut self.imported.spec.python.extras;
        let mut chosen: Vec<&str> = Vec::new();
        for extra in extras {
            let is_new = self.project.extras.contains(extra) && !known.contains(extra);
            if is_new && is_spec_name(extra) {
                known.push(extra.clone());
                chosen.push(extra);
            }
        }
        let (what, why) = match chosen.as_slice() {
            [] => return,
            [one] => (format!("the extra `{one}`"), format!("{why} it")),
            several => (list_choices(EXTRAS, several), format!("{why} them")),
        };
        self.say_what_is_left(&chosen);
        let note = ImportNote::new(NoteKind::Decided, None, &what, why);
        self.imported.notes.push(note);
    }

    /// Of the extras that were said not to be installed, says those anew that are not.
    fn say_what_is_left(&mut self, chosen: &[&str]) {
        let notes = &mut self.imported.notes;
        let Some(at) = notes.iter().position(|note| note.why == not_chosen(EXTRAS)) else {
            return;
        };
        let line = notes.remove(at).line;
        let all = self.project.extras.iter().map(String::as_str);
        let left = all.filter(|extra| !chosen.contains(extra));
        let mut draft = Draft::default();
        note_choices(left, line, EXTRAS, &mut draft);
        notes.splice(at..at, draft.finish().notes);
    }
}
