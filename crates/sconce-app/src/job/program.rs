//! The program that nodes start: this one, as it is now, whatever replaces it while the job waits.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::dirs::{SconceDirs, is_read_only};
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::worker::current_exe;

/// Keeps a copy of this program in the store, or beside the records where that may not be written, once for each that there ever was, and gives its path.
///
/// It is named by what the file system says of the file: reading it whole would take longer than the rest of the
/// hand-over.
pub(super) fn keep_program(places: &SconceDirs) -> Result<PathBuf> {
    let own = current_exe()?;
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| AppError::File {
            action,
            path,
            source,
        }
    };
    let meta = std::fs::metadata(&own).map_err(failed(FileAction::Read, &own))?;
    let name = format!(
        "{:x}-{:x}-{:x}",
        meta.len(),
        meta.ino(),
        meta.mtime()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(meta.mtime_nsec())
    );
    let root = match is_read_only(&places.store) {
        true => &places.state,
        false => &places.store,
    };
    let folder = root.join("programs").join(name);
    let kept = folder.join("sconce");
    // One that a killed copy left is not whole.
    if std::fs::metadata(&kept).is_ok_and(|kept| kept.len() == meta.len()) {
        return Ok(kept);
    }
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o755).create(&folder);
    made.map_err(failed(FileAction::Create, &folder))?;
    let beside = folder.join(sconce_base::random_name());
    let copied = std::fs::copy(&own, &beside).and_then(|_| std::fs::rename(&beside, &kept));
    copied.map_err(|source| {
        let _ = std::fs::remove_file(&beside);
        failed(FileAction::Write, &kept)(source)
    })?;
    Ok(kept)
}
