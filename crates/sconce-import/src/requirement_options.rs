//! What a requirements file says beside its requirements and uv does not do as pip: `--hash`, which it reads over
//! where it resolves, and `--extra-index-url`, of which it takes the first that has a project.

use sconce_formats::PinnedPackage;

use super::SiblingFiles;
use super::hashes::UnusableHash;
use crate::project_files::requirements::RequirementsScan;

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
    use super::super::hashes::HashProblem;
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
}
