//! The projects on this machine that a `pyproject.toml` names for its requirements (`[tool.uv.sources]`
//! with `path` or `workspace`, Poetry's `path`, `name @ file:…`), and that file without them, for uv.
//!
//! uv runs the `setup.py` of such a project where that has no `pyproject.toml`, on the host and whatever it
//! is told of sources. So it is given a copy that names none; Sconce installs them from where they lie.
//!
//! The table: <https://docs.astral.sh/uv/concepts/projects/dependencies/>, uv 0.13.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sconce_base::input;
use sconce_base::text::redact_url_credentials;
use sconce_formats::normalize_project_name;
use sconce_formats::torch_builds::drop_unneeded_builds;
use sconce_schema::Bytes;
use toml::{Table, Value};
use tracing::info;

use super::direct_path::PathRequirement;
use super::poetry_sources::poetry_sources;
use super::uv_settings::make_paths_absolute;

/// No file is longer.
const MAX_FILE_BYTES: Bytes = Bytes::from_mib(4);
/// Folders that the patterns of a workspace's members are compared with.
const MAX_FOLDERS: usize = 1000;
/// The file that says what a project is.
const PYPROJECT: &str = "pyproject.toml";
/// What of `[project]` uv resolves by.
const OF_PROJECT: [&str; 6] = [
    "name",
    "version",
    "requires-python",
    "dependencies",
    "optional-dependencies",
    "dynamic",
];

/// A project on this machine that another one needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalDependency {
    /// Normalised project name.
    pub name: String,
    /// Its extras that are asked for.
    pub extras: Vec<String>,
    /// Its folder; `None` for a member of a workspace that has no such project.
    pub folder: Option<PathBuf>,
}

/// A `pyproject.toml` with the workspace that it is in.
#[derive(Debug, Clone, PartialEq)]
pub struct UvProject {
    path: PathBuf,
    table: Table,
    /// Normalised names to folders.
    local: BTreeMap<String, Option<PathBuf>>,
}

/// What uv is given of a project: nothing that it would run code for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PyprojectForUv {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl PyprojectForUv {
    /// The project's own `pyproject.toml`, which need not be there.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has an extra of this name.
    #[must_use]
    pub fn has_extra(&self, name: &str) -> bool {
        let table = self.text.parse::<Table>().unwrap_or_default();
        let project = table.get("project");
        has_key(project.and_then(|it| it.get("optional-dependencies")), name)
    }

    /// Whether it has a dependency group of this name.
    #[must_use]
    pub fn has_group(&self, name: &str) -> bool {
        let table = self.text.parse::<Table>().unwrap_or_default();
        has_key(table.get("dependency-groups"), name)
    }
}

/// Whether a table has a name, as names of extras and groups are compared (PEP 685).
fn has_key(table: Option<&Value>, name: &str) -> bool {
    let wanted = normalize_project_name(name);
    let mut keys = table.and_then(Value::as_table).into_iter().flatten();
    keys.any(|(key, _)| key == name || normalize_project_name(key) == wanted && wanted.is_some())
}

