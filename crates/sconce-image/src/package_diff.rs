//! What one image has and another has not, package by package.

use std::collections::BTreeMap;

use crate::sbom::{PurlType, SbomPackage};

/// What differs between two package lists. All lists are sorted by kind, name and version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageDiff {
    /// Only in the second.
    pub added: Vec<SbomPackage>,
    /// Only in the first.
    pub removed: Vec<SbomPackage>,
    /// In both, once each, and not the same.
    pub changed: Vec<PackageChange>,
}

/// A package that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageChange {
    /// As the first has it.
    pub before: SbomPackage,
    /// As the second has it. Where the version is the same, another build of it: the digest differs.
    pub after: SbomPackage,
}

impl PackageChange {
    /// By how many bytes it grew, less than 0 if it shrank, where both sizes are known.
    #[must_use]
    pub fn growth_bytes(&self) -> Option<i128> {
        let before = i128::from(self.before.size_bytes?);
        Some(i128::from(self.after.size_bytes?) - before)
    }
}

impl PackageDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    /// By how many bytes the packages grew altogether; `None` as soon as a size is missing.
    #[must_use]
    pub fn growth_bytes(&self) -> Option<i128> {
        let sum = |packages: &[SbomPackage]| {
            let sizes = packages.iter().map(|p| p.size_bytes.map(i128::from));
            sizes.sum::<Option<i128>>()
        };
        let changes = self.changed.iter().map(PackageChange::growth_bytes);
        Some(sum(&self.added)? - sum(&self.removed)? + changes.sum::<Option<i128>>()?)
    }
}

/// Compares two package lists, in any order.
///
/// A size counts as no difference. A version or digest that one of the lists does not know makes
/// none either: documents of other programs often lack it.
#[must_use]
pub fn diff_packages(before: &[SbomPackage], after: &[SbomPackage]) -> PackageDiff {
    type Sides<'a> = (Vec<&'a SbomPackage>, Vec<&'a SbomPackage>);
    let mut names: BTreeMap<(&PurlType, &str), Sides<'_>> = BTreeMap::new();
    for package in before {
        names
            .entry((&package.kind, &package.name))
            .or_default()
            .0
            .push(package);
    }
    for package in after {
        names
            .entry((&package.kind, &package.name))
            .or_default()
            .1
            .push(package);
    }
    let mut found = PackageDiff::default();
    for (mut old, mut new) in names.into_values() {
        old.sort_unstable();
        new.sort_unstable();
        // A name may stand there several times with several versions: the same go first.
        let mut gone = Vec::new();
        for one in old {
            match new.iter().position(|other| same(one, other)) {
                Some(at) => drop(new.remove(at)),
                None => gone.push(one),
            }
        }
        if let ([one], [other]) = (&gone[..], &new[..]) {
            found.changed.push(PackageChange {
                before: (*one).clone(),
                after: (*other).clone(),
            });
            continue;
        }
        found.removed.extend(gone.into_iter().cloned());
        found.added.extend(new.into_iter().cloned());
    }
    found
}

fn same(one: &SbomPackage, other: &SbomPackage) -> bool {
    let version = one.version == other.version || one.version.is_none() || other.version.is_none();
    let digest = one.sha256 == other.sha256 || one.sha256.is_none() || other.sha256.is_none();
    version && digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sconce_schema::Sha256;

    fn package(name: &str, version: &str, size_bytes: Option<u64>) -> SbomPackage {
        SbomPackage {
            kind: PurlType::Python,
            name: name.to_owned(),
            version: Some(version.to_owned()),
            size_bytes,
            sha256: None,
        }
    }

    #[test]
    fn what_came_what_went_what_changed() {
        let before = [
            package("torch", "2.7", Some(800)),
            package("old", "1", Some(5)),
        ];
        let after = [
            package("new", "1", Some(7)),
            package("torch", "2.8", Some(700)),
        ];
        let found = diff_packages(&before, &after);
        assert_eq!(found.added, [package("new", "1", Some(7))]);
        assert_eq!(found.removed, [package("old", "1", Some(5))]);
        assert_eq!(found.changed[0].growth_bytes(), Some(-100));
        assert_eq!(found.growth_bytes(), Some(-98));
    }

    #[test]
    fn a_missing_size_is_no_zero() {
        let found = diff_packages(&[], &[package("a", "1", None)]);
        assert_eq!(found.growth_bytes(), None);
        assert_eq!(diff_packages(&[], &[]).growth_bytes(), Some(0));
    }

    #[test]
    fn the_same_version_in_other_bytes_is_a_change() {
        let with = |byte| SbomPackage {
            sha256: Some(Sha256([byte; 32])),
            ..package("a", "1", None)
        };
        assert_eq!(diff_packages(&[with(1)], &[with(2)]).changed.len(), 1);
        assert!(diff_packages(&[with(1)], &[with(1)]).is_empty());
        assert!(
            diff_packages(&[with(1)], &[package("a", "1", None)]).is_empty(),
            "not known"
        );
    }

    #[test]
    fn kinds_and_several_versions_are_kept_apart() {
        let deb = SbomPackage {
            kind: PurlType::Debian,
            ..package("six", "1", None)
        };
        let found = diff_packages(&[package("six", "1", None)], &[deb]);
        assert_eq!((found.added.len(), found.removed.len()), (1, 1));
        let before = [package("a", "1", None), package("a", "2", None)];
        let after = [package("a", "2", None), package("a", "3", None)];
        let found = diff_packages(&before, &after);
        assert_eq!(found.changed.len(), 1);
        assert_eq!(found.changed[0].after, package("a", "3", None));
    }

    proptest! {
        /// Every package is accounted for, and the other direction says the opposite.
        #[test]
        fn nothing_is_lost(a in lists(), b in lists()) {
            let (there, back) = (diff_packages(&a, &b), diff_packages(&b, &a));
            prop_assert_eq!(&there.added, &back.removed);
            prop_assert_eq!(&there.removed, &back.added);
            prop_assert_eq!(a.len() + there.added.len(), b.len() + there.removed.len());
            prop_assert!(diff_packages(&a, &a).is_empty());
        }
    }

    fn lists() -> impl Strategy<Value = Vec<SbomPackage>> {
        let one = ("[ab]", "[123]").prop_map(|(name, version)| package(&name, &version, None));
        proptest::collection::vec(one, 0..6)
    }
}
