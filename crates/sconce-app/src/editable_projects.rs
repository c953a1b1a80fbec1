//! The projects that a spec installs from where they lie.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use sconce_base::input::read_regular;
use sconce_formats::pyproject::{PyprojectError, PyprojectMetadata};
use sconce_formats::scm_version::{ScmSettings, VersionFile};
use sconce_image::editable_wheel::ScriptFile;
use sconce_import::{SetuptoolsLayout, StaticBuild, StaticProject, read_static_version};
use sconce_resolve::python::compile_error::CompileError;
use sconce_resolve::python::local_sources::{LocalDependency, UvProject};
use sconce_schema::spec::WORKSPACE;
use sconce_schema::{Bytes, Hint, exit};

use crate::failure::Result;

/// The file that says what a project is.
pub const PYPROJECT: &str = "pyproject.toml";

/// No file that says what a project is is longer.
const MAX_FILE_BYTES: Bytes = Bytes::from_mib(1);

/// A project that is installed from where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct EditableProject {
    /// Its folder, absolute.
    pub folder: PathBuf,
    /// The files that say what it is, absolute.
    pub files: Vec<PathBuf>,
    /// Its extras that are asked for.
    pub extras: Vec<String>,
    /// What its files say.
    pub metadata: PyprojectMetadata,
    /// Whether it computes some of what it requires, so that not all of it is known.
    pub is_partial: bool,
    /// Of what it requires, what its setup.py takes under conditions that are not known: lines and requirements.
    pub undecided: Vec<(usize, Vec<String>)>,
    /// Where its modules are imported from, inside: `/workspace/src`.
    pub module_root: String,
    /// How its repository tells its version, where that is said.
    pub scm: Option<ScmSettings>,
    /// The module that its build backend or its setup.py writes the version to (`my_net._version`), and how.
    pub version_module: Option<(String, VersionFile)>,
    /// Its programs that are files.
    pub scripts: Vec<ScriptFile>,
    /// Packages that lie in folders of another name, inside: `remap` and `/workspace/mod`.
    pub package_folders: Vec<(String, String)>,
    /// How it is built.
    pub build: StaticBuild,
    /// What uv is to know of it.
    pub(crate) uv: UvProject,
}

/// Why a project cannot be installed from where it lies.
#[derive(Debug, thiserror::Error)]
pub enum EditableError {
    /// None of its folder's files says what it is.
    #[error(
        "{} is to be installed from where it lies, and has neither a pyproject.toml with [project] nor a \
         setup.py with a call of setup()",
        folder.display()
    )]
    NoProject {
        /// The folder.
        folder: PathBuf,
    },
    /// Its folder is not there.
    #[error("{} is to be installed from where it lies, and is not there", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// Its pyproject.toml does not name it.
    #[error("{}", pyproject.display())]
    Name {
        /// The file.
        pyproject: PathBuf,
        /// What is wrong.
        source: PyprojectError,
    },
    /// A workspace has no such member.
    #[error("{} takes {name} from its workspace, which has no project of that name", pyproject.display())]
    NoMember {
        /// The file.
        pyproject: PathBuf,
        /// The project.
        name: String,
    },
    /// A project that another one needs is not there.
    #[error("{} takes {name} from {}, which is not there", pyproject.display(), folder.display())]
    Missing {
        /// The file.
        pyproject: PathBuf,
        /// The project.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// A project that another one needs is not there when it runs.
    #[error(
        "{} takes {name} from {}, which is not in the spec's folder",
        pyproject.display(),
        folder.display()
    )]
    Outside {
        /// The file.
        pyproject: PathBuf,
        /// The project.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
}

impl Hint for EditableError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::NoProject { .. } => {
                    "for a folder that is no project, set PYTHONPATH = \"/workspace\" in [run.env] and \
                     name its dependencies in `[python] packages`"
                }
                Self::NoMember { .. } => "add its folder to `members` of [tool.uv.workspace]",
                Self::NoFolder { .. } | Self::Missing { .. } => {
                    "put it there, or mend the path; submodules that are empty are filled by \
                     `git submodule update --init`"
                }
                Self::Name { .. } => "give it another name in that file",
                Self::Outside { .. } => "put the spec into a folder above both",
            }
            .to_owned(),
        )
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The folder and the extras of `libs/mine[gpu,fast]`.
pub fn split_extras(entry: &str) -> (&str, Vec<String>) {
    match entry.split_once('[') {
        Some((path, rest)) => {
            let extras = rest.trim_end_matches(']').split(',').map(str::trim);
            let extras = extras.filter(|extra| !extra.is_empty());
            (path.trim_end(), extras.map(str::to_owned).collect())
        }
        None => (entry, Vec::new()),
    }
}

