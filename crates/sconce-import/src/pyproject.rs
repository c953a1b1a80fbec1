//! `pyproject.toml`: `[project]` (PEP 621) is referred to, Poetry's own table is translated.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::draft::Draft;
use super::requirement::{self, PROJECT};
use super::{ImportError, ImportedSpec, poetry};
use sconce_formats::pyproject::PyprojectMetadata;

pub(super) const EDITABLE: &str = "it is installed from where it lies, as `pip install -e .` does";
const NOT_ALL_LOCKED: &str = "it is not installed, as not all that it depends on can be locked, but is \
     /workspace inside; for a src/ layout, set PYTHONPATH = \"/workspace/src\" in [run.env]";
const NOT_STATIC: &str = "it is not installed, as its build backend alone knows its dependencies, but is \
     /workspace inside; for a src/ layout, set PYTHONPATH = \"/workspace/src\" in [run.env]";
const NO_METADATA: &str = "it is not installed, as its pyproject.toml has no [project], but is /workspace \
     inside; for a src/ layout, set PYTHONPATH = \"/workspace/src\" in [run.env]";

/// More extras and groups are not named one by one.
pub(super) const MAX_GROUPS: usize = 100;

/// Reads TOML, or says where it is none.
pub(super) fn toml_table(text: &str) -> Result<Table, ImportError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let breaks = text.as_bytes()[..start].iter().filter(|&&b| b == b'\n');
        ImportError::Toml {
            line: breaks.count() + 1,
            message: super::note::redacted_line(error.message()),
        }
    })
}

/// What a `[project]` says, with what of it cannot be locked.
pub(super) struct ProjectTable<'a> {
    table: &'a Table,
    /// `[tool.uv.sources]`.
    sources: Option<&'a Table>,
}

impl<'a> ProjectTable<'a> {
    pub(super) fn from_root(root: &'a Table) -> Option<Self> {
        let tool = |name: &str| root.get("tool")?.as_table()?.get(name)?.as_table();
        Some(Self {
            table: root.get("project")?.as_table()?,
            sources: tool("uv").and_then(|uv| uv.get("sources")?.as_table()),
        })
    }

    /// Its dependencies, and those of the extras: what can be locked, and what cannot.
    pub(super) fn classify_dependencies(
        &self,
        extras: &[&str],
    ) -> (Vec<requirement::Requirement>, Vec<(String, &'static str)>) {
        let optional = self.table.get("optional-dependencies");
        let lists = extras
            .iter()
            .filter_map(|extra| optional?.as_table()?.get(*extra));
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for text in self
            .table
            .get("dependencies")
            .into_iter()
            .chain(lists)
            .flat_map(array_strings)
        {
            match requirement::parse(text) {
                Ok(requirement) => match self.elsewhere(&requirement.name) {
                    Some(why) => bad.push((text.to_owned(), why)),
                    None => good.push(requirement),
                },
                Err(why) => bad.push((text.to_owned(), why)),
            }
        }
        (good, bad)
    }

    /// Why `[tool.uv.sources]` keeps it from being locked.
    fn elsewhere(&self, name: &str) -> Option<&'static str> {
        let named =
            |key: &str| sconce_formats::normalize_project_name(key).as_deref() == Some(name);
        let (_, source) = self.sources?.iter().find(|(key, _)| named(key))?;
        let has = |key: &str| match source {
            Value::Table(table) => table.contains_key(key),
            Value::Array(list) => list
                .iter()
                .any(|one| one.as_table().is_some_and(|table| table.contains_key(key))),
            _ => false,
        };
        if has("git") {
            Some(requirement::SOURCES)
        } else if has("path") || has("workspace") {
            Some(PROJECT)
        } else {
            None
        }
    }

    fn is_dynamic(&self) -> bool {
        let dynamic = self
            .table
            .get("dynamic")
            .into_iter()
            .flat_map(array_strings);
        dynamic.into_iter().any(|name| name == "dependencies")
    }
}

/// Why a project cannot be installed from where it lies, as a note says it; `None` where it can be.
/// `text` is its pyproject.toml.
pub(super) fn why_not_editable(text: &str) -> Option<&'static str> {
    match PyprojectMetadata::parse(text) {
        Ok(metadata) if metadata.dynamic.iter().any(|field| field == "dependencies") => {
            Some(NOT_STATIC)
        }
        Ok(_) => None,
        Err(_) => Some(NO_METADATA),
    }
}

