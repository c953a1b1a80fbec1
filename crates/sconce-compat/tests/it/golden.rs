//! What `check`, `explain` and `fit` write as JSON of this crate's types, and what is kept of libraries
//! by their digest, byte for byte, in `tests/golden`.
//!
//! Held elsewhere: findings, whose types are `sconce-schema`'s, there; what is found, in this folder's
//! snapshots; `check --json` and `explain --json` as a whole in `sconce-cli/tests/it/judging`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;

use sconce_compat::explain::{
    Cause, CompilerState, Explanation, FactEvidence, LikelihoodEffect, LogEnvironment, MatchedLine,
    OomClass, OomMessage, ProjectContents, RuleSet, SimilarRule, UnknownError,
};
use sconce_compat::library::{
    CodeKind, CodeReach, CodeTarget, Coverage, ElfLibrary, GpuCode, NeededVersions,
};
use sconce_compat::matrix::{
    Compatibility, CompatibilityBasis, Matrix, MatrixCell, MatrixRow, TorchChoice,
};
use sconce_compat::tables::{SourceQuality, TableSource};
use sconce_schema::finding::{Certainty, Fix};
use sconce_schema::{Bytes, ComputeCapability, CudaVersion};
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};
use serde::Serialize;
use serde::de::DeserializeOwned;

const EXPLANATION: HeldBy = Golden("explanation.jsonl");
const LIBRARY: HeldBy = Golden("library.json");
const MATRIX: HeldBy = Golden("matrix.json");

const TYPES: &[(&str, HeldBy)] = &[
    (
        "explain/condition::LogEnvironment",
        Golden("environment.json"),
    ),
    (
        "explain/condition::ProjectContents",
        Golden("environment.json"),
    ),
    (
        "explain/condition::CompilerState",
        Golden("environment.json"),
    ),
    ("explain/mod::Explanation", EXPLANATION),
    ("explain/mod::Cause", EXPLANATION),
    ("explain/mod::MatchedLine", EXPLANATION),
    ("explain/mod::FactEvidence", EXPLANATION),
    ("explain/mod::UnknownError", EXPLANATION),
    ("explain/similar_rules::SimilarRule", EXPLANATION),
    ("explain/oom::OomMessage", EXPLANATION),
    ("explain/oom::OomClass", EXPLANATION),
    ("explain/rule::LikelihoodEffect", EXPLANATION),
    ("library::ElfLibrary", LIBRARY),
    ("library::NeededVersions", LIBRARY),
    ("library::GpuCode", LIBRARY),
    ("library::Coverage", LIBRARY),
    ("library::CodeTarget", LIBRARY),
    ("library::CodeKind", LIBRARY),
    ("library::CodeReach", LIBRARY),
    ("matrix/mod::Compatibility", MATRIX),
    ("matrix/mod::CompatibilityBasis", MATRIX),
    ("matrix/mod::MatrixCell", MATRIX),
    ("matrix/mod::MatrixRow", MATRIX),
    ("matrix/mod::Matrix", MATRIX),
    ("matrix/mod::TorchChoice", MATRIX),
    ("tables/mod::TableSource", Golden("sources.jsonl")),
    ("tables/mod::SourceQuality", MATRIX),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

fn lines<T: Serialize>(values: &[T]) -> String {
    let line = |value: &T| serde_json::to_string(value).unwrap() + "\n";
    values.iter().map(line).collect()
}

fn assert_lines<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, values: &[T]) {
    goldens().assert_same(name, lines(values));
    let text = goldens().read_text(name);
    let read: Vec<T> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read, values);
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn cause() -> Cause {
    let seen = |speaks| FactEvidence {
        what: text("the driver is older"),
        speaks,
    };
    Cause {
        code: text("no-kernel-image"),
        title: text("No code for the card"),
        why: text("It was not compiled for it."),
        certainty: Certainty::Likely,
        consequence_of: Some(text("driver-too-old")),
        points: -3,
        count: 2,
        lines: vec![MatchedLine {
            number: 7,
            rank: Some(1),
            text: text("CUDA error"),
        }],
        captures: BTreeMap::from([(text("card"), text("0"))]),
        seen: [
            LikelihoodEffect::Raise,
            LikelihoodEffect::Lower,
            LikelihoodEffect::Tell,
        ]
        .map(seen)
        .into(),
        mends: vec![Fix {
            what: text("Take a newer torch"),
            action: None,
        }],
        sources: vec![text("CUDA guide")],
    }
}

fn out_of_memory(class: OomClass) -> OomMessage {
    let bytes = |bytes| Some(Bytes(bytes));
    OomMessage {
        device: Some(0),
        asked: bytes(1),
        capacity: bytes(2),
        free: bytes(3),
        in_use: bytes(4),
        allocated: bytes(5),
        private_pools: bytes(6),
        unallocated: bytes(7),
        allowed: bytes(8),
        reserve: bytes(9),
        others: vec![(17, Bytes(10))],
        address_space: true,
        class: Some(class),
        why: text("It fills the card."),
    }
}

