//! What a child process tells of NVML, and what `cdi check --json` lists: in `tests/golden`.
//!
//! Held elsewhere: facts, samples and training, whose types are `sconce-schema`'s, there; CDI files for
//! other engines in `tests/it/recorded.rs`; the file in which a training process tells what it does in
//! `training/ring.rs`.

use sconce_schema::CudaVersion;
use sconce_schema::facts::{Card, Nvml as Library};
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};
use serde::Serialize;

use crate::cdi::{Trouble, TroubleKind};
use crate::facts::nvml::{Answer, Told};

const TYPES: &[(&str, HeldBy)] = &[
    ("cdi/check::Trouble", Golden("cdi-troubles.jsonl")),
    ("cdi/check::TroubleKind", Golden("cdi-troubles.jsonl")),
    ("facts/nvml/mod::Told", Golden("nvml.json")),
    ("facts/nvml/mod::Answer", Golden("nvml.json")),
];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

fn lines<T: Serialize>(values: &[T]) -> String {
    let line = |value: &T| serde_json::to_string(value).unwrap() + "\n";
    values.iter().map(line).collect()
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

#[test]
fn what_a_child_tells_of_nvml_is_as_before() {
    let told = Told {
        library: Library {
            error: Some("not found".to_owned()),
            version: Some("12.580".to_owned()),
        },
        driver: Some("580.65.06".to_owned()),
        cuda: Some(CudaVersion::new(13, 0)),
        cards: vec![Answer {
            card: Card {
                index: 1,
                ..Card::default()
            },
            error: Some("lost".to_owned()),
            forbidden: true,
        }],
    };
    goldens().assert_same("nvml.json", lines(&[&told]));
    let read: Told = serde_json::from_str(&goldens().text("nvml.json")).unwrap();
    assert_eq!(read, told);
}

#[test]
fn troubles_of_cdi_files_are_as_before() {
    let troubles = [
        TroubleKind::Unreadable,
        TroubleKind::Invalid,
        TroubleKind::Missing,
        TroubleKind::OtherDriver,
        TroubleKind::Renumbered,
        TroubleKind::CardGone,
        TroubleKind::CardMissing,
    ]
    .map(|kind| Trouble {
        kind,
        path: Some("/dev/nvidia0".to_owned()),
        what: "it is not there".to_owned(),
    });
    goldens().assert_same("cdi-troubles.jsonl", lines(&troubles));
}
