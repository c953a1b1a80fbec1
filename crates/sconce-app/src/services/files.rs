//! The files of a run's services: private ones, that only the service reads.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::failure::Result;
use crate::file_action::FileAction;
use crate::run_temp_dir::{file_error, private_folder};

/// Where a container sees the folders of services.
pub(super) const CONTAINER_DIR: &str = "/run/sconce/services";

/// A folder that only its reader opens, in one that only the caller does.
pub(super) struct PrivateDirectory {
    path: PathBuf,
    reader: Option<u32>,
}

impl PrivateDirectory {
    /// Makes `name` in `private`.
    pub(super) fn create(private: &Path, name: &str, reader: Option<u32>) -> Result<Self> {
        let folder = Self {
            path: private.join(name),
            reader,
        };
        private_folder(&folder.path)?;
        folder.hand_over(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file with that mode, which nobody could open before it had it.
    pub(super) fn write(&self, name: &str, mode: u32, text: &[u8]) -> Result<PathBuf> {
        let path = self.path.join(name);
        replace_file(&path, mode, text)?;
        self.hand_over(&path)?;
        Ok(path)
    }

    fn hand_over(&self, path: &Path) -> Result<()> {
        match self.reader {
            Some(id) => chown(path, Some(id), Some(id))
                .map_err(|error| file_error(FileAction::Write, path, error)),
            None => Ok(()),
        }
    }
}

/// Writes a new file; what was there goes.
pub(super) fn replace_file(path: &Path, mode: u32, text: &[u8]) -> Result<()> {
    let write = || {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?;
        file.set_permissions(PermissionsExt::from_mode(mode))?;
        file.write_all(text)
    };
    write().map_err(|error| file_error(FileAction::Write, path, error))
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| file_error(FileAction::Read, path, error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_temp_dir::RunTempDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_private_is_closed_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("a.private");
        let _run = RunTempDir::create(&private).ok().unwrap();
        let folder = PrivateDirectory::create(&private, "jupyter", None)
            .ok()
            .unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&private), mode(folder.path())), (0o700, 0o700));
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "kept").unwrap();
        symlink(&outside, folder.path().join("token")).unwrap();
        let path = folder.write("token", 0o600, b"secret").ok().unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        assert_eq!(std::fs::read(&outside).unwrap(), b"kept");
        folder.write("token", 0o644, b"other").ok().unwrap();
        assert_eq!(
            (std::fs::read(&path).unwrap(), mode(&path)),
            (b"other".to_vec(), 0o644)
        );
    }
}
