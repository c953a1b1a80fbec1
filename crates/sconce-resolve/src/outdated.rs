//! What two locks of one spec differ in.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::lock::Lock;
use serde::Serialize;

use crate::debian::version;
use crate::ecosystem::Ecosystem;

/// What became of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockChangeKind {
    /// A higher version.
    Newer,
    /// A lower version: another package's newest one wants it, or the index took one back.
    Older,
    /// The same version with other bytes: another build of it, or another wheel that fits.
    Rebuilt,
    /// Not in the present lock.
    Added,
    /// Not in the new lock.
    Removed,
}

/// One package that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockChange {
    /// The package's name.
    pub name: String,
    /// Where it comes from.
    pub ecosystem: Ecosystem,
    /// What became of it.
    pub kind: LockChangeKind,
    /// The present lock's version.
    pub locked: Option<String>,
    /// The newest that the spec allows.
    pub newest: Option<String>,
    /// Whether the security archive has a version above the locked one and not above the new
    /// one; `None` where it is not known, and for Python packages, whose indexes do not tell it.
    pub security: Option<bool>,
}

/// All that differs: Python packages by name, then Debian packages by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LockChanges(pub Vec<LockChange>);

impl LockChanges {
    /// How many are of this kind.
    #[must_use]
    pub fn count(&self, kind: LockChangeKind) -> usize {
        self.0.iter().filter(|change| change.kind == kind).count()
    }

    /// How many are security updates.
    #[must_use]
    pub fn security_update_count(&self) -> usize {
        let is = |change: &&LockChange| change.security == Some(true);
        self.0.iter().filter(is).count()
    }
}

/// A package's version and the digest of its file.
type LockedPackage<'l> = (&'l str, &'l sconce_schema::Sha256);

/// Compares the lock that is there with one that takes the newest of everything. `security` is
/// [`crate::ResolvedLock::security`] of the latter. Where a package was found, and how large it is,
/// is no difference.
#[must_use]
pub fn diff_locks(
    present: &Lock,
    newest: &Lock,
    security: Option<&BTreeMap<String, String>>,
) -> LockChanges {
    let mut all = Vec::new();
    compare(
        Ecosystem::Python,
        &wheels_of(present),
        &wheels_of(newest),
        &mut all,
    );
    let python = all.len();
    compare(
        Ecosystem::Debian,
        &debs_of(present),
        &debs_of(newest),
        &mut all,
    );
    for change in &mut all[python..] {
        change.security = security.map(|security| is_security(change, security));
    }
    LockChanges(all)
}

fn wheels_of(lock: &Lock) -> BTreeMap<&str, LockedPackage<'_>> {
    lock.wheels
        .iter()
        .map(|wheel| (wheel.name.as_str(), (wheel.version.as_str(), &wheel.sha256)))
        .collect()
}

fn debs_of(lock: &Lock) -> BTreeMap<&str, LockedPackage<'_>> {
    lock.all_debs()
        .map(|deb| (deb.name.as_str(), (deb.version.as_str(), &deb.sha256)))
        .collect()
}

fn compare(
    ecosystem: Ecosystem,
    present: &BTreeMap<&str, LockedPackage<'_>>,
    newest: &BTreeMap<&str, LockedPackage<'_>>,
    all: &mut Vec<LockChange>,
) {
    let names: BTreeSet<&str> = present.keys().chain(newest.keys()).copied().collect();
    for name in names {
        let (old, new) = (present.get(name), newest.get(name));
        let kind = match (old, new) {
            (Some(old), Some(new)) if old.1 == new.1 && old.0 == new.0 => continue,
            (Some(old), Some(new)) => match order(ecosystem, old.0, new.0) {
                Ordering::Less => LockChangeKind::Newer,
                Ordering::Equal => LockChangeKind::Rebuilt,
                Ordering::Greater => LockChangeKind::Older,
            },
            (None, _) => LockChangeKind::Added,
            (_, None) => LockChangeKind::Removed,
        };
        all.push(LockChange {
            name: name.to_owned(),
            ecosystem,
            kind,
            locked: old.map(|held| held.0.to_owned()),
            newest: new.map(|held| held.0.to_owned()),
            security: None,
        });
    }
}

/// A version that is none (a lock may have been edited) is still another one: the new one counts
/// as newer.
fn order(ecosystem: Ecosystem, old: &str, new: &str) -> Ordering {
    ecosystem
        .compare_versions(old, new)
        .unwrap_or(if old == new {
            Ordering::Equal
        } else {
            Ordering::Less
        })
}

