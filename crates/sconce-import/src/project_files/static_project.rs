//! What a project says of itself in pyproject.toml, setup.py and setup.cfg: read, and nothing of it run.
//!
//! `[project]` counts as it stands. What it leaves to setuptools (`dynamic`) is looked for where setuptools
//! looks: in the files of `[tool.setuptools.dynamic]`, in setup.py and setup.cfg.

use std::collections::{BTreeMap, BTreeSet};

use sconce_formats::normalize_project_name;
use sconce_formats::pyproject::PyprojectMetadata;
use sconce_formats::scm_version::{ScmSettings, VersionFile, VersionTool};
use toml::{Table, Value};

use super::{pyproject, setup};
use crate::project_files::setup::SetupFacts;
use crate::project_table::tool_table;
use crate::python::UndecidedList;
use crate::requirement::Requirement;
use crate::{SiblingFiles, poetry, scm};

/// A project that can be installed from where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticProject {
    /// Its name, dependencies and entry points; its `dynamic` has what is not known.
    pub metadata: PyprojectMetadata,
    /// Whether it computes some of what it requires.
    pub is_partial: bool,
    /// Of what it requires, what its setup.py takes under conditions that are not known: lines and requirements.
    pub undecided: Vec<(usize, Vec<String>)>,
    /// Where its version comes from, where that is its repository; it has none of its own then.
    pub scm: Option<ScmSettings>,
    /// The module that its setup.py writes its version to, where it is not there.
    pub version_file: Option<VersionFile>,
}

impl StaticProject {
    /// Reads the files of a folder, whose name counts where none is said. `None` where none of them says
    /// what the project is.
    #[must_use]
    pub fn read(folder_name: &str, beside: SiblingFiles<'_>) -> Option<Self> {
        let text = beside("pyproject.toml");
        let root: Table = text
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        let setup = || setup::read_facts(beside);
        let scm = scm::of_pyproject(&root);
        let declared = text.as_deref().map(PyprojectMetadata::parse);
        let mut project = match declared {
            Some(Ok(metadata)) => Self::of_project(metadata, &root, beside),
            _ => match tool_table(&root, "poetry") {
                Some(table) => Self::of_poetry(table, folder_name, &root),
                None => Self::of_setup(setup()?, folder_name, &root),
            },
        };
        project.scm = scm.or(project.scm);
        // What stands in the place of a version that is put there by a build.
        let is_placeholder = |scm: &ScmSettings| scm.tool == VersionTool::Dunamai;
        if project.scm.as_ref().is_some_and(is_placeholder) {
            project.metadata.version = None;
        }
        if project.metadata.version.is_some() {
            project.scm = None;
        }
        Some(project)
    }

    /// The requirements of extras, with those of its own extras that they ask for (`all = ["mine[train]"]`).
    #[must_use]
    pub fn requirements_of_extras(&self, extras: &[String]) -> Vec<String> {
        let own = normalize_project_name(&self.metadata.name);
        let mut open: Vec<String> = extras
            .iter()
            .filter_map(|name| normalize_project_name(name))
            .collect();
        let mut known = BTreeSet::new();
        let mut found = Vec::new();
        while let Some(extra) = open.pop() {
            if !known.insert(extra.clone()) {
                continue;
            }
            let is_it = |name: &String| normalize_project_name(name).as_ref() == Some(&extra);
            let lists = self
                .metadata
                .optional
                .iter()
                .filter(|(name, _)| is_it(name));
            for text in lists.flat_map(|(_, texts)| texts) {
                let (name, rest) = text.split_once('[').unwrap_or((text, ""));
                let asked = rest.split_once(']').map_or("", |(asked, _)| asked);
                match normalize_project_name(name.trim()) == own && !asked.is_empty() {
                    true => open.extend(
                        asked
                            .split(',')
                            .filter_map(|one| normalize_project_name(one.trim())),
                    ),
                    false => found.push(text.clone()),
                }
            }
        }
        found
    }

