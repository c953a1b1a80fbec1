//! `Pipfile.lock`: <https://pipenv.pypa.io/en/latest/pipfile.html>.

use std::collections::BTreeMap;

use sconce_formats::PinnedFile;
use serde::Deserialize;

use super::graph::{LockedOrigin, LockedPackage};
use super::{LockSelection, ReadLock};
use crate::ImportError;

/// The version of the format that is read.
const VERSION: i64 = 6;
/// What pipenv calls the packages of `[dev-packages]`.
const DEVELOP: &str = "develop";

#[derive(Deserialize)]
struct PipfileLock {
    #[serde(rename = "_meta")]
    meta: PipfileMeta,
    /// Sections by name; `default` is what runs.
    #[serde(flatten)]
    sections: BTreeMap<String, BTreeMap<String, PipfilePackage>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PipfileMeta {
    pipfile_spec: i64,
    #[serde(default)]
    requires: BTreeMap<String, String>,
    #[serde(default)]
    sources: Vec<PipfileSource>,
}

#[derive(Deserialize)]
struct PipfileSource {
    name: String,
    url: String,
}

#[derive(Deserialize)]
struct PipfilePackage {
    version: Option<String>,
    #[serde(default)]
    hashes: Vec<String>,
    markers: Option<String>,
    index: Option<String>,
    git: Option<String>,
    #[serde(rename = "ref")]
    commit: Option<String>,
    subdirectory: Option<String>,
    file: Option<String>,
    path: Option<String>,
}

impl PipfilePackage {
    fn into_locked(self, name: String) -> LockedPackage {
        let version = self.version.as_deref();
        let version = version.map(|text| text.trim_start_matches('=').trim().to_owned());
        let origin = match (&self.git, &self.file, &self.path) {
            (Some(git), ..) => LockedOrigin::Address(super::git_requirement(
                git,
                self.commit.as_deref().unwrap_or_default(),
                self.subdirectory.as_deref(),
            )),
            (_, Some(file), _) if file.contains("://") => LockedOrigin::Address(file.clone()),
            (_, _, Some(path)) if !path.ends_with(".whl") && !path.ends_with(".gz") => {
                LockedOrigin::Folder(Some(path.clone()))
            }
            (None, None, None) => LockedOrigin::Index,
            _ => LockedOrigin::Unsupported(super::LOCAL),
        };
        let files = self.hashes.iter();
        LockedPackage {
            name,
            version,
            origin,
            files: files
                .filter_map(|hash| PinnedFile::from_digest(None, hash))
                .collect(),
            marker: self.markers,
            ..LockedPackage::default()
        }
    }
}

pub(super) fn read(text: &str, selection: &LockSelection<'_>) -> Result<ReadLock, ImportError> {
    let lock: PipfileLock = serde_json::from_str(text).map_err(|error| ImportError::Json {
        line: error.line().max(1),
        message: crate::note::redacted_line(&error.to_string()),
    })?;
    if lock.meta.pipfile_spec != VERSION {
        return Err(ImportError::LockVersion {
            file: "Pipfile.lock",
            found: lock.meta.pipfile_spec,
            read: VERSION,
        });
    }
    let mut read = ReadLock::default();
    let python = ["python_full_version", "python_version"];
    let python = python.iter().find_map(|key| lock.meta.requires.get(*key));
    // pipenv makes its environment with this Python alone.
    read.python = python.filter(|version| version.starts_with("3.")).cloned();
    let mut used: Vec<String> = Vec::new();
    for (section, packages) in lock.sections {
        let is_asked = selection
            .groups
            .iter()
            .any(|group| *group == section || section == DEVELOP && group == "dev");
        if section != "default" && !is_asked {
            if !packages.is_empty() {
                read.groups.push(section);
            }
            continue;
        }
        for (name, package) in packages {
            used.extend(package.index.clone());
            read.graph.packages.push(package.into_locked(name));
        }
    }
    // The first source is what most of pipenv's files have: the index that everyone has.
    let others = lock.meta.sources.iter().skip(1);
    let others = others.filter(|source| used.contains(&source.name));
    read.indexes = others.map(|source| source.url.clone()).collect();
    Ok(read)
}
