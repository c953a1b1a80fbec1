//! The two orders of versions that a lock's packages have.

use std::cmp::Ordering;

use pep440_rs::Version;
use serde::Serialize;

use crate::debian::version;

/// Where a package comes from, which decides how its versions are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ecosystem {
    /// Python packages: PEP 440.
    Python,
    /// Debian packages: deb-version(7).
    Debian,
}

impl Ecosystem {
    /// Compares two versions; `None` where one of them is none in this ecosystem.
    #[must_use]
    pub fn compare_versions(self, left: &str, right: &str) -> Option<Ordering> {
        match self {
            Self::Python => Some(python(left)?.cmp(&python(right)?)),
            Self::Debian if is_debian(left) && is_debian(right) => {
                Some(version::compare(left, right))
            }
            Self::Debian => None,
        }
    }

    /// As [`Ecosystem::compare_versions`], of a locked version with one that an advisory names. A local
    /// version such as `2.8.0+cu126` counts as `2.8.0` unless the advisory names a local version
    /// too, as in PEP 440's `==`: else it would lie above "the last affected is 2.8.0".
    #[must_use]
    pub fn compare_with_advisory(self, locked: &str, named: &str) -> Option<Ordering> {
        match self {
            Self::Python => {
                let (locked, named) = (python(locked)?, python(named)?);
                Some(if named.is_local() {
                    locked.cmp(&named)
                } else {
                    locked.without_local().cmp(&named)
                })
            }
            Self::Debian => self.compare_versions(locked, named),
        }
    }
}

/// A number that does not fit is no version: nothing above 2^64 can be compared here.
fn python(text: &str) -> Option<Version> {
    // The parser's time grows with the text; no version is near this long.
    (text.len() <= 200).then(|| text.parse().ok()).flatten()
}

/// deb-version(7): what a version may consist of. Advisories also say `<unfixed>` and the like.
fn is_debian(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+-~:".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The order of PEP 440's own examples ("Summary of permitted suffixes and relative ordering").
    #[test]
    fn python_versions_have_the_order_of_the_standard() {
        let sorted = [
            "0.9",
            "1.dev0",
            "1.0.dev456",
            "1.0a1",
            "1.0a2.dev456",
            "1.0a12.dev456",
            "1.0a12",
            "1.0b1.dev456",
            "1.0b2",
            "1.0b2.post345.dev456",
            "1.0b2.post345",
            "1.0rc1.dev456",
            "1.0rc1",
            "1.0",
            "1.0+abc.5",
            "1.0+abc.7",
            "1.0+5",
            "1.0.post456.dev34",
            "1.0.post456",
            "1.0.15",
            "1.1.dev1",
            "1!0.1",
        ];
        for pair in sorted.windows(2) {
            let order = Ecosystem::Python.compare_versions(pair[0], pair[1]);
            assert_eq!(order, Some(Ordering::Less), "{pair:?}");
        }
        for (a, b) in [("1.0", "1"), ("1.0-1", "1.post1"), ("V1.0-ALPHA", "1a0")] {
            assert_eq!(
                Ecosystem::Python.compare_versions(a, b),
                Some(Ordering::Equal),
                "{a}"
            );
        }
    }

    #[test]
    fn what_is_no_version_is_not_compared() {
        let huge = "9".repeat(30);
        for text in ["", "2004d", "1.0.*", "<unfixed>", "1 0", &huge] {
            assert_eq!(
                Ecosystem::Python.compare_versions("1", text),
                None,
                "{text}"
            );
        }
        for text in ["", "<unfixed>", "unfixed", "1 0", "1_0"] {
            assert_eq!(
                Ecosystem::Debian.compare_versions("1", text),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn a_local_version_counts_as_its_public_one() {
        let compare = |a, b| Ecosystem::Python.compare_with_advisory(a, b);
        assert_eq!(compare("2.8.0+cu126", "2.8.0"), Some(Ordering::Equal));
        assert_eq!(compare("2.8.0+cu126", "2.8.0+cu126"), Some(Ordering::Equal));
        assert_eq!(compare("2.8.0+cu126", "2.8.0+cu128"), Some(Ordering::Less));
        assert_eq!(compare("2.8.0", "2.8.0+cu126"), Some(Ordering::Less));
    }

    proptest! {
        #[test]
        fn python_versions_have_a_total_order(
            a in "[0-9]{1,2}(\\.[0-9]){0,2}(a|b|rc|\\.post|\\.dev)?[0-9]?(\\+[a-z0-9]{1,2})?",
            b in "[0-9]{1,2}(\\.[0-9]){0,2}(a|b|rc|\\.post|\\.dev)?[0-9]?(\\+[a-z0-9]{1,2})?",
            c in "[0-9]{1,2}(\\.[0-9]){0,2}(a|b|rc|\\.post|\\.dev)?[0-9]?(\\+[a-z0-9]{1,2})?",
        ) {
            let compare = |a: &str, b: &str| Ecosystem::Python.compare_versions(a, b).unwrap();
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }

        #[test]
        fn no_text_panics(a in "\\PC{0,30}", b in "[0-9a-z.+!~:-]{0,30}") {
            for ecosystem in [Ecosystem::Python, Ecosystem::Debian] {
                let _ = ecosystem.compare_versions(&a, &b);
                let _ = ecosystem.compare_with_advisory(&b, &a);
            }
        }
    }
}