/// Whether a pyproject.toml says that its project is to be installed, as uv reads it: it names a build
/// backend, and does not say otherwise.
fn is_package(root: &Table) -> bool {
    let uv = root.get("tool").and_then(|tool| tool.as_table()?.get("uv"));
    let package = uv.and_then(|uv| uv.as_table()?.get("package"));
    match package.and_then(Value::as_bool) {
        Some(package) => package,
        None => root.contains_key("build-system"),
    }
}

/// The strings of a list.
pub(super) fn array_strings(value: &Value) -> Vec<&str> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).take(5000).collect()
}

/// The first line with each key, for notes.
pub(super) fn key_lines(text: &str) -> BTreeMap<&str, usize> {
    let mut lines = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        if let Some((key, _)) = line.split_once('=') {
            lines
                .entry(key.trim().trim_matches(['"', '\'']))
                .or_insert(at + 1);
        }
    }
    lines
}

/// The line that begins with a table's or key's name, for a note.
pub(super) fn line_of(text: &str, begins: &str) -> Option<usize> {
    let line = text
        .lines()
        .position(|line| line.trim_start().starts_with(begins))?;
    Some(line + 1)
}

pub(super) fn convert(path: &str, text: &str) -> Result<ImportedSpec, ImportError> {
    let root = toml_table(text)?;
    let mut draft = Draft::default();
    let Some(project) = ProjectTable::from_root(&root) else {
        let tool = root.get("tool").and_then(Value::as_table);
        let Some(table) = tool.and_then(|tool| tool.get("poetry")?.as_table()) else {
            return Err(ImportError::Nothing {
                missing: "neither [project] nor [tool.poetry]",
            });
        };
        poetry::convert_into(table, text, &mut draft);
        return Ok(draft.finish());
    };
    if let Some(name) = project.table.get("name").and_then(Value::as_str) {
        draft.set_name(name);
    }
    let requires = project.table.get("requires-python").and_then(Value::as_str);
    if let Some(requires) = requires {
        draft.requires_python(line_of(text, "requires-python"), requires);
    }
    extras(&root, text, &mut draft);
    let (good, bad) = project.classify_dependencies(&[]);
    if is_package(&root) {
        let line = line_of(text, "[build-system]");
        let why_not = match bad.is_empty() {
            true => why_not_editable(text),
            false => Some(NOT_ALL_LOCKED),
        };
        match why_not {
            Some(why) => draft.left_out(line, "the project itself", why),
            None => {
                draft.note_decision(line, "the project itself", EDITABLE.to_owned());
                let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
                draft.spec.python.editable = vec![folder.to_owned()];
            }
        }
    }
    if project.is_dynamic() {
        let why = "they are known only after building it: name them in `[python] packages`";
        draft.left_out(line_of(text, "dynamic"), "its dependencies", why);
        return Ok(draft.finish());
    }
    let some = !good.is_empty();
    draft.add_requirements(None, good);
    if !bad.is_empty() {
        for (what, why) in bad {
            draft.left_out(None, &what, why);
        }
        let why = format!(
            "its dependencies are copied into the spec, as not all of {path} can be locked; later changes of it do not count"
        );
        draft.note_decision(None, path, why);
        return Ok(draft.finish());
    }
    if some {
        draft.indexed = text.contains("[tool.uv");
        draft.spec.python.pyproject = Some(path.to_owned());
    } else if draft.spec.python.editable.is_empty() {
        draft.note_decision(None, path, "it has no dependencies".to_owned());
    }
    Ok(draft.finish_referring())
}

