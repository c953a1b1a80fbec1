//! What verbs print with `--json`, and what the program writes for itself, byte for byte, in
//! `tests/golden`. Values are made where their types are: in the tests of each verb.
//!
//! What has the types of another crate is held there; the tables say where. Not held are the plan and
//! the squashfs file of `build`, `outdated`, `pull` and `verify`, whose few keys stand beside what asks
//! indexes and registries.

use std::path::Path;

use clap::Command;
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, File, Golden, Nothing};

const PAGE: HeldBy = Golden("memory-page.json");
const INSTALLED: HeldBy = Golden("installed.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("commands/doctor/installed::InstalledTools", INSTALLED),
    ("commands/doctor/installed::Python", INSTALLED),
    ("commands/doctor/installed::Tool", INSTALLED),
    ("commands/fit/server::Request", Golden("fit-request.json")),
    ("commands/memory/page::GpuPage", PAGE),
    ("commands/memory/page::Line", PAGE),
];

/// The verbs that have `--json`, and what holds what they print.
const VERBS: &[(&str, HeldBy)] = &[
    ("audit", Golden("audit.json")),
    ("build", Golden("build.json")),
    ("cdi check", Golden("cdi-check.json")),
    ("cdi list", Golden("cdi-list.json")),
    ("check", Golden("check.txt")),
    ("compare", File("../sconce-report/tests/it/golden.rs")),
    ("diff", Golden("diff.json")),
    ("doctor", Golden("doctor.txt")),
    ("explain", File("../sconce-compat/tests/it/golden.rs")),
    ("fit", File("../sconce-memory/tests/it/golden/mod.rs")),
    ("images", Golden("images.json")),
    ("init", Golden("init.json")),
    ("lease list", Golden("lease-list.json")),
    ("lock", Golden("lock-check.json")),
    (
        "memory diff",
        File("../sconce-memory/tests/it/golden/mod.rs"),
    ),
    (
        "memory report",
        File("../sconce-memory/tests/it/golden/mod.rs"),
    ),
    ("memory simulate", File("tests/it/memory.rs")),
    (
        "memory what-if",
        File("../sconce-memory/tests/it/golden/mod.rs"),
    ),
    (
        "outdated",
        Nothing("two keys around what sconce-resolve writes; it needs indexes"),
    ),
    ("prune", Golden("prune.txt")),
    ("ps", Golden("ps.txt")),
    (
        "pull",
        Nothing("three keys; it needs a registry: scripts/test.d/images"),
    ),
    ("push", Golden("push.json")),
    ("report", File("../sconce-report/tests/it/golden.rs")),
    ("run", File("../sconce-report/tests/it/golden.rs")),
    ("runs", File("../sconce-report/tests/it/golden.rs")),
    ("submit", Golden("submit.txt")),
    (
        "up",
        File("../sconce-run/tests/golden/control-answers.jsonl"),
    ),
    ("usage", Golden("usage.json")),
    (
        "verify",
        Nothing("three keys; it needs a registry: scripts/test.d/images"),
    ),
];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn verbs_with_json(command: &Command, path: &str, found: &mut Vec<String>) {
    if command
        .get_arguments()
        .any(|arg| arg.get_long() == Some("json"))
    {
        found.push(path.to_owned());
    }
    for inner in command.get_subcommands() {
        let path = format!("{path} {}", inner.get_name());
        verbs_with_json(inner, path.trim_start(), found);
    }
}

#[test]
fn every_verb_with_json_is_held() {
    let mut found = Vec::new();
    verbs_with_json(&crate::args::command(), "", &mut found);
    found.sort();
    assert_eq!(
        found,
        VERBS.iter().map(|(verb, _)| *verb).collect::<Vec<_>>()
    );
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (verb, held) in VERBS {
        let path = match held {
            Golden(name) => Path::new("tests/golden").join(name),
            File(path) => path.into(),
            Nothing(_) => continue,
        };
        assert!(
            own.join(&path).is_file(),
            "{verb}: {} is not there",
            path.display()
        );
    }
}

#[test]
fn every_golden_file_is_listed() {
    let rows = TYPES.iter().chain(VERBS);
    let listed: Vec<&str> = rows
        .filter_map(|(_, held)| match held {
            Golden(name) => Some(*name),
            _ => None,
        })
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            listed.contains(&name.as_str()),
            "{name} is compared by nothing"
        );
    }
}