/// Projects with those on this machine that they need (`[tool.uv.sources]`), each once.
#[derive(Debug)]
pub struct EditableProjects {
    folder: PathBuf,
    projects: Vec<EditableProject>,
}

impl EditableProjects {
    /// None yet. `folder` is the spec's.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            projects: Vec::new(),
        }
    }

    /// Adds the project of an entry of `[python] editable`, and what it needs with its own extras, these
    /// and these groups.
    ///
    /// # Errors
    /// The metadata of one cannot be told from its pyproject.toml, or it lies outside of the spec's folder.
    pub fn add(&mut self, entry: &str, extras: &[String], groups: &[String]) -> Result<()> {
        let project = EditableProject::read(entry, &self.folder)?;
        let folder = project.folder.clone();
        let extras = [extras, &project.extras].concat();
        let needed = project.uv.local_dependencies(&extras, groups);
        let mut known = self.projects.iter_mut();
        match known.find(|other| other.folder == folder) {
            Some(other)
                if project
                    .extras
                    .iter()
                    .all(|extra| other.extras.contains(extra)) =>
            {
                return Ok(());
            }
            Some(other) => other.extras.extend(project.extras),
            None => self.projects.push(project),
        }
        self.add_all(&folder.join(PYPROJECT), needed)
    }

    /// Adds the projects on this machine that another one needs.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_needed_by(
        &mut self,
        project: &UvProject,
        extras: &[String],
        groups: &[String],
    ) -> Result<()> {
        self.add_all(project.path(), project.local_dependencies(extras, groups))
    }

    fn add_all(&mut self, pyproject: &Path, needed: Vec<LocalDependency>) -> Result<()> {
        for needed in needed {
            let pyproject = pyproject.to_owned();
            let Some(folder) = needed.folder else {
                let name = needed.name;
                return Err(EditableError::NoMember { pyproject, name }.into());
            };
            let name = needed.name;
            let Ok(whole) = folder.canonicalize() else {
                return Err(EditableError::Missing {
                    pyproject,
                    name,
                    folder,
                }
                .into());
            };
            let inside = whole.strip_prefix(&self.folder).ok();
            let Some(inside) = inside.and_then(Path::to_str) else {
                return Err(EditableError::Outside {
                    pyproject,
                    name,
                    folder,
                }
                .into());
            };
            self.add(&format!("{inside}[{}]", needed.extras.join(",")), &[], &[])?;
        }
        Ok(())
    }

    /// The projects, in the order in which they were added.
    #[must_use]
    pub fn into_inner(self) -> Vec<EditableProject> {
        self.projects
    }
}

impl EditableProject {
    fn read(entry: &str, folder: &Path) -> Result<Self> {
        let (path, extras) = split_extras(entry);
        let parts: Vec<&str> = path
            .split('/')
            .filter(|p| !matches!(*p, "" | "."))
            .collect();
        let path = parts.join("/");
        let own_folder = match path.as_str() {
            "" => folder.to_owned(),
            path => folder.join(path),
        };
        let files = ProjectFiles::new(&own_folder);
        let pyproject = own_folder.join(PYPROJECT);
        let mut uv = match pyproject.exists() {
            true => UvProject::read(&pyproject).map_err(CompileError::from)?,
            false => UvProject::without_file(&pyproject),
        };
        let name = own_folder.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        let Some(project) = StaticProject::read(&name, &|path| files.read(path)) else {
            return Err(unknown_project(own_folder, &files).into());
        };
        let mut metadata = project.metadata;
        uv.set_project(
            &metadata.name,
            metadata.requires_python.as_deref(),
            &metadata.dependencies,
            &metadata.optional,
        );
        let root = metadata.find_module_root(
            |name| has_modules(&own_folder.join(name)),
            |name| own_folder.join(name).join("__init__.py").is_file(),
        );
        // Not among the files that the lock depends on: it has no version of the project.
        let unlocked = |path: &str| ProjectFiles::new(&own_folder).read(path);
        if metadata.version.is_none() && project.scm.is_none() {
            metadata.version = read_static_version(&metadata.name, &root, &unlocked);
        }
        let file = project.scm.as_ref().and_then(|scm| scm.file.as_ref());
        let file = file.cloned().or(project.version_file);
        let version_module = file.and_then(|file| Some((module_name(&file.path, &root)?, file)));
        let inside = |below: &str| {
            let parts = [WORKSPACE, path.as_str(), below].into_iter();
            let parts = parts.filter(|part| !matches!(*part, "" | "."));
            parts.collect::<Vec<_>>().join("/")
        };
        let layout = SetuptoolsLayout::read(&unlocked);
        let scripts = layout.scripts.iter().filter_map(|script| {
            let text = unlocked(script)?;
            Some(ScriptFile {
                path: inside(script),
                first_line: text.lines().next().unwrap_or_default().to_owned(),
            })
        });
        let is_elsewhere = |name: &String| !own_folder.join(&root).join(name).is_dir();
        let folders = layout.package_folders.iter();
        let folders = folders.filter(|(name, _)| is_elsewhere(name));
        Ok(Self {
            scripts: scripts.collect(),
            package_folders: folders
                .map(|(name, folder)| (name.clone(), inside(folder)))
                .collect(),
            files: files.into_inner(),
            extras,
            metadata,
            is_partial: project.is_partial,
            undecided: project.undecided,
            scm: project.scm,
            version_module,
            build: StaticBuild::read(&unlocked),
            uv,
            module_root: inside(&root),
            folder: own_folder.clone(),
        })
    }
}

