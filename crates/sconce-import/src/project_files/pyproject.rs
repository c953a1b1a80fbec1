//! `pyproject.toml`: `[project]` (PEP 621) is referred to, Poetry's own table is translated.

use sconce_base::text::redact_url_credentials;
use sconce_formats::torch_builds::drop_unneeded_builds;
use toml::{Table, Value};

use super::{local_paths, setup};
use crate::draft::Draft;
use crate::project_files::requirements::RequirementsScan;
use crate::project_table::{
    array_strings, is_package, line_of, note_choices, toml_table, tool_table,
};
use crate::requirement::{self, Requirement};
use crate::uv_settings::note_uv_settings;
use crate::{ImportError, ImportedSpec, SiblingFiles, poetry};

/// What a `[project]` says.
pub(crate) struct ProjectTable<'a> {
    root: &'a Table,
    table: &'a Table,
}

impl<'a> ProjectTable<'a> {
    pub(crate) fn from_root(root: &'a Table) -> Option<Self> {
        let table = root.get("project")?.as_table()?;
        Some(Self { root, table })
    }

    /// Its dependencies, and those of the extras: those that are understood, and the others.
    pub(crate) fn classify_dependencies(
        &self,
        extras: &[&str],
    ) -> (Vec<Requirement>, Vec<(String, &'static str)>) {
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
                Ok(requirement) => good.push(requirement),
                Err(why) => bad.push((text.to_owned(), why)),
            }
        }
        (good, bad)
    }

    /// Whether its build backend alone knows its dependencies.
    fn is_dynamic(&self) -> bool {
        let dynamic = self
            .table
            .get("dynamic")
            .into_iter()
            .flat_map(array_strings);
        dynamic.into_iter().any(|name| name == "dependencies")
    }

    /// What setuptools reads the dependencies from: the files that `[tool.setuptools.dynamic]` names, and
    /// setup.py and setup.cfg.
    fn dynamic_dependencies(&self, beside: SiblingFiles<'_>) -> Vec<Requirement> {
        let mut found = requirements_of_files(self.root, &["dependencies"], beside);
        found.extend(setup::read_facts(beside).map_or(Vec::new(), |facts| facts.requires));
        found
    }
}

/// The requirements in the files that `[tool.setuptools.dynamic]` names below `keys`.
pub(crate) fn requirements_of_files(
    root: &Table,
    keys: &[&str],
    beside: SiblingFiles<'_>,
) -> Vec<Requirement> {
    let dynamic = tool_table(root, "setuptools").and_then(|setuptools| setuptools.get("dynamic"));
    let dynamic = dynamic.and_then(|dynamic| {
        keys.iter()
            .try_fold(dynamic, |value, key| value.get(*key))?
            .get("file")
    });
    let files: Vec<&str> = match dynamic {
        Some(Value::String(file)) => vec![file],
        Some(list) => array_strings(list),
        None => Vec::new(),
    };
    let mut found = Vec::new();
    for file in files.into_iter().take(20) {
        if let Some(path) = crate::inside(file)
            && let Some(text) = beside(&path)
        {
            let scan = RequirementsScan::scan_file(&path, &text, beside);
            found.extend(scan.requirements.into_iter().map(|(_, one)| one));
        }
    }
    found
}

pub(crate) fn convert(
    path: &str,
    text: &str,
    beside: SiblingFiles<'_>,
) -> Result<ImportedSpec, ImportError> {
    let root = toml_table(text)?;
    let mut draft = Draft::default();
    let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
    let package = is_package(&root);
    draft.indexed = text.contains("[tool.uv");
    let Some(project) = ProjectTable::from_root(&root) else {
        let Some(table) = tool_table(&root, "poetry") else {
            return Err(ImportError::Nothing {
                missing: "neither [project] nor [tool.poetry]",
            });
        };
        poetry::convert_into(table, text, package, &mut draft);
        if !package {
            return Ok(draft.finish());
        }
        draft.add_editable(None, folder);
        return Ok(draft.finish_referring());
    };
    if let Some(name) = project.table.get("name").and_then(Value::as_str) {
        draft.set_name(name);
    }
    note_extras(&root, text, &mut draft);
    let (good, bad) = project.classify_dependencies(&[]);
    let some = !good.is_empty() || !bad.is_empty();
    note_uv_settings(&root, text, !path.contains('/'), &mut draft);
    for unneeded in drop_unneeded_builds(&mut root.clone()) {
        let mut lines = text.lines();
        let line = lines.position(|line| line.contains(&unneeded.what));
        let line = line.map(|before| before + 1);
        draft.note_decision(
            line,
            &redact_url_credentials(&unneeded.what),
            unneeded.reason,
        );
    }
    draft.add_requirements(None, good);
    for local in bad
        .iter()
        .filter_map(|(text, _)| local_paths::read_local_path(text, beside))
    {
        draft.bring(&local.name);
        let brought = local_paths::find_brought(&local.path, beside);
        brought.iter().for_each(|name| draft.bring(name));
    }
    if package {
        if project.is_dynamic() {
            draft.add_requirements(None, project.dynamic_dependencies(beside));
        }
        draft.add_editable(None, folder);
    } else if project.is_dynamic() {
        let why = "they are known only after building it, and it has no [build-system]: name them in `[python] packages`";
        draft.left_out(line_of(text, "dynamic"), "its dependencies", why);
    } else if some {
        draft.spec.python.pyproject = Some(path.to_owned());
    } else {
        draft.note_decision(None, path, "it has no dependencies".to_owned());
    }
    Ok(draft.finish_referring())
}

