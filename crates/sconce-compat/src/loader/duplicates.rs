//! Findings about CUDA libraries that are there more than once, and about which one wins.

use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::finding::{Certainty, Finding, Severity};

use super::load_results::{LoadPoint, LoadedLibraryUse, package_of_path, strip_dir_prefix};
use super::mismatch::fix_for_origin;
use super::missing_libraries::MissingLibraryContext;
use super::names;

const SHADOWED: &str = "library-shadowed";
/// Files or readers named in one finding.
const MAX_NAMED_FILES: usize = 12;

/// Libraries that come from elsewhere though the packages bring them; copies; CUDA of several
/// majors in one process.
pub(super) fn check_duplicates(
    loaded: &[LoadedLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&LoadedLibraryUse>> = BTreeMap::new();
    for one in loaded.iter().filter(|one| names::is_cuda(&one.soname)) {
        by_name.entry(&one.soname).or_default().push(one);
    }
    let mut findings = Vec::new();
    let mut shadows: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for (name, all) in &by_name {
        match shadowed(name, all, known) {
            Some((folder, finding)) => shadows.entry(folder).or_default().push(finding),
            None => findings.extend(copies(name, all, known)),
        }
    }
    let shadows = shadows
        .into_iter()
        .flat_map(|(folder, all)| together(&folder, all));
    findings.splice(..0, shadows);
    findings.extend(majors(&by_name, known));
    findings
}

/// Libraries that one folder shadows are one finding: one mend is for all of them.
fn together(folder: &str, mut all: Vec<Finding>) -> Option<Finding> {
    if all.len() < 2 {
        return all.pop();
    }
    let names = all.iter().filter_map(|one| one.subject.as_deref());
    let first: Vec<&str> = names.take(2).collect();
    let more = match all.len() - first.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let what = format!(
        "{} CUDA libraries come from {folder} instead of the packages' own: {}{more}",
        all.len(),
        first.join(", ")
    );
    let mut finding =
        Finding::new(SHADOWED, Severity::Warns, Certainty::Likely, what).with_subject(folder);
    let evidence = all.iter_mut().flat_map(|one| one.evidence.drain(..));
    finding.evidence = evidence.collect();
    finding.mends = all.swap_remove(0).mends;
    Some(finding)
}

/// A package ships it, and the loader takes another file: the folder of that, and the finding.
fn shadowed(
    name: &str,
    all: &[&LoadedLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Option<(String, Finding)> {
    let in_packages = |path: &str| {
        known
            .site_packages
            .iter()
            .any(|site| strip_dir_prefix(path, site).is_some())
    };
    let taken = all
        .iter()
        .find(|one| one.stage != LoadPoint::Optional && !in_packages(&one.real))?;
    let own = known
        .index
        .paths(name)
        .iter()
        .find(|path| in_packages(path))?;
    let whom = taken.loader.as_deref().unwrap_or(&taken.root);
    let what = format!(
        "{whom} gets {} instead of the packages' own {own}",
        taken.real
    );
    let finding = Finding::new(SHADOWED, Severity::Warns, Certainty::Likely, what)
        .with_subject(name)
        .with_evidence(&taken.real, None, format!("found by {}", taken.how))
        .with_evidence(*own, None, "what the packages bring");
    let finding = match fix_for_origin(&taken.found) {
        Some((what, action)) => finding.with_fix(what, action),
        None => finding,
    };
    let folder = taken.real.rsplit_once('/').map_or("", |(folder, _)| folder);
    Some((folder.to_owned(), finding))
}

/// Several files of one name, and who gets which.
fn copies(
    name: &str,
    all: &[&LoadedLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Option<Finding> {
    let files = known.index.paths(name);
    let wins: Vec<_> = all
        .iter()
        .filter(|one| one.stage != LoadPoint::Optional)
        .collect();
    let first = wins.iter().min_by_key(|one| one.stage)?;
    // A copy that a package keeps for itself and that nobody opens beside the other is no matter.
    let loaded: BTreeSet<&str> = wins.iter().map(|one| one.real.as_str()).collect();
    let outside = |path: &&str| {
        known
            .site_packages
            .iter()
            .all(|site| strip_dir_prefix(path, site).is_none())
    };
    if loaded.len() < 2 && (files.len() < 2 || !files.iter().any(outside)) {
        return None;
    }
    let what = format!(
        "{name} is there {} times; {} wins for {}",
        files.len(),
        first.real,
        match first.stage {
            LoadPoint::Torch => "torch",
            _ => first.root.as_str(),
        }
    );
    let code = "library-copies";
    let mut finding =
        Finding::new(code, Severity::Notes, Certainty::Certain, what).with_subject(name);
    for file in files.iter().take(MAX_NAMED_FILES) {
        let whose: BTreeSet<&str> = wins
            .iter()
            .filter(|one| one.real == **file)
            .map(|one| {
                one.loader
                    .as_deref()
                    .unwrap_or("whoever opens it by its path")
            })
            .collect();
        let value = match whose.first() {
            Some(one) if whose.len() > 1 => {
                format!("loaded for {one} and {} more", whose.len() - 1)
            }
            Some(one) => format!("loaded for {one}"),
            None => "not loaded".to_owned(),
        };
        finding = finding.with_evidence(*file, None, value);
    }
    Some(finding)
}

/// CUDA runtimes of several majors that are loaded into one process.
fn majors(
    by_name: &BTreeMap<&str, Vec<&LoadedLibraryUse>>,
    known: &MissingLibraryContext<'_>,
) -> Option<Finding> {
    let mut found: BTreeMap<u32, &LoadedLibraryUse> = BTreeMap::new();
    // Packages that are not of torch's CUDA.
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for (name, all) in by_name {
        let all = all.iter().filter(|one| one.stage != LoadPoint::Optional);
        let major = names::cuda_major(name).filter(|_| names::library_stem(name) == "libcudart");
        if major.is_some() && major != known.cuda_major {
            let loaders = all
                .clone()
                .map(|one| one.loader.as_ref().unwrap_or(&one.root));
            others.extend(loaders.filter_map(|path| package_of_path(path, known.site_packages)));
        }
        if names::library_stem(name) == "libcudart"
            && let Some(major) = names::cuda_major(name)
            && let Some(one) = all.min_by_key(|one| one.stage)
        {
            found.insert(major, one);
        }
    }
    if found.len() < 2 {
        return None;
    }
    let numbers: Vec<_> = found.keys().map(u32::to_string).collect();
    let what = format!(
        "Packages here use CUDA {}: they share no streams and no memory within one process",
        numbers.join(" and ")
    );
    let code = "cuda-majors-mixed";
    let mut finding = Finding::new(code, Severity::Warns, Certainty::Likely, what);
    if !others.is_empty() {
        let others: Vec<&str> = others.into_iter().collect();
        finding = finding.with_subject(others.join(", "));
    }
    for one in found.values() {
        let whom = one.loader.as_deref().unwrap_or(&one.root);
        finding = finding.with_evidence(&one.real, None, format!("loaded for {whom}"));
    }
    Some(finding.with_fix(
        "Install builds of all packages for the CUDA of torch.",
        None,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_folder_shadows_is_one_finding() {
        let one = |name: &str| {
            Finding::new(SHADOWED, Severity::Warns, Certainty::Likely, name)
                .with_subject(name)
                .with_evidence(name, None, "found")
                .with_fix("Take it out.", None)
        };
        let names = [
            "libcudnn_adv.so.9",
            "libcudnn_cnn.so.9",
            "libcudnn_ops.so.9",
        ];
        let found = together("/opt/cuda", names.map(one).into()).unwrap();
        assert_eq!(
            found.what,
            "3 CUDA libraries come from /opt/cuda instead of the packages' own: libcudnn_adv.so.9, \
             libcudnn_cnn.so.9 and 1 more"
        );
        assert_eq!((found.evidence.len(), found.mends.len()), (3, 1));
        assert_eq!(found.subject.as_deref(), Some("/opt/cuda"));
        let single = together("/opt/cuda", vec![one(names[0])]).unwrap();
        assert_eq!(single, one(names[0]));
        assert_eq!(together("/opt/cuda", Vec::new()), None);
    }
}
