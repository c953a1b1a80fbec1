//! What no output takes the place of, whoever wrote it: what lies in Sconce's own folders, the specs and locks of
//! projects, and private keys. A descriptor is written to wherever it leads: whoever opened it chose the file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sconce_base::Env;
use sconce_base::input::read_regular;
use sconce_base::output::{DirectoryDestination, NewFile, OutputDestination};
use sconce_schema::Bytes;
use sconce_schema::spec::{FILE_NAME, Spec};
use serde::Deserialize;

use super::OutputsError;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::folder_conflict::{OwnFolderConflict, OwnFolderRelation, ProtectedDirectory};
use crate::protected_dirs;

/// A larger file is no spec and no lock.
const MAX_PROJECT_FILE: Bytes = Bytes(16 << 20);

/// The store that was named and the variables by which the folders are found. It is one for a process, so that no
/// verb can leave it out.
static NAMED: OnceLock<(Option<PathBuf>, Env)> = OnceLock::new();

/// Says, before any verb, by what Sconce's own folders are found.
pub fn set_once(store: Option<PathBuf>, env: Env) {
    // A second one in a process would say the same.
    let _ = NAMED.set((store, env));
}

/// Refuses an output that lies in one of Sconce's own folders, or where one is to be.
///
/// # Errors
/// [`OutputsError::InOwnFolder`].
pub fn refuse_own_folders(output: &OutputDestination) -> Result<()> {
    match real_path(output).and_then(|real| find_conflict(&real)) {
        Some(conflict) => Err(in_own_folder(output.path(), conflict)),
        None => Ok(()),
    }
}

/// Refuses a folder for outputs that is one of Sconce's own, or lies in one. One of these may lie in it.
///
/// # Errors
/// [`OutputsError::InOwnFolder`].
pub fn refuse_in_own_folders(folder: &DirectoryDestination) -> Result<()> {
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
pub fn refuse_new_file(file: &NewFile, except: Option<ProtectedDirectory>) -> Result<()> {
    let conflict = file.real_path().and_then(|real| find_conflict(&real));
    match conflict.filter(|conflict| Some(conflict.own) != except) {
        Some(conflict) => Err(in_own_folder(file.path(), conflict)),
        None => Ok(()),
    }
}

/// Refuses an output where somebody has a private key, or a project its spec or its lock, any project. Those of a
/// usual name are not written where they are not there either: the next `run` would read it.
///
/// # Errors
/// [`OutputsError::IsPrivateKey`], [`OutputsError::IsProjectFile`].
pub fn refuse_project_files(output: &OutputDestination) -> Result<()> {
    let Some(real) = real_path(output) else {
        return Ok(());
    };
    let text = read_text_file(&real);
    if text.as_deref().is_some_and(is_private_key) {
        let path = output.path().to_owned();
        return Err(OutputsError::IsPrivateKey { path }.into());
    }
    let is_spec_or_lock = text.is_some_and(|text| is_spec(&text) || is_lock(&text));
    // A spec's or a lock's name may be a link to what has another.
    match has_project_name(output.path()) || has_project_name(&real) || is_spec_or_lock {
        true => Err(OutputsError::IsProjectFile {
            path: output.path().to_owned(),
        }
        .into()),
        false => Ok(()),
    }
}

/// The same for a folder that is made.
///
/// # Errors
/// [`OutputsError::IsProjectFile`].
pub fn refuse_project_names(folder: &DirectoryDestination) -> Result<()> {
    let path = folder.real_path();
    match has_project_name(path) {
        true => Err(OutputsError::IsProjectFile {
            path: path.to_owned(),
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

/// In one of the folders of the caller's, whichever store was named, or in any store.
fn find_conflict(real: &Path) -> Option<OwnFolderConflict> {
    let (store, env) = NAMED.get()?;
    let usual = store.is_some().then_some(None);
    let stores = [Some(store.as_deref()), usual];
    // Without a home there are none.
    let places = stores
        .into_iter()
        .flatten()
        .filter_map(|store| SconceDirs::find_despite_config(store, env).ok());
    let own = places.filter_map(|places| protected_dirs::find_conflict(real, &places));
    own.min_by_key(|conflict| conflict.relation as u8)
        .or_else(|| find_store_above(real))
}

/// A store of whomever, which is known by what lies in it: the number of its format, its items and their locks.
fn find_store_above(real: &Path) -> Option<OwnFolderConflict> {
    let folder = real.ancestors().find(|folder| {
        let has_folders = ["items", "locks"]
            .iter()
            .all(|name| folder.join(name).is_dir());
        let version = || read_text_file(&folder.join("version"));
        has_folders && version().is_some_and(|text| text.trim().parse::<u32>().is_ok())
    })?;
    Some(OwnFolderConflict {
        own: ProtectedDirectory::Store,
        folder: folder.to_owned(),
        relation: match folder == real {
            true => OwnFolderRelation::Same,
            false => OwnFolderRelation::Inside,
        },
    })
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

/// What a file says that is to be replaced, whatever it is called and however one gets to it.
fn read_text_file(path: &Path) -> Option<String> {
    let bytes = read_regular(path, MAX_PROJECT_FILE).ok()?;
    String::from_utf8(bytes).ok()
}

/// By the label of its encapsulation (RFC 7468, sections 10 and 11; OpenSSH, cosign and PGP
/// have labels of their own).
fn is_private_key(text: &str) -> bool {
    let label = text.lines().next().unwrap_or_default();
    label.starts_with("-----BEGIN ") && label.contains("PRIVATE KEY")
}

/// Whatever else is TOML has other tables; one without any has nothing to lose.
fn is_spec(text: &str) -> bool {
    let tables = toml::from_str::<toml::Table>(text).unwrap_or_default();
    tables.values().any(toml::Value::is_table) && Spec::parse(text).is_ok()
}

/// By what Sconce's locks have of whatever format, and other tools' have not.
fn is_lock(text: &str) -> bool {
    #[derive(Deserialize)]
    #[expect(
        dead_code,
        reason = "what is there is looked for, and not what it says"
    )]
    struct LockKeys {
        version: u32,
        inputs: String,
        versions: toml::Table,
    }
    toml::from_str::<LockKeys>(text).is_ok()
}
