//! One layer's bytes to a tree (image specification, "Image Layer Filesystem Changeset").
//!
//! The tree holds what the layer adds; what it hides of the layers below is kept beside it. Owners
//! are whoever runs this, for a plain user can make no others. Of the mode the permissions and the
//! sticky bit count, and the owner can always read a file and fill a folder. Devices and pipes are
//! passed over: a run gets its devices from Sconce. Extended attributes are too.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sconce_base::direct_io::DirectWriter;
use sconce_schema::{Bytes, Sha256};
use sconce_store::scoped_root::{
    self, OnConflict, ScopedRoot, ScopedRootError, printable_name, set_modified,
};
use sha2::Digest as _;

use super::tar::{ForwardReader, TarEntry, TarEntryKind, TarError, TarReader};
use sconce_oci::Digest;

/// What begins the name of an entry that hides another.
const WHITEOUT: &[u8] = b".wh.";
/// What begins the names of aufs' own entries, which say nothing.
const META: &[u8] = b".wh..wh.";
/// The entry that hides all that the layers below have in its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Bytes of names of one layer that are held in memory. Folders beyond that get no time of their
/// own; no layer in use comes near.
const MAX_NAMES_BYTES: usize = 64 << 20;

/// What a layer may unpack to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Its archive, decompressed, and its files with their holes, bytes each.
    pub bytes: u64,
    /// Headers in the archive.
    pub entries: u64,
}

impl Default for UnpackLimits {
    /// 128 GiB and four million: several times the largest images of the field.
    fn default() -> Self {
        Self {
            bytes: 128 << 30,
            entries: 4_000_000,
        }
    }
}

/// Why a layer could not be unpacked. Its folder is then incomplete.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The blob is not the one that the manifest names.
    #[error("its digest is {found}, expected {expected}")]
    Blob {
        /// The manifest's.
        expected: Digest,
        /// Of what came.
        found: Digest,
    },
    /// The archive in the blob is not the one that the configuration names.
    #[error("the digest of its archive is {found}, expected {expected}")]
    Archive {
        /// The configuration's.
        expected: Digest,
        /// Of what came.
        found: Digest,
    },
    /// The blob cannot be read or decompressed.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// Not a tar archive.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// An entry that cannot stay inside, or a file that cannot be written.
    #[error(transparent)]
    Entry(#[from] ScopedRootError),
    /// An entry that layers do not have.
    #[error("the entry `{name}` {why}")]
    Kind {
        /// Its name, made printable.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// More comes out than is allowed.
    #[error("it unpacks to more than {limit}")]
    TooLarge {
        /// The limit.
        limit: Bytes,
    },
    /// A file of the tree could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What a layer takes away from those below it. Paths have no slash at either end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerWhiteouts {
    /// Entries, with all that is below them.
    pub names: BTreeSet<Vec<u8>>,
    /// Folders that stay, with nothing of the layers below in them.
    pub folders: BTreeSet<Vec<u8>>,
}

impl LayerWhiteouts {
    /// Whether it takes nothing away.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.folders.is_empty()
    }

    /// As it is kept beside the tree: `-PATH` or `=PATH`, each ended by a zero byte.
    #[must_use]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let names = self.names.iter().map(|path| (b'-', path));
        let folders = self.folders.iter().map(|path| (b'=', path));
        let mut text = Vec::new();
        for (sign, path) in names.chain(folders) {
            text.push(sign);
            text.extend(path);
            text.push(0);
        }
        text
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        for line in text.split_inclusive(|&b| b == 0) {
            match line.strip_suffix(b"\0")?.split_first()? {
                (b'-', path) => found.names.insert(path.to_vec()),
                (b'=', path) => found.folders.insert(path.to_vec()),
                _ => return None,
            };
        }
        Some(found)
    }
}

/// What came out of a layer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnpackedLayer {
    /// What it hides.
    pub hides: LayerWhiteouts,
    /// Entries of its tree.
    pub entries: u64,
    /// Devices and pipes that were passed over.
    pub skipped: u64,
}

