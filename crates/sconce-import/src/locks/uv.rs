//! `uv.lock`: <https://docs.astral.sh/uv/concepts/projects/layout/>; its shape as uv 0.4 to 0.13 write it.

use std::collections::BTreeMap;

use sconce_formats::PinnedFile;
use serde::Deserialize;
use toml::Table;

use super::graph::{LockedNeed, LockedOrigin, LockedPackage, LockedWheel};
use super::{LockSelection, ReadLock, common_address, parse_toml};
use crate::ImportError;

/// The version of the format that is read.
const VERSION: i64 = 1;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct UvLock {
    version: i64,
    requires_python: Option<String>,
    #[serde(default)]
    conflicts: Vec<Vec<UvConflict>>,
    #[serde(default)]
    manifest: UvManifest,
    #[serde(default)]
    package: Vec<UvPackage>,
}

#[derive(Deserialize)]
struct UvConflict {
    extra: Option<String>,
    group: Option<String>,
}

#[derive(Default, Deserialize)]
struct UvManifest {
    #[serde(default)]
    members: Vec<String>,
    /// Of a script's lock.
    #[serde(default)]
    requirements: Vec<UvNeed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct UvPackage {
    name: String,
    version: Option<String>,
    #[serde(default)]
    source: Table,
    #[serde(default)]
    dependencies: Vec<UvNeed>,
    #[serde(default)]
    optional_dependencies: BTreeMap<String, Vec<UvNeed>>,
    #[serde(default)]
    dev_dependencies: BTreeMap<String, Vec<UvNeed>>,
    #[serde(default)]
    resolution_markers: Vec<String>,
    sdist: Option<UvFile>,
    #[serde(default)]
    wheels: Vec<UvFile>,
}

#[derive(Deserialize, Clone)]
struct UvNeed {
    name: String,
    version: Option<String>,
    source: Option<Table>,
    marker: Option<String>,
    #[serde(default)]
    extra: Vec<String>,
}

#[derive(Deserialize)]
struct UvFile {
    url: Option<String>,
    path: Option<String>,
    filename: Option<String>,
    hash: Option<String>,
}

impl UvPackage {
    fn source(&self, key: &str) -> Option<&str> {
        self.source.get(key)?.as_str()
    }

    fn is_root(&self) -> bool {
        [".", "./"].iter().any(|here| {
            let folder = self.source("virtual").or(self.source("editable"));
            folder.or(self.source("directory")) == Some(here)
        })
    }

    fn origin(&self, main_index: Option<&str>) -> LockedOrigin {
        if self.source.contains_key("virtual") {
            return LockedOrigin::Folder(None);
        }
        if let Some(folder) = self.source("editable").or(self.source("directory")) {
            return LockedOrigin::Folder(Some(folder.to_owned()));
        }
        if let Some(address) = self.source("git") {
            return LockedOrigin::Address(write_git_address(address));
        }
        if let Some(url) = self.source("url") {
            return LockedOrigin::Address(url.to_owned());
        }
        match self.source("registry") {
            Some(index) if main_index.is_none_or(|main| main == index) => LockedOrigin::Index,
            Some(_) => LockedOrigin::Wheels(self.wheels.iter().filter_map(UvFile::wheel).collect()),
            None => LockedOrigin::Unsupported(super::LOCAL),
        }
    }

    /// As [`UvPackage::origin`] and names are, for the graph.
    fn into_locked(self, main_index: Option<&str>) -> LockedPackage {
        let files = self.wheels.iter().chain(&self.sdist);
        LockedPackage {
            origin: self.origin(main_index),
            source: write_source(&self.source),
            files: files.filter_map(UvFile::pinned).collect(),
            name: self.name,
            version: self.version,
            marker: None,
            forks: self.resolution_markers,
            pythons: None,
            needs: self
                .dependencies
                .into_iter()
                .map(UvNeed::into_locked)
                .collect(),
            extras: self
                .optional_dependencies
                .into_iter()
                .map(|(name, needs)| (name, needs.into_iter().map(UvNeed::into_locked).collect()))
                .collect(),
        }
    }
}

impl UvNeed {
    fn into_locked(self) -> LockedNeed {
        LockedNeed {
            name: self.name,
            version: self.version,
            source: self.source.as_ref().map(write_source),
            marker: self.marker,
            extras: self.extra,
            ..LockedNeed::default()
        }
    }
}

impl UvFile {
    fn name(&self) -> Option<String> {
        let address = self
            .filename
            .as_ref()
            .or(self.url.as_ref())
            .or(self.path.as_ref())?;
        Some(super::file_name_of(address))
    }

