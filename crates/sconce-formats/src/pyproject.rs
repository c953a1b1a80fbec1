//! What a `pyproject.toml` says of its project, without running its build backend.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::normalize_project_name;

/// The project of a `pyproject.toml`: its `[project]` table (PEP 621), and where its modules lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PyprojectMetadata {
    /// As it is written.
    pub name: String,
    /// Absent where the build backend alone knows it.
    pub version: Option<String>,
    /// `requires-python`.
    pub requires_python: Option<String>,
    /// Requirements (PEP 508), as they are written.
    pub dependencies: Vec<String>,
    /// What each extra asks for.
    pub optional: BTreeMap<String, Vec<String>>,
    /// What the build backend alone knows, `dynamic`.
    pub dynamic: Vec<String>,
    /// Entry points by group and name; `[project.scripts]` is `console_scripts`.
    pub entry_points: BTreeMap<String, BTreeMap<String, String>>,
    /// The folder of its modules below its own, as the tables of build backends name it.
    pub module_root: Option<String>,
}

/// Why a text tells nothing of a project.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PyprojectError {
    /// Not TOML.
    #[error("{0}")]
    Toml(String),
    /// No `[project]`, or one without a name.
    #[error("it has no [project] with a name")]
    NoProject,
    /// A name that no project can have.
    #[error(
        "`name` of its [project] is {name:?}, and has to begin and end with a letter or a digit, with `.`, `-` and `_` between them"
    )]
    Name {
        /// The name.
        name: String,
    },
}

/// Groups that `[project.entry-points]` may not have: they have tables of their own.
const SCRIPT_GROUPS: [(&str, &str); 2] = [
    ("scripts", "console_scripts"),
    ("gui-scripts", "gui_scripts"),
];

impl PyprojectMetadata {
    /// Reads the text of a `pyproject.toml`.
    ///
    /// # Errors
    /// [`PyprojectError`].
    pub fn parse(text: &str) -> Result<Self, PyprojectError> {
        let root: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
            PyprojectError::Toml(
                error
                    .message()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })?;
        let project = root.get("project").and_then(Value::as_table);
        let project = project.ok_or(PyprojectError::NoProject)?;
        let text = |key: &str| project.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text("name").ok_or(PyprojectError::NoProject)?;
        if normalize_project_name(&name).is_none() {
            return Err(PyprojectError::Name { name });
        }
        let mut entry_points = BTreeMap::new();
        let groups = project.get("entry-points").and_then(Value::as_table);
        for (group, points) in groups.into_iter().flatten() {
            entry_points.insert(group.clone(), string_pairs(Some(points)));
        }
        for (key, group) in SCRIPT_GROUPS {
            entry_points.insert(group.to_owned(), string_pairs(project.get(key)));
        }
        entry_points.retain(|_, points: &mut BTreeMap<_, _>| !points.is_empty());
        let optional = project
            .get("optional-dependencies")
            .and_then(Value::as_table);
        let optional = optional.into_iter().flatten();
        Ok(Self {
            optional: optional
                .map(|(extra, list)| (extra.clone(), strings(Some(list))))
                .collect(),
            name,
            version: text("version"),
            requires_python: text("requires-python"),
            dependencies: strings(project.get("dependencies")),
            dynamic: strings(project.get("dynamic")),
            entry_points,
            module_root: declared_module_root(&root),
        })
    }

    /// The folder of a project's modules below its own, as the tables of build backends name it.
    #[must_use]
    pub fn module_root_of(root: &Table) -> Option<String> {
        declared_module_root(root)
    }

    /// The folder below the project's own that its modules are imported from, `.` or `src`: the one
    /// that is declared, else `src` where that has modules and the project's folder has no package of
    /// its name. `has_modules` says whether a folder has a package or a module in it, `has_package`
    /// whether a path is a package.
    #[must_use]
    pub fn find_module_root(
        &self,
        has_modules: impl Fn(&str) -> bool,
        has_package: impl Fn(&str) -> bool,
    ) -> String {
        if let Some(root) = &self.module_root {
            return root.clone();
        }
        let module = self.name.to_ascii_lowercase().replace(['-', '.'], "_");
        match has_modules("src") && !has_package(&module) {
            true => "src".to_owned(),
            false => ".".to_owned(),
        }
    }
}

