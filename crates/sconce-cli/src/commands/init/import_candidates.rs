//! The files that a spec can be made from: which there are, and their text.

use std::path::Path;

use sconce_base::input::read_regular;
use sconce_import::{ImportError, ImportFormat, ImportedSpec};
use sconce_schema::Bytes;

use super::InitError;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;

/// A file that a spec is made from.
#[derive(Debug)]
pub(super) struct ImportCandidate {
    /// Its path as the spec would name it.
    pub(super) path: String,
    pub(super) adopted: ImportedSpec,
    /// Others that are there too.
    pub(super) others: Vec<&'static str>,
    /// The script that the command is made of, where the source has none.
    pub(super) script: Option<&'static str>,
}

/// Scripts that are taken for the command, in their order.
const SCRIPTS: [&str; 2] = ["train.py", "main.py"];

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
    let adopted = adopted(folder, path, kind, &named)?;
    Ok(ImportCandidate {
        path: named,
        adopted,
        others: Vec::new(),
        script: None,
    })
}

/// The first file of the folder that names packages; where none does, the first that is one.
pub(super) fn find_source(folder: &Path) -> Result<Option<ImportCandidate>> {
    let here: Vec<&'static str> = sconce_import::known_file_names()
        .filter(|name| folder.join(name).is_file())
        .collect();
    let mut found: Option<ImportCandidate> = None;
    for name in &here {
        let kind = ImportFormat::from_file_name(name).expect("its name is a known one");
        let adopted = match adopted(folder, &folder.join(name), kind, name) {
            Ok(adopted) => adopted,
            // Settings of other tools, or an environment.yml of another program.
            Err(Problem::Adopt(InitError::Adopt {
                source: ImportError::Nothing { .. },
                ..
            })) => continue,
            Err(problem) => return Err(problem.into()),
        };
        let python = &adopted.spec.python;
        let packages = !python.packages.is_empty()
            || python.requirements.is_some()
            || python.pyproject.is_some();
        if found.is_none() || packages {
            found = Some(ImportCandidate {
                path: (*name).to_owned(),
                adopted,
                others: here
                    .iter()
                    .filter(|other| *other != name)
                    .copied()
                    .collect(),
                script: None,
            });
        }
        if packages {
            break;
        }
    }
    Ok(found)
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
    folder: &Path,
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
    let beside = |path: &str| beside(folder, path);
    sconce_import::decode_text(kind, &bytes)
        .and_then(|text| sconce_import::import_spec(kind, named, text, &beside))
        .map_err(|source| {
            let path = path.strip_prefix(".").unwrap_or(path).to_owned();
            Problem::Adopt(InitError::Adopt { path, source })
        })
}

/// A file of the folder that the source names. A link that leaves the folder is not followed.
fn beside(folder: &Path, path: &str) -> Option<String> {
    let kind = path
        .rsplit('/')
        .next()
        .and_then(ImportFormat::from_file_name);
    let kind = kind.unwrap_or(ImportFormat::Requirements);
    let whole = folder.join(path).canonicalize().ok()?;
    if !whole.starts_with(folder.canonicalize().ok()?) {
        return None;
    }
    let bytes = read_regular(&whole, Bytes(kind.limit_bytes())).ok()?;
    sconce_import::decode_text(kind, &bytes)
        .ok()
        .map(str::to_owned)
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
        assert_eq!(used(&[("a.py", "")]), None);
        let tools = ("pyproject.toml", "[tool.ruff]\n");
        let bare = (
            "pyproject.toml",
            "[project]\nname = \"a\"\ndynamic = [\"dependencies\"]\n",
        );
        let wishes = ("requirements.txt", "torch\n");
        let image = ("Dockerfile", "FROM python:3.13\nRUN pip install torch\n");
        let expected = (
            "requirements.txt".to_owned(),
            vec!["pyproject.toml", "Dockerfile"],
        );
        assert_eq!(used(&[tools, wishes, image]), Some(expected.clone()));
        assert_eq!(used(&[bare, wishes, image]), Some(expected));
        assert_eq!(used(&[bare]), Some(("pyproject.toml".to_owned(), vec![])));
        assert_eq!(used(&[tools]), None);
    }

    #[test]
    fn links_out_of_the_folder_and_pipes_are_not_read() {
        let folder = folder(&[("a.txt", "torch")]);
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("b.txt")).unwrap();
        std::fs::create_dir(folder.path().join("c.txt")).unwrap();
        assert_eq!(beside(folder.path(), "a.txt").as_deref(), Some("torch"));
        for name in ["b.txt", "c.txt", "gone.txt"] {
            assert_eq!(beside(folder.path(), name), None, "{name}");
        }
        assert!(read_regular(Path::new("/dev/zero"), Bytes(10)).is_err());
    }
}
