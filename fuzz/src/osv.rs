//! Vulnerability databases, which come from anywhere, against a small lock.

use std::cmp::Ordering;
use std::io::Cursor;

use sconce_resolve::audit::database::{self, ContentError, DatabaseLimits, DatabaseSummary};
use sconce_resolve::audit::osv::OsvEntry;
use sconce_resolve::audit::{AuditReport, LockAuditor};
use sconce_resolve::ecosystem::Ecosystem;
use sconce_schema::{Hint as _, Lock};

use crate::bytes::{fixture, parts, text};
use crate::zip::{entry, zip};

const LIMITS: DatabaseLimits = DatabaseLimits {
    entry_bytes: 64 << 10,
    bytes: 1 << 20,
    entries: 1000,
    depth: 4,
};

pub(crate) fn lock() -> Lock {
    let digest = "c1fda9e7".repeat(8);
    let text = format!(
        "version = 2\ninputs = \"{digest}\"\n[target]\nrelease = \"debian/trixie\"\n\
         architecture = \"amd64\"\npython = \"3.13\"\n[versions]\npython = \"3\"\nglibc = \"2\"\n\
         [[wheel]]\nname = \"torch\"\nversion = \"2.5.1+cu124\"\nfile = \"t.whl\"\nurl = \"u\"\n\
         sha256 = \"{digest}\"\n[[deb]]\nname = \"libssl3t64\"\nversion = \"3.5.1-1\"\n\
         source = \"openssl\"\narchitecture = \"amd64\"\nurl = \"u\"\nsize = 1\nsha256 = \"{digest}\"\n"
    );
    Lock::parse(&text).expect("it is a lock")
}

/// What was found is about the lock, and may be shown as it is.
fn check(
    read: impl FnOnce(&mut dyn FnMut(&OsvEntry)) -> Result<DatabaseSummary, ContentError>,
) -> Option<AuditReport> {
    let mut audit = LockAuditor::new(&lock(), &["CVE-1".to_owned()]).expect("it can be audited");
    let mut taken = 0;
    let read = read(&mut |entry| {
        taken += 1;
        audit.add_entry(entry);
    });
    match read {
        Ok(seen) => assert_eq!(seen.entries, taken),
        Err(error) => drop(error.to_string()),
    }
    let found = match audit.finish() {
        Ok(found) => found,
        Err(error) => {
            drop((error.to_string(), error.hint()));
            return None;
        }
    };
    for finding in &found.findings {
        assert!(["torch", "openssl"].contains(&finding.subject.name.as_str()));
        assert_ne!(finding.id, "CVE-1");
        let ecosystem = finding.subject.ecosystem;
        if let Some(fixed) = &finding.fixed {
            let order = ecosystem.compare_with_advisory(&finding.subject.version, fixed);
            // None: it was cut short to be shown.
            assert!(order.is_none_or(Ordering::is_lt), "{fixed}");
        }
        let texts = [
            Some(&finding.id),
            finding.summary.as_ref(),
            finding.fixed.as_ref(),
        ];
        let texts = texts.into_iter().flatten();
        for text in texts.chain(&finding.aliases).chain(&finding.upstream) {
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
    assert!(serde_json::to_string(&found).is_ok());
    Some(found)
}

/// JSON as it comes; a list of entries gives what the entries one after another give.
pub(crate) fn json(data: &[u8]) {
    let found = check(|each| database::read_json(data, LIMITS, each));
    if let (Some(found), Ok(entry)) = (found, serde_json::from_slice::<OsvEntry>(data)) {
        let list = [b"[", data, b"]"].concat();
        let again = check(|each| database::read_json(&list[..], LIMITS, each));
        assert_eq!(again, Some(found), "{entry:?}");
    }
}

/// A zip as it comes, and a sound one of these entries, which gives what they give alone.
pub(crate) fn archive(data: &[u8]) {
    check(|each| database::read_archive(Cursor::new(data), LIMITS, each));
    let [one, other] = parts(data);
    let bytes = zip(&[entry("a.json", one), entry("b.json", other)]);
    let found = check(|each| database::read_archive(Cursor::new(bytes), LIMITS, each));
    let both: Result<Vec<OsvEntry>, _> = [one, other]
        .map(serde_json::from_slice)
        .into_iter()
        .collect();
    if both.is_ok() {
        let lines = [one, b"\n", other].concat();
        assert_eq!(
            check(|each| database::read_json(&lines[..], LIMITS, each)),
            found
        );
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let names = [
        "GHSA-0000-made-up01",
        "PYSEC-2099-1",
        "PYSEC-2099-2",
        "DSA-9999-1",
    ];
    names
        .map(|name| fixture(&format!("crates/sconce-resolve/tests/data/osv/{name}.json")))
        .to_vec()
}

pub(crate) fn json_seeds() -> Vec<Vec<u8>> {
    let mut all = seeds();
    all.push([b"[", all[0].as_slice(), b",", &all[3], b"]"].concat());
    all.push(all.concat());
    all
}

pub(crate) fn archive_seeds() -> Vec<Vec<u8>> {
    let all = seeds();
    let mut entries = [entry("a.json", &all[0]), entry("b/b.json", &all[3])];
    let stored = zip(&entries);
    entries.iter_mut().for_each(|entry| entry.deflated = true);
    vec![
        stored,
        zip(&entries),
        crate::bytes::joined(&[&all[1], &all[2]]),
    ]
}

/// Three versions, one a line: their order is total where there is one.
pub(crate) fn versions(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let [a, b, c] = [(); 3].map(|()| lines.next().unwrap_or_default());
    for ecosystem in [Ecosystem::Python, Ecosystem::Debian] {
        let compare = |x, y| ecosystem.compare_versions(x, y);
        assert_eq!(compare(a, b), compare(b, a).map(Ordering::reverse));
        let _ = ecosystem.compare_with_advisory(a, b);
        if let (Some(first), Some(second)) = (compare(a, b), compare(b, c))
            && first.is_le()
            && second.is_le()
        {
            assert_eq!(compare(a, c), Some(first.then(second)), "{a:?} {b:?} {c:?}");
        }
    }
}

pub(crate) fn version_seeds() -> Vec<Vec<u8>> {
    [
        "1.0a2.dev456\n1.0.post1\n1!0.1+cu126",
        "1:2.41-12+deb13u1\n2.41~rc1-1\n2.41",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
