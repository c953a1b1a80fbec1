//! The projects that a spec installs from where they lie.

use std::path::{Path, PathBuf};

use sconce_formats::pyproject::{PyprojectError, PyprojectMetadata};
use sconce_schema::spec::WORKSPACE;
use sconce_schema::{Hint, exit};

use crate::failure::{AppError, Result};
use crate::input;

/// The file that says what a project is.
pub const PYPROJECT: &str = "pyproject.toml";

/// A project that is installed from where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditableProject {
    /// Its pyproject.toml, absolute.
    pub pyproject: PathBuf,
    /// Its extras that are asked for.
    pub extras: Vec<String>,
    /// What its pyproject.toml says.
    pub metadata: PyprojectMetadata,
    /// Where its modules are imported from, inside: `/workspace/src`.
    pub module_root: String,
}

/// Why a project cannot be installed from where it lies.
#[derive(Debug, thiserror::Error)]
pub enum EditableError {
    /// Its folder has no pyproject.toml.
    #[error("`[python] editable` names {}, which has no pyproject.toml", folder.display())]
    NoPyproject {
        /// The folder.
        folder: PathBuf,
    },
    /// Its pyproject.toml does not say what it is.
    #[error("{}", path.display())]
    Pyproject {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PyprojectError,
    },
    /// What it needs is known only after its build backend has run.
    #[error("{} leaves its dependencies to its build backend (`dynamic`), which is not run", path.display())]
    Dynamic {
        /// The file.
        path: PathBuf,
    },
}

impl Hint for EditableError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::NoPyproject { .. } | Self::Pyproject { .. } => {
                    "a project is installed by its pyproject.toml with a [project] table; for any other \
                     set PYTHONPATH = \"/workspace\" in [run.env] and name its dependencies in \
                     `[python] packages`"
                }
                Self::Dynamic { .. } => {
                    "name them in `[python] packages` and set PYTHONPATH = \"/workspace\" in \
                     [run.env], instead of `editable`"
                }
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

impl EditableProject {
    /// Reads the projects of `[python] editable`, in their order. `folder` is the spec's.
    ///
    /// # Errors
    /// The first project whose metadata cannot be told from its pyproject.toml.
    pub fn read_all(entries: &[String], folder: &Path) -> Result<Vec<Self>> {
        let read = |entry: &String| Self::read(entry, folder);
        entries.iter().map(read).collect()
    }

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
        let pyproject = own_folder.join(PYPROJECT);
        let text = match input::read_text(&pyproject) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(EditableError::NoPyproject { folder: own_folder }.into());
            }
            other => other.map_err(AppError::unreadable(&pyproject))?,
        };
        let metadata = PyprojectMetadata::parse(&text).map_err(|source| {
            let path = pyproject.clone();
            EditableError::Pyproject { path, source }
        })?;
        if metadata.dynamic.iter().any(|field| field == "dependencies") {
            return Err(EditableError::Dynamic { path: pyproject }.into());
        }
        let root = metadata.find_module_root(
            |name| has_modules(&own_folder.join(name)),
            |name| own_folder.join(name).join("__init__.py").is_file(),
        );
        let inside = [WORKSPACE, path.as_str(), root.as_str()];
        let inside = inside.into_iter().filter(|part| !matches!(*part, "" | "."));
        Ok(Self {
            pyproject,
            extras,
            metadata,
            module_root: inside.collect::<Vec<_>>().join("/"),
        })
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
    fn a_project_that_does_not_say_what_it_is_is_named() {
        let text = |files: &[(&str, &str)]| read(files, ".").unwrap_err().to_plain_text();
        let none = text(&[("setup.py", "")]);
        assert!(
            none.contains("has no pyproject.toml") && none.contains("PYTHONPATH"),
            "{none}"
        );
        let settings = text(&[("pyproject.toml", "[tool.ruff]\n")]);
        assert!(
            settings.contains("it has no [project] with a name"),
            "{settings}"
        );
        let dynamic = format!("{PROJECT}dynamic = [\"dependencies\"]\n");
        let dynamic = text(&[("pyproject.toml", &dynamic)]);
        assert!(dynamic.contains("leaves its dependencies"), "{dynamic}");
    }
}