impl UvProject {
    /// A project without a `pyproject.toml`, which would be at `path`.
    #[must_use]
    pub fn without_file(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            table: Table::new(),
            local: BTreeMap::new(),
        }
    }

    /// Its `pyproject.toml`, which need not be there, or the program that carries it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes this for what `[project]` says.
    pub fn set_project(
        &mut self,
        name: &str,
        requires_python: Option<&str>,
        dependencies: &[String],
        optional: &BTreeMap<String, Vec<String>>,
    ) {
        let list =
            |texts: &[String]| Value::Array(texts.iter().cloned().map(Value::String).collect());
        let optional = optional
            .iter()
            .map(|(extra, texts)| (extra.clone(), list(texts)));
        let mut project = Table::from_iter([
            ("name".to_owned(), name.into()),
            ("version".to_owned(), "0".into()),
            ("dependencies".to_owned(), list(dependencies)),
            (
                "optional-dependencies".to_owned(),
                Value::Table(optional.collect()),
            ),
        ]);
        if let Some(text) = requires_python {
            project.insert("requires-python".to_owned(), text.into());
        }
        self.table
            .insert("project".to_owned(), Value::Table(project));
    }

    /// Reads a `pyproject.toml`.
    ///
    /// # Errors
    /// It cannot be read, or is not TOML.
    pub fn read(pyproject: &Path) -> Result<Self, PyprojectFileError> {
        Ok(Self::from_table(read_table(pyproject)?, pyproject))
    }

    /// What `table` says, which is that of a `pyproject.toml` at this path.
    #[must_use]
    pub fn from_table(mut table: Table, pyproject: &Path) -> Self {
        let folder = pyproject.parent().unwrap_or(Path::new("."));
        let root = match workspace_of(&table) {
            Some(_) => None,
            None => find_workspace(folder),
        };
        let mut sources = Table::new();
        if let Some((root_folder, root)) = &root {
            sources = absolute_sources(root, root_folder);
        }
        sources.extend(absolute_sources(&table, folder));
        let workspace = match &root {
            Some((folder, root)) => (folder.as_path(), root),
            None => (folder, &table),
        };
        let is_local = |(name, source): (&String, &Value)| {
            let name = normalize_project_name(name)?;
            let place = local_place(&name, source, workspace)?;
            Some((name, place))
        };
        let local: BTreeMap<_, _> = sources.iter().filter_map(is_local).collect();
        sources.retain(|name, _| {
            normalize_project_name(name).is_some_and(|name| !local.contains_key(&name))
        });
        let mut settings = Table::new();
        for (folder, from) in root
            .iter()
            .map(|(folder, root)| (folder.as_path(), root))
            .chain([(folder, &table)])
        {
            if let Some(index) = uv_table(from).and_then(|uv| uv.get("index")) {
                settings.insert("index".to_owned(), index.clone());
                make_paths_absolute(&mut settings, folder);
            }
        }
        settings.insert("sources".to_owned(), Value::Table(sources));
        // Without one, uv would take what stands in a folder above for it.
        settings.insert("workspace".to_owned(), Value::Table(Table::new()));
        let uv = Table::from_iter([("uv".to_owned(), Value::Table(settings))]);
        table.retain(|key, _| ["project", "dependency-groups"].contains(&key));
        table.insert("tool".to_owned(), Value::Table(uv));
        if let Some(Value::Table(project)) = table.get_mut("project") {
            project.retain(|key, _| OF_PROJECT.contains(&key));
        }
        Self {
            path: pyproject.to_owned(),
            table,
            local,
        }
    }

    /// The projects on this machine among its dependencies, those of `extras` and those of `groups`.
    #[must_use]
    pub fn local_dependencies(&self, extras: &[String], groups: &[String]) -> Vec<LocalDependency> {
        let project = self.table.get("project");
        let of_project = |key: &str| project.and_then(|project| project.get(key));
        let mut texts = Vec::new();
        texts.extend(strings(of_project("dependencies")));
        texts.extend(self.requirements_of_extras(extras));
        self.add_groups(groups, &mut texts, 0);
        let mut found: Vec<LocalDependency> = Vec::new();
        for text in texts {
            let (name, extras) = split_requirement(text);
            let Some(folder) = self.local_folder(&name, text) else {
                continue;
            };
            match found.iter_mut().find(|other| other.name == name) {
                Some(other) => other.extras.extend(extras),
                None => found.push(LocalDependency {
                    name,
                    extras,
                    folder,
                }),
            }
        }
        for dependency in &mut found {
            dependency.extras.sort();
            dependency.extras.dedup();
        }
        found
    }

    /// Requirements of dependency groups (PEP 735), with the groups that they include.
    fn add_groups<'a>(&'a self, groups: &[String], texts: &mut Vec<&'a str>, depth: usize) {
        let table = self
            .table
            .get("dependency-groups")
            .and_then(Value::as_table);
        for (name, list) in table.into_iter().flatten() {
            let is_asked =
                |asked: &String| normalize_project_name(asked) == normalize_project_name(name);
            if depth > 20 || !groups.iter().any(is_asked) {
                continue;
            }
            texts.extend(strings(Some(list)));
            let entries = list.as_array().into_iter().flatten();
            let included = entries.filter_map(|entry| entry.get("include-group")?.as_str());
            let included: Vec<String> = included.map(str::to_owned).collect();
            self.add_groups(&included, texts, depth + 1);
        }
    }

    /// Requirements of extras, with those of extras of the project itself that they ask for
    /// (`all = ["mine[train]"]`).
    fn requirements_of_extras<'a>(&'a self, extras: &[String]) -> Vec<&'a str> {
        let project = self.table.get("project");
        let optional = project.and_then(|project| project.get("optional-dependencies")?.as_table());
        let name =
            project.and_then(|project| normalize_project_name(project.get("name")?.as_str()?));
        let normalized = |text: &String| normalize_project_name(text).unwrap_or_default();
        let mut open: Vec<String> = extras.iter().map(normalized).collect();
        let mut known = BTreeSet::new();
        let mut texts = Vec::new();
        while let Some(asked) = open.pop() {
            if !known.insert(asked.clone()) {
                continue;
            }
            let lists = optional.into_iter().flatten();
            for (_, list) in lists.filter(|(extra, _)| normalized(extra) == asked) {
                for text in strings(Some(list)) {
                    let (of, extras) = split_requirement(text);
                    match Some(&of) == name.as_ref() {
                        true => open.extend(extras.iter().map(normalized)),
                        false => texts.push(text),
                    }
                }
            }
        }
        texts
    }

    /// What uv resolves by, without the projects on this machine; the requirements of these extras are among
    /// its dependencies.
    #[must_use]
    pub fn for_uv(&self, extras: &[String]) -> PyprojectForUv {
        let mut table = self.table.clone();
        let more = self.requirements_of_extras(extras).into_iter();
        let more: Vec<Value> = more.map(|text| Value::String(text.to_owned())).collect();
        if let Some(Value::Table(project)) = table.get_mut("project")
            && !more.is_empty()
        {
            let list = project
                .entry("dependencies")
                .or_insert(Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.extend(more);
            }
        }
        if let Some(Value::Table(project)) = table.get_mut("project") {
            if let Some(list) = project.get_mut("dependencies") {
                self.retain_remote(list);
            }
            if let Some(Value::Table(optional)) = project.get_mut("optional-dependencies") {
                optional
                    .iter_mut()
                    .for_each(|(_, list)| self.retain_remote(list));
            }
        }
        if let Some(Value::Table(groups)) = table.get_mut("dependency-groups") {
            groups
                .iter_mut()
                .for_each(|(_, list)| self.retain_remote(list));
        }
        for unneeded in drop_unneeded_builds(&mut table) {
            let what = redact_url_credentials(&unneeded.what);
            info!(what, reason = unneeded.reason, "an index is not needed");
        }
        PyprojectForUv {
            path: self.path.clone(),
            text: table.to_string(),
        }
    }

    /// The folder of a requirement that is installed from where it lies: its own path, or what the sources say.
    /// `Some(None)` for a member that the workspace has not.
    fn local_folder(&self, name: &str, text: &str) -> Option<Option<PathBuf>> {
        match self.path_requirement(text) {
            // uv takes what a file is built from, or a wheel.
            Some(direct) if direct.path.is_file() => None,
            Some(direct) => Some(Some(direct.path)),
            None => self.local.get(name).cloned(),
        }
    }

    fn path_requirement<'t>(&self, text: &'t str) -> Option<PathRequirement<'t>> {
        PathRequirement::parse(text, self.path.parent().unwrap_or(Path::new(".")))
    }

    /// Leaves what uv resolves, with whole paths.
    fn retain_remote(&self, list: &mut Value) {
        let Value::Array(list) = list else {
            return;
        };
        list.retain(|entry| match entry.as_str() {
            Some(text) => self
                .local_folder(&split_requirement(text).0, text)
                .is_none(),
            None => true,
        });
        for entry in list {
            let direct = entry.as_str().and_then(|text| self.path_requirement(text));
            if let Some(direct) = direct {
                *entry = Value::String(direct.with_whole_path());
            }
        }
    }
}

