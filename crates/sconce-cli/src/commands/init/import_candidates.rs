//! The files that a spec can be made from: which there are, and their text.

use std::path::Path;

use sconce_base::input::read_regular;
use sconce_import::{
    FolderEntry, ImportError, ImportFormat, ImportedSpec, ProjectFolder as _, SurveyedSpec,
};
use sconce_schema::Bytes;

use super::project_tree::ProjectTree;
use super::{InitError, lock_differences};
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;

/// A file that a spec is made from.
#[derive(Debug)]
pub(super) struct ImportCandidate {
    /// Its path as the spec would name it.
    pub(super) path: String,
    pub(super) adopted: ImportedSpec,
    /// Others that are there too.
    pub(super) others: Vec<String>,
    /// The script that the command is made of, where the source has none.
    pub(super) script: Option<&'static str>,
    /// The newest commit's day, where the source pins no versions.
    pub(super) commit: Option<CommitDay>,
}

/// When a project was last worked on.
#[derive(Debug)]
pub(super) struct CommitDay {
    /// `2021-03-25`.
    pub(super) day: String,
    /// What was newest then is not what is newest now.
    pub(super) is_old: bool,
}

/// Scripts that are taken for the command, in their order.
const SCRIPTS: [&str; 2] = ["train.py", "main.py"];
/// Before it, much has no wheel yet for Python 3.8, the oldest in reach: the first TensorFlow for it is of May 2020, the
/// first torch of January.
const EARLIEST_DAY: &str = "2020-06-01";
/// Files of packages that are told of.
const MAX_CANDIDATES: usize = 60;

pub(super) fn find_script(folder: &Path) -> Option<&'static str> {
    SCRIPTS.into_iter().find(|name| folder.join(name).is_file())
}

/// The file that a person named.
pub(super) fn read_source(folder: &Path, path: &Path) -> Result<ImportCandidate> {
    let unknown = || InitError::Unknown {
        path: path.to_owned(),
    };
    if !path.exists() {
        let path = path.to_owned();
        return Err(InitError::Missing { path }.into());
    }
    let name = path.file_name().and_then(|name| name.to_str());
    let kind = name
        .and_then(ImportFormat::from_file_name)
        .ok_or_else(unknown)?;
    let named = path.to_str().ok_or_else(unknown)?;
    let named = named.strip_prefix("./").unwrap_or(named).to_owned();
    let adopted = adopted(&ProjectTree::new(folder), path, kind, &named)?;
    Ok(ImportCandidate {
        path: named,
        adopted,
        others: Vec::new(),
        script: None,
        commit: None,
    })
}

/// The first file of the folder that names packages, completed by what else is there; where none does, the
/// first that is one.
pub(super) fn find_source(folder: &Path) -> Result<Option<ImportCandidate>> {
    let tree = ProjectTree::new(folder);
    let here = candidates(&tree, folder);
    let mut found: Option<(ImportFormat, SurveyedSpec)> = None;
    for (kind, name) in &here {
        let adopted = match adopted(&tree, &folder.join(name), *kind, name) {
            Ok(adopted) => adopted,
            // Settings of other tools, or an environment.yml of another program.
            Err(Problem::Adopt(InitError::Adopt {
                source: ImportError::Nothing { .. },
                ..
            })) => continue,
            Err(problem) => return Err(problem.into()),
        };
        let packages = !adopted.provided.is_empty() || adopted.spec.python.lock.is_some();
        if found.is_none() || packages {
            let source = name.clone();
            let surveyed = SurveyedSpec {
                source,
                imported: adopted,
            };
            found = Some((*kind, surveyed));
        }
        if packages {
            break;
        }
    }
    let surveyed = sconce_import::survey_folder(found, &tree);
    Ok(surveyed.map(|surveyed| {
        let mut found = ImportCandidate {
            others: here
                .into_iter()
                .map(|(_, name)| name)
                .filter(|name| *name != surveyed.source)
                .collect(),
            commit: commit_day(folder, &surveyed.source),
            path: surveyed.source,
            adopted: surveyed.imported,
            script: None,
        };
        lock_differences::note_differences(&tree, &mut found);
        found
    }))
}

/// The newest commit's day, of a project whose versions are open.
fn commit_day(folder: &Path, source: &str) -> Option<CommitDay> {
    if ImportFormat::from_file_name(source).is_some_and(sconce_import::is_lock_format) {
        return None;
    }
    let commit = sconce_app::commit_day::newest_commit(folder)?;
    let is_offered = commit.age_days > sconce_app::commit_day::RECENT_DAYS
        && commit.day.as_str() >= EARLIEST_DAY;
    is_offered.then_some(CommitDay {
        day: commit.day,
        is_old: commit.age_days > 2 * 365,
    })
}

