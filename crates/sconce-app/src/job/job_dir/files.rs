//! Files of a job's directory, which other machines read while they are written.

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::JobDirError;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::input;

/// Whether a directory has a file, which another machine may just have written: a shared file system may go on saying
/// that a file is not there, and looks when the directory is read.
pub(super) fn is_listed(dir: &Path, name: &str) -> bool {
    let mut entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name() == *name)
}

/// Reads the end of a file, whatever is in it, from the beginning of a line.
pub(super) fn read_end(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max_bytes)))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match (length > max_bytes, text.split_once('\n')) {
        (true, Some((_, rest))) => rest.to_owned(),
        _ => text,
    })
}

pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).expect("plain data is JSON");
    text.push(b'\n');
    write(path, &text)
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = input::read_text(path).map_err(AppError::unreadable(path))?;
    Ok(
        serde_json::from_str(&text).map_err(|source| JobDirError::Damaged {
            path: path.to_owned(),
            source,
        })?,
    )
}

/// Makes a directory, with those above it, that nobody but its owner sees into.
pub(in crate::job) fn make_private_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Another node sees the file before or the file after, and no part of one.
pub(in crate::job) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_added_extension(sconce_base::random_name());
    let write = || {
        let mut options = File::options();
        let mut file = (options.write(true).create_new(true).mode(0o600)).open(&beside)?;
        file.write_all(bytes)?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&beside);
        AppError::File {
            action: FileAction::Write,
            path: path.to_owned(),
            source,
        }
        .into()
    })
}
