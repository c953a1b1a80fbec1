//! What this machine and this user say of Debian's archives.

use std::path::PathBuf;

use sconce_resolve::debian::sources::AptFile;

use crate::dirs::Config;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

/// apt's sources, as they are.
pub(crate) fn apt_files() -> Vec<AptFile> {
    let mut paths = vec![PathBuf::from("/etc/apt/sources.list")];
    for folder in ["/etc/apt/sources.list.d", "/etc/apt/mirrors"] {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        paths.extend(found);
    }
    let read = |path: PathBuf| {
        Some(AptFile {
            text: crate::input::read_text(&path).ok()?,
            path,
        })
    };
    paths.into_iter().filter_map(read).collect()
}

/// The keyring that the configuration names.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_keyring(config: &Config) -> Result<Option<Vec<u8>>> {
    let read = |path: &PathBuf| {
        crate::input::read_bytes(path).map_err(|source| AppError::File {
            action: FileAction::Read,
            path: path.clone(),
            source,
        })
    };
    Ok(config.keyring.as_ref().map(read).transpose()?)
}
