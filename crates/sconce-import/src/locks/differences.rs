//! Two files of one folder that pin the same projects in different versions.

use std::collections::{BTreeMap, BTreeSet};

use sconce_formats::normalize_project_name;
use sconce_formats::tags::CpuArchitecture;

use super::{LockSelection, read_pinned_lock};
use crate::note::{ImportNote, NoteKind, redacted_line};
use crate::requirements::RequirementsScan;
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
        versions.is_disjoint(&others).then(|| VersionDifference {
            name,
            taken: versions.into_iter().collect(),
            other: others.into_iter().collect(),
        })
    });
    both.collect()
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
        let is_exact = !version.is_empty() && !version.contains([',', '*', ' ', '<', '>']);
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
    }
    versions
}
