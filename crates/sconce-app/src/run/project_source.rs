//! What the folder of a project says when a command of it has failed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sconce_compat::explain::ProjectContents;
use sconce_formats::{known_modules, normalize_project_name};
use sconce_import::StaticProject;
use sconce_schema::spec::WORKSPACE;

use crate::commit_day;
use crate::editable_projects::ProjectFiles;
use crate::project::Project;

/// Entries of folders that are looked at for modules.
const MAX_ENTRIES: usize = 4000;
/// Folders below the project's own that modules are looked for in.
const MAX_DEPTH: usize = 2;

/// A project, until a command of it fails. Nothing is read before.
#[derive(Debug)]
pub(super) struct ProjectSource {
    folder: PathBuf,
    /// It is installed from where it lies.
    is_editable: bool,
    /// Its spec takes the versions of today.
    takes_newest: bool,
}

impl ProjectSource {
    pub(super) fn new(project: &Project) -> Self {
        let own = |editable: &crate::editable_projects::EditableProject| {
            editable.folder == project.folder
        };
        Self {
            folder: project.folder.clone(),
            is_editable: project.editable.iter().any(own),
            takes_newest: project.spec.python.as_of.is_none(),
        }
    }

    /// Reads it, for an environment that has the packages `installed`.
    pub(super) fn read(&self, installed: &BTreeMap<String, String>) -> ProjectContents {
        ProjectContents {
            extras: match self.is_editable {
                true => self.extras(installed),
                false => BTreeMap::new(),
            },
            modules: find_modules(&self.folder),
            old_commit_day: self.old_commit_day().filter(|_| self.takes_newest),
        }
    }

    fn extras(&self, installed: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let files = ProjectFiles::new(&self.folder);
        let name = self.folder.file_name().unwrap_or_default();
        let project = StaticProject::read(&name.to_string_lossy(), &|path| files.read(path));
        let mut extras = BTreeMap::new();
        // What is for developers brings nearly everything, and is the last that somebody wants for one module.
        let mut optional: Vec<_> = project
            .map(|project| project.metadata.optional)
            .into_iter()
            .flatten()
            .collect();
        optional.sort_by_key(|(extra, packages)| {
            (sconce_import::is_for_developers(extra), packages.len())
        });
        for (extra, packages) in optional {
            let names = packages.iter().filter_map(|text| project_of(text));
            for name in names.filter(|name| !installed.contains_key(name)) {
                let modules = known_modules(&name).map(str::to_owned);
                for module in modules.chain([name.replace('-', "_")]) {
                    extras.entry(module).or_insert_with(|| extra.clone());
                }
            }
        }
        extras
    }

    fn old_commit_day(&self) -> Option<String> {
        let commit = commit_day::newest_commit(&self.folder)?;
        (commit.age_days > commit_day::RECENT_DAYS).then_some(commit.day)
    }
}

/// The name that a requirement begins with (PEP 508), normalised.
fn project_of(requirement: &str) -> Option<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let text = requirement.trim_start();
    let end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    normalize_project_name(&text[..end])
}

/// The modules of a folder and those of its folders, each with the place that Python has to look in; the ones
/// nearest to it count.
fn find_modules(folder: &Path) -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    let mut open = vec![(folder.to_owned(), WORKSPACE.to_owned())];
    let mut left = MAX_ENTRIES;
    for _ in 0..=MAX_DEPTH {
        let mut below = Vec::new();
        for (path, inside) in open {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let mut entries: Vec<_> = entries.take(left).collect();
            left -= entries.len();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                let module = match kind.is_dir() {
                    true if has_python(&entry.path()) => name.as_str(),
                    true => "",
                    false => name.strip_suffix(".py").unwrap_or_default(),
                };
                if is_module_name(module) && !module.starts_with("__") {
                    modules
                        .entry(module.to_owned())
                        .or_insert_with(|| inside.clone());
                }
                if kind.is_dir() && is_module_name(&name) {
                    below.push((entry.path(), format!("{inside}/{name}")));
                }
            }
        }
        open = below;
    }
    modules
}

fn has_python(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries = entries.take(MAX_ENTRIES);
    entries.any(|entry| {
        let name = entry.file_name();
        Path::new(&name).extension().is_some_and(|end| end == "py")
    })
}

fn is_module_name(name: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(begins) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(files: &[(&str, &str)]) -> (tempfile::TempDir, ProjectSource) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let source = ProjectSource {
            folder: folder.path().to_owned(),
            is_editable: true,
            takes_newest: true,
        };
        (folder, source)
    }

    #[test]
    fn modules_are_found_where_python_has_to_look() {
        let (_folder, source) = source(&[
            ("train.py", ""),
            ("net/__init__.py", ""),
            ("net/layers.py", ""),
            ("tools/deep/plots/a.py", ""),
            ("libs/net/other.py", ""),
            (".hidden/secret.py", ""),
            ("not-a-module/x.py", ""),
            ("data/readme.txt", ""),
        ]);
        let found = source.read(&BTreeMap::new()).modules;
        let found: Vec<_> = found.iter().map(|(m, at)| format!("{m} {at}")).collect();
        assert_eq!(
            found,
            [
                "layers /workspace/net",
                "net /workspace",
                "other /workspace/libs/net",
                "plots /workspace/tools/deep",
                "train /workspace",
            ]
        );
    }

    #[test]
    fn extras_bring_modules_that_are_not_there() {
        let (_folder, source) = source(&[(
            "pyproject.toml",
            "[project]\nname = \"net\"\nversion = \"1\"\n[project.optional-dependencies]\n\
             dev = [\"opencv-python\", \"pytest\"]\nvision = [\"opencv-python>=4\", \"Hydra_Core [x]\"]\nlog = [\"wandb\"]\n",
        )]);
        let installed = [("wandb".to_owned(), "1".to_owned())].into();
        let extras = source.read(&installed).extras;
        let of = |module: &str| extras.get(module).map(String::as_str);
        assert_eq!(of("cv2"), Some("vision"));
        assert_eq!(of("hydra"), Some("vision"));
        assert_eq!(of("hydra_core"), Some("vision"));
        assert_eq!(of("pytest"), Some("dev"));
        assert_eq!(of("wandb"), None, "it is installed");
    }

    #[test]
    fn what_is_no_project_has_none() {
        let (_folder, source) = source(&[("pyproject.toml", "not toml")]);
        let read = source.read(&BTreeMap::new());
        assert_eq!(read, ProjectContents::default());
    }
}