    /// `[project]`, completed by what setuptools reads.
    fn of_project(metadata: PyprojectMetadata, root: &Table, beside: SiblingFiles<'_>) -> Self {
        let mut project = Self {
            metadata,
            is_partial: false,
            undecided: Vec::new(),
            scm: None,
            version_file: None,
        };
        let dynamic = std::mem::take(&mut project.metadata.dynamic);
        if dynamic.is_empty() {
            return project;
        }
        let setup = setup::read_facts(beside);
        let is_setup = setup.is_some();
        let facts = setup.unwrap_or_default();
        project.scm = facts.scm;
        project.undecided = list_undecided(&facts.undecided);
        for field in dynamic {
            match field.as_str() {
                "dependencies" => {
                    let keys = ["dependencies"];
                    let files = pyproject::requirements_of_files(root, &keys, beside);
                    let is_named = names_dynamic(root, "dependencies");
                    project.is_partial |= facts.is_partial || !is_setup && !is_named;
                    project.metadata.dependencies = texts(files.iter().chain(&facts.requires));
                }
                "optional-dependencies" => {
                    for (extra, requires) in &facts.optional {
                        project
                            .metadata
                            .optional
                            .insert(extra.clone(), texts(requires));
                    }
                    let files = tool_table(root, "setuptools").and_then(|tool| {
                        tool.get("dynamic")?
                            .get("optional-dependencies")?
                            .as_table()
                    });
                    for extra in files.into_iter().flat_map(Table::keys) {
                        let keys = ["optional-dependencies", extra.as_str()];
                        let requires = pyproject::requirements_of_files(root, &keys, beside);
                        project
                            .metadata
                            .optional
                            .insert(extra.clone(), texts(&requires));
                    }
                }
                "version" if facts.version.is_some() => {
                    project.metadata.version = facts.version.clone();
                }
                "requires-python" if facts.requires_python.is_some() => {
                    project.metadata.requires_python = facts.requires_python.clone();
                }
                "scripts" | "gui-scripts" | "entry-points" => {
                    project
                        .metadata
                        .entry_points
                        .extend(facts.entry_points.clone());
                }
                _ => project.metadata.dynamic.push(field),
            }
        }
        let root = project.metadata.module_root.take();
        project.metadata.module_root = root.or(facts.module_root);
        project
    }

    fn of_poetry(table: &Table, folder_name: &str, root: &Table) -> Self {
        let (dependencies, optional, is_partial) = poetry::read_requirements(table);
        let text = |key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
        let python = table
            .get("dependencies")
            .and_then(|all| all.get("python")?.as_str());
        let mut entry_points = BTreeMap::new();
        let scripts = table
            .get("scripts")
            .and_then(Value::as_table)
            .into_iter()
            .flatten();
        let scripts =
            scripts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        entry_points.insert("console_scripts".to_owned(), scripts.collect());
        Self {
            metadata: PyprojectMetadata {
                name: sound_name(text("name"), folder_name),
                version: text("version"),
                requires_python: python.and_then(poetry::specifiers),
                dependencies,
                optional,
                dynamic: Vec::new(),
                entry_points,
                module_root: PyprojectMetadata::module_root_of(root),
            },
            is_partial,
            undecided: Vec::new(),
            scm: None,
            version_file: None,
        }
    }

    fn of_setup(facts: SetupFacts, folder_name: &str, root: &Table) -> Self {
        let optional = facts.optional.iter();
        Self {
            metadata: PyprojectMetadata {
                name: sound_name(facts.name, folder_name),
                version: facts.version,
                requires_python: facts.requires_python,
                dependencies: texts(&facts.requires),
                optional: optional
                    .map(|(extra, requires)| (extra.clone(), texts(requires)))
                    .collect(),
                dynamic: Vec::new(),
                entry_points: facts.entry_points,
                module_root: facts
                    .module_root
                    .or_else(|| PyprojectMetadata::module_root_of(root)),
            },
            is_partial: facts.is_partial,
            undecided: list_undecided(&facts.undecided),
            scm: facts.scm,
            version_file: facts.version_file,
        }
    }
}

fn list_undecided(lists: &[UndecidedList]) -> Vec<(usize, Vec<String>)> {
    let lists = lists.iter().map(|list| (list.line, list.texts.clone()));
    lists.collect()
}

/// Whether `[tool.setuptools.dynamic]` says where a field comes from.
fn names_dynamic(root: &Table, field: &str) -> bool {
    tool_table(root, "setuptools")
        .and_then(|tool| tool.get("dynamic")?.get(field))
        .is_some()
}

/// A name that a wheel can have; that of the folder where the project computes its own.
fn sound_name(name: Option<String>, folder_name: &str) -> String {
    let sound = |name: &String| normalize_project_name(name).is_some();
    let folder = folder_name
        .trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_owned();
    name.filter(sound)
        .or_else(|| Some(folder).filter(sound))
        .unwrap_or_else(|| "project".to_owned())
}