/// Groups of dependencies that are asked for by name, which a spec cannot.
fn extras(root: &Table, text: &str, draft: &mut Draft) {
    let project = root.get("project").and_then(Value::as_table);
    let optional = project.and_then(|project| project.get("optional-dependencies"));
    for (table, key, what) in [
        (optional, "[project.optional-dependencies", "the extra"),
        (
            root.get("dependency-groups"),
            "[dependency-groups",
            "the group",
        ),
    ] {
        for name in table
            .and_then(Value::as_table)
            .into_iter()
            .flat_map(Table::keys)
            .take(MAX_GROUPS)
        {
            let why = match what {
                "the extra" => "it is not asked for: `[python] extras` does",
                _ => "it is not asked for: `[python] groups` does",
            };
            draft.left_out(line_of(text, key), &format!("{what} `{name}`"), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::format_notes;
    use super::*;

    fn read(text: &str) -> ImportedSpec {
        convert("pyproject.toml", text).expect("it can be adopted")
    }

    #[test]
    fn dependencies_are_referred_to() {
        let adopted = read(
            "[project]\nname = \"My Net\"\nrequires-python = \">=3.10\"\n\
             dependencies = [\"torch>=2.6\", \"numpy\"]\n",
        );
        let python = &adopted.spec.python;
        assert_eq!(adopted.spec.name.as_deref(), Some("My-Net"));
        assert_eq!(python.pyproject.as_deref(), Some("pyproject.toml"));
        assert!(python.packages.is_empty() && python.version.is_none());
        assert_eq!(adopted.notes, []);
    }

    #[test]
    fn a_project_that_is_a_package_is_installed_from_where_it_lies() {
        let project = "[project]\nname = \"a\"\ndependencies = [\"torch\"]\n";
        let built = format!("{project}[build-system]\nrequires = [\"hatchling\"]\n");
        let adopted = read(&built);
        assert_eq!(adopted.spec.python.editable, ["."]);
        assert_eq!(
            adopted.spec.python.pyproject.as_deref(),
            Some("pyproject.toml")
        );
        assert!(format_notes(&adopted).contains("4 decided: the project itself: it is installed"));
        // Below the spec's folder.
        let below = convert("libs/a/pyproject.toml", &built).unwrap();
        assert_eq!(below.spec.python.editable, ["libs/a"]);
        // Where it says that it is none, or nothing says that it is one.
        let none = format!("{built}[tool.uv]\npackage = false\n");
        for text in [project, &none] {
            let adopted = read(text);
            assert!(adopted.spec.python.editable.is_empty(), "{text}");
            assert_eq!(format_notes(&adopted), "");
        }
        // Where its dependencies cannot all be locked, it would not be either.
        let bad = built.replace("torch", "b @ git+https://git.example.org/b");
        let adopted = read(&bad);
        assert!(adopted.spec.python.editable.is_empty());
        assert!(format_notes(&adopted).contains("4 left out: the project itself"));
    }

    #[test]
    fn the_python_that_it_allows_chooses_the_release() {
        let adopted = read(
            "[project]\nname = \"a\"\nrequires-python = \">=3.9,<3.12\"\ndependencies = [\"torch\"]\n",
        );
        assert_eq!(adopted.spec.system.release, "debian/bookworm");
        assert_eq!(adopted.spec.python.version.as_deref(), Some("3.11"));
        let adopted = read("[project]\nrequires-python = \"<3.10\"\ndependencies = [\"torch\"]");
        assert_eq!(adopted.spec.python.version, None);
        assert!(format_notes(&adopted).contains("2 left out: Python <3.10"));
    }

    #[test]
    fn what_cannot_be_locked_makes_a_copy() {
        let adopted = read(
            "[project]\ndependencies = [\"torch\", \"a\", \"b @ git+https://git.example.org/b\"]\n\
             [tool.uv.sources]\nA = { git = \"https://git.example.org/a\" }\n",
        );
        assert_eq!(adopted.spec.python.packages, ["torch"]);
        assert_eq!(adopted.spec.python.pyproject, None);
        let said = format_notes(&adopted);
        assert!(said.contains("left out: a: only wheels"), "{said}");
        assert!(said.contains("left out: b @ git+https"), "{said}");
    }

    #[test]
    fn groups_and_dynamic_dependencies_are_named() {
        let adopted = read(
            "[build-system]\nrequires = []\n[project]\ndynamic = [\"dependencies\"]\n\
             [project.optional-dependencies]\ntrain = [\"wandb\"]\n[dependency-groups]\ndev = [\"ruff\"]\n",
        );
        let said = format_notes(&adopted);
        for expected in [
            "5 left out: the extra `train`",
            "7 left out: the group `dev`",
            "1 left out: the project itself",
            "4 left out: its dependencies",
        ] {
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(adopted.spec.python.pyproject, None);
    }

    #[test]
    fn a_file_of_tool_settings_has_nothing_to_adopt() {
        let error = convert("pyproject.toml", "[tool.ruff]\nline-length = 100\n").unwrap_err();
        assert!(matches!(error, ImportError::Nothing { .. }));
        let error = convert("pyproject.toml", "[tool\n").unwrap_err();
        assert!(matches!(error, ImportError::Toml { line: 1, .. }));
    }
}
