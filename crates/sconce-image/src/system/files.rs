//! Small files of a root file system, written with fixed modes and times whatever the umask and
//! the clock are. Packages put links where they like: every path is followed inside the tree alone.

use std::path::{Path, PathBuf};

use sconce_base::direct_io::MTIME;
use sconce_store::scoped_root::{OnConflict, ScopedRoot, ScopedRootError, set_modified};

use super::SystemError;

/// No text that is read here is longer, bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A root file system that is being made. Paths are relative to its root.
pub(super) struct SystemTree(ScopedRoot);

impl SystemTree {
    pub(super) fn new(root: &Path) -> Self {
        Self(ScopedRoot::new(root, OnConflict::Stay))
    }

    /// A file's text.
    pub(super) fn read_text(&self, path: &str) -> Result<String, SystemError> {
        self.read_if_there(path)?
            .ok_or_else(|| SystemError::Missing {
                path: path.to_owned(),
            })
    }

    /// A file's text; `None` where there is no file.
    pub(super) fn read_if_there(&self, path: &str) -> Result<Option<String>, SystemError> {
        let Some(bytes) = self.0.read(path.as_bytes(), MAX_TEXT_BYTES)? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes).map_err(|_| SystemError::NotText {
            path: path.to_owned(),
        })?;
        Ok(Some(text))
    }

    pub(super) fn write_text(
        &mut self,
        path: &str,
        text: &str,
        mode: u32,
    ) -> Result<(), SystemError> {
        self.write_bytes(path, text.as_bytes(), mode)
    }

    pub(super) fn write_bytes(
        &mut self,
        path: &str,
        bytes: &[u8],
        mode: u32,
    ) -> Result<(), SystemError> {
        let real = self.0.write(path.as_bytes(), bytes, mode)?;
        Ok(set_modified(&real, MTIME.cast_signed())?)
    }

    /// Makes a folder and what is missing above it, each 0755.
    pub(super) fn make_dir(&mut self, path: &str) -> Result<(), SystemError> {
        self.0.make_folder(path.as_bytes())?;
        Ok(())
    }

    /// A folder with another mode.
    pub(super) fn make_dir_with(&mut self, path: &str, mode: u32) -> Result<(), SystemError> {
        self.0.ensure_dir(path.as_bytes(), mode)?;
        Ok(())
    }

    /// Makes a symbolic link unless something is already there.
    pub(super) fn symlink_if_missing(
        &mut self,
        target: &str,
        path: &str,
    ) -> Result<(), SystemError> {
        if !self.0.contains_entry(path.as_bytes())? {
            self.0.create_symlink(path.as_bytes(), target.as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn contains_path(&self, path: &str) -> Result<bool, SystemError> {
        Ok(self.0.contains_entry(path.as_bytes())?)
    }

    /// The real path of what is there, links followed.
    pub(super) fn resolve_path(&self, path: &str) -> Result<Option<PathBuf>, SystemError> {
        Ok(self.0.resolve_path(path.as_bytes())?)
    }

    /// The names in a folder that are text; none where there is no folder.
    pub(super) fn list(&self, path: &str) -> Result<Vec<String>, SystemError> {
        let Some(real) = self.resolve_path(path)?.filter(|real| real.is_dir()) else {
            return Ok(Vec::new());
        };
        let list = || {
            let mut names = Vec::new();
            for entry in real.read_dir()? {
                names.extend(entry?.file_name().into_string());
            }
            names.sort();
            Ok(names)
        };
        list().map_err(|source| {
            SystemError::Tree(ScopedRootError::Disk {
                action: "list",
                path: real.clone(),
                source,
            })
        })
    }
}