    fn pinned(&self) -> Option<PinnedFile> {
        PinnedFile::from_digest(self.name(), self.hash.as_deref()?)
    }

    fn wheel(&self) -> Option<LockedWheel> {
        Some(LockedWheel {
            file: self.name()?,
            url: self.url.clone()?,
            sha256: self.pinned().map(|file| file.sha256),
        })
    }
}

pub(super) fn read(text: &str, selection: &LockSelection<'_>) -> Result<ReadLock, ImportError> {
    let lock: UvLock = parse_toml(text)?;
    if lock.version != VERSION {
        return Err(ImportError::LockVersion {
            file: "uv.lock",
            found: lock.version,
            read: VERSION,
        });
    }
    let roots: Vec<&UvPackage> = find_roots(&lock);
    if roots.is_empty() && lock.manifest.requirements.is_empty() {
        let missing = "no root project";
        return Err(ImportError::Nothing { missing });
    }
    let mut read = ReadLock::default();
    if let [root] = roots[..] {
        read.name = Some(root.name.clone());
    }
    let mut needs: Vec<UvNeed> = lock.manifest.requirements.clone();
    for root in roots {
        // The root itself, for its folder and its dependencies.
        needs.push(UvNeed {
            name: root.name.clone(),
            version: None,
            source: Some(root.source.clone()),
            marker: None,
            extra: selection.extras.to_vec(),
        });
        for group in selection.groups {
            needs.extend(
                root.dev_dependencies
                    .get(group)
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
        }
        read.extras
            .extend(root.optional_dependencies.keys().cloned());
        read.groups.extend(root.dev_dependencies.keys().cloned());
        // With `[tool.uv] conflicts`, markers of the lock name what is asked for like this.
        let name = &root.name;
        let named = |kind: &str, one: &String| format!("{kind}-{}-{name}-{one}", name.len());
        let extras = selection.extras.iter().map(|extra| named("extra", extra));
        let groups = selection.groups.iter().map(|group| named("group", group));
        read.graph.extras.extend(extras.chain(groups));
    }
    for set in &lock.conflicts {
        let named = set
            .iter()
            .filter_map(|one| one.extra.clone().or(one.group.clone()));
        read.exclusive.push(named.collect());
    }
    let main_index = find_main_index(&lock).map(str::to_owned);
    read.graph.requires_python = lock.requires_python;
    read.graph.roots = Some(needs.into_iter().map(UvNeed::into_locked).collect());
    let packages = lock.package.into_iter();
    read.graph.packages = packages
        .map(|package| package.into_locked(main_index.as_deref()))
        .collect();
    Ok(read)
}

/// The project; all of a workspace that has no project of its own.
fn find_roots(lock: &UvLock) -> Vec<&UvPackage> {
    let root: Vec<&UvPackage> = lock.package.iter().filter(|p| p.is_root()).collect();
    if !root.is_empty() {
        return root;
    }
    let is_member = |package: &&UvPackage| lock.manifest.members.contains(&package.name);
    lock.package.iter().filter(is_member).take(100).collect()
}

/// The index that most packages come from. One whose address ends as a whole index does comes
/// before one that has the builds of a few projects.
fn find_main_index(lock: &UvLock) -> Option<&str> {
    let indexes = lock.package.iter().filter_map(|p| p.source("registry"));
    common_address(indexes)
}

fn write_source(source: &Table) -> String {
    toml::to_string(source).unwrap_or_default()
}

/// `https://…/x?subdirectory=a&rev=v1#COMMIT` as pip has it.
fn write_git_address(address: &str) -> String {
    let (address, commit) = address.split_once('#').unwrap_or((address, ""));
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let mut parts = query.split('&');
    let folder = parts.find_map(|part| part.strip_prefix("subdirectory="));
    super::git_requirement(
        address,
        commit,
        folder.map(|f| f.replace("%2F", "/")).as_deref(),
    )
}