/// Whether files of packages are in the folder.
pub(super) fn has_candidates(folder: &Path) -> bool {
    !candidates(&ProjectTree::new(folder), folder).is_empty()
}

/// The files that can name packages, in the order in which they count: those of known names, then others of the
/// same kind.
fn candidates(tree: &ProjectTree, folder: &Path) -> Vec<(ImportFormat, String)> {
    let mut all = Vec::new();
    let root = tree.list("");
    let below = tree.list("requirements");
    for format in ImportFormat::ALL {
        for name in format.file_names() {
            if folder.join(name).is_file() {
                all.push((format, (*name).to_owned()));
            }
        }
        let begins = |prefix: &'static str, ends: &'static [&'static str]| {
            move |entry: &&FolderEntry| {
                let name = entry.name.to_ascii_lowercase();
                let fits = name.starts_with(prefix) && ends.iter().any(|end| name.ends_with(end));
                !entry.is_dir && fits && !sconce_import::is_for_developers(&name)
            }
        };
        let mut more: Vec<String> = Vec::new();
        match format {
            ImportFormat::Requirements => {
                let names = below.iter().filter(begins("", &[".txt"]));
                more.extend(names.map(|entry| format!("requirements/{}", entry.name)));
                let plain = |path: &String| {
                    let stem = path
                        .trim_start_matches("requirements/")
                        .trim_end_matches(".txt");
                    ![
                        "requirements",
                        "base",
                        "main",
                        "core",
                        "default",
                        "runtime",
                        "common",
                    ]
                    .contains(&stem)
                };
                more.sort_by_key(plain);
                let names = root.iter().filter(begins("requirements", &[".txt"]));
                more.extend(names.map(|entry| entry.name.clone()));
            }
            ImportFormat::Conda => {
                let names = root
                    .iter()
                    .filter(begins("environment", &[".yml", ".yaml"]));
                more.extend(names.map(|entry| entry.name.clone()));
            }
            _ => {}
        }
        for name in more {
            if all.len() < MAX_CANDIDATES && !all.iter().any(|(_, known)| *known == name) {
                all.push((format, name));
            }
        }
    }
    all
}

/// Why a file is not read.
#[derive(Debug)]
enum Problem {
    Adopt(InitError),
    File(AppError),
}

impl From<Problem> for sconce_app::failure::Failure {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Adopt(error) => error.into(),
            Problem::File(error) => error.into(),
        }
    }
}

fn adopted(
    tree: &ProjectTree,
    path: &Path,
    kind: ImportFormat,
    named: &str,
) -> Result<ImportedSpec, Problem> {
    let bytes = read_regular(path, Bytes(kind.limit_bytes())).map_err(|source| {
        Problem::File(AppError::File {
            action: FileAction::Read,
            path: path.to_owned(),
            source,
        })
    })?;
    let beside = |path: &str| tree.read_text(path);
    sconce_import::decode_text(kind, &bytes)
        .and_then(|text| sconce_import::import_spec(kind, named, &text, &beside))
        .map_err(|source| {
            let path = path.strip_prefix(".").unwrap_or(path).to_owned();
            Problem::Adopt(InitError::Adopt { path, source })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn the_first_that_names_packages_is_taken() {
        let used = |files: &[(&str, &str)]| {
            let folder = folder(files);
            let found = find_source(folder.path()).unwrap();
            found.map(|found| (found.path, found.others))
        };
        assert_eq!(used(&[("README.md", "")]), None);
        let code = ("the imports of its programs".to_owned(), vec![]);
        assert_eq!(used(&[("a.py", "")]), Some(code));
        let tools = ("pyproject.toml", "[tool.ruff]\n");
        let bare = (
            "pyproject.toml",
            "[project]\nname = \"a\"\ndynamic = [\"dependencies\"]\n",
        );
        let wishes = ("requirements.txt", "torch\n");
        let image = ("Dockerfile", "FROM python:3.13\nRUN pip install torch\n");
        let expected = (
            "requirements.txt".to_owned(),
            ["pyproject.toml", "Dockerfile"].map(str::to_owned).to_vec(),
        );
        assert_eq!(used(&[tools, wishes, image]), Some(expected.clone()));
        assert_eq!(used(&[bare, wishes, image]), Some(expected));
        assert_eq!(used(&[bare]), Some(("pyproject.toml".to_owned(), vec![])));
        assert_eq!(used(&[tools]), None);
    }
}
