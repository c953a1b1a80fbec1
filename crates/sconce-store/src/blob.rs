//! Files that are found by their SHA-256.

use std::convert::Infallible;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sconce_schema::{NoProgress, Progress, Sha256};
use sha2::Digest as _;

use crate::item_access::MakeJob;
use crate::{Store, StoreError};
use sconce_base::direct_io::{DirectReader, DirectWriter};
use sconce_fetch::{Fetcher, redact_url};

/// The kind of blobs among the store's items.
const KIND: &str = "blob";
/// Blobs that take no longer than a copy: nobody is told of a wait.
const SILENT_JOB: MakeJob<'static> = MakeJob {
    name: KIND,
    work: "keeps a blob",
    progress: &NoProgress,
};
/// No single file that Sconce fetches is larger.
const MAX_BLOB_BYTES: u64 = 64 << 30;

impl Store {
    /// The path of a blob that is in the store. Nobody may write to it.
    #[must_use]
    pub fn find_blob(&self, sha256: &Sha256) -> Option<PathBuf> {
        self.find_tree(KIND, &sha256.to_string())
    }

    /// Reads a whole blob of the store and compares it with its name. One that is not there is not wrong.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: it is taken out of the store; [`StoreError::Disk`].
    pub fn verify_blob(&self, sha256: &Sha256) -> Result<(), StoreError> {
        let Some(path) = self.find_blob(sha256) else {
            return Ok(());
        };
        let mut hash = sha2::Sha256::new();
        let read = DirectReader::new().read_chunks(&path, u64::MAX, |bytes| {
            hash.update(bytes);
            Ok::<(), Infallible>(())
        });
        read.map_err(StoreError::from_io("read", &path))?.ok();
        match Sha256(hash.finalize().into()) {
            found if found == *sha256 => Ok(()),
            found => Err(self.remove_damaged_blob(sha256, found)),
        }
    }

    /// Takes a blob out of the store whose bytes were read and have another digest than its name says, so that
    /// it is made or fetched again; gives the error that says so.
    #[must_use]
    pub fn remove_damaged_blob(&self, sha256: &Sha256, found: Sha256) -> StoreError {
        let key = sha256.to_string();
        let path = self
            .item_paths(KIND, &key)
            .map(|place| place.content_path());
        StoreError::Damaged {
            path: path.unwrap_or_default(),
            expected: *sha256,
            found,
            is_removed: self.remove_item(KIND, &key).unwrap_or(false),
        }
    }

