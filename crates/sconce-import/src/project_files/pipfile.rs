//! `Pipfile`: what a project of pipenv asks for, where no `Pipfile.lock` says what of it is locked.
//! <https://pipenv.pypa.io/en/latest/pipfile.html>

use toml::{Table, Value};

use crate::draft::Draft;
use crate::project_table::{is_for_developers, key_lines, line_of, toml_table};
use crate::requirement;
use crate::{ImportError, ImportedSpec, poetry};

/// The tables that are no category of packages.
const OTHER_TABLES: [&str; 4] = ["source", "requires", "scripts", "pipenv"];
/// The table of what runs.
const PACKAGES: &str = "packages";
/// How pipenv's own file calls the index that everyone has.
const USUAL_INDEX: &str = "pypi";
/// Packages that are read.
const MAX_PACKAGES: usize = 5000;
/// Categories that are told, and indexes that are taken.
const MAX_TABLES: usize = 20;

const PRE: &str =
    "pre-releases are taken where a requirement names one, as in `torch>=2.16.0.dev0`";
const CATEGORY: &str =
    "it is not asked for: what of it is needed has to be named in `[python] packages`";
const NOT_ONE: &str = "not a package that is understood";
/// Keys of a package that are markers: `sys_platform = "== 'linux'"`.
const MARKERS: [&str; 11] = [
    "os_name",
    "sys_platform",
    "platform_machine",
    "platform_python_implementation",
    "platform_release",
    "platform_system",
    "platform_version",
    "python_version",
    "python_full_version",
    "implementation_name",
    "implementation_version",
];

pub(crate) fn convert(text: &str) -> Result<ImportedSpec, ImportError> {
    let root = toml_table(text)?;
    let Some(packages) = root.get(PACKAGES).and_then(Value::as_table) else {
        return Err(ImportError::Nothing {
            missing: "no [packages]",
        });
    };
    let mut draft = Draft::default();
    note_categories(&root, text, &mut draft);
    let requires = root.get("requires").and_then(Value::as_table);
    let mut pythons = ["python_full_version", "python_version"].into_iter();
    let python = pythons.find_map(|key| Some((key, requires?.get(key)?.as_str()?)));
    // `*` is any, and `3` is no version that is one.
    if let Some((key, version)) = python.filter(|(_, version)| version.contains('.')) {
        draft.set_python(line_of(text, key), version);
    }
    let lines = key_lines(text);
    let mut used = Vec::new();
    let mut batch = Vec::new();
    for (name, value) in packages.iter().take(MAX_PACKAGES) {
        let line = lines.get(name.as_str()).copied();
        used.extend(value.get("index").and_then(Value::as_str));
        if let Some(path) = value.get("path").and_then(Value::as_str) {
            draft.bring(name);
            let extras = poetry::extras_of(value);
            draft.add_editable(line, &format!("{path}{extras}"));
            continue;
        }
        let found = poetry::dependency(name, &as_poetry_has_it(value));
        match found.and_then(|text| requirement::parse(&text)) {
            Ok(requirement) => batch.push(requirement),
            Err(why) => draft.left_out(line, name, if why.is_empty() { NOT_ONE } else { why }),
        }
    }
    add_sources(&root, text, &used, &mut draft);
    draft.add_requirements(None, batch);
    Ok(draft.finish())
}

/// Says what of the other tables does not come along. Those who work on the project have `[dev-packages]`.
fn note_categories(root: &Table, text: &str, draft: &mut Draft) {
    let is_other = |name: &str| {
        let known = name == PACKAGES || OTHER_TABLES.contains(&name);
        !known && !is_for_developers(name)
    };
    let tables = root
        .iter()
        .filter(|(name, value)| value.is_table() && is_other(name));
    for (name, _) in tables.take(MAX_TABLES) {
        draft.left_out(
            line_of(text, &format!("[{name}]")),
            &format!("[{name}]"),
            CATEGORY,
        );
    }
    let pipenv = root.get("pipenv");
    let key = "allow_prereleases";
    if pipenv.and_then(|pipenv| pipenv.get(key)?.as_bool()) == Some(true) {
        draft.left_out(line_of(text, key), key, PRE);
    }
}

