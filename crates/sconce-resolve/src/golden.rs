//! What is printed as JSON of an audit and of newer versions, and documents as they are kept, as
//! bytes that a rename or a move must not change.
//!
//! Held elsewhere: the lock, and the text whose digest it has, by sconce-schema's `tests/golden`.

use std::fs;

use sconce_testkit::golden_files::{Goldens, HeldBy};
use serde::Serialize;

use crate::audit::osv::OsvSeverity;
use crate::audit::{AuditCoverage, AuditReport, AuditedPackage, UndecidedEntry, Vulnerability};
use crate::ecosystem::Ecosystem;
use crate::http_cache::{self, ResponseCache};
use crate::outdated::{LockChange, LockChangeKind, LockChanges};
use crate::python::build_settings::BuildSettings;

const AUDIT: HeldBy = HeldBy::Golden("audit.json");
const CHANGES: HeldBy = HeldBy::Golden("changes.json");

const BUILD_SETTINGS: HeldBy = HeldBy::Golden("build-settings.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("audit::AuditReport", AUDIT),
    ("audit::Vulnerability", AUDIT),
    ("audit::AuditCoverage", AUDIT),
    ("audit::AuditedPackage", AUDIT),
    ("audit::UndecidedEntry", AUDIT),
    ("outdated::LockChange", CHANGES),
    ("outdated::LockChanges", CHANGES),
    ("outdated::LockChangeKind", CHANGES),
    (
        "audit/database::DatabaseSummary",
        HeldBy::Nothing("`audit --json` gives its figures names of its own"),
    ),
    ("audit/osv::OsvSeverity", AUDIT),
    ("ecosystem::Ecosystem", AUDIT),
    ("python/build_settings::BuildSettings", BUILD_SETTINGS),
    ("python/build_settings::ExtraRequirement", BUILD_SETTINGS),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

fn assert_same_json(name: &str, value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap() + "\n";
    goldens().assert_same(name, text);
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

#[test]
fn audit_is_printed_as_before() {
    let subject = |ecosystem| AuditedPackage {
        ecosystem,
        name: "openssl".into(),
        version: "3.5.1-1".into(),
        packages: strings(&["libssl3t64", "openssl"]),
    };
    let audited = AuditReport {
        findings: vec![Vulnerability {
            subject: subject(Ecosystem::Debian),
            id: "DSA-9999-1".into(),
            aliases: strings(&["CVE-2099-0001"]),
            upstream: strings(&["CVE-2099-0002"]),
            summary: Some("it was made up".into()),
            severity: vec![OsvSeverity {
                kind: "CVSS_V3".into(),
                score: "7.5".into(),
            }],
            fixed: Some("3.5.1-1+deb13u2".into()),
        }],
        unclear: vec![UndecidedEntry {
            subject: subject(Ecosystem::Python),
            id: "PYSEC-2099-1".into(),
            why: "its range cannot be read".into(),
        }],
        ignored: 3,
        python: AuditCoverage {
            packages: 4,
            entries: 5,
        },
        debian: AuditCoverage {
            packages: 6,
            entries: 7,
        },
    };
    assert_same_json("audit.json", &audited);
}

#[test]
fn newer_versions_are_printed_as_before() {
    let kinds = [
        LockChangeKind::Newer,
        LockChangeKind::Older,
        LockChangeKind::Rebuilt,
        LockChangeKind::Added,
        LockChangeKind::Removed,
    ];
    let change = |kind| LockChange {
        name: "torch".into(),
        ecosystem: Ecosystem::Python,
        kind,
        locked: Some("2.14.0".into()),
        newest: Some("2.15.0".into()),
        security: Some(true),
    };
    assert_same_json("changes.json", &LockChanges(kinds.map(change).into()));
}

/// A lock's inputs have their digest.
#[test]
fn settings_for_builds_are_told_apart_as_before() {
    let text = "no-build-isolation = true\nno-build-isolation-package = ['flash-attn']\n\
        extra-build-variables = { x = { FORCE_CUDA = '1' } }\n\
        extra-build-dependencies = { x = ['cython<3', { requirement = 'torch', match-runtime = true }] }";
    let settings = BuildSettings::parse(&text.parse().unwrap());
    assert_same_json("build-settings.json", &settings);
}

/// Another version of the program finds them without network.
#[test]
fn documents_are_kept_and_found_as_before() {
    let store = tempfile::tempdir().unwrap();
    let dir = http_cache::cache_dir(store.path());
    assert_eq!(dir, store.path().join("cache/documents"));
    let kept = ResponseCache::new(dir.clone());
    let documents = [
        (
            "https://deb.example.org/dists/trixie/InRelease",
            Some("Suite: stable\n"),
        ),
        ("https://deb.example.org/dists/trixie/Release", None),
    ];
    for (url, text) in documents {
        kept.store_response(url, text.map(str::as_bytes));
    }
    let mut files: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            format!("# {name}\n{}", fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    goldens().assert_same("documents.txt", files.concat());
    for (url, text) in documents {
        let bytes = kept.get(url).unwrap().bytes;
        assert_eq!(bytes.as_deref(), text.map(str::as_bytes));
    }
}
