//! What `pyproject.toml` says of a project as a whole, and what the readers of Python's project files share.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::ImportError;
use super::draft::Draft;

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

pub(super) fn tool_table<'a>(root: &'a Table, name: &str) -> Option<&'a Table> {
    root.get("tool")?.as_table()?.get(name)?.as_table()
}

/// Whether the project is a package that can be installed: it says how it is built, and does not say that it
/// is none (uv's `package = false`, Poetry's `package-mode = false`).
pub(super) fn is_package(root: &Table) -> bool {
    let uv = tool_table(root, "uv").and_then(|uv| uv.get("package")?.as_bool());
    !refuses_package(root) && (uv == Some(true) || root.contains_key("build-system"))
}

/// Whether it says that it is none.
fn refuses_package(root: &Table) -> bool {
    let said = |tool: &str, key: &str| tool_table(root, tool)?.get(key)?.as_bool();
    said("uv", "package") == Some(false) || said("poetry", "package-mode") == Some(false)
}

/// Whether a file's text says that the project is no package.
pub(super) fn refuses_package_text(text: &str) -> bool {
    toml_table(text).is_ok_and(|root| refuses_package(&root))
}

/// Whether a file's text says that the project is a package; `false` for one that is no TOML.
pub(super) fn is_package_text(text: &str) -> bool {
    toml_table(text).is_ok_and(|root| is_package(&root))
}

/// The project's name in [project] or in Poetry's table.
pub(super) fn project_name(text: &str) -> Option<String> {
    let root = toml_table(text).ok()?;
    let table = root.get("project").and_then(Value::as_table);
    let table = table.or_else(|| tool_table(&root, "poetry"))?;
    Some(table.get("name")?.as_str()?.to_owned())
}

/// Modules that the project's console scripts begin in.
pub(super) fn script_modules(text: &str) -> Vec<String> {
    let Ok(root) = toml_table(text) else {
        return Vec::new();
    };
    let project = root.get("project").and_then(Value::as_table);
    let tables = [project, tool_table(&root, "poetry")];
    let scripts = tables
        .into_iter()
        .flatten()
        .filter_map(|table| table.get("scripts")?.as_table());
    scripts
        .flat_map(Table::values)
        .filter_map(|value| Some(value.as_str()?.split(':').next()?.trim().to_owned()))
        .take(200)
        .collect()
}

/// The extras that the project has.
pub(super) fn extra_names(text: &str) -> Vec<String> {
    let Ok(root) = toml_table(text) else {
        return Vec::new();
    };
    let project = root.get("project").and_then(Value::as_table);
    let optional = project.and_then(|project| project.get("optional-dependencies")?.as_table());
    let extras = tool_table(&root, "poetry").and_then(|poetry| poetry.get("extras")?.as_table());
    let tables = [optional, extras].into_iter().flatten();
    tables.flat_map(Table::keys).take(500).cloned().collect()
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

/// Says which key of the spec chooses among extras or groups.
pub(super) fn note_choices<'a>(
    names: impl Iterator<Item = &'a str>,
    line: Option<usize>,
    key: &str,
    draft: &mut Draft,
) {
    let names: Vec<&str> = names
        .filter(|name| !is_for_developers(name))
        .take(MAX_GROUPS)
        .collect();
    if !names.is_empty() {
        draft.note_decision(line, &list_choices(key, &names), not_chosen(key));
    }
}

/// `the extras a, b and 3 more`.
pub(super) fn list_choices(key: &str, names: &[&str]) -> String {
    let (shown, more) = names.split_at(names.len().min(6));
    let mut what = format!("the {key} {}", shown.join(", "));
    if !more.is_empty() {
        what += &format!(" and {} more", more.len());
    }
    what
}

/// Why extras or groups do not come along.
pub(super) fn not_chosen(key: &str) -> String {
    format!("not installed; `{key}` in [python] chooses some of them")
}

/// Extras, groups and files that serve to work on a project, not to run it, by their names.
#[must_use]
pub fn is_for_developers(name: &str) -> bool {
    let words = [
        "test",
        "tests",
        "testing",
        "dev",
        "devel",
        "develop",
        "development",
        "developer",
        "doc",
        "docs",
        "documentation",
        "lint",
        "linting",
        "linter",
        "style",
        "quality",
        "format",
        "formatting",
        "typing",
        "types",
        "mypy",
        "ci",
        "build",
        "release",
        "commit",
        "precommit",
        "coverage",
        "benchmark",
        "benchmarks",
        "sphinx",
        "pytest",
        "check",
        "checks",
    ];
    let lower = name.to_ascii_lowercase();
    lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| words.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_says_how_it_is_built_and_not_that_it_is_none() {
        for (text, expected) in [
            ("[build-system]\n", true),
            ("[project]\nname = \"a\"\n", false),
            ("[tool.uv]\npackage = true\n", true),
            ("[build-system]\n[tool.uv]\npackage = false\n", false),
            (
                "[build-system]\n[tool.poetry]\npackage-mode = false\n",
                false,
            ),
            ("[", false),
        ] {
            assert_eq!(is_package_text(text), expected, "{text}");
        }
    }

    #[test]
    fn names_of_extras_tell_whom_they_serve() {
        for name in [
            "dev",
            "all-tests",
            "docs",
            "lint_extra",
            "requirements-test.txt",
        ] {
            assert!(is_for_developers(name), "{name}");
        }
        for name in ["train", "latest", "attest", "device", "gpu"] {
            assert!(!is_for_developers(name), "{name}");
        }
    }
}