/// Why the files of a folder do not say what it is.
fn unknown_project(folder: PathBuf, files: &ProjectFiles) -> EditableError {
    let pyproject = files
        .read(PYPROJECT)
        .map(|text| PyprojectMetadata::parse(&text));
    match pyproject {
        _ if !folder.is_dir() => EditableError::NoFolder { folder },
        Some(Err(source @ PyprojectError::Name { .. })) => EditableError::Name {
            pyproject: folder.join(PYPROJECT),
            source,
        },
        _ => EditableError::NoProject { folder },
    }
}

/// The module that a file is imported as: `my_net._version` for `src/my_net/_version.py`, whose folder of modules is
/// `src`. `None` for what is no module.
fn module_name(path: &str, module_root: &str) -> Option<String> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let below = path.strip_prefix(module_root);
    let below = below.and_then(|below| below.strip_prefix('/'));
    let name = below.unwrap_or(path).strip_suffix(".py")?.replace('/', ".");
    let is_name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && part.chars().all(plain)
    };
    let is_module = name.split('.').all(is_name) && !name.ends_with("__init__");
    is_module.then_some(name)
}

/// The files of a project that say what it is. Nothing outside of its folder is read.
pub(crate) struct ProjectFiles {
    folder: Option<PathBuf>,
    read: RefCell<Vec<PathBuf>>,
}

impl ProjectFiles {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.canonicalize().ok(),
            read: RefCell::default(),
        }
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let folder = self.folder.as_deref()?;
        let whole = folder.join(path).canonicalize().ok()?;
        if !whole.starts_with(folder) {
            return None;
        }
        let bytes = read_regular(&whole, MAX_FILE_BYTES).ok()?;
        let mut read = self.read.borrow_mut();
        if !read.contains(&whole) {
            read.push(whole);
        }
        String::from_utf8(bytes).ok()
    }

    fn into_inner(self) -> Vec<PathBuf> {
        self.read.into_inner()
    }
}