/// Also where the newest version is the release's own: a point release takes in what the security
/// archive had before.
fn is_security(change: &LockChange, security: &BTreeMap<String, String>) -> bool {
    let (Some(secure), Some(locked), Some(newest)) =
        (security.get(&change.name), &change.locked, &change.newest)
    else {
        return false;
    };
    version::compare(secure, locked).is_gt() && version::compare(secure, newest).is_le()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_testing::{deb, lock, wheel};

    fn kinds(changes: &LockChanges) -> Vec<(&str, LockChangeKind, Option<bool>)> {
        let all = changes.0.iter();
        all.map(|c| (c.name.as_str(), c.kind, c.security)).collect()
    }

    #[test]
    fn each_kind_of_change_is_named() {
        let present = lock(
            &[
                wheel("numpy", "2.9.0"),
                wheel("pinned", "1.0"),
                wheel("torch", "2.9.0+cu126"),
            ],
            &[
                deb("git", "1:2.47.3-0"),
                deb("openssl", "3.5.1-1"),
                deb("perl", "5.40.1-6"),
            ],
        );
        let mut rebuilt = wheel("pinned", "1.0");
        rebuilt.sha256.0[0] ^= 1;
        let newest = lock(
            &[
                wheel("numpy", "2.10.0"),
                rebuilt,
                wheel("six", "1.17.0"),
                wheel("torch", "2.8.0"),
            ],
            &[
                deb("git", "1:2.47.3-0+deb13u1"),
                deb("openssl", "3.5.1-1+deb13u2"),
            ],
        );
        let secure = BTreeMap::from([("openssl".to_owned(), "3.5.1-1+deb13u2".to_owned())]);
        let found = diff_locks(&present, &newest, Some(&secure));
        assert_eq!(
            kinds(&found),
            [
                ("numpy", LockChangeKind::Newer, None),
                ("pinned", LockChangeKind::Rebuilt, None),
                ("six", LockChangeKind::Added, None),
                ("torch", LockChangeKind::Older, None),
                ("git", LockChangeKind::Newer, Some(false)),
                ("openssl", LockChangeKind::Newer, Some(true)),
                ("perl", LockChangeKind::Removed, Some(false)),
            ]
        );
        assert_eq!(
            (
                found.count(LockChangeKind::Newer),
                found.security_update_count()
            ),
            (3, 1)
        );
        assert_eq!(found.0[6].locked.as_deref(), Some("5.40.1-6"));
        assert_eq!(found.0[6].newest, None);
        assert!(diff_locks(&present, &present, Some(&secure)).0.is_empty());
    }

    #[test]
    fn a_security_update_stays_one_in_a_point_release() {
        let security = |locked: &str, secure: &str, newest: &str| {
            let secure = BTreeMap::from([("openssl".to_owned(), secure.to_owned())]);
            let (present, new) = (
                lock(&[], &[deb("openssl", locked)]),
                lock(&[], &[deb("openssl", newest)]),
            );
            diff_locks(&present, &new, Some(&secure)).0[0].security
        };
        assert_eq!(security("1-1", "1-1+deb13u1", "1-1+deb13u2"), Some(true));
        assert_eq!(
            security("1-1+deb13u1", "1-1+deb13u1", "1-1+deb13u2"),
            Some(false)
        );
        assert_eq!(security("1-1", "1-1+deb13u3", "1-1+deb13u2"), Some(false));
    }

    #[test]
    fn without_a_security_archive_nothing_is_claimed() {
        let (present, newest) = (lock(&[], &[deb("a", "1")]), lock(&[], &[deb("a", "2")]));
        assert_eq!(diff_locks(&present, &newest, None).0[0].security, None);
    }

    #[test]
    fn where_it_was_found_is_no_change() {
        let present = lock(&[wheel("a", "1")], &[deb("b", "1")]);
        let mut other = present.clone();
        other.wheels[0].url = "https://mirror.example.org/a".into();
        other.wheels[0].size = None;
        other.debs[0].url = "https://mirror.example.org/b".into();
        other.debs[0].source = Some("c".into());
        assert!(diff_locks(&present, &other, None).0.is_empty());
    }

    #[test]
    fn an_odd_version_is_still_another_one() {
        let (present, newest) = (
            lock(&[wheel("a", "odd")], &[]),
            lock(&[wheel("a", "1")], &[]),
        );
        assert_eq!(
            diff_locks(&present, &newest, None).0[0].kind,
            LockChangeKind::Newer
        );
    }
}