fn texts<'a>(requirements: impl IntoIterator<Item = &'a Requirement>) -> Vec<String> {
    let texts = requirements.into_iter().map(|one| one.text.clone());
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Option<StaticProject> {
        let beside = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path)?;
            Some(found.1.to_owned())
        };
        StaticProject::read("my-folder", &beside)
    }

    #[test]
    fn a_setup_is_read() {
        let project = read(&[
            (
                "setup.py",
                "import os\nfrom setuptools import setup, find_packages\nv = '1.2'\n\
                 setup(name='My_Net', version=v, package_dir={'': 'src'}, python_requires='>=3.8',\n\
                 install_requires=['torch>=2'] + open('r.txt').read().splitlines(),\n\
                 extras_require={'gpu': ['triton']},\n\
                 entry_points={'console_scripts': ['net = net.cli:main', 'odd = net:f [x]'], 'plug': 'a = b'})\n",
            ),
            ("r.txt", "tqdm\n"),
        ])
        .unwrap();
        let metadata = &project.metadata;
        assert_eq!(
            (metadata.name.as_str(), metadata.version.as_deref()),
            ("My_Net", Some("1.2"))
        );
        assert_eq!(metadata.requires_python.as_deref(), Some(">=3.8"));
        assert_eq!(metadata.dependencies, ["torch>=2", "tqdm"]);
        assert_eq!(metadata.module_root.as_deref(), Some("src"));
        assert_eq!(metadata.entry_points["console_scripts"]["odd"], "net:f");
        assert_eq!(metadata.entry_points["plug"]["a"], "b");
        assert_eq!(project.metadata.optional["gpu"], ["triton"]);
        assert!(!project.is_partial);
    }

    #[test]
    fn what_a_condition_decides_that_is_not_known_is_told() {
        let undecided = |setup: &str| read(&[("setup.py", setup)]).unwrap().undecided;
        let told =
            |line, texts: &[&str]| (line, texts.iter().map(|one| (*one).to_owned()).collect());
        for (setup, expected) in [
            (
                "R = ['six']\nif os.environ.get('GPU'):\n  R = ['torch', 'idna']\nelse:\n  R = ['onnx']\nsetup(install_requires=R)",
                vec![told(5, &["onnx"])],
            ),
            (
                "R = ['six']\nif not installed('torch'):\n  R.append('torch>=2')\nsetup(install_requires=R)",
                vec![told(3, &["torch>=2"])],
            ),
            (
                "R = ['six'] if GPU else ['idna']\nsetup(install_requires=R)",
                vec![told(1, &["six"])],
            ),
            (
                "E = {}\nif GPU:\n  E['gpu'] = ['six']\nsetup(extras_require=E)",
                vec![told(3, &["six"])],
            ),
            // Neither is about what it requires.
            (
                "S = ['a.cpp']\nif GPU:\n  S += ['b.cu']\nsetup(install_requires=['six'], sources=S)",
                vec![],
            ),
            (
                "R = []\nif sys.platform == 'linux':\n  R = ['six']\nsetup(install_requires=R)",
                vec![],
            ),
        ] {
            assert_eq!(undecided(setup), expected, "{setup}");
        }
    }

    #[test]
    fn a_version_that_setup_py_writes_to_a_module_is_known() {
        let setup = (
            "setup.py",
            "version_file = 'my_net/version.py'\ndef write():\n    with open(version_file, 'w') as f:\n        f.write('x')\n\
             setup(name='a', version=get_version())\n",
        );
        let project = read(&[setup, ("VERSION", "0.3.0\n")]).unwrap();
        assert_eq!(project.metadata.version.as_deref(), Some("0.3.0"));
        let file = project.version_file.unwrap();
        assert_eq!(file.path, "my_net/version.py");
        assert!(file.render("0.3.0").contains("version_info = (0, 3, 0,)\n"));
        let there = read(&[setup, ("my_net/version.py", "")]).unwrap();
        assert_eq!(there.version_file, None);
        let other = (
            "setup.py",
            "f = 'my_net/version.py'\nexec(open(f).read())\nsetup(name='a')\n",
        );
        assert_eq!(
            read(&[other]).unwrap().version_file,
            None,
            "it only reads it"
        );
    }

    #[test]
    fn what_is_computed_is_told() {
        let project = read(&[(
            "setup.py",
            "setup(name=NAME, install_requires=['six', needs()])",
        )])
        .unwrap();
        assert!(project.is_partial);
        assert_eq!(project.metadata.name, "my-folder");
        assert_eq!(project.metadata.dependencies, ["six"]);
        let setup = (
            "setup.py",
            "NEEDS = load(path=HERE, file='base.txt')\nsetup(name='a', install_requires=NEEDS)",
        );
        assert!(read(&[setup]).unwrap().is_partial, "no such file");
        let found = read(&[setup, ("requirements/base.txt", "six\n")]).unwrap();
        assert!(!found.is_partial);
        assert_eq!(found.metadata.dependencies, ["six"]);
        let unknown = "setup(packages=['a'], **json.load(open('meta.json')))";
        assert!(read(&[("setup.py", unknown)]).unwrap().is_partial);
        let unknown =
            "needs = ['six']\nif CUDA:\n  needs.append('idna')\nsetup(install_requires=needs)";
        let project = read(&[("setup.py", unknown)]).unwrap();
        assert!(project.is_partial);
        assert_eq!(project.metadata.dependencies, ["six", "idna"]);
        let old = "setup(install_requires=['six'], extras_require={':python_version<\"3.9\"': ['idna'], 'x': ['tqdm'], 'x:os_name==\"nt\"': ['wheel']})";
        let project = read(&[("setup.py", old)]).unwrap();
        assert_eq!(
            project.metadata.dependencies,
            ["six", "idna ; python_version<\"3.9\""]
        );
        let wheel = "wheel ; os_name==\"nt\"";
        assert_eq!(project.metadata.optional["x"], ["tqdm", wheel]);
        assert_eq!(project.metadata.optional.len(), 1);
        assert_eq!(read(&[("setup.py", "print(1)")]), None);
        assert_eq!(read(&[("pyproject.toml", "[tool.ruff]")]), None);
    }

    #[test]
    fn extras_ask_for_others_of_the_project() {
        let text = "[project]\nname = 'My_Net'\n[project.optional-dependencies]\n\
            all = ['my-net[ui, all]', 'six']\nUI = ['gradio>=4']\nother = ['idna']\n";
        let project = read(&[("pyproject.toml", text)]).unwrap();
        let asked = ["all".to_owned()];
        assert_eq!(project.requirements_of_extras(&asked), ["six", "gradio>=4"]);
    }

    #[test]
    fn a_setup_cfg_is_read() {
        let config = "[metadata]\nname = net\nversion = attr: net.__version__\n[options]\npackage_dir =\n    =src\n\
            install_requires =\n    numpy\n[options.extras_require]\ntrain = wandb; python_version>'3'\n\
            [options.entry_points]\nconsole_scripts =\n    net = net.cli:main\n";
        let project = read(&[("setup.cfg", config), ("setup.py", "setup()")]).unwrap();
        let metadata = &project.metadata;
        assert_eq!((metadata.name.as_str(), &metadata.version), ("net", &None));
        assert_eq!(metadata.module_root.as_deref(), Some("src"));
        assert_eq!(
            metadata.entry_points["console_scripts"]["net"],
            "net.cli:main"
        );
        assert_eq!(project.metadata.optional["train"].len(), 1);
    }

    #[test]
    fn what_a_project_leaves_to_setuptools_is_looked_for() {
        let text = "[project]\nname = 'a'\ndynamic = ['version', 'dependencies', 'optional-dependencies', 'readme', 'scripts']\n\
            [tool.setuptools.dynamic]\ndependencies = { file = ['r.txt'] }\n\
            optional-dependencies.x = { file = 'x.txt' }\n";
        let project = read(&[
            ("pyproject.toml", text),
            ("r.txt", "six\n"),
            ("x.txt", "idna\n"),
            (
                "setup.py",
                "setup(version='3', entry_points={'console_scripts': ['a = a:main']})",
            ),
        ])
        .unwrap();
        let metadata = &project.metadata;
        assert_eq!(metadata.dependencies, ["six"]);
        assert_eq!(metadata.version.as_deref(), Some("3"));
        assert_eq!(metadata.dynamic, ["readme"]);
        assert_eq!(metadata.entry_points["console_scripts"]["a"], "a:main");
        assert_eq!(project.metadata.optional["x"], ["idna"]);
        assert!(!project.is_partial);
        // Another build backend than setuptools may do anything.
        let open = read(&[(
            "pyproject.toml",
            "[project]\nname = 'a'\ndynamic = ['dependencies']\n",
        )]);
        assert!(open.unwrap().is_partial);
    }

    #[test]
    fn poetrys_table_is_read() {
        let text = "[tool.poetry]\nname = 'a'\nversion = '1'\npackages = [{ include = 'a', from = 'lib' }]\n\
            [tool.poetry.dependencies]\npython = '^3.9'\nnumpy = '^1.2'\nwandb = { version = '*', optional = true }\n\
            sub = { path = 'sub', develop = true, extras = ['x'] }\nmore = { path = 'more', optional = true }\n\
            [tool.poetry.extras]\ntrain = ['wandb', 'more']\n\
            [tool.poetry.scripts]\na = 'a.cli:main'\n";
        let project = read(&[("pyproject.toml", text)]).unwrap();
        let metadata = &project.metadata;
        assert_eq!(metadata.dependencies, ["numpy>=1.2,<2", "sub[x]"]);
        assert_eq!(metadata.requires_python.as_deref(), Some(">=3.9,<4"));
        assert_eq!(metadata.module_root.as_deref(), Some("lib"));
        assert_eq!(metadata.entry_points["console_scripts"]["a"], "a.cli:main");
        assert_eq!(project.metadata.optional["train"], ["wandb", "more"]);
    }
}
