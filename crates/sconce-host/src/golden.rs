//! What a child process tells of NVML, and what `cdi check --json` lists: in `tests/golden`.
//!
//! Held elsewhere: facts, samples and training, whose types are `sconce-schema`'s, there; CDI files for
//! other engines in `tests/it/recorded.rs`; the file in which a training process tells what it does in
//! `training/ring.rs`.

use sconce_schema::CudaVersion;
use sconce_schema::facts::{GpuFacts, Nvml as Library};
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};
use serde::Serialize;

use crate::cdi::{CdiProblem, CdiProblemKind};
use crate::facts::nvml::{NvmlGpuReply, NvmlReply};

const TYPES: &[(&str, HeldBy)] = &[
    ("cdi/check::CdiProblem", Golden("cdi-troubles.jsonl")),
    ("cdi/check::CdiProblemKind", Golden("cdi-troubles.jsonl")),
    ("facts/nvml/mod::NvmlReply", Golden("nvml.json")),
    ("facts/nvml/mod::NvmlGpuReply", Golden("nvml.json")),
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
    let told = NvmlReply {
        library: Library {
            error: Some("not found".to_owned()),
            version: Some("12.580".to_owned()),
        },
        driver: Some("580.65.06".to_owned()),
        cuda: Some(CudaVersion::new(13, 0)),
        cards: vec![NvmlGpuReply {
            card: GpuFacts {
                index: 1,
                ..GpuFacts::default()
            },
            error: Some("lost".to_owned()),
            forbidden: true,
        }],
    };
    goldens().assert_same("nvml.json", lines(&[&told]));
    let read: NvmlReply = serde_json::from_str(&goldens().read_text("nvml.json")).unwrap();
    assert_eq!(read, told);
}

#[test]
fn troubles_of_cdi_files_are_as_before() {
    let troubles = [
        CdiProblemKind::Unreadable,
        CdiProblemKind::Invalid,
        CdiProblemKind::Missing,
        CdiProblemKind::OtherDriver,
        CdiProblemKind::Renumbered,
        CdiProblemKind::CardGone,
        CdiProblemKind::CardMissing,
    ]
    .map(|kind| CdiProblem {
        kind,
        path: Some("/dev/nvidia0".to_owned()),
        what: "it is not there".to_owned(),
    });
    goldens().assert_same("cdi-troubles.jsonl", lines(&troubles));
}
