//! Which Pythons there are, and which Debian release has the one that is asked for.

use super::specifier::evaluate_specifiers;

/// A release that environments are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BaseRelease {
    /// As the spec names it.
    pub(super) name: &'static str,
    /// `3.13`.
    pub(super) python: &'static str,
    /// Its Python's full version (Debian's package `python3`).
    pub(super) numbers: [u32; 3],
    /// glibc's minor version.
    pub(super) glibc_minor: u32,
}

/// The releases, the default first.
pub(super) const RELEASES: [BaseRelease; 2] = [
    BaseRelease {
        name: "debian/trixie",
        python: "3.13",
        numbers: [3, 13, 5],
        glibc_minor: 41,
    },
    BaseRelease {
        name: "debian/bookworm",
        python: "3.11",
        numbers: [3, 11, 2],
        glibc_minor: 36,
    },
];

/// Every Python that an environment can have: Debian's, then those that stand alone, the newest first. What is
/// behind the minor version decides few markers and is that of this writing.
pub(super) const INTERPRETERS: [BaseRelease; 8] = [
    RELEASES[0],
    RELEASES[1],
    standalone("3.15", [3, 15, 0]),
    standalone("3.14", [3, 14, 2]),
    standalone("3.12", [3, 12, 12]),
    standalone("3.10", [3, 10, 19]),
    standalone("3.9", [3, 9, 25]),
    standalone("3.8", [3, 8, 20]),
];

const fn standalone(python: &'static str, numbers: [u32; 3]) -> BaseRelease {
    BaseRelease {
        name: RELEASES[0].name,
        python,
        numbers,
        glibc_minor: RELEASES[0].glibc_minor,
    }
}

impl BaseRelease {
    /// The one that has this Python, given as `3.11` or `3.11.8`.
    pub(super) fn with_python(version: &str) -> Option<&'static Self> {
        let minor: Vec<&str> = version.trim().split('.').take(2).collect();
        let minor = minor.join(".");
        INTERPRETERS.iter().find(|r| r.python == minor)
    }

    /// The newest whose Python meets the specifiers; `Err` where they cannot be understood.
    pub(super) fn newest_that_meets(specifiers: &str) -> Result<Option<&'static Self>, ()> {
        let mut best: Option<&'static Self> = None;
        for release in &INTERPRETERS {
            let newer = best.is_none_or(|best| best.numbers < release.numbers);
            if evaluate_specifiers(&release.numbers, specifiers).ok_or(())? && newer {
                best = Some(release);
            }
        }
        Ok(best)
    }
}

/// What there is, for a sentence.
pub(super) const PYTHONS: &str = "Pythons from 3.8 to 3.15 can be had";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_those_that_the_resolver_knows() {
        let mut names = RELEASES.map(|r| r.name.trim_start_matches("debian/"));
        names.sort_unstable();
        assert_eq!(names, sconce_schema::spec::RELEASES);
    }

    #[test]
    fn the_newest_that_fits_is_taken() {
        let python =
            |specifiers| BaseRelease::newest_that_meets(specifiers).map(|r| r.map(|r| r.python));
        assert_eq!(python(">=3.9"), Ok(Some("3.15")));
        assert_eq!(python(">=3.9,<3.13"), Ok(Some("3.12")));
        assert_eq!(python("<3.8"), Ok(None));
        assert_eq!(python("python"), Err(()));
        let release = |version| BaseRelease::with_python(version).map(|r| (r.python, r.name));
        assert_eq!(release("3.11.8"), Some(("3.11", "debian/bookworm")));
        assert_eq!(release("3.10"), Some(("3.10", "debian/trixie")));
        assert_eq!(release("3.1"), None);
    }
}
