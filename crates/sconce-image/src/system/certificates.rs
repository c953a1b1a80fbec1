//! The bundle of certificate authorities that `update-ca-certificates` would have made.
//!
//! Only the bundle, not the folder of hashed links: OpenSSL, GnuTLS, curl and Python all read the
//! bundle, and the links cost an OpenSSL of the host to make.

use super::SystemError;
use super::files::SystemTree;

/// Where packages put authorities.
const AUTHORITIES: &str = "usr/share/ca-certificates";
/// Debian has them in one folder below; nobody has more than a few.
const MAX_DEPTH: u32 = 16;

/// Writes `/etc/ssl/certs/ca-certificates.crt`, where ca-certificates is installed, and the link
/// by which OpenSSL finds it.
pub(super) fn write_bundle(tree: &mut SystemTree) -> Result<(), SystemError> {
    if !tree
        .resolve_path(AUTHORITIES)?
        .is_some_and(|folder| folder.is_dir())
    {
        return Ok(());
    }
    let mut files = Vec::new();
    collect(tree, AUTHORITIES, MAX_DEPTH, &mut files)?;
    files.sort();
    let mut bundle = String::new();
    for file in &files {
        bundle.push_str(tree.read_text(file)?.trim_end());
        bundle.push('\n');
    }
    tree.write_text("etc/ssl/certs/ca-certificates.crt", &bundle, 0o644)?;
    tree.symlink_if_missing("/etc/ssl/certs", "usr/lib/ssl/certs")?;
    tree.symlink_if_missing("/etc/ssl/certs/ca-certificates.crt", "usr/lib/ssl/cert.pem")
}

/// The link by which a standalone Python finds the bundle: its OpenSSL is built for `/etc/ssl`.
pub(super) fn link_standalone(tree: &mut SystemTree) -> Result<(), SystemError> {
    tree.symlink_if_missing("certs/ca-certificates.crt", "etc/ssl/cert.pem")
}

/// The certificates below a folder; links are passed over.
fn collect(
    tree: &SystemTree,
    folder: &str,
    depth: u32,
    files: &mut Vec<String>,
) -> Result<(), SystemError> {
    let Some(real) = tree.resolve_path(folder)? else {
        return Ok(());
    };
    for name in tree.list(folder)? {
        let path = format!("{folder}/{name}");
        let Ok(meta) = real.join(&name).symlink_metadata() else {
            continue;
        };
        if meta.is_dir() && depth > 0 {
            collect(tree, &path, depth - 1, files)?;
        } else if meta.is_file() && name.ends_with(".crt") {
            files.push(path);
        }
    }
    Ok(())
}