/// Unpacks the layer that `reader` gives into the empty folder `dest`. How it is compressed is told
/// by its first bytes: media types are known to lie. `blob` is the manifest's digest of the bytes,
/// `diff_id` the configuration's of the archive in them. `told` gets the bytes of the blob that were
/// read, from time to time.
///
/// # Errors
/// Every [`UnpackError`]; `dest` is then incomplete and worth nothing.
pub fn unpack_layer(
    mut reader: impl Read,
    blob: Digest,
    diff_id: Digest,
    dest: &Path,
    limits: UnpackLimits,
    told: &dyn Fn(u64),
) -> Result<UnpackedLayer, UnpackError> {
    let mut head = Vec::new();
    let first = reader.by_ref().take(4).read_to_end(&mut head);
    first.map_err(UnpackError::Read)?;
    let raw = HashingReader::new(io::Cursor::new(head.clone()).chain(reader), told);
    let budget = Budget {
        limits,
        bytes: Cell::new(limits.bytes),
        over: Cell::new(false),
    };
    let done = match head.as_slice() {
        [0x1f, 0x8b, ..] => {
            let decoder = MultiGzDecoder::new(BufReader::with_capacity(256 << 10, &raw));
            content(decoder, diff_id, dest, &budget)?
        }
        // A frame, or a frame to be skipped (RFC 8878, section 3.1).
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            let decoder = zstd::Decoder::new(&raw).map_err(UnpackError::Read)?;
            content(decoder, diff_id, dest, &budget)?
        }
        _ => content(&raw, diff_id, dest, &budget)?,
    };
    // What a decoder did not want belongs to the blob all the same.
    io::copy(&mut &raw, &mut io::sink()).map_err(UnpackError::Read)?;
    match raw.digest() {
        found if found == blob => Ok(done),
        found => Err(UnpackError::Blob {
            expected: blob,
            found,
        }),
    }
}

/// Unpacks an archive.
fn content(
    reader: impl Read,
    diff_id: Digest,
    dest: &Path,
    budget: &Budget,
) -> Result<UnpackedLayer, UnpackError> {
    let hashed = HashingReader::new(reader, &|_| ());
    let within = Within {
        inner: &hashed,
        budget,
    };
    let mut archive = TarReader::new(ForwardReader(within), budget.limits.entries);
    let mut tree = Tree::new(dest, budget);
    while let Some(entry) = archive.next_entry().map_err(|e| budget.error(e))? {
        tree.add(&entry, &mut archive.entry_data())?;
    }
    let done = tree.finish()?;
    let mut rest = archive.into_source();
    io::copy(&mut rest, &mut io::sink()).map_err(|e| budget.error(e.into()))?;
    match hashed.digest() {
        found if found == diff_id => Ok(done),
        found => Err(UnpackError::Archive {
            expected: diff_id,
            found,
        }),
    }
}

/// A reader whose bytes are hashed. Shared, so that what is read through a decoder and what is left
/// after it are one.
struct HashingReader<'a, R> {
    state: RefCell<(R, sha2::Sha256)>,
    told: &'a dyn Fn(u64),
}

impl<'a, R: Read> HashingReader<'a, R> {
    fn new(reader: R, told: &'a dyn Fn(u64)) -> Self {
        Self {
            state: RefCell::new((reader, sha2::Sha256::new())),
            told,
        }
    }

    fn digest(self) -> Digest {
        let (_, hash) = self.state.into_inner();
        Digest(Sha256(hash.finalize().into()))
    }
}

impl<R: Read> Read for &HashingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (reader, hash) = &mut *self.state.borrow_mut();
        let n = reader.read(buffer)?;
        hash.update(&buffer[..n]);
        (self.told)(n as u64);
        Ok(n)
    }
}

/// What may still come out of the layer.
struct Budget {
    limits: UnpackLimits,
    bytes: Cell<u64>,
    /// Set when the bytes ran out, so that the reader's error is known for what it is.
    over: Cell<bool>,
}

impl Budget {
    fn too_large(&self) -> UnpackError {
        UnpackError::TooLarge {
            limit: Bytes(self.limits.bytes),
        }
    }

    fn error(&self, error: TarError) -> UnpackError {
        match self.over.get() {
            true => self.too_large(),
            false => error.into(),
        }
    }
}

/// A reader within the budget.
struct Within<'a, R> {
    inner: R,
    budget: &'a Budget,
}

impl<R: Read> Read for Within<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        match self.budget.bytes.get().checked_sub(n as u64) {
            Some(left) => {
                self.budget.bytes.set(left);
                Ok(n)
            }
            None => {
                self.budget.over.set(true);
                Err(io::ErrorKind::FileTooLarge.into())
            }
        }
    }
}

/// A tree under way.
struct Tree<'a> {
    inside: ScopedRoot,
    writer: DirectWriter,
    budget: &'a Budget,
    /// Bytes that its files may still have.
    room: u64,
    /// Names of folders, whose times are set when nothing is put into them any more.
    folders: Vec<(Vec<u8>, i64)>,
    /// Bytes of names that may still be held in memory.
    names: usize,
    done: UnpackedLayer,
}

impl<'a> Tree<'a> {
    fn new(dest: &Path, budget: &'a Budget) -> Self {
        Self {
            inside: ScopedRoot::new(dest, OnConflict::Yield),
            writer: DirectWriter::new(),
            budget,
            room: budget.limits.bytes,
            folders: Vec::new(),
            names: MAX_NAMES_BYTES,
            done: UnpackedLayer::default(),
        }
    }

