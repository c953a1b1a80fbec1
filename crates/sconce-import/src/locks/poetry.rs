//! `poetry.lock`, of Poetry 1.0 to 2: what is wanted stands in `pyproject.toml` beside it, until 2 wrote it into the
//! lock, too.

use std::collections::BTreeMap;

use sconce_formats::PinnedFile;
use serde::Deserialize;
use toml::{Table, Value};

use super::graph::{LockedNeed, LockedOrigin, LockedPackage};
use super::{LockSelection, ReadLock, parse_toml, read_project, requirement_need};
use crate::poetry::specifiers;
use crate::project_table::array_strings;
use crate::{ImportError, SiblingFiles};

/// The main versions of the format that are read.
const VERSIONS: [i64; 2] = [1, 2];
/// What runs, among groups.
const MAIN: &str = "main";

#[derive(Deserialize)]
struct PoetryLock {
    #[serde(default)]
    metadata: PoetryMetadata,
    #[serde(default)]
    package: Vec<PoetryPackage>,
    /// Those of the project.
    #[serde(default)]
    extras: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct PoetryMetadata {
    lock_version: Option<String>,
    python_versions: Option<String>,
    /// Of each package, until 1.x.
    files: BTreeMap<String, Vec<PoetryFile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PoetryPackage {
    name: String,
    version: String,
    python_versions: Option<String>,
    /// Until 1.4: `main` or `dev`.
    category: Option<String>,
    #[serde(default)]
    optional: bool,
    /// From 2.0 on.
    groups: Option<Vec<String>>,
    /// A marker, or one for each group.
    markers: Option<Value>,
    #[serde(default)]
    files: Vec<PoetryFile>,
    #[serde(default)]
    dependencies: Table,
    #[serde(default)]
    extras: BTreeMap<String, Vec<String>>,
    source: Option<PoetrySource>,
}

#[derive(Deserialize, Clone)]
struct PoetryFile {
    file: String,
    hash: String,
}

#[derive(Deserialize)]
struct PoetrySource {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    url: String,
    resolved_reference: Option<String>,
    subdirectory: Option<String>,
}

impl PoetryPackage {
    fn origin(&self) -> LockedOrigin {
        let Some(source) = &self.source else {
            return LockedOrigin::Index;
        };
        match source.kind.as_str() {
            "legacy" | "" => LockedOrigin::Index,
            "git" => LockedOrigin::Address(super::git_requirement(
                &source.url,
                source.resolved_reference.as_deref().unwrap_or_default(),
                source.subdirectory.as_deref(),
            )),
            "url" => LockedOrigin::Address(source.url.clone()),
            "directory" => LockedOrigin::Folder(Some(source.url.clone())),
            _ => LockedOrigin::Unsupported(super::LOCAL),
        }
    }

    /// Where it is needed for one of the groups; `None` where it is for none of them.
    fn marker_for(&self, groups: &[&str]) -> Option<Option<String>> {
        let own = self.groups.as_deref().unwrap_or_default();
        let mut asked = own.iter().filter(|group| groups.contains(&group.as_str()));
        let table = match &self.markers {
            Some(Value::String(marker)) => {
                return asked.next().map(|_| Some(marker.clone()));
            }
            Some(Value::Table(table)) => table,
            _ => return asked.next().map(|_| None),
        };
        let markers: Vec<Option<&str>> = asked
            .map(|group| table.get(group).and_then(Value::as_str))
            .collect();
        match markers.as_slice() {
            [] => None,
            some => Some(some.iter().copied().collect::<Option<Vec<_>>>().map(|all| {
                let each = all.iter().map(|marker| format!("({marker})"));
                each.collect::<Vec<_>>().join(" or ")
            })),
        }
    }
}

pub(super) fn read(
    text: &str,
    beside: SiblingFiles<'_>,
    selection: &LockSelection<'_>,
) -> Result<ReadLock, ImportError> {
    let mut lock: PoetryLock = parse_toml(text)?;
    let version = lock.metadata.lock_version.as_deref().unwrap_or("1.0");
    let version = version.split('.').next().and_then(|v| v.parse().ok());
    if !version.is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(ImportError::LockVersion {
            file: "poetry.lock",
            found: version.unwrap_or_default(),
            read: VERSIONS[1],
        });
    }
    let project = read_project(beside);
    let project = project.as_ref();
    let mut read = ReadLock {
        name: project.and_then(name_project),
        is_project_installed: project
            .is_some_and(|root| super::is_installed(root, "poetry", "package-mode")),
        ..ReadLock::default()
    };
    read.extras = lock.extras.keys().cloned().collect();
    let mut groups = vec![MAIN];
    groups.extend(selection.groups.iter().map(String::as_str));
    let versions = lock.metadata.python_versions.as_deref();
    read.graph.requires_python = versions.and_then(specifiers);
    read.graph.extras = selection.extras.to_vec();
    if lock.package.iter().all(|package| package.groups.is_some()) {
        let mut all: Vec<String> = lock
            .package
            .iter()
            .flat_map(|p| p.groups.clone())
            .flatten()
            .collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|group| !groups.contains(&group.as_str()));
        read.groups = all;
        lock.package
            .retain_mut(|package| match package.marker_for(&groups) {
                Some(marker) => {
                    package.markers = marker.map(Value::String);
                    true
                }
                None => false,
            });
    } else {
        let roots = project.and_then(|project| wanted(project, selection, &mut read.groups));
        if roots.is_none() {
            read.left_out
                .push(("pyproject.toml".to_owned(), super::WHOLE));
            lock.package.retain(|package| {
                let category = package.category.as_deref();
                !package.optional && category.is_none_or(|one| one == MAIN)
            });
        }
        read.graph.roots = roots;
    }
    for package in &lock.package {
        let source = package
            .source
            .as_ref()
            .filter(|source| source.kind == "legacy");
        if let Some(source) = source.filter(|source| !read.indexes.contains(&source.url)) {
            read.indexes.push(source.url.clone());
        }
    }
    let older = std::mem::take(&mut lock.metadata.files);
    let packages = lock.package.into_iter().map(|package| {
        let files = package
            .files
            .iter()
            .chain(older.get(&package.name).into_iter().flatten());
        let pinned = |file: &PoetryFile| {
            PinnedFile::from_digest(Some(super::file_name_of(&file.file)), &file.hash)
        };
        LockedPackage {
            origin: package.origin(),
            files: files.filter_map(pinned).collect(),
            marker: match &package.markers {
                Some(Value::String(marker)) => Some(marker.clone()),
                _ => None,
            },
            pythons: package.python_versions.as_deref().and_then(specifiers),
            needs: read_needs(&package.dependencies, false),
            extras: package
                .extras
                .iter()
                .map(|(name, needs)| {
                    let needs = needs.iter().filter_map(|text| requirement_need(text));
                    (name.clone(), needs.collect())
                })
                .collect(),
            version: Some(package.version),
            name: package.name,
            ..LockedPackage::default()
        }
    });
    read.graph.packages = packages.collect();
    Ok(read)
}