#[test]
fn explanation_is_as_before() {
    let classes = [
        OomClass::LargerThanCard,
        OomClass::Fragmented,
        OomClass::OthersUseIt,
        OomClass::Limited,
        OomClass::AddressSpace,
        OomClass::SmallCard,
        OomClass::Full,
        OomClass::Momentary,
    ];
    let explanations = classes.map(|class| Explanation {
        causes: vec![cause()],
        oom: Some(out_of_memory(class)),
        unknown: Some(UnknownError {
            line: 9,
            text: text("Error"),
            nearest: vec![SimilarRule {
                code: text("no-driver"),
                title: text("No driver"),
                likeness: 40,
            }],
        }),
        lines: 10,
        bytes: 11,
        exceptions: 12,
        ranks: vec![0, 1],
    });
    assert_lines("explanation.jsonl", &explanations);
    let environment = LogEnvironment {
        torch_cuda: Some(CudaVersion::new(12, 6)),
        cpu_torch: true,
        packages: BTreeMap::from([(text("torch"), text("2.8.0"))]),
        compiler: None,
        project: None,
    };
    let mut environments = vec![environment.clone()];
    environments.push(LogEnvironment {
        project: Some(ProjectContents {
            extras: BTreeMap::from([(text("cv2"), text("vision"))]),
            modules: BTreeMap::from([(text("net"), text("/workspace/src"))]),
            old_commit_day: Some(text("2021-03-25")),
        }),
        ..environment.clone()
    });
    for state in [
        CompilerState::Locked,
        CompilerState::Excluded,
        CompilerState::NotRequested,
        CompilerState::NotLocked,
    ] {
        environments.push(LogEnvironment {
            compiler: Some(state),
            ..environment.clone()
        });
    }
    assert_lines("environment.json", &environments);
}

#[test]
fn what_is_kept_of_a_library_is_as_before() {
    let target = |code, reach| CodeTarget {
        capability: ComputeCapability::new(9, 0),
        code,
        reach,
    };
    let targets = vec![
        target(CodeKind::Sass, CodeReach::Onward),
        target(CodeKind::Sass, CodeReach::Family),
        target(CodeKind::Ptx { major: 8, minor: 7 }, CodeReach::Exact),
    ];
    let library = ElfLibrary {
        machine: 62,
        soname: Some(text("liba.so.1")),
        needed: vec![text("libc.so.6")],
        rpath: vec![text("$ORIGIN")],
        runpath: Some(vec![text("$ORIGIN/../lib")]),
        needs_versions: vec![NeededVersions {
            of: text("libc.so.6"),
            versions: vec![text("GLIBC_2.27")],
        }],
        defines_versions: vec![text("A_1")],
        undefined: vec![text("_ZN3c10")],
        defined: vec![u64::MAX],
        gpu: GpuCode {
            coverage: vec![Coverage {
                targets: targets.clone(),
                containers: 3,
            }],
            unread_bytes: 4,
            emptied: targets,
        },
    };
    assert_lines("library.json", &[library]);
}

const SURE: [SourceQuality; 4] = [
    SourceQuality::Measured,
    SourceQuality::Published,
    SourceQuality::Reported,
    SourceQuality::Lead,
];

#[test]
fn matrix_is_as_before() {
    let cuda = CudaVersion::new(12, 6);
    let cell = |verdict, basis| MatrixCell {
        verdict,
        reason: text("no code for it"),
        basis,
        instead: Some(cuda),
    };
    let mut cells = vec![
        cell(Compatibility::Runs, CompatibilityBasis::Bytes),
        cell(Compatibility::Unknown, CompatibilityBasis::Nothing),
        cell(Compatibility::Fails, CompatibilityBasis::Bytes),
    ];
    cells.extend(SURE.map(|sure| cell(Compatibility::Warns, CompatibilityBasis::Table(sure))));
    let matrix = Matrix {
        machines: vec![text("A100")],
        rows: vec![MatrixRow {
            name: text("torch 2.8.0"),
            cuda: Some(cuda),
            cells,
        }],
        newest: Some(TorchChoice {
            torch: text("2.8.0"),
            cuda,
            requirement: text("torch==2.8.0+cu126"),
            index: Some(text("cu126")),
            sure: SourceQuality::Measured,
        }),
        left_out: vec![text("P100")],
        alike: vec![0],
    };
    goldens().assert_same("matrix.json", lines(&[matrix]));
    let sources = SURE.map(|sure| TableSource {
        sure,
        what: "CUDA release notes",
    });
    goldens().assert_same("sources.jsonl", lines(&sources));
}

#[test]
fn codes_of_explain_are_as_before() {
    let mut codes: Vec<_> = RuleSet::builtin_rules()
        .rules
        .iter()
        .map(|rule| rule.code.clone())
        .collect();
    codes.sort();
    goldens().assert_same("explain-codes.txt", codes.join("\n") + "\n");
}

/// The words in kebab-case of a file's strings, without those of its tests.
fn kebab_words(source: &str, words: &mut BTreeSet<String>) {
    let tests = source.find("#[cfg(test)]\nmod tests {");
    let source = &source[..tests.unwrap_or(source.len())];
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        let strings = line.split('"').skip(1).step_by(2);
        let kebab = |text: &&str| {
            let part = |part: &str| {
                !part.is_empty()
                    && part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            };
            text.contains('-') && text.split('-').all(part)
        };
        words.extend(strings.filter(kebab).map(str::to_owned));
    }
}

fn add_words(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => add_words(&path, words),
            false => kebab_words(&std::fs::read_to_string(path).unwrap(), words),
        }
    }
}

/// The codes of findings stand in the rules as they are written; some other words are among them.
#[test]
fn codes_of_check_are_as_before() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut words = BTreeSet::new();
    add_words(&src.join("rules"), &mut words);
    add_words(&src.join("loader"), &mut words);
    assert!(words.contains("driver-too-old"));
    let words: Vec<_> = words.into_iter().collect();
    goldens().assert_same("check-codes.txt", words.join("\n") + "\n");
}
