//! `pdm.lock`: <https://pdm-project.org/latest/usage/lockfile/>; formats 4.0 to 4.5.

use std::collections::BTreeMap;

use sconce_formats::PinnedFile;
use serde::Deserialize;

use super::graph::{LockedNeed, LockedOrigin, LockedPackage};
use super::{
    LockSelection, ReadLock, needs_of_project, parse_toml, read_project, requirement_need,
};
use crate::{ImportError, SiblingFiles};

/// The main version of the format that is read.
const VERSION: i64 = 4;

#[derive(Deserialize)]
struct PdmLock {
    #[serde(default)]
    metadata: PdmMetadata,
    #[serde(default)]
    package: Vec<PdmPackage>,
}

#[derive(Default, Deserialize)]
struct PdmMetadata {
    lock_version: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    targets: Vec<PdmTarget>,
    /// `name version` to its files, before 4.4.
    #[serde(default)]
    files: BTreeMap<String, Vec<PdmFile>>,
}

#[derive(Deserialize)]
struct PdmTarget {
    requires_python: Option<String>,
}

#[derive(Deserialize)]
struct PdmPackage {
    name: String,
    version: Option<String>,
    requires_python: Option<String>,
    marker: Option<String>,
    groups: Option<Vec<String>>,
    #[serde(default)]
    extras: Vec<String>,
    #[serde(default)]
    dependencies: Vec<String>,
    #[serde(default)]
    files: Vec<PdmFile>,
    git: Option<String>,
    revision: Option<String>,
    subdirectory: Option<String>,
    url: Option<String>,
    path: Option<String>,
}

#[derive(Deserialize, Clone)]
struct PdmFile {
    file: Option<String>,
    url: Option<String>,
    hash: Option<String>,
}

impl PdmFile {
    fn pinned(&self) -> Option<PinnedFile> {
        let address = self.file.as_ref().or(self.url.as_ref());
        let name = address.map(|address| super::file_name_of(address));
        PinnedFile::from_digest(name, self.hash.as_deref()?)
    }
}

impl PdmPackage {
    fn origin(&self) -> LockedOrigin {
        if let Some(git) = &self.git {
            let commit = self.revision.as_deref().unwrap_or_default();
            let folder = self.subdirectory.as_deref();
            return LockedOrigin::Address(super::git_requirement(git, commit, folder));
        }
        match (&self.url, &self.path) {
            (Some(url), _) if url.contains("://") => LockedOrigin::Address(url.clone()),
            (_, Some(path)) if !path.ends_with(".whl") && !path.ends_with(".gz") => {
                LockedOrigin::Folder(Some(path.clone()))
            }
            (None, None) => LockedOrigin::Index,
            _ => LockedOrigin::Unsupported(super::LOCAL),
        }
    }
}

pub(super) fn read(
    text: &str,
    beside: SiblingFiles<'_>,
    selection: &LockSelection<'_>,
) -> Result<ReadLock, ImportError> {
    let mut lock: PdmLock = parse_toml(text)?;
    let version = lock.metadata.lock_version.as_deref().unwrap_or_default();
    let version = version.split('.').next().and_then(|v| v.parse().ok());
    if version != Some(VERSION) {
        return Err(ImportError::LockVersion {
            file: "pdm.lock",
            found: version.unwrap_or_default(),
            read: VERSION,
        });
    }
    let project = read_project(beside);
    let mut read = ReadLock {
        is_project_installed: project
            .as_ref()
            .is_some_and(|root| super::is_installed(root, "pdm", "distribution")),
        ..ReadLock::default()
    };
    let asked: Vec<&str> = ["default"]
        .into_iter()
        .chain(selection.extras.iter().map(String::as_str))
        .chain(selection.groups.iter().map(String::as_str))
        .collect();
    read.groups = std::mem::take(&mut lock.metadata.groups);
    read.groups.retain(|group| !asked.contains(&group.as_str()));
    let pythons = lock
        .metadata
        .targets
        .iter()
        .map(|t| t.requires_python.clone());
    let pythons: Vec<String> = pythons.flatten().collect();
    if let [one] = pythons.as_slice() {
        read.graph.requires_python = Some(one.clone());
    }
    // Each package says which groups it is for, or all that needs others has to be followed.
    if lock.package.iter().any(|package| package.groups.is_none()) {
        let needs = project.and_then(|root| needs_of_project(&root, selection));
        if needs.is_none() {
            read.left_out
                .push(("pyproject.toml".to_owned(), super::WHOLE));
        }
        read.graph.roots = needs;
    } else {
        lock.package.retain(|package| {
            let mut groups = package.groups.iter().flatten();
            groups.any(|group| asked.contains(&group.as_str()))
        });
    }
    for package in lock.package {
        let key = format!(
            "{} {}",
            package.name,
            package.version.as_deref().unwrap_or_default()
        );
        let older = lock.metadata.files.get(&key).into_iter().flatten();
        let files = package.files.iter().chain(older);
        let files: Vec<PinnedFile> = files.filter_map(PdmFile::pinned).collect();
        let needs: Vec<LockedNeed> = package
            .dependencies
            .iter()
            .filter_map(|text| requirement_need(text))
            .collect();
        let origin = package.origin();
        // What is needed for an extra stands in an entry of its own.
        if !package.extras.is_empty() {
            let same = |one: &&mut LockedPackage| {
                one.name == package.name && one.version == package.version
            };
            if let Some(known) = read.graph.packages.iter_mut().rev().take(8).find(same) {
                for extra in package.extras {
                    known
                        .extras
                        .entry(extra)
                        .or_default()
                        .extend(needs.iter().cloned());
                }
                continue;
            }
        }
        let extras = package
            .extras
            .into_iter()
            .map(|extra| (extra, needs.clone()));
        read.graph.packages.push(LockedPackage {
            extras: extras.collect(),
            name: package.name,
            version: package.version,
            origin,
            files,
            marker: package.marker,
            pythons: package.requires_python,
            needs,
            ..LockedPackage::default()
        });
    }
    Ok(read)
}