    fn add(&mut self, entry: &TarEntry, data: &mut dyn Read) -> Result<(), UnpackError> {
        if self.hide(&entry.name)? {
            return Ok(());
        }
        let name = &entry.name;
        let wrong = |why| UnpackError::Kind {
            name: printable_name(name),
            why,
        };
        match entry.kind {
            TarEntryKind::File => self.file(entry, data)?,
            TarEntryKind::Folder => {
                // An earlier entry that was no folder hid what the layers below have in it.
                let before = self
                    .inside
                    .resolve_no_follow(name)?
                    .filter(|path| !path.is_dir() || path.is_symlink());
                if let Some(path) = before {
                    self.hide_below(name, &path)?;
                }
                self.inside.ensure_dir(name, entry.mode)?;
                if self.remember(name) {
                    self.folders.push((name.clone(), entry.mtime));
                }
            }
            TarEntryKind::Link => {
                if let Some(path) = self.inside.create_symlink(name, &entry.link)? {
                    set_modified(&path, entry.mtime)?;
                }
            }
            TarEntryKind::HardLink => self.inside.hard_link(name, &entry.link)?,
            TarEntryKind::Device | TarEntryKind::Pipe => {
                // It takes the place of what was there before and below, also when passed over.
                let path = self.inside.prepare_new_path(name)?;
                self.hide_below(name, &path)?;
                self.done.skipped += 1;
                return Ok(());
            }
            TarEntryKind::Other(_) => return Err(wrong("is of a kind that layers do not have")),
        }
        self.done.entries += 1;
        Ok(())
    }

    /// Whether there is room to hold another name.
    fn remember(&mut self, name: &[u8]) -> bool {
        let left = self.names.checked_sub(name.len());
        self.names = left.unwrap_or(0);
        left.is_some()
    }

    fn remember_hidden(&mut self, name: &[u8]) -> Result<(), UnpackError> {
        match self.remember(name) {
            true => Ok(()),
            false => Err(UnpackError::Kind {
                name: printable_name(name),
                why: "is one of too many that hide something",
            }),
        }
    }

    /// Notes that nothing of the layers below shows at the real path `path`, where `name` stands.
    fn hide_below(&mut self, name: &[u8], path: &Path) -> Result<(), UnpackError> {
        if let Ok(path) = path.strip_prefix(self.inside.root()) {
            self.remember_hidden(name)?;
            let path = path.as_os_str().as_bytes().to_vec();
            self.done.hides.names.insert(path);
        }
        Ok(())
    }

    /// Notes what an entry hides; whether it is such an entry.
    fn hide(&mut self, name: &[u8]) -> Result<bool, UnpackError> {
        let parts = scoped_root::split_name(name)?;
        let Some((last, above)) = parts.split_last() else {
            return Ok(false);
        };
        let above: Vec<&[u8]> = above.iter().map(|part| part.as_bytes()).collect();
        let last = last.as_bytes();
        if last.starts_with(WHITEOUT) {
            self.remember_hidden(name)?;
        }
        if last == OPAQUE {
            self.done.hides.folders.insert(above.join(&b'/'));
            return Ok(true);
        }
        if last.starts_with(META) || above.iter().any(|part| part.starts_with(META)) {
            return Ok(true);
        }
        let Some(hidden) = last.strip_prefix(WHITEOUT) else {
            return Ok(false);
        };
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(UnpackError::Kind {
                name: printable_name(name),
                why: "hides what cannot be hidden",
            });
        }
        let path = [&above[..], &[hidden]].concat().join(&b'/');
        self.done.hides.names.insert(path);
        Ok(true)
    }

    fn file(&mut self, entry: &TarEntry, data: &mut dyn Read) -> Result<(), UnpackError> {
        let room = self.room.checked_sub(entry.size);
        self.room = room.ok_or_else(|| self.budget.too_large())?;
        let path = self.inside.prepare_new_path(&entry.name)?;
        self.writer.start_file(path.clone(), Some(entry.size));
        let write = |source| UnpackError::Write {
            path: path.clone(),
            source,
        };
        let mut left = entry.size;
        while left > 0 {
            self.writer.make_room().map_err(write)?;
            let room = self.writer.unfilled_buffer();
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
            let n = data
                .read(&mut room[..most])
                .map_err(|e| self.budget.error(e.into()))?;
            if n == 0 {
                let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(TarError::from(cut).into());
            }
            self.writer.mark_filled(n);
            left -= n as u64;
        }
        self.writer.finish_file().map_err(write)?;
        fs::set_permissions(&path, Permissions::from_mode(entry.mode & 0o777 | 0o400))
            .map_err(write)?;
        Ok(set_modified(&path, entry.mtime)?)
    }

    fn finish(self) -> Result<UnpackedLayer, UnpackError> {
        for (name, mtime) in self.folders {
            // Looked for again: what it was called may have become a way out of the tree.
            if let Some(path) = self
                .inside
                .resolve_path(&name)?
                .filter(|path| path.is_dir())
            {
                set_modified(&path, mtime)?;
            }
        }
        Ok(self.done)
    }
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
