//! The Debian packages that packages of Python need and do not bring, by the table of `sconce-formats`.

use std::collections::BTreeMap;

use sconce_formats::{debian_build_packages_of, debian_packages_of};
use sconce_schema::Progress;
use sconce_schema::lock::Deb;

use crate::python::pylock::LockedPackages;

/// A Debian package that a package of Python needs and does not bring.
pub(crate) struct SystemNeed {
    pub(crate) debian: &'static str,
    project: String,
    /// It is for building it from its sources.
    is_for_build: bool,
}

/// What packages, and the projects that are installed from where they lie, need of Debian and is not among
/// `debs`; each once.
pub(crate) fn find_system_needs(
    packages: &LockedPackages,
    projects: &[String],
    debs: &[Deb],
) -> Vec<SystemNeed> {
    let wheels = packages.wheels.iter().map(|wheel| &wheel.name);
    let sources = packages.sources.iter().map(|source| &source.name);
    let run = wheels.chain(sources.clone()).chain(projects);
    let run = run.map(|project| (project, debian_packages_of(project), false));
    let build = sources.map(|project| (project, debian_build_packages_of(project), true));
    let mut needs: Vec<SystemNeed> = Vec::new();
    for (project, packages, is_for_build) in run.chain(build) {
        for debian in packages {
            if !has_deb(debs, debian) && needs.iter().all(|need| need.debian != *debian) {
                let project = project.clone();
                needs.push(SystemNeed {
                    debian,
                    project,
                    is_for_build,
                });
            }
        }
    }
    needs
}

/// Whether a package is there, under its name of before the change to 64-bit times, too.
fn has_deb(debs: &[Deb], name: &str) -> bool {
    let mut names = debs.iter().map(|deb| deb.name.as_str());
    names.any(|other| other == name || other.strip_suffix("t64") == Some(name))
}

/// Those that are there, and those that this release does not have.
type NeedsByPresence<'a> = (Vec<&'a str>, Vec<&'a str>);

/// Says what was added, and what this release has not.
pub(crate) fn note_system_needs(needs: &[SystemNeed], debs: &[Deb], progress: &dyn Progress) {
    let mut by_project: BTreeMap<(&str, bool), NeedsByPresence<'_>> = BTreeMap::new();
    for need in needs {
        let key = (need.project.as_str(), need.is_for_build);
        let (added, missing) = by_project.entry(key).or_default();
        match has_deb(debs, need.debian) {
            true => added.push(need.debian),
            false => missing.push(need.debian),
        }
    }
    for ((project, is_for_build), (added, missing)) in by_project {
        if !added.is_empty() {
            let added = added.join(", ");
            let why = match is_for_build {
                true => "is built with them",
                false => "needs what its wheel does not bring",
            };
            progress.note(&format!("Debian's {added}: {project} {why}"));
        }
        if !missing.is_empty() {
            let missing = missing.join(", ");
            progress.note(&format!(
                "{project} may need {missing}, which this release does not have"
            ));
        }
    }
}