/// What the tables of setuptools, hatchling, Poetry, PDM, maturin and uv_build say.
fn declared_module_root(root: &Table) -> Option<String> {
    let tool = root.get("tool")?.as_table()?;
    let at = |path: &[&str]| {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(tool.get(*first)?, |value, key| value.as_table()?.get(*key))
    };
    let first_of = |value: &Value| value.as_array()?.first()?.as_str().map(str::to_owned);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let parent = |path: String| match path.trim_end_matches('/').rsplit_once('/') {
        Some((parent, _)) => parent.to_owned(),
        None => ".".to_owned(),
    };
    let poetry = || {
        let packages = at(&["poetry", "packages"])?.as_array()?;
        packages.first()?.as_table()?.get("from").and_then(text)
    };
    let found = at(&["setuptools", "package-dir", ""])
        .and_then(text)
        .or_else(|| at(&["setuptools", "packages", "find", "where"]).and_then(first_of))
        .or_else(|| {
            let packages = at(&["hatch", "build", "targets", "wheel", "packages"])?;
            first_of(packages).map(parent)
        })
        .or_else(poetry)
        .or_else(|| at(&["pdm", "build", "package-dir"]).and_then(text))
        .or_else(|| at(&["maturin", "python-source"]).and_then(text))
        .or_else(|| at(&["uv", "build-backend", "module-root"]).and_then(text))?;
    // A path that leaves the project names nothing of it.
    let path = found.trim_start_matches("./").trim_end_matches('/');
    let odd = path.starts_with('/')
        || path.split('/').any(|part| part == "..")
        || path.contains(char::is_control);
    match path {
        _ if odd => None,
        "" => Some(".".to_owned()),
        path => Some(path.to_owned()),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn string_pairs(value: Option<&Value>) -> BTreeMap<String, String> {
    let pairs = value.and_then(Value::as_table).into_iter().flatten();
    pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
[build-system]
requires = ["setuptools"]
[project]
name = "My.Net"
version = "1.2"
requires-python = ">=3.10"
dependencies = ["torch>=2", "numpy"]
[project.scripts]
mynet = "my_net.cli:main"
[project.entry-points."my.plugins"]
fast = "my_net.fast"
[project.entry-points.empty]
"#;

    #[test]
    fn the_project_table_tells_the_metadata() {
        let metadata = PyprojectMetadata::parse(FULL).unwrap();
        assert_eq!(metadata.name, "My.Net");
        assert_eq!(metadata.version.as_deref(), Some("1.2"));
        assert_eq!(metadata.dependencies, ["torch>=2", "numpy"]);
        let points = &metadata.entry_points;
        assert_eq!(points["console_scripts"]["mynet"], "my_net.cli:main");
        assert_eq!(points["my.plugins"]["fast"], "my_net.fast");
        assert!(!points.contains_key("empty") && !points.contains_key("gui_scripts"));
    }

    #[test]
    fn what_tells_nothing_is_an_error() {
        let no_project = Err(PyprojectError::NoProject);
        assert_eq!(PyprojectMetadata::parse("[tool.ruff]\n"), no_project);
        assert_eq!(PyprojectMetadata::parse("[project]\n"), no_project);
        let name = "-".to_owned();
        assert_eq!(
            PyprojectMetadata::parse("[project]\nname = \"-\""),
            Err(PyprojectError::Name { name })
        );
        assert!(matches!(
            PyprojectMetadata::parse("[project\n"),
            Err(PyprojectError::Toml(_))
        ));
    }

    /// The tables of build backends, each with the folder that it names.
    const ROOTS: [(&str, &str); 9] = [
        ("[tool.setuptools.package-dir]\n\"\" = \"lib\"", "lib"),
        (
            "[tool.setuptools.packages.find]\nwhere = [\"./python/\"]",
            "python",
        ),
        (
            "[tool.hatch.build.targets.wheel]\npackages = [\"src/my_net\"]",
            "src",
        ),
        (
            "[tool.hatch.build.targets.wheel]\npackages = [\"my_net\"]",
            ".",
        ),
        (
            "[tool.poetry]\npackages = [{ include = \"my_net\", from = \"source\" }]",
            "source",
        ),
        ("[tool.pdm.build]\npackage-dir = \"src\"", "src"),
        ("[tool.maturin]\npython-source = \"python\"", "python"),
        ("[tool.uv.build-backend]\nmodule-root = \"\"", "."),
        // It leads out of the project, so it counts as not said.
        ("[tool.setuptools.package-dir]\n\"\" = \"../other\"", "src"),
    ];

    #[test]
    fn modules_lie_where_the_backends_table_says() {
        for (table, root) in ROOTS {
            let metadata = PyprojectMetadata::parse(&format!("{FULL}\n{table}\n")).unwrap();
            let found = metadata.find_module_root(|folder| folder == "src", |_| false);
            assert_eq!(found, root, "{table}");
        }
    }

    #[test]
    fn a_package_beside_pyproject_goes_before_src() {
        let metadata = PyprojectMetadata::parse(FULL).unwrap();
        let found = |package: &str| metadata.find_module_root(|_| true, |path| path == package);
        assert_eq!(found("my_net"), ".");
        assert_eq!(found("other"), "src");
        assert_eq!(metadata.find_module_root(|_| false, |_| false), ".");
    }
}