/// Groups of dependencies that are asked for by name.
fn note_extras(root: &Table, text: &str, draft: &mut Draft) {
    let project = root.get("project").and_then(Value::as_table);
    let optional = project.and_then(|project| project.get("optional-dependencies"));
    for (table, heading, key) in [
        (optional, "[project.optional-dependencies", "extras"),
        (
            root.get("dependency-groups"),
            "[dependency-groups",
            "groups",
        ),
    ] {
        let names = table.and_then(Value::as_table).into_iter();
        let names = names.flat_map(Table::keys).map(String::as_str);
        note_choices(names, line_of(text, heading), key, draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::format_notes;

    fn read(text: &str) -> ImportedSpec {
        let beside = |path: &str| match path {
            "requirements.txt" => Some("torch\n-r more.txt\n".to_owned()),
            "more.txt" => Some("numpy\n".to_owned()),
            "setup.py" => Some("setup(install_requires=['tqdm'])".to_owned()),
            _ => None,
        };
        convert("pyproject.toml", text, &beside).expect("it can be adopted")
    }

    fn provided(adopted: &ImportedSpec) -> Vec<&str> {
        adopted.provided.iter().map(String::as_str).collect()
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
        assert!(python.editable.is_empty());
        assert_eq!(provided(&adopted), ["numpy", "torch"]);
        assert_eq!(adopted.notes, []);
    }

    #[test]
    fn what_says_how_it_is_built_is_installed() {
        let project = "[project]\nrequires-python = \"<3.12\"\ndependencies = [\"torch\", \"a @ git+https://git.example.org/a\"]\n";
        let build = "[build-system]\nrequires = []\n";
        let adopted = read(&format!("{project}{build}"));
        let python = &adopted.spec.python;
        assert_eq!(python.editable, ["."]);
        assert_eq!((&python.pyproject, &python.version), (&None, &None));
        assert_eq!(provided(&adopted), ["a", "torch"]);
        assert_eq!(adopted.notes, []);
        for none in [
            "[tool.uv]\npackage = false\n",
            "[tool.poetry]\npackage-mode = false\n",
        ] {
            let adopted = read(&format!("{project}{build}{none}"));
            assert_eq!(adopted.spec.python.editable, [""; 0], "{none}");
            assert!(adopted.spec.python.pyproject.is_some(), "{none}");
        }
        let adopted = read(&format!("{project}[tool.uv]\npackage = true\n"));
        assert_eq!(adopted.spec.python.editable, ["."]);
        let adopted = convert(
            "libs/a/pyproject.toml",
            &format!("{project}{build}"),
            &|_| None,
        );
        assert_eq!(adopted.unwrap().spec.python.editable, ["libs/a"]);
    }

    #[test]
    fn an_index_of_the_build_that_the_main_one_has_is_told() {
        let adopted = read(
            "[project]\ndependencies = [\"torch==2.4.1\"]\n[tool.uv.sources]\ntorch = { index = \"b\" }\n\
             [[tool.uv.index]]\nname = \"b\"\nurl = \"https://i.example.org/whl/cu121\"\n",
        );
        assert_eq!(
            format_notes(&adopted),
            "7 decided: https://i.example.org/whl/cu121: torch 2.4.1 of the main index is this build (cu121), so it is not needed\n"
        );
    }

    #[test]
    fn dynamic_dependencies_are_those_of_the_files() {
        let dynamic = "[project]\ndynamic = [\"dependencies\"]\n";
        let adopted = read(&format!(
            "{dynamic}[build-system]\n[tool.setuptools.dynamic]\ndependencies = {{ file = [\"requirements.txt\", \"../x\"] }}\n"
        ));
        assert_eq!(adopted.spec.python.editable, ["."]);
        assert_eq!(provided(&adopted), ["numpy", "torch", "tqdm"]);
        let said = format_notes(&read(dynamic));
        assert!(said.contains("2 left out: its dependencies"), "{said}");
    }

    #[test]
    fn extras_and_groups_are_chosen_by_keys() {
        let adopted = read(
            "[build-system]\n[project]\n\
             [project.optional-dependencies]\ntrain = [\"wandb\"]\nall-tests = []\n\
             [dependency-groups]\ndev = [\"ruff\"]\n",
        );
        assert_eq!(
            format_notes(&adopted),
            "3 decided: the extras train: not installed; `extras` in [python] chooses some of them\n"
        );
    }

    #[test]
    fn a_file_of_tool_settings_has_nothing_to_adopt() {
        let convert = |text| convert("pyproject.toml", text, &|_| None);
        let error = convert("[tool.ruff]\nline-length = 100\n").unwrap_err();
        assert!(matches!(error, ImportError::Nothing { .. }));
        let error = convert("[tool\n").unwrap_err();
        assert!(matches!(error, ImportError::Toml { line: 1, .. }));
    }
}