/// The first source serves all, each other one what names it.
fn add_sources(root: &Table, text: &str, used: &[&str], draft: &mut Draft) {
    let sources = root.get("source").and_then(Value::as_array);
    let sources = sources.into_iter().flatten().take(MAX_TABLES);
    for (number, source) in sources.enumerate() {
        let key = |key: &str| source.get(key).and_then(Value::as_str);
        let (Some(url), name) = (key("url"), key("name").unwrap_or_default()) else {
            continue;
        };
        let line = text.lines().position(|line| line.contains(url));
        let line = line.map(|before| before + 1);
        match number {
            0 if name == USUAL_INDEX => {}
            0 => draft.set_index(line, url),
            _ if used.contains(&name) => draft.extra_index(line, url),
            _ => {}
        }
    }
}

/// A package as Poetry's table has it: one commit, one marker.
fn as_poetry_has_it(value: &Value) -> Value {
    let Value::Table(table) = value else {
        return value.clone();
    };
    let mut table = table.clone();
    if let Some(commit) = table.remove("ref") {
        table.insert("rev".to_owned(), commit);
    }
    if let Some(address) = table.remove("file") {
        table.insert("url".to_owned(), address);
    }
    let mut markers: Vec<String> = Vec::new();
    markers.extend(
        table
            .get("markers")
            .and_then(Value::as_str)
            .map(str::to_owned),
    );
    for key in MARKERS {
        if let Some(Value::String(condition)) = table.remove(key) {
            markers.push(format!("{key} {condition}"));
        }
    }
    let all = match markers.as_slice() {
        [] => return Value::Table(table),
        [one] => one.clone(),
        several => several
            .iter()
            .map(|marker| format!("({marker})"))
            .collect::<Vec<_>>()
            .join(" and "),
    };
    table.insert("markers".to_owned(), Value::String(all));
    Value::Table(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::format_notes;

    #[test]
    fn a_pipfile_is_translated() {
        let adopted = convert(
            "[[source]]\nurl = \"https://i.example.org/simple\"\nverify_ssl = true\nname = \"pypi\"\n\
             [[source]]\nurl = \"https://me:pw@i.example.org/mine\"\nname = \"mine\"\n\
             [[source]]\nurl = \"https://i.example.org/unused\"\nname = \"unused\"\n\
             [packages]\nidna = \"*\"\nsix = \"~=1.16\"\nray = {version = \">=2\", extras = [\"data\"], index = \"mine\"}\n\
             w = {version = \"*\", sys_platform = \"== 'win32'\", markers = \"python_version < '3.9'\"}\n\
             x = {git = \"https://git.example.org/x.git\", ref = \"v1\", editable = true, subdirectory = \"py\"}\n\
             y = {file = \"https://f.example.org/y-1.tar.gz\"}\nown = {path = \".\", editable = true, extras = [\"gpu\"]}\n\
             lib = {path = \"libs/lib\"}\nbad = \"=>1\"\n\
             [dev-packages]\nruff = \"*\"\n[train]\nwandb = \"*\"\n[requires]\npython_version = \"3.11\"\n\
             [pipenv]\nallow_prereleases = true\n[scripts]\nx = \"y\"\n",
        )
        .unwrap();
        let python = &adopted.spec.python;
        assert_eq!(
            python.packages,
            [
                "idna",
                "ray[data]>=2",
                "six~=1.16",
                "w ; (python_version < '3.9') and (sys_platform == 'win32')",
                "x @ git+https://git.example.org/x.git@v1#subdirectory=py",
                "y @ https://f.example.org/y-1.tar.gz",
            ]
        );
        assert_eq!(python.editable, ["libs/lib", ".[gpu]"]);
        assert_eq!(python.version.as_deref(), Some("3.11"));
        assert_eq!(python.index, None);
        assert_eq!(python.extra_index, ["https://i.example.org/mine"]);
        let said = format_notes(&adopted);
        for expected in [
            "left out: bad: a version that is not understood",
            "left out: [train]: it is not asked for",
            "left out: allow_prereleases: pre-releases",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
        assert!(
            !said.contains("dev-packages") && !said.contains(":pw"),
            "{said}"
        );
    }

    #[test]
    fn the_first_source_serves_all() {
        let source = |name: &str| {
            format!(
                "[[source]]\nurl = \"https://i.example.org/simple\"\nname = \"{name}\"\n[packages]\nsix = \"*\"\n"
            )
        };
        let index = |name: &str| convert(&source(name)).unwrap().spec.python.index;
        assert_eq!(index("pypi"), None);
        assert_eq!(
            index("lab").as_deref(),
            Some("https://i.example.org/simple")
        );
        let error = convert("[dev-packages]\nruff = \"*\"\n").unwrap_err();
        assert!(matches!(error, ImportError::Nothing { .. }));
    }
}