    /// The path of a blob, fetched from `url` if it is not in the store.
    ///
    /// # Errors
    /// [`StoreError::Fetch`], [`StoreError::Hash`], [`StoreError::Size`], [`StoreError::Disk`].
    /// After any of them the store holds nothing of it.
    pub fn fetch_blob(
        &self,
        fetcher: &Fetcher,
        url: &str,
        sha256: &Sha256,
        size: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<PathBuf, StoreError> {
        let name = url.rsplit('/').next().unwrap_or(url);
        let work = format!("fetches {name}");
        let job = MakeJob {
            name,
            work: &work,
            progress,
        };
        self.add(sha256, job, |path| {
            let size_error = |expected, found| StoreError::Size {
                what: redact_url(url),
                expected,
                found,
            };
            let mut body = fetcher.open(url, 0)?;
            if let (Some(expected), Some(found)) = (size, body.total_bytes())
                && expected != found
            {
                return Err(size_error(expected, found));
            }
            let limit = size.or(body.total_bytes()).unwrap_or(MAX_BLOB_BYTES);
            let mut file = File::create(path).map_err(StoreError::from_io("create", path))?;
            let mut hash = sha2::Sha256::new();
            let mut chunk = vec![0; 256 << 10];
            let mut got = 0;
            loop {
                let n = body.read_some(&mut chunk)?;
                if n == 0 {
                    break;
                }
                got += n as u64;
                if got > limit {
                    return Err(size_error(limit, got));
                }
                hash.update(&chunk[..n]);
                file.write_all(&chunk[..n])
                    .map_err(StoreError::from_io("write", path))?;
                progress.advance(name, n as u64);
            }
            verify_size_and_hash(&redact_url(url), sha256, size, got, hash)?;
            tracing::debug!(
                url = redact_url(url),
                bytes = got,
                "fetched and verified a file"
            );
            progress.done(name);
            Ok(())
        })
    }

    /// Keeps bytes that the caller has.
    ///
    /// # Errors
    /// [`StoreError::Hash`] when they are not what `sha256` says, [`StoreError::Disk`].
    pub fn put_blob(&self, bytes: &[u8], sha256: &Sha256) -> Result<PathBuf, StoreError> {
        let mut hash = sha2::Sha256::new();
        hash.update(bytes);
        verify_size_and_hash("the blob", sha256, None, bytes.len() as u64, hash)?;
        self.add(sha256, SILENT_JOB, |path| {
            std::fs::write(path, bytes).map_err(StoreError::from_io("write", path))
        })
    }

    /// Keeps what `reader` gives, which is not read where the blob is in the store. `what` names it
    /// for people; `told` gets the bytes that were read, from time to time.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Size`], [`StoreError::Hash`], [`StoreError::Disk`]. After
    /// any of them the store holds nothing of it.
    pub fn read_blob(
        &self,
        what: &str,
        reader: &mut dyn Read,
        sha256: &Sha256,
        size: u64,
        told: &dyn Fn(u64),
    ) -> Result<PathBuf, StoreError> {
        self.add(sha256, SILENT_JOB, |path| {
            let write = |e| StoreError::from_io("write", path)(e);
            let mut file = DirectWriter::new();
            file.start_file(path.to_owned(), Some(size));
            let mut hash = sha2::Sha256::new();
            let mut got = 0;
            loop {
                file.make_room().map_err(write)?;
                let room = file.unfilled_buffer();
                let n = match reader.read(room) {
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    done => done.map_err(|source| StoreError::Read {
                        what: what.to_owned(),
                        source,
                    })?,
                };
                hash.update(&room[..n]);
                got += n as u64;
                // What is too much is not written.
                if n == 0 || got > size {
                    break;
                }
                file.mark_filled(n);
                told(n as u64);
            }
            verify_size_and_hash(what, sha256, Some(size), got, hash)?;
            file.finish_file().map_err(write)?;
            Ok(())
        })
    }

    /// An empty file on the store's file system that has no name, and is gone when it is closed.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn unnamed_file(&self) -> Result<File, StoreError> {
        let folder = self.root().join("tmp");
        tempfile::tempfile_in(&folder).map_err(StoreError::from_io("write", &folder))
    }

    /// Takes a file that the caller has made, and hashed while making it: it is moved, not read
    /// again, so it must lie on the store's file system.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn adopt_blob(&self, file: &Path, sha256: &Sha256) -> Result<PathBuf, StoreError> {
        self.add(sha256, SILENT_JOB, |path| {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o444))
                .and_then(|()| std::fs::rename(file, path))
                .map_err(StoreError::from_io("move", file))
        })
    }

    fn add(
        &self,
        sha256: &Sha256,
        job: MakeJob<'_>,
        write: impl FnOnce(&Path) -> Result<(), StoreError>,
    ) -> Result<PathBuf, StoreError> {
        let place = self.item_paths(KIND, &sha256.to_string())?;
        self.make_item(&place, job, &|_| true, |work| write(&work.join("content")))
    }
}

/// Compares what came with what was asked for: the size first, as it says more to a person.
pub(crate) fn verify_size_and_hash(
    what: &str,
    sha256: &Sha256,
    size: Option<u64>,
    got: u64,
    hash: sha2::Sha256,
) -> Result<(), StoreError> {
    if let Some(expected) = size.filter(|&size| size != got) {
        return Err(StoreError::Size {
            what: what.to_owned(),
            expected,
            found: got,
        });
    }
    let found = Sha256(hash.finalize().into());
    if found != *sha256 {
        return Err(StoreError::Hash {
            what: what.to_owned(),
            expected: *sha256,
            found,
        });
    }
    Ok(())
}