/// Whether a folder has a package or a module in it.
fn has_modules(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|end| end == "py") || path.join("__init__.py").is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)], entry: &str) -> Result<EditableProject> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        EditableProject::read(entry, dir.path())
    }

    const PROJECT: &str = "[project]\nname = \"mine\"\nversion = \"1\"\n";

    #[test]
    fn modules_are_imported_from_the_workspace() {
        let flat = [("pyproject.toml", PROJECT), ("mine/__init__.py", "")];
        assert_eq!(read(&flat, ".").unwrap().module_root, "/workspace");
        let src = [("pyproject.toml", PROJECT), ("src/mine/__init__.py", "")];
        assert_eq!(read(&src, "./").unwrap().module_root, "/workspace/src");
        let below = [
            ("libs/a/pyproject.toml", PROJECT),
            ("libs/a/src/mine.py", ""),
        ];
        let project = read(&below, "libs/a/[gpu, fast]").unwrap();
        assert_eq!(project.module_root, "/workspace/libs/a/src");
        assert_eq!(project.extras, ["gpu", "fast"]);
    }

    #[test]
    fn projects_that_are_needed_come_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let write = |path: &str, name: &str, needs: &str| {
            let sources = "a = { path = '../a' }\nb = { path = '../b', editable = true }\nout = { path = '/' }\ngone = { path = '../gone' }\n";
            let text = format!(
                "[project]\nname = '{name}'\nversion = '1'\ndependencies = [{needs}]\n[tool.uv.sources]\n{sources}"
            );
            std::fs::create_dir_all(folder.join(path)).unwrap();
            std::fs::write(folder.join(path).join(PYPROJECT), text).unwrap();
        };
        write("app", "app", "'a[x]', 'six'");
        write("a", "a", "'b'");
        // A circle.
        write("b", "b", "'a'");
        let mut projects = EditableProjects::new(&folder);
        projects.add("app", &[], &[]).unwrap();
        projects.add("b", &[], &[]).unwrap();
        let found = projects.into_inner();
        let names: Vec<&str> = found.iter().map(|p| p.metadata.name.as_str()).collect();
        assert_eq!(names, ["app", "a", "b"]);
        assert_eq!(found[1].extras, ["x"]);

        let say = |name: &str| {
            write("app", "app", &format!("'{name}'"));
            let error = EditableProjects::new(&folder).add("app", &[], &[]);
            error.unwrap_err().to_plain_text()
        };
        let text = say("out");
        assert!(
            text.contains("takes out from /, which is not in the spec's folder"),
            "{text}"
        );
        let text = say("gone");
        assert!(
            text.contains("takes gone from ") && text.contains("../gone, which is not there"),
            "{text}"
        );
    }

    #[test]
    fn a_project_that_does_not_say_what_it_is_is_named() {
        for files in [
            &[("setup.py", "print(1)")][..],
            &[("pyproject.toml", "[tool.ruff]\n")],
            &[("readme", "")],
        ] {
            let said = read(files, ".").unwrap_err().to_plain_text();
            assert!(
                said.contains("neither a pyproject.toml") && said.contains("PYTHONPATH"),
                "{said}"
            );
        }
        let bad = "[project]\nname = 'bad name!'\n";
        let said = read(&[("pyproject.toml", bad)], ".").unwrap_err();
        let said = said.to_plain_text();
        assert!(
            said.contains("pyproject.toml: `name` of its [project] is \"bad name!\"")
                && said.contains("another name"),
            "{said}"
        );
        let gone = read(&[], "gone").unwrap_err().to_plain_text();
        assert!(
            gone.contains("gone is to be installed") && gone.contains("is not there"),
            "{gone}"
        );
        let none = read(&[("pyproject.toml", "x =")], ".").unwrap_err();
        let none = none.to_plain_text();
        assert!(none.contains("pyproject.toml is not TOML"), "{none}");
    }

    #[test]
    fn a_version_in_a_module_is_read_and_no_input() {
        let config = "[metadata]\nname = mine\nversion = attr: mine.__version__\n[options]\n";
        let files = [
            ("setup.py", "setup()"),
            ("setup.cfg", config),
            ("mine/__init__.py", "__version__ = '1.2'\n"),
        ];
        let project = read(&files, ".").unwrap();
        assert_eq!(project.metadata.version.as_deref(), Some("1.2"));
        let is_input = project
            .files
            .iter()
            .any(|file| file.ends_with("__init__.py"));
        assert!(!is_input, "{:?}", project.files);
    }

    #[test]
    fn a_file_of_a_version_is_a_module_of_its_package() {
        for (path, root, name) in [
            ("src/my_net/_version.py", "src", Some("my_net._version")),
            ("my_net/version.py", ".", Some("my_net.version")),
            ("./my_net/version.py", "src", Some("my_net.version")),
            ("VERSION.txt", ".", None),
            ("my_net/__init__.py", ".", None),
            ("../other/_version.py", ".", None),
            ("a/b'\"; x.py", ".", None),
        ] {
            assert_eq!(module_name(path, root).as_deref(), name, "{path}");
        }
    }

    #[test]
    fn a_setup_says_what_a_project_is() {
        let setup =
            "setup(name='mine', install_requires=open('r.txt').readlines(), packages=['mine'])";
        let files = [
            ("setup.py", setup),
            ("r.txt", "six\n"),
            ("mine/__init__.py", ""),
        ];
        let project = read(&files, ".[x]").unwrap();
        assert_eq!(project.metadata.dependencies, ["six"]);
        assert_eq!(project.module_root, "/workspace");
        let names = project.files.iter().filter_map(|path| path.file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["setup.py", "r.txt"]);
        // Nothing outside of its folder counts.
        let setup = "setup(name='mine', install_requires=open('../r.txt').readlines())";
        let files = [("a/setup.py", setup), ("r.txt", "six\n")];
        let project = read(&files, "a").unwrap();
        assert!(project.metadata.dependencies.is_empty());
    }
}
