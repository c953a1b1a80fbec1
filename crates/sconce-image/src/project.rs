//! The project's own files as a tree of the store.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use sconce_base::direct_io::MTIME;
use sconce_schema::spec::WORKSPACE;
use sconce_schema::{Hint, Sha256, exit};
use sconce_store::scoped_root::{OnConflict, ScopedRoot, ScopedRootError, set_modified};
use sconce_store::{Store, StoreError, TreeBuildError};
use sha2::Digest as _;

/// Kind of these trees.
const KIND: &str = "project";
/// Folders that belong to a tool, not to a project.
const LEFT_OUT: [&str; 4] = [".git", "__pycache__", ".venv", ".ipynb_checkpoints"];

/// Why the project's files could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A file could not be read or copied.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A name in `[build] files` that leads out of the project.
    #[error("`{name}` in [build] files is not inside the project")]
    Outside {
        /// The name.
        name: String,
    },
    /// A file could not be put into the tree.
    #[error(transparent)]
    Tree(#[from] ScopedRootError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hint for ProjectError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Outside { .. } => Some("name files and folders below sconce.toml".to_owned()),
            Self::Tree(error) => error.hint(),
            Self::File { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Tree(_) => exit::STORE,
            Self::File { .. } | Self::Outside { .. } => exit::BAD_INPUT,
        }
    }
}

