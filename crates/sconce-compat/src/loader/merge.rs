//! Libraries that are missing for one cause.

use std::collections::BTreeSet;

use sconce_schema::finding::{Finding, Fix, FixAction};

use super::missing_libraries::pip_install_action;

/// What installs NVIDIA's packages again as they are.
const REINSTALL_COMMAND: &str = "python -m pip install --force-reinstall --no-deps nvidia-";
/// The key of a spec that asks for Python packages.
const PACKAGES: &str = "python.packages";
/// Libraries that a sentence names.
const MAX_NAMED_LIBRARIES: usize = 3;
/// Evidence of one finding.
const MAX_EVIDENCE: usize = 24;

/// Makes one finding of those that one command mends: that of all of them, or for NVIDIA's packages
/// one command that names each. The first to be loaded gives the words.
pub(super) fn of_one_mend(findings: Vec<Finding>) -> Vec<Finding> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for finding in findings {
        let fits = |group: &&mut Vec<Finding>| group.first().is_some_and(|one| same(one, &finding));
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups.into_iter().filter_map(joined).collect()
}

fn same(one: &Finding, other: &Finding) -> bool {
    let both_again = || again(one).is_some() && again(other).is_some();
    let same_mends = || match (one.mends.first(), other.mends.first()) {
        // Its sentence names the library, the command is the same.
        (Some(a), Some(b)) if a.action.is_some() => a.action == b.action,
        _ => !one.mends.is_empty() && one.mends == other.mends,
    };
    one.code == other.code && (same_mends() || both_again())
}

/// The package of NVIDIA that installing again is the only mend.
fn again(finding: &Finding) -> Option<&str> {
    let [mend] = finding.mends.as_slice() else {
        return None;
    };
    match &mend.action {
        Some(FixAction::Command { line, .. }) => {
            let package = line.strip_prefix(REINSTALL_COMMAND)?;
            (!package.contains(' ')).then(|| &line[REINSTALL_COMMAND.len() - "nvidia-".len()..])
        }
        _ => None,
    }
}

fn joined(mut all: Vec<Finding>) -> Option<Finding> {
    // Of those that weigh the same the first stays.
    let heaviest = (0..all.len()).min_by_key(|&at| (all[at].weight, at))?;
    let mut first = all.remove(heaviest);
    if all.is_empty() {
        return Some(first);
    }
    if let Some(line) = together(&first, &all) {
        first.mends.clear();
        first = first.with_fix(
            "Install the packages again that ship them.",
            Some(pip_install_action(&line)),
        );
    }
    if let Some(packages) = in_spec(&first, &all) {
        first.mends.retain(|mend| wanted(mend).is_none());
        first = first.with_fix(
            "Add them to the packages, in the versions that torch asks for.",
            Some(FixAction::Spec {
                key: PACKAGES.to_owned(),
                value: format!("[{packages}]"),
            }),
        );
    }
    let names: Vec<&str> = all.iter().filter_map(library).collect();
    first.what += match first.code.as_str() {
        "library-not-found" => "; nor does it find ",
        _ => "; the same holds for ",
    };
    first.what += &names[..names.len().min(MAX_NAMED_LIBRARIES)].join(", ");
    if let Some(more) = names
        .len()
        .checked_sub(MAX_NAMED_LIBRARIES)
        .filter(|more| *more > 0)
    {
        first.what += &format!(" and {more} more");
    }
    for other in all {
        first.certainty = first.certainty.min(other.certainty);
        let room = MAX_EVIDENCE.saturating_sub(first.evidence.len());
        first.evidence.extend(other.evidence.into_iter().take(room));
    }
    Some(first)
}

/// What pip is asked for all packages, where there are several.
fn together(first: &Finding, others: &[Finding]) -> Option<String> {
    let packages = std::iter::once(first).chain(others).filter_map(again);
    let packages: BTreeSet<&str> = packages.collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    (packages.len() > 1).then(|| format!("--force-reinstall --no-deps {}", packages.join(" ")))
}

/// What specs are told to ask for, without the brackets.
fn in_spec(first: &Finding, others: &[Finding]) -> Option<String> {
    let mends = std::iter::once(first).chain(others);
    let mends = mends.flat_map(|one| &one.mends).filter_map(wanted);
    let packages: BTreeSet<&str> = mends.collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    (packages.len() > 1).then(|| packages.join(", "))
}

fn wanted(mend: &Fix) -> Option<&str> {
    match &mend.action {
        Some(FixAction::Spec { key, value }) if key == PACKAGES => {
            value.strip_prefix('[')?.strip_suffix(']')
        }
        _ => None,
    }
}

/// The library that is missing: what is needed, or what it is about.
fn library(finding: &Finding) -> Option<&str> {
    let needed = finding.evidence.first();
    let needed = needed.filter(|one| one.place.as_deref() == Some("DT_NEEDED"));
    needed
        .map(|one| one.value.as_str())
        .or(finding.subject.as_deref())
}
