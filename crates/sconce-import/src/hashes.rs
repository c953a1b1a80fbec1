//! What a requirements file says beside its requirements and uv does not do as pip: `--hash`, which it reads over
//! where it resolves, and `--extra-index-url`, of which it takes the first that has a project.

use sconce_formats::{PinnedFile, PinnedPackage};

use super::requirements::{logical_lines, split_option, split_options};
use super::{SiblingFiles, inside, requirement};

/// Files that are read, all together, and how deep they may name each other.
const MAX_FILES: usize = 50;
const MAX_DEPTH: usize = 8;
/// Lines that are read, all together.
const MAX_LINES: usize = 20_000;

/// What stands in requirements files and counts for a lock beside the requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementOptions {
    /// The projects that have digests.
    pub hashed: Vec<PinnedPackage>,
    /// Whether they name indexes beside the usual one: pip takes the best version of all of them.
    pub has_extra_index: bool,
}

/// Reads the options of a requirements file at `path`, and of those that it includes.
#[must_use]
pub fn read_requirement_options(
    path: &str,
    text: &str,
    beside: SiblingFiles<'_>,
) -> RequirementOptions {
    let mut found = RequirementOptions::default();
    let mut open = vec![(path.to_owned(), text.to_owned(), 0)];
    let (mut files, mut lines) = (0, 0);
    while let Some((path, text, depth)) = open.pop() {
        for (_, line) in logical_lines(&text) {
            lines += 1;
            if lines > MAX_LINES {
                return found;
            }
            if line.starts_with('-') {
                let (option, value) = split_option(&line);
                found.has_extra_index |= option == "--extra-index-url";
                let is_include = matches!(option, "-r" | "--requirement");
                let value = value.trim().trim_matches(['"', '\'']);
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let target = inside(format!("{folder}/{value}").trim_start_matches('/'));
                if let Some(target) = target
                    && is_include
                    && depth < MAX_DEPTH
                    && files < MAX_FILES
                    && let Some(text) = beside(&target)
                {
                    files += 1;
                    open.push((target, text, depth + 1));
                }
                continue;
            }
            let (text, options) = split_options(&line);
            let digests = options.split("--hash").skip(1);
            let digests = digests.map(|part| part.trim_start_matches(['=', ' ']));
            let digests = digests.filter_map(|part| part.split_whitespace().next());
            let files: Vec<PinnedFile> = digests
                .filter_map(|digest| PinnedFile::from_digest(None, digest))
                .collect();
            if let (Ok(requirement), false) = (requirement::parse(text), files.is_empty()) {
                found.hashed.push(PinnedPackage {
                    name: requirement.name,
                    requirement: requirement.text,
                    files,
                });
            }
        }
    }
    found
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
    }
}
