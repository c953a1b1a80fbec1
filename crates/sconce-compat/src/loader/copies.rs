//! Findings about CUDA libraries that are there more than once, and about which one wins.

use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::finding::{Certainty, Finding, Weight};

use super::gather::{LoadedAt, Stage, below};
use super::mismatch::unsteer;
use super::missing::Known;
use super::names;

/// Files or readers named in one finding.
const MOST_NAMED: usize = 12;

/// Libraries that come from elsewhere though the packages bring them; copies; CUDA of several
/// majors in one process.
pub(super) fn judge(loaded: &[LoadedAt], known: &Known<'_>) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&LoadedAt>> = BTreeMap::new();
    for one in loaded.iter().filter(|one| names::is_cuda(&one.soname)) {
        by_name.entry(&one.soname).or_default().push(one);
    }
    let mut findings = Vec::new();
    for (name, all) in &by_name {
        match shadowed(name, all, known) {
            Some(finding) => findings.push(finding),
            None => findings.extend(copies(name, all, known)),
        }
    }
    findings.extend(majors(&by_name));
    findings
}

/// A package ships it, and the loader takes another file.
fn shadowed(name: &str, all: &[&LoadedAt], known: &Known<'_>) -> Option<Finding> {
    let in_packages = |path: &str| {
        known
            .site_packages
            .iter()
            .any(|site| below(path, site).is_some())
    };
    let taken = all
        .iter()
        .find(|one| one.stage != Stage::Optional && !in_packages(&one.real))?;
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
    let finding = Finding::new("library-shadowed", Weight::Warns, Certainty::Likely, what)
        .about(name)
        .seen(&taken.real, None, format!("found by {}", taken.how))
        .seen(*own, None, "what the packages bring");
    Some(match unsteer(&taken.found) {
        Some((what, action)) => finding.mend(what, action),
        None => finding,
    })
}

/// Several files of one name, and who gets which.
fn copies(name: &str, all: &[&LoadedAt], known: &Known<'_>) -> Option<Finding> {
    let files = known.index.paths(name);
    let wins: Vec<_> = all
        .iter()
        .filter(|one| one.stage != Stage::Optional)
        .collect();
    let first = wins.iter().min_by_key(|one| one.stage)?;
    // A copy that a package keeps for itself and that nobody opens beside the other is no matter.
    let loaded: BTreeSet<&str> = wins.iter().map(|one| one.real.as_str()).collect();
    let outside = |path: &&str| {
        known
            .site_packages
            .iter()
            .all(|site| below(path, site).is_none())
    };
    if loaded.len() < 2 && (files.len() < 2 || !files.iter().any(outside)) {
        return None;
    }
    let what = format!(
        "{name} is there {} times; {} wins for {}",
        files.len(),
        first.real,
        match first.stage {
            Stage::Torch => "torch",
            _ => first.root.as_str(),
        }
    );
    let code = "library-copies";
    let mut finding = Finding::new(code, Weight::Notes, Certainty::Certain, what).about(name);
    for file in files.iter().take(MOST_NAMED) {
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
        finding = finding.seen(*file, None, value);
    }
    Some(finding)
}

/// CUDA runtimes of several majors that are loaded into one process.
fn majors(by_name: &BTreeMap<&str, Vec<&LoadedAt>>) -> Option<Finding> {
    let mut found: BTreeMap<u32, &LoadedAt> = BTreeMap::new();
    for (name, all) in by_name {
        let all = all.iter().filter(|one| one.stage != Stage::Optional);
        if names::stem(name) == "libcudart"
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
    let mut finding = Finding::new(code, Weight::Warns, Certainty::Likely, what);
    for one in found.values() {
        let whom = one.loader.as_deref().unwrap_or(&one.root);
        finding = finding.seen(&one.real, None, format!("loaded for {whom}"));
    }
    Some(finding.mend(
        "Install builds of all packages for the CUDA of torch.",
        None,
    ))
}
