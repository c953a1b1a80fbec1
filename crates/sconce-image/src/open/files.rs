//! The files of an image: a folder's, or the members of a tar archive, read where they lie.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sconce_base::input::open_regular;
use sconce_schema::Progress;
use sconce_store::Store;
use sconce_store::scoped_root::{OnConflict, ScopedRoot, printable_name};

use super::OpenError;
use crate::unpack::tar::{TarEntryKind, TarReader};
use sconce_oci::{DocumentError, MAX_DOCUMENT_BYTES};

/// Members that an archive may have.
const MAX_MEMBERS: u64 = 20_000;
/// Bytes that a member's name may have; a longer one is none of an image's.
const MAX_NAME_BYTES: usize = 4096;
/// Bytes that an archive may unpack to.
const MAX_UNPACKED_BYTES: u64 = 256 << 30;
/// How often a link of an archive may lead to another.
const MAX_LINKS: u32 = 8;

/// The files of an image.
pub(super) struct ImageFiles {
    /// Where they are, for people.
    pub(super) path: PathBuf,
    place: FilesBackend,
}

enum FilesBackend {
    Folder(ScopedRoot),
    Archive {
        file: File,
        members: BTreeMap<String, Member>,
    },
}

enum Member {
    File {
        at: u64,
        size: u64,
    },
    /// To a member of this name.
    Link(String),
}

/// A file's bytes.
pub(super) struct ImageFileReader<'a> {
    pub(super) reader: Box<dyn Read + 'a>,
    pub(super) size: u64,
}

/// Whether bytes begin as gzip or zstd does.
pub(super) fn is_packed(head: &[u8]) -> bool {
    head.starts_with(b"\x1f\x8b") || head.starts_with(b"\x28\xb5\x2f\xfd")
}

impl ImageFiles {
    /// Of a folder. Links in it are followed inside it alone.
    pub(super) fn from_dir(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            place: FilesBackend::Folder(ScopedRoot::new(path, OnConflict::Stay)),
        }
    }

    /// Of a tar archive; a compressed one is unpacked into a file without a name first.
    pub(super) fn from_archive(
        path: &Path,
        store: &Store,
        progress: &dyn Progress,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File {
            path: path.to_owned(),
            source,
        };
        let mut file = open_regular(path).map_err(failed)?.into_file();
        let mut head = Vec::new();
        let first = (&file).take(4).read_to_end(&mut head);
        first.map_err(failed)?;
        file.rewind().map_err(failed)?;
        if is_packed(&head) {
            let size = file.metadata().map_err(failed)?.len();
            progress.stage("inflate", Some(size));
            let mut plain = store.unnamed_file()?;
            let told = ProgressReader {
                inner: file,
                progress,
            };
            unpack(told, &head, &mut plain).map_err(failed)?;
            file = plain;
            file.rewind().map_err(failed)?;
        }
        let members = members(&file).map_err(|source| OpenError::Tar {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            place: FilesBackend::Archive { file, members },
        })
    }

    pub(super) fn contains_file(&self, name: &str) -> Result<bool, OpenError> {
        Ok(self.find(name)?.is_some())
    }

    /// A document.
    pub(super) fn read_document(&self, name: &str) -> Result<Vec<u8>, OpenError> {
        let mut open = self.open(name)?;
        let too_large = || OpenError::Document {
            what: format!("`{}`", printable_name(name.as_bytes())),
            source: DocumentError::TooLarge {
                bytes: usize::try_from(open.size).unwrap_or(usize::MAX),
            },
        };
        if open.size > MAX_DOCUMENT_BYTES as u64 {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let most = MAX_DOCUMENT_BYTES as u64;
        let read = open.reader.by_ref().take(most).read_to_end(&mut bytes);
        read.map_err(|source| OpenError::File {
            path: self.path.join(printable_name(name.as_bytes())),
            source,
        })?;
        Ok(bytes)
    }

    /// A file.
    pub(super) fn open(&self, name: &str) -> Result<ImageFileReader<'_>, OpenError> {
        self.find(name)?.ok_or_else(|| OpenError::Missing {
            path: self.path.clone(),
            name: printable_name(name.as_bytes()),
        })
    }

    fn find(&self, name: &str) -> Result<Option<ImageFileReader<'_>>, OpenError> {
        match &self.place {
            FilesBackend::Folder(folder) => {
                let Some(path) = folder.resolve_path(name.as_bytes())? else {
                    return Ok(None);
                };
                let look = || {
                    // Looked at before it is opened: a pipe would never answer.
                    let meta = path.symlink_metadata()?;
                    Ok(match meta.is_file() {
                        true => Some((File::open(&path)?, meta.len())),
                        false => None,
                    })
                };
                let found = look().map_err(|source| OpenError::File {
                    path: path.clone(),
                    source,
                })?;
                Ok(found.map(|(file, size)| ImageFileReader {
                    reader: Box::new(file),
                    size,
                }))
            }
            FilesBackend::Archive { file, members } => {
                let mut name = plain(name.as_bytes());
                for _ in 0..MAX_LINKS {
                    match name.as_ref().and_then(|name| members.get(name)) {
                        Some(Member::Link(target)) => name = Some(target.clone()),
                        Some(&Member::File { at, size }) => {
                            let reader = Box::new(Part {
                                file,
                                at,
                                left: size,
                            });
                            return Ok(Some(ImageFileReader { reader, size }));
                        }
                        None => return Ok(None),
                    }
                }
                Ok(None)
            }
        }
    }
}

/// Where the files and links of an archive lie.
fn members(file: &File) -> Result<BTreeMap<String, Member>, crate::unpack::TarError> {
    let mut archive = TarReader::new(BufReader::with_capacity(16 << 10, file), MAX_MEMBERS);
    let mut members = BTreeMap::new();
    while let Some(entry) = archive.next_entry()? {
        if entry.name.len().max(entry.link.len()) > MAX_NAME_BYTES {
            continue;
        }
        let Some(name) = plain(&entry.name) else {
            continue;
        };
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        let member = match entry.kind {
            TarEntryKind::File if !archive.is_sparse() => Some(Member::File {
                at: entry.at,
                size: entry.size,
            }),
            TarEntryKind::HardLink => plain(&entry.link).map(Member::Link),
            TarEntryKind::Link if entry.link.starts_with(b"/") => None,
            TarEntryKind::Link => {
                let target = [above.as_bytes(), b"/", &entry.link].concat();
                plain(&target).map(Member::Link)
            }
            _ => None,
        };
        // The later one counts.
        match member {
            Some(member) => members.insert(name, member),
            None => members.remove(&name),
        };
    }
    Ok(members)
}

/// A name without dots and empty parts; `None` where it leads out of the archive or is not text.
fn plain(name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    for part in std::str::from_utf8(name).ok()?.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let n = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

/// Tells how far a file was read.
struct ProgressReader<'a> {
    inner: File,
    progress: &'a dyn Progress,
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.progress.advance("archive", n as u64);
        Ok(n)
    }
}

fn unpack(file: ProgressReader<'_>, head: &[u8], out: &mut File) -> io::Result<()> {
    let from = BufReader::with_capacity(256 << 10, file);
    let mut decoder: Box<dyn Read + '_> = match head {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(from)),
        _ => Box::new(zstd::Decoder::with_buffer(from)?),
    };
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let got = io::copy(&mut decoder.by_ref().take(MAX_UNPACKED_BYTES + 1), &mut out)?;
    out.flush()?;
    match got > MAX_UNPACKED_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(()),
    }
}
