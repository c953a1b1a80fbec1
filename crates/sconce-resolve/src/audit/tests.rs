//! Locks against the hand-written entries.

use super::*;
use crate::audit::database::{self, DatabaseLimits};
use crate::lock_testing::{deb, lock, wheel};
use std::path::Path;

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/osv")
}

fn audit(lock: &Lock, ignore: &[&str]) -> AuditReport {
    let ignore: Vec<String> = ignore.iter().map(|id| (*id).to_owned()).collect();
    let mut audit = LockAuditor::new(lock, &ignore).unwrap();
    let seen = database::read_database(&fixtures(), DatabaseLimits::default(), &mut |e| {
        audit.add_entry(e)
    })
    .unwrap();
    assert_eq!(seen.newest.as_deref(), Some("2099-04-02T08:00:00"));
    audit.finish().unwrap()
}

fn of_entries(lock: &Lock, entries: &[&str]) -> AuditReport {
    let mut audit = LockAuditor::new(lock, &[]).unwrap();
    for entry in entries {
        audit.add_entry(&serde_json::from_str(entry).unwrap());
    }
    audit.finish().unwrap()
}

fn shown(audited: &AuditReport) -> Vec<String> {
    let all = audited.findings.iter();
    all.map(|f| {
        let fixed = f.fixed.as_deref().unwrap_or("-");
        format!("{} {} {} {fixed}", f.subject.name, f.subject.version, f.id)
    })
    .collect()
}

fn environment() -> Lock {
    let mut gcc = deb("gcc", "4:14.2.0-1");
    gcc.source = Some("gcc-defaults".into());
    gcc.source_version = Some("1.220".into());
    let mut cpp = deb("cpp", "4:14.2.0-1");
    (cpp.source, cpp.source_version) = (gcc.source.clone(), gcc.source_version.clone());
    let mut ssl = deb("libssl3t64", "3.5.1-1");
    ssl.source = Some("openssl".into());
    lock(
        &[wheel("six", "1.17.0"), wheel("torch", "2.5.1+cu124")],
        &[cpp, gcc, ssl, deb("openssl", "3.5.1-1")],
    )
}

#[test]
fn finds_what_the_database_says() {
    let found = audit(&environment(), &[]);
    assert_eq!(
        shown(&found),
        [
            "torch 2.5.1+cu124 GHSA-0000-made-up01 2.6.0",
            "gcc-defaults 1.220 DEBIAN-CVE-2099-0200 -",
            "openssl 3.5.1-1 DSA-9999-1 3.5.1-1+deb13u2",
        ]
    );
    let [torch, gcc, openssl] = &found.findings[..] else {
        panic!("three");
    };
    assert_eq!(torch.aliases, ["CVE-2099-0001", "PYSEC-2099-1"]);
    assert_eq!(
        torch.summary.as_deref(),
        Some("Loading a file runs what is in it")
    );
    assert!(torch.severity[0].score.starts_with("CVSS:4.0/"));
    assert_eq!(gcc.subject.packages, ["cpp", "gcc"]);
    assert_eq!(gcc.summary.as_deref(), Some("A program may be made to"));
    assert_eq!(gcc.severity[0].score, "unimportant");
    assert_eq!(openssl.subject.packages, ["libssl3t64", "openssl"]);
    assert_eq!(openssl.upstream, ["CVE-2099-0100", "CVE-2099-0101"]);
    assert_eq!((found.python.packages, found.python.entries), (2, 2));
    assert_eq!((found.debian.packages, found.debian.entries), (2, 2));
}

#[test]
fn nothing_is_found_in_what_is_fixed() {
    let lock = lock(
        &[wheel("torch", "2.6.0")],
        &[deb("openssl", "3.5.1-1+deb13u2")],
    );
    let found = audit(&lock, &[]);
    assert_eq!((found.findings, found.unclear), (vec![], vec![]));
}

#[test]
fn an_id_is_ignored_by_each_of_its_names() {
    let names = |ignore: &[&str]| {
        let found = audit(&environment(), ignore);
        (found.findings.len(), found.ignored)
    };
    assert_eq!(names(&["CVE-2099-0001"]), (2, 1));
    assert_eq!(names(&["PYSEC-2099-1"]), (2, 1));
    assert_eq!(names(&["DSA-9999-1"]), (2, 1));
    assert_eq!(names(&["CVE-2099-0100"]), (3, 0), "the other one is left");
    assert_eq!(names(&["CVE-2099-0100", "CVE-2099-0101"]), (2, 1));
}

#[test]
fn another_release_is_another_one() {
    let mut lock = environment();
    lock.target.release = "debian/bookworm".into();
    assert_eq!(shown(&audit(&lock, &[])).len(), 1, "torch alone");
    lock.debs = vec![deb("openssl", "3.0.17-1~deb12u2")];
    assert!(shown(&audit(&lock, &[]))[1].contains("3.0.17-1~deb12u3"));
    lock.target.release = "debian/potato".into();
    let error = LockAuditor::new(&lock, &[]).unwrap_err();
    assert!(matches!(error, AuditError::Release { .. }));
}

#[test]
fn names_are_normalised_and_ecosystems_are_not_mixed() {
    let lock = lock(&[wheel("typing-extensions", "4.0")], &[deb("six", "1")]);
    let entry = |ecosystem: &str, name: &str| {
        format!(
            r#"{{"id":"X-1","affected":[{{"package":{{"ecosystem":"{ecosystem}","name":"{name}"}}}}]}}"#
        )
    };
    let count = |ecosystem, name| of_entries(&lock, &[&entry(ecosystem, name)]).findings.len();
    assert_eq!(count("PyPI", "Typing_Extensions"), 1);
    assert_eq!(count("PyPI", "typing.extensions"), 1);
    assert_eq!(count("PyPI", "six"), 0);
    assert_eq!(count("Debian", "six"), 1);
    assert_eq!(count("Debian:13", "six"), 1);
    assert_eq!(count("Debian:130", "six"), 0);
    assert_eq!(count("npm", "six"), 0);
}

#[test]
fn what_cannot_be_judged_is_said() {
    let lock = lock(&[wheel("six", "1.0")], &[]);
    let found = of_entries(
        &lock,
        &[
            r#"{"id":"X-1","affected":[{"package":{"ecosystem":"PyPI","name":"six"},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},{"fixed":"odd\u001b[2J"}]}]}]}"#,
        ],
    );
    assert!(found.findings.is_empty());
    assert_eq!(found.unclear[0].why, "1.0 and odd [2J cannot be compared");
}

#[test]
fn a_lock_without_source_packages_is_not_judged() {
    let mut old = environment();
    old.version = 1;
    let error = LockAuditor::new(&old, &[]).unwrap_err();
    assert_eq!(
        (error.clone(), error.exit_code()),
        (AuditError::NoSources { found: 1 }, exit::BAD_INPUT)
    );
    old.debs.clear();
    assert!(LockAuditor::new(&old, &[]).is_ok());
}

#[test]
fn a_database_of_any_size_gives_so_much_and_no_more() {
    let lock = lock(&[wheel("six", "1.0")], &[]);
    let mut audit = LockAuditor::new(&lock, &[]).unwrap();
    let mut entry: OsvEntry = serde_json::from_str(
        r#"{"id":"X","affected":[{"package":{"ecosystem":"PyPI","name":"six"}}]}"#,
    )
    .unwrap();
    for number in 0..=MAX_FOUND {
        entry.id = format!("X-{number}");
        audit.add_entry(&entry);
    }
    assert!(matches!(audit.finish(), Err(AuditError::TooMany { .. })));
}
