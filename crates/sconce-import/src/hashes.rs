//! What a requirements file says beside its requirements and uv does not do as pip: `--hash`, which it reads over
//! where it resolves, and `--extra-index-url`, of which it takes the first that has a project.

use sconce_formats::{PinnedFile, PinnedPackage};

use super::SiblingFiles;
use super::note::redacted_line;
use super::requirement::Requirement;
use super::requirements::RequirementsScan;

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

/// What stands in requirements files and counts for a lock beside the requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementOptions {
    /// The projects that have digests.
    pub hashed: Vec<PinnedPackage>,
    /// Whether they name indexes beside the usual one: pip takes the best version of all of them.
    pub has_extra_index: bool,
    /// The `--hash` options that do not count.
    pub unusable_hashes: Vec<UnusableHash>,
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

/// Reads the options of a requirements file at `path`, and of those that it includes.
#[must_use]
pub fn read_requirement_options(
    path: &str,
    text: &str,
    beside: SiblingFiles<'_>,
) -> RequirementOptions {
    let scan = RequirementsScan::scan_file(path, text, beside);
    RequirementOptions {
        has_extra_index: !scan.extra_index.is_empty(),
        hashed: scan.digests,
        unusable_hashes: scan.unusable_hashes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_with_what_is_included() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let more = format!("numpy==2.0 --hash=sha256:{a}\n-r ../r.txt\n");
        let text = format!(
            "-r reqs/more.txt\ntorch==2.6.0 \\\n    --hash=sha256:{a} \\\n    --hash sha256:{b}\nsix\nx==1 --hash=md5:00\n"
        );
        let beside = |path: &str| match path {
            "reqs/more.txt" => Some(more.clone()),
            "r.txt" => Some(text.clone()),
            _ => None,
        };
        let options = read_requirement_options("r.txt", &text, &beside);
        assert!(!options.has_extra_index);
        let found = options.hashed;
        let torch = found
            .iter()
            .find(|package| package.name == "torch")
            .unwrap();
        let digests: Vec<&str> = torch
            .files
            .iter()
            .map(|file| file.sha256.as_str())
            .collect();
        assert_eq!(digests, [a.as_str(), b.as_str()]);
        assert!(found.iter().any(|package| package.name == "numpy"));
        assert!(
            !found
                .iter()
                .any(|package| ["six", "x"].contains(&package.name.as_str()))
        );
        let unusable = UnusableHash {
            place: "r.txt:6".to_owned(),
            digest: "md5:00".to_owned(),
            problem: HashProblem::Refused,
        };
        assert_eq!(options.unusable_hashes[0], unusable);
    }

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
