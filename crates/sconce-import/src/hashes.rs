//! `--hash` beside a requirement.

use sconce_formats::{PinnedFile, PinnedPackage};

use super::note::redacted_line;
use super::requirement::Requirement;

/// A `--hash` that no file is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableHash {
    /// `requirements.txt:3`.
    pub place: String,
    /// As it is written, on one line.
    pub digest: String,
    /// Why.
    pub problem: HashProblem,
}

/// Why a `--hash` does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashProblem {
    /// pip does not take it: another kind than SHA-256, SHA-384 and SHA-512, or of another length.
    Refused,
    /// Its kind is not compared, and the requirement has no SHA-256.
    NotCompared,
}

/// The files that `--hash` allows for a requirement, where one is known by its SHA-256; and the first that does not
/// count.
pub(super) fn read_hashes(
    requirement: &Requirement,
    options: &str,
) -> (Option<PinnedPackage>, Option<(String, HashProblem)>) {
    let digests = options.split("--hash").skip(1);
    let digests: Vec<&str> = digests
        .map(|part| part.trim_start_matches(['=', ' ', '\t']))
        .map(|part| part.split_whitespace().next().unwrap_or_default())
        .collect();
    let files: Vec<PinnedFile> = digests
        .iter()
        .filter_map(|digest| PinnedFile::from_digest(None, digest))
        .collect();
    let refused = digests.iter().find(|digest| !is_taken_by_pip(digest));
    let unusable = match (refused, digests.first()) {
        (Some(digest), _) => Some((redacted_line(digest), HashProblem::Refused)),
        (None, Some(digest)) if files.is_empty() => {
            Some((redacted_line(digest), HashProblem::NotCompared))
        }
        _ => None,
    };
    let pinned = (!files.is_empty()).then(|| PinnedPackage {
        name: requirement.name.clone(),
        requirement: requirement.text.clone(),
        files,
    });
    (pinned, unusable)
}

/// Whether pip takes it (pip's `STRONG_HASHES`).
fn is_taken_by_pip(digest: &str) -> bool {
    let (kind, hex) = digest.split_once(':').unwrap_or_default();
    let digits = match kind {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == digits && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_is_not_compared_is_known() {
        let (a, long) = ("a".repeat(64), "b".repeat(128));
        let problem = |options: &str| {
            let one = super::super::requirement::parse("x==1").unwrap();
            read_hashes(&one, options).1.map(|(_, problem)| problem)
        };
        for (options, expected) in [
            (String::new(), None),
            (format!(" --hash=sha256:{a}"), None),
            (format!(" --hash sha256:{a} --hash=sha512:{long}"), None),
            (
                format!(" --hash=sha512:{long}"),
                Some(HashProblem::NotCompared),
            ),
            (format!(" --hash=sha256:{a}0"), Some(HashProblem::Refused)),
            (
                format!(" --hash=sha256:{a} --hash=md5:0"),
                Some(HashProblem::Refused),
            ),
            (" --hash=".to_owned(), Some(HashProblem::Refused)),
        ] {
            assert_eq!(problem(&options), expected, "{options}");
        }
    }
}
