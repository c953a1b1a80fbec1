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

#[cfg(test)]
mod tests {
    use sconce_fetch::{FetchConfig, file_url};
    use sconce_schema::lock::WheelBuild;
    use sconce_schema::{NoProgress, Sha256};
    use sha2::Digest as _;

    use super::*;
    use crate::sbom::tests::fixture_lock;

    #[test]
    fn files_are_there_as_they_are_and_nothing_is_made_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let mut lock = fixture_lock();
        let place = |name: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, name).unwrap();
            let sha256 = Sha256(sha2::Sha256::digest(name).into());
            (file_url(&file), sha256, name.len() as u64)
        };
        for wheel in &mut lock.wheels {
            let size;
            (wheel.url, wheel.sha256, size) = place(&wheel.file);
            wheel.size = Some(size);
        }
        for deb in &mut lock.debs {
            (deb.url, deb.sha256, deb.size) = place(&format!("{}.deb", deb.name));
        }
        // Its address is that of its sources.
        let built = lock.wheels.remove(0);
        lock.wheels.push(sconce_schema::lock::Wheel {
            build: Some(Box::new(WheelBuild {
                sha256: Some(built.sha256),
                commit: None,
                subdirectory: None,
                build_requires: Vec::new(),
                asked: Default::default(),
            })),
            ..built
        });
        let fetcher = Fetcher::new(FetchConfig::default()).unwrap();
        let fetch = || fetch_packages(&lock, &store, &fetcher, &NoProgress).unwrap();
        let fetched: Vec<Sha256> = (lock.wheels.iter())
            .filter(|wheel| wheel.build.is_none())
            .map(|wheel| wheel.sha256)
            .chain(lock.debs.iter().map(|deb| deb.sha256))
            .collect();
        let (count, bytes) = fetch();
        assert_eq!(count, fetched.len());
        assert!(bytes > 0);
        assert!(fetched.iter().all(|one| store.find_blob(one).is_some()));
        let kinds: Vec<String> = store.measure_usage().unwrap().kinds.into_keys().collect();
        assert_eq!(kinds, ["blob"]);
        assert_eq!(fetch(), (0, 0));
        let missing = find_missing_packages(&lock, &store);
        assert_eq!((missing.wheels.len(), missing.debs.len()), (1, 0));
        assert_eq!(missing.packed_wheels.len(), lock.wheels.len() - 1);
        assert!(!missing.is_empty());
    }
}