/// Why a `pyproject.toml` tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum PyprojectFileError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not TOML.
    #[error("{} is not TOML: {why}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

fn read_table(path: &Path) -> Result<Table, PyprojectFileError> {
    let bytes = input::read_regular(path, MAX_FILE_BYTES);
    let bytes = bytes.map_err(|source| PyprojectFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let not_toml = |why: String| PyprojectFileError::Toml {
        path: path.to_owned(),
        why,
    };
    let text = String::from_utf8(bytes).map_err(|error| not_toml(error.to_string()))?;
    text.parse().map_err(|error: toml::de::Error| {
        not_toml(
            error
                .message()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        )
    })
}

fn uv_table(table: &Table) -> Option<&Table> {
    table.get("tool")?.get("uv")?.as_table()
}

fn workspace_of(table: &Table) -> Option<&Table> {
    uv_table(table)?.get("workspace")?.as_table()
}

/// The nearest workspace above a project, of its owner: in a folder that others may write to, such as
/// /tmp, one of theirs would say where packages come from.
fn find_workspace(folder: &Path) -> Option<(PathBuf, Table)> {
    folder.ancestors().skip(1).find_map(|above| {
        let table = read_table(&above.join(PYPROJECT)).ok()?;
        workspace_of(&table)?;
        let owner_of = |path: &Path| path.symlink_metadata().ok().map(|meta| meta.uid());
        if owner_of(&above.join(PYPROJECT)) != owner_of(folder) {
            return None;
        }
        Some((above.to_owned(), table))
    })
}

/// `[tool.uv.sources]` and what Poetry has in its place, whose paths are absolute.
fn absolute_sources(table: &Table, folder: &Path) -> Table {
    let of_uv = uv_table(table).and_then(|uv| uv.get("sources")?.as_table());
    let of_uv = of_uv.cloned().unwrap_or_default();
    let mut sources = poetry_sources(table);
    sources.retain(|name, _| {
        let is_same =
            |other: &String| normalize_project_name(other) == normalize_project_name(name);
        !of_uv.keys().any(is_same)
    });
    sources.extend(of_uv);
    for (_, source) in &mut sources {
        let entries = match source {
            Value::Array(list) => list.iter_mut().collect(),
            one => vec![one],
        };
        for entry in entries {
            if let Some(Value::String(path)) = entry.get_mut("path") {
                *path = folder.join(&*path).to_string_lossy().into_owned();
            }
        }
    }
    sources
}

/// Where a source is, if that is a folder of this machine: `None` where it is none, `Some(None)` for a
/// member that the workspace has not.
fn local_place(name: &str, source: &Value, workspace: (&Path, &Table)) -> Option<Option<PathBuf>> {
    let entries = match source {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    };
    entries.into_iter().find_map(|entry| {
        if let Some(path) = entry.get("path").and_then(Value::as_str) {
            let path = Path::new(path);
            // A wheel is a file, and nothing of it runs.
            let is_wheel = path.extension().is_some_and(|end| end == "whl") && path.is_file();
            let is_local = !is_wheel || entry.get("editable").is_some();
            return is_local.then(|| Some(path.to_owned()));
        }
        let is_member = entry.get("workspace").is_some();
        is_member.then(|| find_member(name, workspace))
    })
}

/// The folder of the workspace's project of that name.
fn find_member(name: &str, (root, table): (&Path, &Table)) -> Option<PathBuf> {
    let patterns = workspace_of(table).and_then(|workspace| workspace.get("members"));
    let root_pattern = glob::Pattern::escape(root.to_str()?);
    let below = strings(patterns).into_iter().flat_map(|pattern| {
        let found = glob::glob(&format!("{root_pattern}/{pattern}"))
            .into_iter()
            .flatten();
        found.flatten().take(MAX_FOLDERS)
    });
    let mut folders = std::iter::once(root.to_owned()).chain(below);
    folders.find(|folder| {
        let table = read_table(&folder.join(PYPROJECT)).ok();
        let project = table
            .as_ref()
            .and_then(|table| table.get("project")?.get("name")?.as_str());
        project.and_then(normalize_project_name).as_deref() == Some(name)
    })
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// The normalised name and the extras of a requirement (PEP 508); an empty name where it has none.
fn split_requirement(text: &str) -> (String, Vec<String>) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let text = text.trim_start();
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let extras = rest
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let extras = extras
        .map_or("", |(extras, _)| extras)
        .split(',')
        .map(str::trim);
    let extras = extras.filter(|extra| !extra.is_empty()).map(str::to_owned);
    (
        normalize_project_name(name).unwrap_or_default(),
        extras.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MEMBER: &str = "[project]\nname = 'My_Lib'\nversion = '1'\ndependencies = ['numpy']\n";

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn read(folder: &tempfile::TempDir, file: &str) -> UvProject {
        UvProject::read(&folder.path().join(file)).unwrap()
    }

    #[test]
    fn folders_are_taken_out_and_told() {
        let text = "[project]\nname = 'a'\nversion = '1'\ndependencies = ['torch', 'my-lib[gpu]>=1', 'w']\n\
            [project.optional-dependencies]\ntest = ['Other.Lib', 'six']\n\
            [dependency-groups]\ndev = [{include-group = 'more'}]\nmore = ['third ; python_version > \"3\"']\n\
            [tool.uv.sources]\nmy_lib = { path = 'libs/mine', editable = true }\n\
            other-lib = [{ path = 'other', marker = 'x' }, { git = 'https://example.org/other' }]\n\
            third = { path = 'third' }\nw = { path = 'w-1-py3-none-any.whl' }\ntorch = { index = 'cpu' }\n\
            [[tool.uv.index]]\nname = 'cpu'\nurl = 'simple'\n[tool.x]\ny = 1\n";
        let folder = folder_with(&[("pyproject.toml", text), ("w-1-py3-none-any.whl", "")]);
        let project = read(&folder, "pyproject.toml");
        let names = |extras: &[&str], groups: &[&str]| {
            let owned = |list: &[&str]| {
                list.iter()
                    .map(|text| (*text).to_owned())
                    .collect::<Vec<_>>()
            };
            let found = project.local_dependencies(&owned(extras), &owned(groups));
            found.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], &[]), ["my-lib"]);
        assert_eq!(names(&["Test"], &["dev"]), ["my-lib", "other-lib", "third"]);
        let mine = &project.local_dependencies(&[], &[])[0];
        assert_eq!(mine.folder, Some(folder.path().join("libs/mine")));
        assert_eq!(mine.extras, ["gpu"]);

        let table: Table = project.for_uv(&[]).text.parse().unwrap();
        let at = folder.path().display();
        assert_eq!(
            strings(table["project"].get("dependencies")),
            ["torch", "w"]
        );
        assert_eq!(
            strings(table["project"]["optional-dependencies"].get("test")),
            ["six"]
        );
        assert!(strings(table["dependency-groups"].get("more")).is_empty());
        let uv = uv_table(&table).unwrap();
        assert_eq!(uv["sources"].as_table().unwrap().len(), 2);
        assert_eq!(
            uv["sources"]["w"]["path"].as_str(),
            Some(format!("{at}/w-1-py3-none-any.whl").as_str())
        );
        assert_eq!(
            uv["index"][0]["url"].as_str(),
            Some(format!("{at}/simple").as_str())
        );
        assert!(uv.get("workspace").is_some() && table["tool"].get("x").is_none());
    }

    /// uv takes a folder whose name ends so for a project.
    #[test]
    fn a_folder_with_the_name_of_a_wheel_is_one() {
        let text = "[project]\nname = 'a'\nversion = '1'\ndependencies = ['x', 'y']\n\
            [tool.uv.sources]\nx = { path = 'x.whl' }\ny = { path = 'y.whl', editable = true }\n";
        let folder = folder_with(&[
            ("pyproject.toml", text),
            ("x.whl/setup.py", ""),
            ("y.whl", ""),
        ]);
        let project = read(&folder, "pyproject.toml");
        assert_eq!(project.local_dependencies(&[], &[]).len(), 2);
        assert!(!project.for_uv(&[]).text.contains("path"));
    }

    #[test]
    fn poetrys_places_count_beside_project() {
        let text = "[project]\nname = 'a'\nversion = '1'\ndependencies = ['My.Other (>=1)', 'six', 'b']\n\
            [tool.poetry.dependencies]\nmy-other = { path = 'libs/other', develop = true }\n\
            six = { git = 'https://example.org/six', rev = 'v1' }\nb = { path = 'b' }\n\
            [tool.uv.sources]\nB = { path = 'c' }\n";
        let folder = folder_with(&[("pyproject.toml", text)]);
        let project = read(&folder, "pyproject.toml");
        let found = project.local_dependencies(&[], &[]);
        let folders: Vec<_> = found.into_iter().filter_map(|one| one.folder).collect();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(folders, [at("libs/other"), at("c")]);
        let table: Table = project.for_uv(&[]).text.parse().unwrap();
        assert_eq!(strings(table["project"].get("dependencies")), ["six"]);
        let six = &uv_table(&table).unwrap()["sources"]["six"];
        assert_eq!(six["git"].as_str(), Some("https://example.org/six"));
        assert_eq!(six["rev"].as_str(), Some("v1"));
    }

    #[test]
    fn a_requirement_by_its_path_is_a_folder_or_a_file() {
        let text = "[project]\nname = 'a'\nversion = '1'\n\
            dependencies = ['dep[x] @ {root:uri}/libs/dep', 'w @ file:w-1-py3-none-any.whl']\n";
        let folder = folder_with(&[
            ("pyproject.toml", text),
            ("libs/dep/setup.py", ""),
            ("w-1-py3-none-any.whl", ""),
        ]);
        let project = read(&folder, "pyproject.toml");
        let expected = LocalDependency {
            name: "dep".to_owned(),
            extras: vec!["x".to_owned()],
            folder: Some(folder.path().join("libs/dep")),
        };
        assert_eq!(project.local_dependencies(&[], &[]), [expected]);
        let table: Table = project.for_uv(&[]).text.parse().unwrap();
        let wheel = format!(
            "w @ file://{}/w-1-py3-none-any.whl",
            folder.path().display()
        );
        assert_eq!(strings(table["project"].get("dependencies")), [wheel]);
    }

    #[test]
    fn members_of_a_workspace_are_found() {
        let root = "[tool.uv.workspace]\nmembers = ['packages/*']\n\
            [tool.uv.sources]\nmy-lib = { workspace = true }\ngone = { workspace = true }\n";
        let app = "[project]\nname = 'app'\nversion = '1'\ndependencies = ['My.Lib', 'gone']\n";
        let folder = folder_with(&[
            ("pyproject.toml", root),
            ("packages/app/pyproject.toml", app),
            ("packages/lib/pyproject.toml", MEMBER),
            ("packages/readme.md", ""),
        ]);
        let found = read(&folder, "packages/app/pyproject.toml").local_dependencies(&[], &[]);
        assert_eq!(found[0].folder, Some(folder.path().join("packages/lib")));
        assert_eq!((found[1].name.as_str(), &found[1].folder), ("gone", &None));
    }

    #[test]
    fn extras_that_are_asked_for_are_among_the_dependencies() {
        let text = "[project]\nname = 'My_Net'\nversion = '1'\ndependencies = ['six']\n\
            [project.optional-dependencies]\nall = ['my.net[train, all]', 'idna']\nTrain = ['wandb']\nother = ['x']\n";
        let folder = folder_with(&[("pyproject.toml", text)]);
        let given = read(&folder, "pyproject.toml").for_uv(&["all".to_owned()]);
        let table: Table = given.text.parse().unwrap();
        let list = strings(table["project"].get("dependencies"));
        assert_eq!(list, ["six", "idna", "wandb"]);
    }

    #[test]
    fn names_of_extras_and_groups_are_known() {
        let text = "[project]\nname = 'a'\nversion = '1'\n[project.optional-dependencies]\nTo_Train = ['x']\n\
            [dependency-groups]\ndev = []\n";
        let folder = folder_with(&[("pyproject.toml", text)]);
        let given = read(&folder, "pyproject.toml").for_uv(&[]);
        assert!(given.has_extra("to-train") && !given.has_extra("dev"));
        assert!(given.has_group("dev") && !given.has_group("to-train"));
        assert!(!given.has_extra("é") && !given.has_group(""));
    }

    #[test]
    fn a_project_without_a_file_says_what_it_is_told() {
        let mut project = UvProject::without_file(Path::new("/x/pyproject.toml"));
        let optional = BTreeMap::from([("a".to_owned(), vec!["idna".to_owned()])]);
        project.set_project("net", Some(">=3.8"), &["six".to_owned()], &optional);
        let given = project.for_uv(&[]);
        let table: Table = given.text.parse().unwrap();
        assert_eq!(table["project"]["name"].as_str(), Some("net"));
        assert_eq!(
            strings(table["project"]["optional-dependencies"].get("a")),
            ["idna"]
        );
        assert_eq!(given.path(), Path::new("/x/pyproject.toml"));
    }

    #[test]
    fn what_is_no_toml_is_named() {
        let folder = folder_with(&[("pyproject.toml", "x = ")]);
        let error = UvProject::read(&folder.path().join("pyproject.toml")).unwrap_err();
        assert!(
            error.to_string().contains("pyproject.toml is not TOML"),
            "{error}"
        );
        let error = UvProject::read(&folder.path().join("none.toml")).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
    }

    #[test]
    fn requirements_have_a_name_and_extras() {
        for (text, name, extras) in [
            ("numpy>=2", "numpy", vec![]),
            (" My.Lib [ a, b ] @ file:///x", "my-lib", vec!["a", "b"]),
            ("./x", "", vec![]),
        ] {
            let expected: Vec<String> = extras.into_iter().map(str::to_owned).collect();
            assert_eq!(
                split_requirement(text),
                (name.to_owned(), expected),
                "{text}"
            );
        }
    }
}
