//! Which files of a project its wheel is built from, for an image: those that its repository tracks, as they lie in the
//! folder, and those beside them that it does not ignore. Without a repository, all.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use sconce_image::project::is_left_out;
use sconce_schema::{Bytes, Hint, exit};

use crate::git::{Repository, tracked_files};

/// The most that is built from.
const MAX_FILES: usize = 50_000;
const MAX_TOTAL: Bytes = Bytes::from_mib(1024);
/// Folders in each other, where there is no repository.
const MAX_DEPTH: usize = 64;

/// Why a project's folder is not built from.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectFilesError {
    /// Too much.
    #[error("{} has more than {MAX_FILES} files or {MAX_TOTAL} that git does not ignore", folder.display())]
    TooMuch {
        /// The folder.
        folder: PathBuf,
    },
}

impl Hint for ProjectFilesError {
    fn hint(&self) -> Option<String> {
        Some("name data and checkpoints in .gitignore".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The files of a project, relative to its folder, sorted. `left_out` are the spec and its lock, which say what is
/// around it.
///
/// # Errors
/// [`ProjectFilesError`].
pub(crate) fn list_project_files(
    folder: &Path,
    left_out: &[PathBuf],
) -> Result<Vec<String>, ProjectFilesError> {
    let mut files = match Repository::find(folder) {
        Some(repository) => {
            let mut files = repository.unignored_files(folder, MAX_FILES, &is_left_out);
            let tracked = tracked_files(&repository).unwrap_or_default();
            let below = folder
                .strip_prefix(&repository.work_tree)
                .unwrap_or(Path::new(""));
            let own = tracked
                .iter()
                .filter_map(|path| path.strip_prefix(below).ok());
            files.extend(own.map(Path::to_owned));
            files
        }
        None => {
            let mut files = Vec::new();
            collect(folder, Path::new(""), 0, &mut files);
            files
        }
    };
    files.retain(|path| !left_out.contains(&folder.join(path)));
    files.sort();
    files.dedup();
    let mut total = 0;
    let mut names = Vec::new();
    for path in files {
        let real = folder.join(&path);
        // What was removed and is still tracked, and what lies behind a link.
        let Ok(meta) = real.symlink_metadata() else {
            continue;
        };
        let is_behind_link = path
            .ancestors()
            .skip(1)
            .any(|above| folder.join(above).is_symlink());
        let is_one = (meta.is_file() || meta.is_symlink()) && !is_behind_link;
        if let (true, Some(name)) = (is_one, path.to_str()) {
            total += meta.len();
            names.push(name.to_owned());
        }
    }
    if names.len() > MAX_FILES || total > MAX_TOTAL.0 {
        let folder = folder.to_owned();
        return Err(ProjectFilesError::TooMuch { folder });
    }
    Ok(names)
}

/// All files of a folder but those of tools, and of virtual environments.
fn collect(folder: &Path, below: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let real = folder.join(below);
    if depth > MAX_DEPTH || real.join("pyvenv.cfg").is_file() {
        return;
    }
    for entry in std::fs::read_dir(real).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if files.len() > MAX_FILES || is_left_out(&name) || name == OsStr::new("node_modules") {
            continue;
        }
        let path = below.join(&name);
        match is_folder {
            true => collect(folder, &path, depth + 1, files),
            false => files.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        dir
    }

    #[test]
    fn without_a_repository_all_but_tools_files_count() {
        let dir = folder(&[
            "a/__init__.py",
            "a/__pycache__/x.pyc",
            "env/pyvenv.cfg",
            "env/lib/x.py",
            "sconce.toml",
            "setup.py",
        ]);
        let spec = [dir.path().join("sconce.toml")];
        let found = list_project_files(dir.path(), &spec).unwrap();
        assert_eq!(found, ["a/__init__.py", "setup.py"]);
    }

    #[test]
    fn what_lies_behind_a_link_and_what_is_no_file_is_left_out() {
        let outside = folder(&["key"]);
        let dir = folder(&["a.py"]);
        std::os::unix::fs::symlink(outside.path(), dir.path().join("linked")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let found = list_project_files(dir.path(), &[]).unwrap();
        assert_eq!(found, ["a.py", "linked"]);
    }

    #[test]
    fn too_much_is_refused() {
        let dir = folder(&["a.py"]);
        let large = std::fs::File::create(dir.path().join("data.bin")).unwrap();
        large.set_len(MAX_TOTAL.0 + 1).unwrap();
        assert!(list_project_files(dir.path(), &[]).is_err());
    }
}
