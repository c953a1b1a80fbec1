//! What no output takes the place of, whoever wrote it: what lies in Sconce's own folders, and the specs and locks of
//! projects. A descriptor is written to wherever it leads: whoever opened it chose the file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sconce_base::Env;
use sconce_base::output::{DirectoryDestination, NewFile, OutputDestination};
use sconce_schema::lock::{Lock, LockError};
use sconce_schema::spec::{FILE_NAME, Spec};

use super::OutputsError;
use crate::failure::Result;
use crate::input;
use crate::own_folders::{self, OwnFolderConflict, OwnFolderRelation, ProtectedDirectory};
use crate::places::SconceDirs;

/// The store that was named and the variables by which the folders are found. It is one for a process, so that no
/// verb can leave it out.
static NAMED: OnceLock<(Option<PathBuf>, Env)> = OnceLock::new();

/// Says, before any verb, by what Sconce's own folders are found.
pub(crate) fn set_once(store: Option<PathBuf>, env: Env) {
    // A second one in a process would say the same.
    let _ = NAMED.set((store, env));
}

/// Refuses an output that lies in one of Sconce's own folders, or where one is to be.
///
/// # Errors
/// [`OutputsError::InOwnFolder`].
pub(crate) fn refuse_own_folders(output: &OutputDestination) -> Result<()> {
    match real_path(output).and_then(|real| find_conflict(&real)) {
        Some(conflict) => Err(in_own_folder(output.path(), conflict)),
        None => Ok(()),
    }
}

/// Refuses a folder for outputs that is one of Sconce's own, or lies in one. One of these may lie in it.
///
/// # Errors
/// [`OutputsError::InOwnFolder`].
pub(crate) fn refuse_in_own_folders(folder: &DirectoryDestination) -> Result<()> {
    let lies_in = |conflict: &OwnFolderConflict| {
        matches!(
            conflict.relation,
            OwnFolderRelation::Same | OwnFolderRelation::Inside
        )
    };
    let real = folder.real_path();
    match find_conflict(real).filter(lies_in) {
        Some(conflict) => Err(in_own_folder(real, conflict)),
        None => Ok(()),
    }
}

/// Refuses a new file in one of Sconce's own folders but `except`.
///
/// # Errors
/// [`OutputsError::InOwnFolder`].
pub(crate) fn refuse_new_file(file: &NewFile, except: Option<ProtectedDirectory>) -> Result<()> {
    let conflict = file.real_path().and_then(|real| find_conflict(&real));
    match conflict.filter(|conflict| Some(conflict.own) != except) {
        Some(conflict) => Err(in_own_folder(file.path(), conflict)),
        None => Ok(()),
    }
}

/// Refuses an output where a project has its spec or its lock, any project. Those of a usual name are not written
/// where they are not there either: the next `run` would read it.
///
/// # Errors
/// [`OutputsError::IsProjectFile`].
pub(crate) fn refuse_project_files(output: &OutputDestination) -> Result<()> {
    let Some(real) = real_path(output) else {
        return Ok(());
    };
    // A spec's or a lock's name may be a link to what has another.
    match has_project_name(output.path()) || has_project_name(&real) || is_spec_or_lock(&real) {
        true => Err(OutputsError::IsProjectFile {
            path: output.path().to_owned(),
        }
        .into()),
        false => Ok(()),
    }
}

/// Where an output lies that is named by a path.
fn real_path(output: &OutputDestination) -> Option<PathBuf> {
    match output.descriptor_number() {
        Some(_) => None,
        None => output.real_path(),
    }
}

fn find_conflict(real: &Path) -> Option<OwnFolderConflict> {
    let (store, env) = NAMED.get()?;
    // Without a home there are none.
    let places = SconceDirs::find_despite_config(store.as_deref(), env).ok()?;
    own_folders::find_conflict(real, &places)
}

fn in_own_folder(path: &Path, conflict: OwnFolderConflict) -> crate::failure::Failure {
    OutputsError::InOwnFolder {
        path: path.to_owned(),
        conflict,
    }
    .into()
}

fn has_project_name(path: &Path) -> bool {
    path.ends_with(FILE_NAME) || path.ends_with(Path::new(FILE_NAME).with_extension("lock"))
}

/// Whether a spec or a lock is there under a name of its own.
fn is_spec_or_lock(path: &Path) -> bool {
    let text = || input::read_text(path).ok();
    let extension = path.extension().and_then(|end| end.to_str());
    match extension {
        Some("toml") => text().is_some_and(|text| {
            // An empty one has nothing to lose.
            !text.trim().is_empty() && Spec::parse(&text).is_ok()
        }),
        Some("lock") => {
            text().is_some_and(|text| !matches!(Lock::parse(&text), Err(LockError::Malformed(_))))
        }
        _ => false,
    }
}
