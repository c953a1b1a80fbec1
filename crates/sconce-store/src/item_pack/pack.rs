//! Writing a pack.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sconce_schema::{Progress, Sha256};
use sha2::Digest as _;
use tar::{Builder, EntryType, Header};

use super::{CHUNK_BYTES, ItemPack, PackError, PackedItem};
use crate::Store;
use crate::item::OWN_WORK_PREFIX;
use crate::prune::acquire_item_guards;
use crate::store::{PACKS, make_folder};

/// Counts up whenever the same items would give another file.
const FORMAT: u32 = 1;
/// zstd's level: a seventh smaller than with 1; 9 saves another seventh, for four times the time
/// (docs/decisions/074-shared-stores.md).
const LEVEL: i32 = 3;
/// Blocks that file systems give files, bytes.
const BLOCK_BYTES: u64 = 4096;

impl Store {
    /// Packs `items`, kind and key each, unless that was done before.
    ///
    /// # Errors
    /// [`PackError`]. After any of them there is no pack.
    pub fn pack_items(
        &self,
        items: &[(String, String)],
        progress: &dyn Progress,
    ) -> Result<ItemPack, PackError> {
        let items = sort_items(items);
        let name = pack_name(&items);
        if let Some(pack) = self.find_pack(&name) {
            return Ok(pack);
        }
        let dir = self.root().join(PACKS);
        match make_folder(&dir, 0o700) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(PackError::from_io("create", &dir))?,
        }
        // Of two that come at once one writes.
        let work = "packs an environment";
        let _held = match self.has_locks() {
            true => Some(self.acquire_exclusive(PACKS, &name, work, progress)?),
            false => None,
        };
        if let Some(pack) = self.find_pack(&name) {
            return Ok(pack);
        }
        progress.stage("pack", None);
        let beside = dir.join(format!("{OWN_WORK_PREFIX}{}", sconce_base::random_name()));
        let written = self.write_pack(&items, &name, &beside);
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    /// The pack of `items`, where they were packed before.
    #[must_use]
    pub fn find_packed_items(&self, items: &[(String, String)]) -> Option<ItemPack> {
        self.find_pack(&pack_name(&sort_items(items)))
    }

    /// A pack that is there; it counts as used now.
    fn find_pack(&self, name: &str) -> Option<ItemPack> {
        let file = self.pack_file(name);
        let text = fs::read(json_of(&file)).ok()?;
        let pack: ItemPack = serde_json::from_slice(&text).ok()?;
        let meta = file.metadata().ok()?;
        // The store may have been moved.
        let pack = ItemPack { file, ..pack };
        (meta.len() == pack.size_bytes).then_some(())?;
        for path in [&pack.file, &json_of(&pack.file)] {
            let used = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
            tracing::trace!(is_marked = used.is_ok(), "a pack is used");
        }
        Some(pack)
    }

    fn pack_file(&self, name: &str) -> PathBuf {
        self.root().join(PACKS).join(format!("{name}.tar.zst"))
    }

    fn write_pack(
        &self,
        items: &[(String, String)],
        name: &str,
        beside: &Path,
    ) -> Result<ItemPack, PackError> {
        let mut contents = Vec::new();
        for (kind, key) in items {
            let content = self
                .find_tree(kind, key)
                .ok_or_else(|| PackError::Missing {
                    kind: kind.clone(),
                    key: key.clone(),
                })?;
            contents.push(content);
        }
        let _guards = acquire_item_guards(contents.iter().map(PathBuf::as_path))?;
        let failed = |what| PackError::from_io(what, beside);
        let file = File::create_new(beside).map_err(failed("create"))?;
        let digesting = DigestingWriter {
            inner: BufWriter::with_capacity(CHUNK_BYTES, file),
            hash: sha2::Sha256::new(),
            size_bytes: 0,
        };
        let encoder = zstd::Encoder::new(digesting, LEVEL).map_err(failed("write"))?;
        let mut builder = Builder::new(encoder);
        builder.follow_symlinks(false);
        let mut packed = Vec::new();
        for ((kind, key), content) in items.iter().zip(&contents) {
            let mut item = ItemWriter {
                builder: &mut builder,
                written: HashMap::new(),
                disk_bytes: BLOCK_BYTES,
                beside,
            };
            item.add(content, &Path::new(kind).join(key).join("content"))?;
            packed.push(PackedItem {
                kind: kind.clone(),
                key: key.clone(),
                disk_bytes: item.disk_bytes,
            });
        }
        let encoder = builder.into_inner().map_err(failed("write"))?;
        let digesting = encoder.finish().map_err(failed("write"))?;
        let (hash, size_bytes) = (digesting.hash, digesting.size_bytes);
        let file = digesting.inner.into_inner();
        let file = file.map_err(|error| failed("write")(error.into_error()))?;
        file.sync_all().map_err(failed("write"))?;
        let pack = ItemPack {
            file: self.pack_file(name),
            sha256: Sha256(hash.finalize().into()),
            size_bytes,
            items: packed,
        };
        fs::rename(beside, &pack.file).map_err(failed("rename"))?;
        // Last: a file without it is none.
        let text = serde_json::to_vec_pretty(&pack).expect("plain data is JSON");
        let written = fs::write(beside, text);
        let written = written.and_then(|()| fs::rename(beside, json_of(&pack.file)));
        written.map_err(failed("write"))?;
        tracing::info!(file = %pack.file.display(), bytes = size_bytes, "packed an environment");
        Ok(pack)
    }
}