fn tool(root: &Table) -> Option<&Table> {
    root.get("tool")?.as_table()?.get("poetry")?.as_table()
}

fn name_project(root: &Table) -> Option<String> {
    let of_project = root.get("project").and_then(|project| project.get("name"));
    let name = of_project.or_else(|| tool(root)?.get("name"))?;
    name.as_str().map(str::to_owned)
}

/// What `pyproject.toml` asks for; `None` where it does not say so. The groups that are not asked for go to `others`.
pub(super) fn wanted(
    root: &Table,
    selection: &LockSelection<'_>,
    others: &mut Vec<String>,
) -> Option<Vec<LockedNeed>> {
    let poetry = tool(root);
    let mut needs = super::needs_of_project(root, selection).unwrap_or_default();
    let is_told = root
        .get("project")
        .is_some_and(|p| p.get("dependencies").is_some());
    let dependencies = poetry.and_then(|table| table.get("dependencies")?.as_table());
    if !is_told && dependencies.is_none() {
        return None;
    }
    let Some(poetry) = poetry else {
        return Some(needs);
    };
    let mut optional = Vec::new();
    let extras = poetry.get("extras").and_then(Value::as_table);
    for extra in selection.extras {
        optional.extend(
            extras
                .and_then(|extras| extras.get(extra))
                .into_iter()
                .flat_map(array_strings),
        );
    }
    for need in dependencies
        .map(|table| read_needs(table, true))
        .unwrap_or_default()
    {
        let table = dependencies.and_then(|table| table.get(&need.name)?.as_table());
        let is_optional = table.and_then(|t| t.get("optional")?.as_bool()) == Some(true);
        if !is_optional || optional.contains(&need.name.as_str()) {
            needs.push(need);
        }
    }
    let groups = poetry
        .get("group")
        .and_then(Value::as_table)
        .into_iter()
        .flatten();
    let older = poetry.get("dev-dependencies").and_then(Value::as_table);
    let groups = groups
        .filter_map(|(name, group)| Some((name.as_str(), group.get("dependencies")?.as_table()?)))
        .chain(older.map(|table| ("dev", table)));
    for (name, table) in groups {
        if selection.groups.iter().any(|group| group == name) {
            needs.extend(read_needs(table, true));
        } else if others.len() < crate::project_table::MAX_GROUPS {
            others.push(name.to_owned());
        }
    }
    Some(needs)
}

/// A table of dependencies. Those of packages that are optional come with the packages' extras; a project's own are
/// looked at by the caller.
pub(super) fn read_needs(table: &Table, of_project: bool) -> Vec<LockedNeed> {
    let mut needs = Vec::new();
    for (name, value) in table {
        if of_project && name == "python" {
            continue;
        }
        let several = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in several {
            let table = value.as_table();
            let text = |key: &str| table.and_then(|table| table.get(key)?.as_str());
            let is_optional = table.and_then(|t| t.get("optional")?.as_bool()) == Some(true);
            if is_optional && !of_project {
                continue;
            }
            let version = value.as_str().or_else(|| text("version"));
            let extras = table.and_then(|table| table.get("extras"));
            needs.push(LockedNeed {
                name: name.clone(),
                specifiers: version.and_then(specifiers),
                marker: text("markers").map(str::to_owned),
                pythons: text("python").and_then(specifiers),
                extras: extras
                    .map(array_strings)
                    .unwrap_or_default()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
                ..LockedNeed::default()
            });
        }
    }
    needs
}