/// A tree with the files that `names` say, below [`WORKSPACE`]. It is named by what is in it.
///
/// # Errors
/// [`ProjectError`].
pub fn build_file_tree(
    folder: &Path,
    names: &[String],
    store: &Store,
) -> Result<PathBuf, ProjectError> {
    let mut files = Vec::new();
    for name in names {
        let path = Path::new(name);
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if name.is_empty() || !path.components().all(inside) {
            return Err(ProjectError::Outside { name: name.clone() });
        }
        // Written without `.`, so that the same file has the same name however it is asked for.
        let path: PathBuf = path
            .components()
            .filter(|c| *c != Component::CurDir)
            .collect();
        // Behind a link there may be anything of this machine.
        if path
            .ancestors()
            .skip(1)
            .any(|above| folder.join(above).is_symlink())
        {
            return Err(ProjectError::Outside { name: name.clone() });
        }
        collect(folder, &path, &mut files)?;
    }
    files.sort();
    files.dedup();
    let mut hash = sha2::Sha256::new();
    for path in &files {
        let bytes = content(&folder.join(path))?;
        for part in [path.as_os_str().as_bytes(), &bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    let key = Sha256(hash.finalize().into()).to_string();
    let built = store.build_tree(KIND, &key, |root| {
        let mut tree = ScopedRoot::new(root, OnConflict::Stay);
        files.iter().try_for_each(|path| {
            let to = Path::new(WORKSPACE).join(path);
            copy(&folder.join(path), &mut tree, &to)
        })
    });
    built.map_err(|error| match error {
        TreeBuildError::Store(error) => error.into(),
        TreeBuildError::Build(error) => error,
    })
}

/// Whether a folder of this name, or a file, is passed over where all of a folder is taken.
#[must_use]
pub fn is_left_out(name: &OsStr) -> bool {
    LEFT_OUT.iter().any(|out| name == *out)
}

/// Adds a file, or all files of a folder.
fn collect(folder: &Path, path: &Path, files: &mut Vec<PathBuf>) -> Result<(), ProjectError> {
    let real = folder.join(path);
    let meta = real.symlink_metadata().map_err(file("read", &real))?;
    if !meta.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(&real).map_err(file("list", &real))? {
        let name = entry.map_err(file("list", &real))?.file_name();
        if !is_left_out(&name) {
            collect(folder, &path.join(name), files)?;
        }
    }
    Ok(())
}

/// What a file is, for its name in the store: kind, whether it can be executed, and its bytes.
fn content(path: &Path) -> Result<Vec<u8>, ProjectError> {
    let meta = path.symlink_metadata().map_err(file("read", path))?;
    if meta.is_symlink() {
        let target = fs::read_link(path).map_err(file("read", path))?;
        return Ok([b"link ", target.as_os_str().as_bytes()].concat());
    }
    let bytes = fs::read(path).map_err(file("read", path))?;
    let kind: &[u8] = if executable(&meta) {
        b"program "
    } else {
        b"file "
    };
    Ok([kind, &bytes].concat())
}

fn executable(meta: &fs::Metadata) -> bool {
    meta.permissions().mode() & 0o100 != 0
}

/// Copies one file or link to `to` of the tree.
fn copy(from: &Path, tree: &mut ScopedRoot, to: &Path) -> Result<(), ProjectError> {
    let to = to.as_os_str().as_bytes();
    let read = || {
        let meta = from.symlink_metadata()?;
        match meta.is_symlink() {
            true => Ok((meta, fs::read_link(from)?.into_os_string().into_vec())),
            false => fs::read(from).map(|bytes| (meta, bytes)),
        }
    };
    let (meta, bytes) = read().map_err(file("copy", from))?;
    if meta.is_symlink() {
        tree.create_symlink(to, &bytes)?;
        return Ok(());
    }
    let mode = if executable(&meta) { 0o755 } else { 0o644 };
    let real = tree.write(to, &bytes, mode)?;
    Ok(set_modified(&real, MTIME.cast_signed())?)
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ProjectError {
    move |source| ProjectError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_named_by_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store")).unwrap();
        let folder = place.path().join("project");
        fs::create_dir_all(folder.join("src/.git")).unwrap();
        fs::write(folder.join("train.py"), "print(1)").unwrap();
        fs::write(folder.join("src/a.py"), "a").unwrap();
        fs::write(folder.join("src/.git/config"), "secret").unwrap();
        fs::write(folder.join("run.sh"), "true").unwrap();
        fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let one = build_file_tree(&folder, &names(&["."]), &store).unwrap();
        let again = build_file_tree(
            &folder,
            &names(&["src", "./train.py", "run.sh", "."]),
            &store,
        )
        .unwrap();
        assert_eq!(one, again);
        let inside = |name: &str| one.join("workspace").join(name);
        assert_eq!(fs::read_to_string(inside("src/a.py")).unwrap(), "a");
        assert!(!inside("src/.git").exists());
        let mode = |name: &str| inside(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode("run.sh"), mode("train.py"), mode("src")),
            (0o755, 0o644, 0o755)
        );
        fs::write(folder.join("train.py"), "print(2)").unwrap();
        assert_ne!(
            build_file_tree(&folder, &names(&["."]), &store).unwrap(),
            one
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store")).unwrap();
        for name in ["..", "/etc/passwd", "a/../../b", ""] {
            let refused = build_file_tree(place.path(), &[name.to_owned()], &store);
            assert!(
                matches!(refused, Err(ProjectError::Outside { .. })),
                "{name}"
            );
        }
        // A link is taken as a link; what is behind it is not the project's.
        let outside = place.path().join("outside");
        fs::create_dir_all(place.path().join("project")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("key"), "secret").unwrap();
        std::os::unix::fs::symlink(&outside, place.path().join("project/a")).unwrap();
        let names = ["a", "a/key"].map(str::to_owned);
        let behind = build_file_tree(&place.path().join("project"), &names, &store);
        assert!(matches!(behind, Err(ProjectError::Outside { .. })));
        assert_eq!(fs::read_to_string(outside.join("key")).unwrap(), "secret");
        let linked = build_file_tree(&place.path().join("project"), &names[..1], &store).unwrap();
        assert!(linked.join("workspace/a").is_symlink());
        let absent = build_file_tree(place.path(), &["absent".to_owned()], &store);
        assert!(matches!(absent, Err(ProjectError::File { .. })));
    }
}
