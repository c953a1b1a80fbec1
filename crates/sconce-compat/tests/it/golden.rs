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
    Cause, Environment, Explanation, MatchedLine, Nearest, OomClass, OutOfMemory, Rules, Seen,
    Then, Unknown,
};
use sconce_compat::library::{Code, Coverage, GpuCode, Library, NeededVersions, Reach, Target};
use sconce_compat::matrix::{Basis, Cell, Choice, Matrix, Row, Verdict};
use sconce_compat::tables::{Source, Sure};
use sconce_schema::finding::{Certainty, Mend};
use sconce_schema::{Bytes, ComputeCapability, CudaVersion};
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};
use serde::Serialize;
use serde::de::DeserializeOwned;

const EXPLANATION: HeldBy = Golden("explanation.jsonl");
const LIBRARY: HeldBy = Golden("library.json");
const MATRIX: HeldBy = Golden("matrix.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("explain/condition::Environment", Golden("environment.json")),
    ("explain/mod::Explanation", EXPLANATION),
    ("explain/mod::Cause", EXPLANATION),
    ("explain/mod::MatchedLine", EXPLANATION),
    ("explain/mod::Seen", EXPLANATION),
    ("explain/mod::Unknown", EXPLANATION),
    ("explain/nearest::Nearest", EXPLANATION),
    ("explain/oom::OutOfMemory", EXPLANATION),
    ("explain/oom::OomClass", EXPLANATION),
    ("explain/rule::Then", EXPLANATION),
    ("library::Library", LIBRARY),
    ("library::NeededVersions", LIBRARY),
    ("library::GpuCode", LIBRARY),
    ("library::Coverage", LIBRARY),
    ("library::Target", LIBRARY),
    ("library::Code", LIBRARY),
    ("library::Reach", LIBRARY),
    ("matrix/mod::Verdict", MATRIX),
    ("matrix/mod::Basis", MATRIX),
    ("matrix/mod::Cell", MATRIX),
    ("matrix/mod::Row", MATRIX),
    ("matrix/mod::Matrix", MATRIX),
    ("matrix/mod::Choice", MATRIX),
    ("tables/mod::Source", Golden("sources.jsonl")),
    ("tables/mod::Sure", MATRIX),
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
    let text = goldens().text(name);
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
    let seen = |speaks| Seen {
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
        seen: [Then::Raise, Then::Lower, Then::Tell].map(seen).into(),
        mends: vec![Mend {
            what: text("Take a newer torch"),
            action: None,
        }],
        sources: vec![text("CUDA guide")],
    }
}

fn out_of_memory(class: OomClass) -> OutOfMemory {
    let bytes = |bytes| Some(Bytes(bytes));
    OutOfMemory {
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
        unknown: Some(Unknown {
            line: 9,
            text: text("Error"),
            nearest: vec![Nearest {
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
    let environment = Environment {
        torch_cuda: Some(CudaVersion::new(12, 6)),
        cpu_torch: true,
        packages: BTreeMap::from([(text("torch"), text("2.8.0"))]),
    };
    assert_lines("environment.json", &[environment]);
}

#[test]
fn what_is_kept_of_a_library_is_as_before() {
    let target = |code, reach| Target {
        capability: ComputeCapability::new(9, 0),
        code,
        reach,
    };
    let targets = vec![
        target(Code::Sass, Reach::Onward),
        target(Code::Sass, Reach::Family),
        target(Code::Ptx { major: 8, minor: 7 }, Reach::Exact),
    ];
    let library = Library {
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

const SURE: [Sure; 4] = [Sure::Measured, Sure::Published, Sure::Reported, Sure::Lead];

#[test]
fn matrix_is_as_before() {
    let cuda = CudaVersion::new(12, 6);
    let cell = |verdict, basis| Cell {
        verdict,
        reason: text("no code for it"),
        basis,
        instead: Some(cuda),
    };
    let mut cells = vec![
        cell(Verdict::Runs, Basis::Bytes),
        cell(Verdict::Unknown, Basis::Nothing),
        cell(Verdict::Fails, Basis::Bytes),
    ];
    cells.extend(SURE.map(|sure| cell(Verdict::Warns, Basis::Table(sure))));
    let matrix = Matrix {
        machines: vec![text("A100")],
        rows: vec![Row {
            name: text("torch 2.8.0"),
            cuda: Some(cuda),
            cells,
        }],
        newest: Some(Choice {
            torch: text("2.8.0"),
            cuda,
            requirement: text("torch==2.8.0+cu126"),
            index: Some(text("cu126")),
            sure: Sure::Measured,
        }),
        left_out: vec![text("P100")],
        alike: vec![0],
    };
    goldens().assert_same("matrix.json", lines(&[matrix]));
    let sources = SURE.map(|sure| Source {
        sure,
        what: "CUDA release notes",
    });
    goldens().assert_same("sources.jsonl", lines(&sources));
}

#[test]
fn codes_of_explain_are_as_before() {
    let mut codes: Vec<_> = Rules::own()
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
