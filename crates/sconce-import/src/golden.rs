//! What is printed as JSON of an import, as bytes that a rename or a move must not change.

use sconce_testkit::golden_files::{Goldens, HeldBy};

use crate::{ImportNote, NoteKind};

const NOTES: HeldBy = HeldBy::Golden("notes.json");

const TYPES: &[(&str, HeldBy)] = &[("note::ImportNote", NOTES), ("note::NoteKind", NOTES)];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

#[test]
fn notes_are_printed_as_before() {
    let notes = [NoteKind::LeftOut, NoteKind::Decided].map(|outcome| ImportNote {
        line: Some(3),
        outcome,
        what: "EXPOSE 80".into(),
        why: "an image has no ports".into(),
    });
    let text = serde_json::to_string_pretty(&notes).unwrap() + "\n";
    goldens().assert_same("notes.json", text);
}
