//! Which Debian release has the Python that is asked for.

use super::specifier::{compare_versions, evaluate_specifiers};

/// A release that environments are made from.
#[derive(Debug, PartialEq, Eq)]
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

impl BaseRelease {
    /// The one that has this Python, given as `3.11` or `3.11.8`.
    pub(super) fn with_python(version: &str) -> Option<&'static Self> {
        let minor: Vec<&str> = version.trim().split('.').take(2).collect();
        RELEASES.iter().find(|r| r.python == minor.join("."))
    }

    /// The first whose Python meets the specifiers; `Err` where they cannot be understood.
    pub(super) fn that_meets(specifiers: &str) -> Result<Option<&'static Self>, ()> {
        for release in &RELEASES {
            if evaluate_specifiers(&release.numbers, specifiers).ok_or(())? {
                return Ok(Some(release));
            }
        }
        Ok(None)
    }
}

/// What the releases have, for a sentence.
pub(super) const PYTHONS: &str = "Debian trixie has 3.13 and bookworm 3.11";

/// The lowest torch with every wheel (triton too) for Python 3.13, and the lowest with any for
/// 3.11: tags of the wheels on the package index, and torch's own markers for triton.
pub(super) const TORCH_FOR_3_13: [u32; 2] = [2, 6];
pub(super) const TORCH_FOR_3_11: [u32; 2] = [1, 13];

/// CUDA of the wheels of torch that the main package index has, by torch's minor version (their
/// pins of nvrtc).
pub(super) fn usual_cuda(torch: &[u32]) -> Option<&'static str> {
    if compare_versions(torch, &[2, 16]).is_ge() {
        return None;
    }
    Some(match torch {
        [2, 15, ..] => "13.2",
        [2, 11..=14, ..] => "13.0",
        [2, 8..=10, ..] => "12.8",
        [2, 7, ..] => "12.6",
        [2, 5 | 6, ..] => "12.4",
        [2, 1..=4, ..] => "12.1",
        [2, 0, ..] => "11.7",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_those_that_the_resolver_knows() {
        let mut names = RELEASES.map(|r| r.name.trim_start_matches("debian/"));
        names.sort_unstable();
        assert_eq!(names, sconce_schema::spec::RELEASES);
        for release in &RELEASES {
            assert!(PYTHONS.contains(release.python));
        }
    }

    #[test]
    fn the_newest_that_fits_is_taken() {
        let python = |specifiers| BaseRelease::that_meets(specifiers).map(|r| r.map(|r| r.python));
        assert_eq!(python(">=3.9"), Ok(Some("3.13")));
        assert_eq!(python(">=3.9,<3.12"), Ok(Some("3.11")));
        assert_eq!(python("<3.11"), Ok(None));
        assert_eq!(python("python"), Err(()));
        let python = |version| BaseRelease::with_python(version).map(|r| r.python);
        assert_eq!(python("3.11.8"), Some("3.11"));
        assert_eq!(python("3.1"), None);
    }
}
