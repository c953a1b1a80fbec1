//! The bundle of certificate authorities that `update-ca-certificates` would have made.
//!
//! Only the bundle, not the folder of hashed links: OpenSSL, GnuTLS, curl and Python all read the
//! bundle, and the links cost an OpenSSL of the host to make.

use std::path::{Path, PathBuf};

use super::SystemError;
use super::files::{link, read, write};

/// Writes `/etc/ssl/certs/ca-certificates.crt`, where ca-certificates is installed, and the link
/// by which OpenSSL finds it.
pub(super) fn write_bundle(root: &Path) -> Result<(), SystemError> {
    let folder = root.join("usr/share/ca-certificates");
    if !folder.is_dir() {
        return Ok(());
    }
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let mut bundle = String::new();
    for file in &files {
        bundle.push_str(read(file)?.trim_end());
        bundle.push('\n');
    }
    write(
        &root.join("etc/ssl/certs/ca-certificates.crt"),
        &bundle,
        0o644,
    )?;
    link("/etc/ssl/certs", &root.join("usr/lib/ssl/certs"))?;
    link(
        "/etc/ssl/certs/ca-certificates.crt",
        &root.join("usr/lib/ssl/cert.pem"),
    )
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), SystemError> {
    let error = |source| SystemError::io("list", folder, source);
    for entry in folder.read_dir().map_err(error)? {
        let entry = entry.map_err(error)?;
        let kind = entry.file_type().map_err(error)?;
        let path = entry.path();
        if kind.is_dir() {
            collect(&path, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "crt") {
            files.push(path);
        }
    }
    Ok(())
}
