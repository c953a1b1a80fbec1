//! Two files of one folder that pin the same projects in different versions.

use std::collections::{BTreeMap, BTreeSet};

use sconce_formats::normalize_project_name;
use sconce_formats::tags::CpuArchitecture;

use super::{LockSelection, read_pinned_lock};
use crate::conda;
use crate::note::{ImportNote, NoteKind, redacted_line};
use crate::project_files::pipfile;
use crate::project_files::requirements::RequirementsScan;
use crate::{ImportFormat, SiblingFiles};

/// More projects are counted alone.
const MAX_NAMED: usize = 10;

/// A project that two files pin differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionDifference {
    /// The project, normalised.
    pub name: String,
    /// Its versions in the file that is taken, and in the other.
    pub taken: Vec<String>,
    /// Those of the other.
    pub other: Vec<String>,
}

/// Says which file was taken and where the other differs; `None` where it does not.
#[must_use]
pub fn describe_differences(
    taken: &str,
    other: &str,
    differences: &[VersionDifference],
) -> Option<ImportNote> {
    let each: Vec<String> = differences
        .iter()
        .take(MAX_NAMED)
        .map(|one| {
            format!(
                "{} {} ({})",
                one.name,
                one.taken.join(" or "),
                one.other.join(" or ")
            )
        })
        .collect();
    let more = match differences.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why = format!(
        "{} is taken, whose versions differ: {}{more}",
        redacted_line(taken),
        redacted_list(&each)
    );
    let note = ImportNote::new(NoteKind::Decided, None, other, why);
    (!differences.is_empty()).then_some(note)
}

/// Names and versions as they can be shown.
fn redacted_list(each: &[String]) -> String {
    let each: Vec<String> = each.iter().map(|one| redacted_line(one)).collect();
    each.join(", ")
}

/// Versions by project.
type PinnedVersions = BTreeMap<String, BTreeSet<String>>;

/// Compares two files by format, path and text: the projects that both pin, and of which they have no version in
/// common. Nothing where one of them pins nothing.
#[must_use]
pub fn find_version_differences(
    taken: (ImportFormat, &str, &str),
    other: (ImportFormat, &str, &str),
    beside: SiblingFiles<'_>,
) -> Vec<VersionDifference> {
    let taken = list_versions(taken, beside);
    let mut other = list_versions(other, beside);
    let both = taken.into_iter().filter_map(|(name, versions)| {
        let others = other.remove(&name)?;
        let mut all = versions.iter();
        let is_met = all.any(|one| others.iter().any(|other| is_same_release(one, other)));
        (!is_met).then(|| VersionDifference {
            name,
            taken: versions.into_iter().collect(),
            other: others.into_iter().collect(),
        })
    });
    both.collect()
}

/// Whether two versions can be one: conda's `1.20.*` has all that begin so.
fn is_same_release(one: &str, other: &str) -> bool {
    let has = |one: &str, other: &str| {
        one.strip_suffix(".*").is_some_and(|begin| {
            let rest = other.strip_prefix(begin);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    one == other || has(one, other) || has(other, one)
}

fn list_versions(
    (format, path, text): (ImportFormat, &str, &str),
    beside: SiblingFiles<'_>,
) -> PinnedVersions {
    let mut versions = PinnedVersions::new();
    let mut add = |requirement: &str| {
        let requirement = requirement.split(';').next().unwrap_or_default();
        let Some((name, version)) = requirement.split_once("==") else {
            return;
        };
        let name = name
            .split('[')
            .next()
            .and_then(|name| normalize_project_name(name.trim()));
        let version = version.trim().trim_start_matches('=').trim();
        let number = version.strip_suffix(".*").unwrap_or(version);
        let is_exact = !number.is_empty() && !number.contains([',', '*', ' ', '<', '>']);
        if let Some(name) = name.filter(|_| is_exact) {
            // `2.4.1+cu121` and `2.4.1` are one release.
            let release = version.split('+').next().unwrap_or_default();
            versions.entry(name).or_default().insert(release.to_owned());
        }
    };
    if super::is_lock_format(format) {
        let selection = LockSelection {
            extras: &[],
            groups: &[],
            machine: CpuArchitecture::X86_64,
        };
        let lock = read_pinned_lock(format, path, text, beside, &selection);
        for package in lock.iter().flat_map(|lock| &lock.packages) {
            add(&package.requirement);
        }
    } else if format == ImportFormat::Requirements {
        let scan = RequirementsScan::scan_file(path, text, beside);
        for (_, requirement) in &scan.requirements {
            add(&requirement.text);
        }
    } else if matches!(format, ImportFormat::Conda | ImportFormat::Pipfile) {
        let imported = match format {
            ImportFormat::Conda => conda::convert(text, beside),
            _ => pipfile::convert(text),
        };
        for text in imported.iter().flat_map(|one| &one.spec.python.packages) {
            add(text);
        }
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condas_versions_are_compared_with_pips() {
        let pip = "numpy==1.26.4\nscipy==1.10.1\ntqdm==4\ntorch\n";
        let conda = "dependencies:\n- numpy=1.20\n- scipy=1.10\n- torch=1.0\n- pip:\n  - tqdm==5\n";
        let found = find_version_differences(
            (ImportFormat::Requirements, "requirements.txt", pip),
            (ImportFormat::Conda, "environment.yml", conda),
            &|_| None,
        );
        let note = describe_differences("requirements.txt", "environment.yml", &found).unwrap();
        assert_eq!(
            note.why,
            "requirements.txt is taken, whose versions differ: numpy 1.26.4 (1.20.*), tqdm 4 (5)"
        );
    }
}