fn json_of(file: &Path) -> PathBuf {
    file.with_extension("").with_extension("json")
}

/// Each of them once, in the order that they are packed in.
fn sort_items(items: &[(String, String)]) -> Vec<(String, String)> {
    let mut items = items.to_vec();
    items.sort();
    items.dedup();
    items
}

/// By the names of what is in it, which say what it holds.
fn pack_name(items: &[(String, String)]) -> String {
    let mut hash = sha2::Sha256::new();
    hash.update(format!("{FORMAT}\n"));
    for (kind, key) in items {
        hash.update(format!("{kind} {key}\n"));
    }
    let digest = Sha256(hash.finalize().into()).to_string();
    digest[..32].to_owned()
}

/// Writes one item.
struct ItemWriter<'a, W: Write> {
    builder: &'a mut Builder<W>,
    /// Where files with several names were written first, by device and inode.
    written: HashMap<(u64, u64), PathBuf>,
    disk_bytes: u64,
    beside: &'a Path,
}

impl<W: Write> ItemWriter<'_, W> {
    /// Adds `path` and what is below it as `name`. Names are sorted, so that the same items give the same bytes.
    fn add(&mut self, path: &Path, name: &Path) -> Result<(), PackError> {
        let meta = path.symlink_metadata();
        let meta = meta.map_err(PackError::from_io("read", path))?;
        let mut header = header(&meta);
        self.disk_bytes += BLOCK_BYTES;
        let write = PackError::from_io("write", self.beside);
        if meta.is_dir() {
            header.set_entry_type(EntryType::Directory);
            let added = self.builder.append_data(&mut header, name, io::empty());
            added.map_err(write)?;
            let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut entries = entries.map_err(PackError::from_io("list", path))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                self.add(&entry.path(), &name.join(entry.file_name()))?;
            }
            return Ok(());
        }
        if meta.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            let target = fs::read_link(path).map_err(PackError::from_io("read", path))?;
            return self.add_link(header, name, &target);
        }
        if !meta.is_file() {
            return Err(PackError::SpecialFile {
                path: path.to_owned(),
            });
        }
        if meta.nlink() > 1 {
            let first = self
                .written
                .insert((meta.dev(), meta.ino()), name.to_owned());
            if let Some(first) = first {
                header.set_entry_type(EntryType::Link);
                return self.add_link(header, name, &first);
            }
        }
        header.set_entry_type(EntryType::Regular);
        header.set_size(meta.len());
        self.disk_bytes += meta.len();
        let file = File::open(path).map_err(PackError::from_io("open", path))?;
        let data = BufReader::with_capacity(CHUNK_BYTES.min(1 << 16), file);
        // What is read and what is written fail alike; the store's disk is read and written.
        let added = self.builder.append_data(&mut header, name, data);
        added.map_err(write)
    }

    fn add_link(
        &mut self,
        mut header: Header,
        name: &Path,
        target: &Path,
    ) -> Result<(), PackError> {
        let added = match target.as_os_str().len() {
            // GNU's header has room for so many bytes; links to directories keep a `/` at their end.
            ..=100 => header.set_link_name_literal(target.as_os_str().as_bytes()),
            _ => append_long_link(self.builder, target.as_os_str()),
        };
        let added = added.and_then(|()| self.builder.append_data(&mut header, name, io::empty()));
        added.map_err(PackError::from_io("write", self.beside))
    }
}

/// An entry that says where the next one leads to (GNU tar's `././@LongLink`).
fn append_long_link<W: Write>(builder: &mut Builder<W>, target: &OsStr) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_path("././@LongLink")?;
    header.set_entry_type(EntryType::GNULongLink);
    header.set_mode(0o644);
    header.set_size(target.len() as u64 + 1);
    header.set_cksum();
    let bytes = [target.as_bytes(), &[0]].concat();
    builder.append(&header, &*bytes)
}

/// What of a file stands in the archive: nobody's, its mode and its time.
fn header(meta: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(meta.mode() & 0o7777);
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// Hashes what is written.
struct DigestingWriter<W> {
    inner: W,
    hash: sha2::Sha256,
    size_bytes: u64,
}

impl<W: Write> Write for DigestingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.size_bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
