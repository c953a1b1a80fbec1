//! Everything that an environment is made of, fetched before it is made: that may be done on another machine then, without
//! a network.

use sconce_fetch::Fetcher;
use sconce_schema::Progress;
use sconce_schema::lock::Lock;
use sconce_store::{Store, StoreError};

use crate::assemble::find_missing_packages;
use crate::bytecode::interpreter;
use crate::fetch::{RemoteFile, fetch_files};

/// Fetches what of `lock` the store has neither as a tree nor as a file, with what compiles bytecode, and unpacks
/// nothing. Wheels that are built from sources have no file that could be fetched: they are passed over. Gives how many
/// files there were, and their bytes as far as the lock knows sizes.
///
/// # Errors
/// The first file that fails, as of [`Store::fetch_blob`]; what others brought stays in the store.
pub fn fetch_packages(
    lock: &Lock,
    store: &Store,
    fetcher: &Fetcher,
    progress: &dyn Progress,
) -> Result<(usize, u64), StoreError> {
    let missing = find_missing_packages(lock, store);
    let wheels = missing.wheels.iter().filter(|wheel| wheel.build.is_none());
    let mut files: Vec<RemoteFile<'_>> = wheels.map(|wheel| RemoteFile::of_wheel(wheel)).collect();
    files.extend(missing.python_archive().map(RemoteFile::of_python));
    let mut debs = missing.debs.clone();
    if interpreter::find_trees(lock, store).is_none() {
        debs.extend(interpreter::list_missing_debs(lock, store));
        debs.sort_by_key(|deb| deb.sha256.0);
        debs.dedup_by_key(|deb| deb.sha256.0);
    }
    files.extend(debs.into_iter().map(RemoteFile::of_deb));
    // The largest first: what begins last decides when all is done.
    files.sort_by_key(|file| std::cmp::Reverse(file.size_bytes.unwrap_or(u64::MAX)));
    let sizes = files.iter().map(|file| file.size_bytes);
    let total_bytes: Option<u64> = sizes.clone().sum();
    let known_bytes = sizes.flatten().sum();
    if !files.is_empty() {
        progress.stage("fetch", total_bytes);
    }
    fetch_files(&files, store, fetcher, progress)?;
    Ok((files.len(), known_bytes))
}
