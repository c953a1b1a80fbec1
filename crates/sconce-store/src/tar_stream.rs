//! Tar archives of others, read as a stream and unpacked inside a folder: nothing of them reaches
//! outside of it, and no more comes out than its budget allows.

use std::cell::Cell;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tar::{Archive, EntryType};

use crate::scoped_root::{ScopedRoot, ScopedRootError, printable_name, set_modified};

/// Nobody's name, link or control file is longer, bytes.
pub(crate) const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Why an archive could not be unpacked.
#[derive(Debug)]
pub(crate) enum TarError {
    /// Its bytes cannot be read: cut off, or broken compressed data.
    Read {
        /// What the archive is called.
        archive: String,
        /// What the reader or the decompressor said.
        source: io::Error,
    },
    /// It says something that is not understood.
    Format(&'static str),
    /// A name or a link that cannot be followed inside the tree.
    Entry {
        /// The entry, made printable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More comes out than the budget allows.
    TooLarge {
        /// The limit.
        limit: u64,
        /// `bytes` or `entries`.
        unit: &'static str,
    },
    /// A file of the tree could not be written.
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl TarError {
    pub(crate) fn entry(name: &[u8], why: &'static str) -> Self {
        Self::Entry {
            name: printable_name(name),
            why,
        }
    }
}

impl From<ScopedRootError> for TarError {
    fn from(error: ScopedRootError) -> Self {
        match error {
            ScopedRootError::Name { name, why } => Self::Entry { name, why },
            ScopedRootError::Disk { path, source, .. } => Self::Write { path, source },
        }
    }
}

/// What may still come out of archives.
pub(crate) struct Budget {
    limit_bytes: u64,
    limit_entries: u64,
    bytes: Cell<u64>,
    entries: Cell<u64>,
    /// Set when the bytes ran out, so that the reader's error is known for what it is.
    over: Cell<bool>,
}

impl Budget {
    /// So many bytes, decompressed, and so many files, folders and links.
    pub(crate) fn new(bytes: u64, entries: u64) -> Self {
        Self {
            limit_bytes: bytes,
            limit_entries: entries,
            bytes: Cell::new(bytes),
            entries: Cell::new(entries),
            over: Cell::new(false),
        }
    }

    pub(crate) fn error(&self, archive: &str, source: io::Error) -> TarError {
        if self.over.get() {
            return TarError::TooLarge {
                limit: self.limit_bytes,
                unit: "bytes",
            };
        }
        TarError::Read {
            archive: archive.to_owned(),
            source,
        }
    }

    fn count_entry(&self) -> Result<(), TarError> {
        match self.entries.get().checked_sub(1) {
            Some(left) => {
                self.entries.set(left);
                Ok(())
            }
            None => Err(TarError::TooLarge {
                limit: self.limit_entries,
                unit: "entries",
            }),
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

/// A tar entry without its data.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: EntryType,
    pub(crate) mode: u32,
    pub(crate) mtime: u64,
}

/// Puts one entry into a folder, over what is there. Set-user-id and set-group-id bits are dropped;
/// files get the archive's times.
pub(crate) fn unpack_entry(
    entry: &Entry,
    data: &mut dyn Read,
    inside: &mut ScopedRoot,
    archive: &str,
    budget: &Budget,
) -> Result<(), TarError> {
    let name = &entry.name;
    relative(name)?;
    match entry.kind {
        EntryType::Regular | EntryType::Continuous => {
            let path = inside.prepare_new_path(name)?;
            write_file(&path, entry, data, archive, budget)
        }
        EntryType::Directory => {
            inside.ensure_dir(name, entry.mode)?;
            Ok(())
        }
        EntryType::Symlink => {
            inside.create_symlink(name, &entry.link)?;
            Ok(())
        }
        EntryType::Link => {
            relative(&entry.link)?;
            Ok(inside.hard_link(name, &entry.link)?)
        }
        EntryType::Char | EntryType::Block => Err(TarError::entry(name, "is a device")),
        EntryType::Fifo => Err(TarError::entry(name, "is a pipe")),
        _ => Err(TarError::entry(
            name,
            "is of a kind that packages do not have",
        )),
    }
}

/// Debian's packages name everything from `./` on (deb(5)), other archives from their top folder on.
fn relative(name: &[u8]) -> Result<(), TarError> {
    match name.starts_with(b"/") {
        true => Err(TarError::entry(name, "has an absolute name")),
        false => Ok(()),
    }
}

/// Writes a file at a path where nothing is.
fn write_file(
    path: &Path,
    entry: &Entry,
    data: &mut dyn Read,
    archive: &str,
    budget: &Budget,
) -> Result<(), TarError> {
    let write = |source| TarError::Write {
        path: path.to_owned(),
        source,
    };
    let mut file = File::create_new(path).map_err(write)?;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let n = data
            .read(&mut chunk)
            .map_err(|source| budget.error(archive, source))?;
        if n == 0 {
            break;
        }
        file.write_all(&chunk[..n]).map_err(write)?;
    }
    file.set_permissions(Permissions::from_mode(entry.mode & 0o777))
        .map_err(write)?;
    if let Ok(seconds) = i64::try_from(entry.mtime) {
        set_modified(path, seconds)?;
    }
    Ok(())
}

/// Hands every entry of a tar archive to `each`, with long names put together.
pub(crate) fn walk_entries(
    data: impl Read,
    archive: &str,
    budget: &Budget,
    mut each: impl FnMut(&Entry, &mut dyn Read) -> Result<(), TarError>,
) -> Result<(), TarError> {
    let error = |source| budget.error(archive, source);
    let mut archive = Archive::new(Within {
        inner: data,
        budget,
    });
    let (mut long_name, mut long_link) = (None, None);
    // Raw, because the crate itself would take a long name of any length into memory.
    for entry in archive.entries().map_err(error)?.raw(true) {
        let mut entry = entry.map_err(error)?;
        budget.count_entry()?;
        let kind = entry.header().entry_type();
        let mut text = || -> Result<Vec<u8>, TarError> {
            let mut text = Vec::new();
            entry
                .by_ref()
                .take(MAX_TEXT_BYTES)
                .read_to_end(&mut text)
                .map_err(error)?;
            Ok(text)
        };
        match kind {
            EntryType::GNULongName => long_name = Some(until_zero(text()?)),
            EntryType::GNULongLink => long_link = Some(until_zero(text()?)),
            EntryType::XHeader => {
                let text = text()?;
                for pair in tar::PaxExtensions::new(&text) {
                    let pair = pair.map_err(error)?;
                    match pair.key_bytes() {
                        b"path" => long_name = Some(pair.value_bytes().to_vec()),
                        b"linkpath" => long_link = Some(pair.value_bytes().to_vec()),
                        b"size" => {
                            return Err(TarError::Format("a file's size stands in a pax header"));
                        }
                        _ => {}
                    }
                }
            }
            EntryType::XGlobalHeader => {}
            _ => {
                let header = entry.header();
                let item = Entry {
                    name: long_name
                        .take()
                        .unwrap_or_else(|| header.path_bytes().into_owned()),
                    link: long_link
                        .take()
                        .or_else(|| header.link_name_bytes().map(|link| link.into_owned()))
                        .unwrap_or_default(),
                    kind,
                    mode: header.mode().map_err(error)?,
                    mtime: header.mtime().map_err(error)?,
                };
                each(&item, &mut entry)?;
            }
        }
    }
    // To the end, where the decompressor's own checksum stands.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(error)?;
    Ok(())
}

fn until_zero(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    text.truncate(end);
    text
}
