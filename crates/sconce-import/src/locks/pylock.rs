//! `pylock.toml`: PEP 751, <https://packaging.python.org/en/latest/specifications/pylock-toml/>.

use std::collections::BTreeMap;

use sconce_formats::PinnedFile;
use serde::Deserialize;

use super::graph::{LockedOrigin, LockedPackage, LockedWheel};
use super::{LockSelection, ReadLock, common_address, host_of, parse_toml};
use crate::ImportError;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PyLock {
    lock_version: String,
    requires_python: Option<String>,
    #[serde(default)]
    extras: Vec<String>,
    #[serde(default)]
    dependency_groups: Vec<String>,
    #[serde(default)]
    default_groups: Vec<String>,
    #[serde(default)]
    packages: Vec<PyLockPackage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PyLockPackage {
    name: String,
    version: Option<String>,
    marker: Option<String>,
    requires_python: Option<String>,
    #[serde(default)]
    wheels: Vec<PyLockFile>,
    sdist: Option<PyLockFile>,
    archive: Option<PyLockFile>,
    vcs: Option<PyLockRepository>,
    directory: Option<PyLockFolder>,
}

#[derive(Deserialize)]
struct PyLockFile {
    name: Option<String>,
    url: Option<String>,
    path: Option<String>,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PyLockRepository {
    #[serde(rename = "type")]
    kind: String,
    url: Option<String>,
    commit_id: Option<String>,
    subdirectory: Option<String>,
}

#[derive(Deserialize)]
struct PyLockFolder {
    path: String,
}

impl PyLockFile {
    fn name(&self) -> Option<String> {
        let address = self
            .name
            .as_ref()
            .or(self.url.as_ref())
            .or(self.path.as_ref())?;
        Some(super::file_name_of(address))
    }

    fn pinned(&self) -> Option<PinnedFile> {
        let digest = self.hashes.get("sha256")?;
        PinnedFile::from_digest(self.name(), &format!("sha256:{digest}"))
    }

    fn wheel(&self) -> Option<LockedWheel> {
        Some(LockedWheel {
            file: self.name()?,
            url: self.url.clone()?,
            sha256: self.pinned().map(|file| file.sha256),
        })
    }

    fn host(&self) -> Option<&str> {
        self.url.as_deref().map(host_of)
    }
}

impl PyLockPackage {
    fn files(&self) -> impl Iterator<Item = &PyLockFile> {
        self.wheels.iter().chain(&self.sdist).chain(&self.archive)
    }

    fn origin(&self, main_host: Option<&str>) -> LockedOrigin {
        if let Some(repository) = &self.vcs {
            return match (&repository.url, &repository.commit_id) {
                (Some(url), Some(commit)) if repository.kind == "git" => {
                    let folder = repository.subdirectory.as_deref();
                    LockedOrigin::Address(super::git_requirement(url, commit, folder))
                }
                _ => LockedOrigin::Unsupported(super::REPOSITORY),
            };
        }
        if let Some(folder) = &self.directory {
            return LockedOrigin::Folder(Some(folder.path.clone()));
        }
        if let Some(archive) = &self.archive {
            return match &archive.url {
                Some(url) => LockedOrigin::Address(url.clone()),
                None => LockedOrigin::Unsupported(super::LOCAL),
            };
        }
        let host = self.files().find_map(PyLockFile::host);
        match host {
            Some(_) if host == main_host || self.wheels.is_empty() => LockedOrigin::Index,
            Some(_) => {
                LockedOrigin::Wheels(self.wheels.iter().filter_map(PyLockFile::wheel).collect())
            }
            None if self.files().any(|file| file.path.is_some()) => {
                LockedOrigin::Unsupported(super::LOCAL)
            }
            None => LockedOrigin::Index,
        }
    }
}

pub(super) fn read(text: &str, selection: &LockSelection<'_>) -> Result<ReadLock, ImportError> {
    let lock: PyLock = parse_toml(text)?;
    let major = lock
        .lock_version
        .split('.')
        .next()
        .and_then(|v| v.parse().ok());
    if major != Some(1) {
        return Err(ImportError::LockVersion {
            file: "pylock.toml",
            found: major.unwrap_or_default(),
            read: 1,
        });
    }
    let hosts = lock
        .packages
        .iter()
        .filter_map(|p| p.files().find_map(PyLockFile::host));
    let main_host = common_address(hosts).map(str::to_owned);
    let mut read = ReadLock::default();
    read.graph.requires_python = lock.requires_python;
    read.graph.extras = selection.extras.to_vec();
    read.graph.groups = lock.default_groups.clone();
    read.graph.groups.extend_from_slice(selection.groups);
    read.extras = lock.extras;
    read.groups = lock.dependency_groups;
    read.groups
        .retain(|group| !lock.default_groups.contains(group));
    let packages = lock.packages.into_iter().map(|package| LockedPackage {
        origin: package.origin(main_host.as_deref()),
        files: package.files().filter_map(PyLockFile::pinned).collect(),
        name: package.name,
        version: package.version,
        marker: package.marker,
        pythons: package.requires_python,
        ..LockedPackage::default()
    });
    read.graph.packages = packages.collect();
    Ok(read)
}
