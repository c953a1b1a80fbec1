//! Files that a lock names, brought into the store as they are.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sconce_fetch::Fetcher;
use sconce_schema::lock::{Deb, StandalonePython, Wheel};
use sconce_schema::{Progress, Sha256};
use sconce_store::{Store, StoreError};

/// How many files are fetched at once.
const CONNECTIONS: usize = 4;

/// A file that a lock names.
#[derive(Clone, Copy)]
pub(crate) struct RemoteFile<'l> {
    url: &'l str,
    sha256: Sha256,
    pub(crate) size_bytes: Option<u64>,
}

impl<'l> RemoteFile<'l> {
    pub(crate) fn of_deb(deb: &'l Deb) -> Self {
        Self {
            url: &deb.url,
            sha256: deb.sha256,
            size_bytes: Some(deb.size),
        }
    }

    pub(crate) fn of_wheel(wheel: &'l Wheel) -> Self {
        Self {
            url: &wheel.url,
            sha256: wheel.sha256,
            size_bytes: wheel.size,
        }
    }

    pub(crate) fn of_python(python: &'l StandalonePython) -> Self {
        Self {
            url: &python.url,
            sha256: python.sha256,
            size_bytes: python.size,
        }
    }
}

/// Every one of these files in the store, in their order.
pub(crate) fn fetch_files(
    files: &[RemoteFile<'_>],
    store: &Store,
    fetcher: &Fetcher,
    progress: &dyn Progress,
) -> Result<Vec<PathBuf>, StoreError> {
    let next = AtomicUsize::new(0);
    let fetch = || {
        let mut fetched = Vec::new();
        while let Some((at, file)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            files.get(at).map(|file| (at, file))
        } {
            let (sha256, size) = (&file.sha256, file.size_bytes);
            let path = store.fetch_blob(fetcher, file.url, sha256, size, progress)?;
            fetched.push((at, path));
        }
        Ok(fetched)
    };
    let fetched: Result<Vec<_>, StoreError> = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(fetch)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut fetched: Vec<(usize, PathBuf)> = fetched?.into_iter().flatten().collect();
    fetched.sort_unstable();
    Ok(fetched.into_iter().map(|(_, path)| path).collect())
}
