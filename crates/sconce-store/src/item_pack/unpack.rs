//! Unpacking a pack into a store on this machine's disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use sconce_base::tree::remove_tree;
use sconce_schema::{Bytes, Progress};
use sha2::Digest as _;

use super::{CHUNK_BYTES, ItemPack, PackError, PackedItem};
use crate::blob::verify_size_and_hash;
use crate::item_access::MakeJob;
use crate::scoped_root::{OnConflict, ScopedRoot};
use crate::store::{PACKS, make_folder};
use crate::tar_stream::{Budget, Entry, TarError, unpack_entry, walk_entries};
use crate::{Store, StoreError};

/// What nobody has used for so long makes room for what is needed now.
const UNUSED_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);
/// No environment has more files.
const MAX_ENTRIES: u64 = 20_000_000;

/// What [`Store::unpack_items`] found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpackOutcome {
    /// Everything is there, and the pack was not read.
    AlreadyThere,
    /// So many bytes of it were read.
    Unpacked(Bytes),
}

impl Store {
    /// Brings the items of a pack into this store, those that are not there. One process of a machine does it, and
    /// others wait for it.
    ///
    /// # Errors
    /// [`PackError`]. Of a pack whose bytes are wrong nothing is kept.
    pub fn unpack_items(
        &self,
        pack: &ItemPack,
        progress: &dyn Progress,
    ) -> Result<UnpackOutcome, PackError> {
        if self.list_missing_items(pack)?.is_empty() {
            return Ok(UnpackOutcome::AlreadyThere);
        }
        let key = pack.sha256.to_string();
        let place = self.item_paths(PACKS, &key)?;
        let held = match self.has_locks() {
            true => {
                let work = "unpacks an environment";
                Some(self.acquire_exclusive(PACKS, &key, work, progress)?)
            }
            false => None,
        };
        let missing = self.list_missing_items(pack)?;
        if missing.is_empty() {
            return Ok(UnpackOutcome::AlreadyThere);
        }
        self.make_space(missing.values().map(|item| item.disk_bytes).sum())?;
        let work = match &held {
            Some(held) => {
                place.prepare_work_dir(held)?;
                place.work.clone()
            }
            None => place.create_own_work_dir()?,
        };
        let unpacked = read_pack(pack, &missing, &work).and_then(|()| {
            missing
                .values()
                .try_for_each(|item| self.keep(item, &work, pack))
        });
        // What cannot be removed now is removed by the next open.
        let _ = remove_tree(&work);
        unpacked.map(|()| UnpackOutcome::Unpacked(Bytes(pack.size_bytes)))
    }

    /// The items of a pack that are not here, by kind and key.
    fn list_missing_items<'p>(&self, pack: &'p ItemPack) -> Result<MissingItems<'p>, StoreError> {
        let mut missing = BTreeMap::new();
        for item in &pack.items {
            let place = self.item_paths(&item.kind, &item.key)?;
            if self.find_trusted_item(&place, &|_| true)?.is_none() {
                missing.insert((item.kind.as_str(), item.key.as_str()), item);
            }
        }
        Ok(missing)
    }

    /// Sees to it that `need` bytes are free.
    fn make_space(&self, need: u64) -> Result<(), PackError> {
        let free = || {
            let found = rustix::fs::statvfs(self.root());
            let found =
                found.map_err(|errno| StoreError::from_io("read", self.root())(errno.into()));
            found.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
        };
        if free()? < need {
            // Where nothing tells what others use, nothing is removed.
            let _ = self.prune(UNUSED_PERIOD, &|_, _| false, false);
        }
        match free()? {
            have if have < need => Err(PackError::NoSpace {
                path: self.root().to_owned(),
                need: Bytes(need),
                have: Bytes(have),
            }),
            _ => Ok(()),
        }
    }

    /// Makes what was unpacked of an item the item.
    fn keep(&self, item: &PackedItem, work: &Path, pack: &ItemPack) -> Result<(), PackError> {
        let content = work.join(dir_name(&item.kind, &item.key)).join("content");
        if content.symlink_metadata().is_err() {
            return Err(PackError::Archive {
                file: pack.file.clone(),
                why: format!("{} {} is not in it", item.kind, item.key),
            });
        }
        let place = self.item_paths(&item.kind, &item.key)?;
        let job = MakeJob {
            name: &item.kind,
            work: "unpacks an environment",
            progress: &sconce_schema::NoProgress,
        };
        self.make_item(&place, job, &|_| true, |work| {
            let renamed = fs::rename(&content, work.join("content"));
            renamed.map_err(StoreError::from_io("rename", &content))
        })?;
        Ok(())
    }
}

