//! Small files of a root file system, written with fixed modes and times whatever the umask and
//! the clock are.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sconce_store::wheel::fixed_time;

use super::SystemError;

pub(super) fn read(path: &Path) -> Result<String, SystemError> {
    fs::read_to_string(path).map_err(|source| SystemError::io("read", path, source))
}

pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<(), SystemError> {
    write_bytes(path, text.as_bytes(), mode)
}

pub(super) fn write_bytes(path: &Path, bytes: &[u8], mode: u32) -> Result<(), SystemError> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let write = || {
        let mut file = fs::File::create(path)?;
        file.write_all(bytes)?;
        file.set_modified(fixed_time())
    };
    write().map_err(|source| SystemError::io("write", path, source))?;
    set_mode(path, mode)
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), SystemError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|source| SystemError::io("set the mode of", path, source))
}

/// Makes a folder and its parents, each 0755.
pub(super) fn make_dir(path: &Path) -> Result<(), SystemError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    match fs::create_dir(path) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(SystemError::io("create", path, source))
        }
        _ => set_mode(path, 0o755),
    }
}

/// Makes a symbolic link unless something is already there.
pub(super) fn link(target: &str, path: &Path) -> Result<(), SystemError> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    match symlink(target, path) {
        Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(SystemError::io("link", path, source))
        }
        _ => Ok(()),
    }
}