/// By kind and key.
type MissingItems<'p> = BTreeMap<(&'p str, &'p str), &'p PackedItem>;

fn dir_name(kind: &str, key: &str) -> String {
    format!("{kind}~{key}")
}

/// Reads a pack once, unpacks what is missing into `work`, and compares all of it with its digest.
fn read_pack(pack: &ItemPack, missing: &MissingItems<'_>, work: &Path) -> Result<(), PackError> {
    let path = &pack.file;
    let read = |source| PackError::from_io("read", path)(source);
    let file = File::open(path).map_err(PackError::from_io("open", path))?;
    // The page cache is left to others as soon as possible: nobody reads it twice here.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
    let mut reader = DigestingReader {
        inner: file,
        hash: sha2::Sha256::new(),
        size_bytes: 0,
    };
    let unpacked = unpack_stream(&mut reader, pack, missing, work);
    // Bytes that are not the right ones are the better explanation.
    io::copy(&mut reader, &mut io::sink()).map_err(read)?;
    let name = path.display().to_string();
    let (sha256, size) = (&pack.sha256, Some(pack.size_bytes));
    verify_size_and_hash(&name, sha256, size, reader.size_bytes, reader.hash)?;
    unpacked.map_err(|error| PackError::from_tar(error, path))
}

fn unpack_stream(
    reader: &mut impl Read,
    pack: &ItemPack,
    missing: &MissingItems<'_>,
    work: &Path,
) -> Result<(), TarError> {
    let name = pack.file.to_string_lossy();
    let budget = pack.items.iter().map(|item| item.disk_bytes).sum();
    // Headers and padding take less than a block of each file, which was counted.
    let budget = Budget::new(budget, MAX_ENTRIES);
    let buffered = BufReader::with_capacity(CHUNK_BYTES, reader);
    let decoder = zstd::Decoder::with_buffer(buffered);
    let decoder = decoder.map_err(|source| budget.error(&name, source))?;
    let items = pack.items.iter();
    let packed: BTreeSet<_> = items
        .map(|item| (item.kind.as_str(), item.key.as_str()))
        .collect();
    let mut current: Option<(String, ScopedRoot)> = None;
    walk_entries(decoder, &name, &budget, |entry, data| {
        let (kind, key, inside) =
            split(&entry.name).ok_or_else(|| TarError::entry(&entry.name, "is in no item"))?;
        if !packed.contains(&(kind, key)) {
            return Err(TarError::entry(
                &entry.name,
                "is of no item that was packed",
            ));
        }
        if !missing.contains_key(&(kind, key)) {
            return Ok(());
        }
        let dir = dir_name(kind, key);
        let root = match &mut current {
            Some((of, root)) if *of == dir => root,
            current => {
                // Items come one after the other: one that comes again is refused here.
                let path = work.join(&dir);
                make_folder(&path, 0o700).map_err(|source| TarError::Write {
                    path: path.clone(),
                    source,
                })?;
                let root = ScopedRoot::new(&path, OnConflict::Stay);
                &mut current.insert((dir, root)).1
            }
        };
        let mut inner = Entry {
            name: inside.to_vec(),
            link: entry.link.clone(),
            ..*entry
        };
        if entry.kind == tar::EntryType::Link {
            // Of the same item: its name is of the archive's top, too.
            let to = split(&entry.link).filter(|(k, y, _)| (*k, *y) == (kind, key));
            let (.., target) =
                to.ok_or_else(|| TarError::entry(&entry.name, "is a link to another item"))?;
            inner.link = target.to_vec();
        }
        unpack_entry(&inner, data, root, &name, &budget)
    })
}

/// `KIND/KEY/content…` as kind, key, and what is inside the item.
fn split(name: &[u8]) -> Option<(&str, &str, &[u8])> {
    let mut parts = name.splitn(3, |byte| *byte == b'/');
    let (kind, key, inside) = (parts.next()?, parts.next()?, parts.next()?);
    let first = inside.split(|byte| *byte == b'/').next();
    (first == Some(b"content")).then_some(())?;
    Some((
        str::from_utf8(kind).ok()?,
        str::from_utf8(key).ok()?,
        inside,
    ))
}

/// Hashes what is read.
struct DigestingReader {
    inner: File,
    hash: sha2::Sha256,
    size_bytes: u64,
}

impl Read for DigestingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.size_bytes += n as u64;
        Ok(n)
    }
}
