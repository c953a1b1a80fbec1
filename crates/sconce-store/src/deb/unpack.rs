//! From a package's bytes to its tree.

use std::cell::Cell;
use std::fs::{File, Permissions};
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use tar::{Archive, EntryType};

use super::{DebControl, DebError, ar, control};
use crate::scoped_root::{OnConflict, ScopedRoot, set_modified};

/// Nobody's name, link or control file is longer, bytes.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Memory that an xz dictionary may take, bytes; `xz -9` takes 65 MiB.
const MAX_XZ_MEMORY_BYTES: u64 = 256 << 20;

/// What a package may unpack to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebLimits {
    /// Its archives, decompressed, bytes.
    pub bytes: u64,
    /// Files, folders and links.
    pub entries: u64,
}

impl Default for DebLimits {
    /// 16 GiB and a million entries.
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            entries: 1_000_000,
        }
    }
}

/// As [`unpack`], from a file.
///
/// # Errors
/// As [`unpack`], and [`DebError::Open`].
pub fn unpack_file(path: &Path, dest: &Path, limits: DebLimits) -> Result<DebControl, DebError> {
    let file = File::open(path).map_err(|source| DebError::Open {
        path: path.to_owned(),
        source,
    })?;
    unpack(BufReader::with_capacity(256 << 10, file), dest, limits)
}

/// Unpacks the package that `reader` gives into the folder `dest`, over what is there: files
/// replace files, folders and links to folders are kept. Owners are whoever runs this; the
/// set-user-id and set-group-id bits are dropped; files get the package's times.
///
/// # Errors
/// Every [`DebError`]; `dest` is then incomplete.
pub fn unpack(
    mut reader: impl Read,
    dest: &Path,
    limits: DebLimits,
) -> Result<DebControl, DebError> {
    let budget = Budget::new(limits);
    let mut magic = [0; ar::MAGIC.len()];
    reader
        .read_exact(&mut magic)
        .map_err(|source| DebError::Read {
            member: "the package".to_owned(),
            source,
        })?;
    if &magic != ar::MAGIC {
        return Err(DebError::format("it does not begin as an ar archive"));
    }

    let mut member = Member::next(&mut reader, "debian-binary")?;
    let version = member.text()?;
    if !version.starts_with("2.") {
        return Err(DebError::format("its format is not version 2"));
    }
    member.finish()?;

    let mut member = Member::next(&mut reader, "control.tar")?;
    let (mut text, mut conffiles) = (String::new(), String::new());
    walk(&mut member, &budget, |entry, data| {
        let into = match entry.name.strip_prefix(b"./").unwrap_or(&entry.name) {
            b"control" => &mut text,
            b"conffiles" => &mut conffiles,
            _ => return Ok(()),
        };
        into.clear();
        data.take(MAX_TEXT_BYTES)
            .read_to_string(into)
            .map(|_| ())
            .map_err(|source| budget.error("control.tar", source))
    })?;
    member.finish()?;
    let control = control::parse(&text, &conffiles)?;

    let mut member = Member::next(&mut reader, "data.tar")?;
    let mut inside = ScopedRoot::new(dest, OnConflict::Stay);
    walk(&mut member, &budget, |entry, data| {
        let name = &entry.name;
        relative(name)?;
        match entry.kind {
            EntryType::Regular | EntryType::Continuous => {
                write_file(&inside.prepare_new_path(name)?, entry, data, &budget)
            }
            EntryType::Directory => inside
                .ensure_dir(name, entry.mode)
                .map(drop)
                .map_err(Into::into),
            EntryType::Symlink => inside
                .create_symlink(name, &entry.link)
                .map(drop)
                .map_err(Into::into),
            EntryType::Link => {
                relative(&entry.link)?;
                Ok(inside.hard_link(name, &entry.link)?)
            }
            EntryType::Char | EntryType::Block => Err(DebError::entry(name, "is a device")),
            EntryType::Fifo => Err(DebError::entry(name, "is a pipe")),
            _ => Err(DebError::entry(
                name,
                "is of a kind that packages do not have",
            )),
        }
    })?;
    member.finish()?;
    Ok(control)
}

/// Packages name everything from `./` on (deb(5)).
fn relative(name: &[u8]) -> Result<(), DebError> {
    match name.starts_with(b"/") {
        true => Err(DebError::entry(name, "has an absolute name")),
        false => Ok(()),
    }
}

/// Writes a file at a path where nothing is.
fn write_file(
    path: &Path,
    entry: &Entry,
    data: &mut dyn Read,
    budget: &Budget,
) -> Result<(), DebError> {
    let write = |source| DebError::Write {
        path: path.to_owned(),
        source,
    };
    let mut file = File::create_new(path).map_err(write)?;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let n = data
            .read(&mut chunk)
            .map_err(|source| budget.error("data.tar", source))?;
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

/// What may still come out of the package.
struct Budget {
    limits: DebLimits,
    bytes: Cell<u64>,
    entries: Cell<u64>,
    /// Set when the bytes ran out, so that the reader's error is known for what it is.
    over: Cell<bool>,
}

impl Budget {
    fn new(limits: DebLimits) -> Self {
        Self {
            limits,
            bytes: Cell::new(limits.bytes),
            entries: Cell::new(limits.entries),
            over: Cell::new(false),
        }
    }

    fn error(&self, member: &str, source: io::Error) -> DebError {
        if self.over.get() {
            return DebError::TooLarge {
                limit: self.limits.bytes,
                unit: "bytes",
            };
        }
        DebError::Read {
            member: member.to_owned(),
            source,
        }
    }

    fn count_entry(&self) -> Result<(), DebError> {
        match self.entries.get().checked_sub(1) {
            Some(left) => {
                self.entries.set(left);
                Ok(())
            }
            None => Err(DebError::TooLarge {
                limit: self.limits.entries,
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

/// A member of the package.
struct Member<'r, R: Read> {
    name: String,
    data: io::Take<&'r mut R>,
    padded: bool,
}

impl<'r, R: Read> Member<'r, R> {
    /// The next member, which must be `wanted` or `wanted` with a compression's suffix. Members
    /// that begin with an underscore are skipped, as deb(5) says.
    fn next(reader: &'r mut R, wanted: &str) -> Result<Self, DebError> {
        loop {
            let mut header = [0; ar::HEADER];
            reader
                .read_exact(&mut header)
                .map_err(|source| DebError::Read {
                    member: wanted.to_owned(),
                    source,
                })?;
            let ar::Member { name, size } = ar::parse_header(&header)?;
            let padded = size % 2 == 1;
            if name.starts_with('_') {
                let data = reader.by_ref().take(size);
                Member { name, data, padded }.finish()?;
                continue;
            }
            let suffix = name.strip_prefix(wanted);
            if !suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.')) {
                return Err(DebError::format(format!(
                    "its member `{}` stands where {wanted} must",
                    name.escape_debug()
                )));
            }
            return Ok(Self {
                name,
                data: reader.take(size),
                padded,
            });
        }
    }

    fn error(&self) -> impl Fn(io::Error) -> DebError + use<R> {
        let member = self.name.clone();
        move |source| DebError::Read {
            member: member.clone(),
            source,
        }
    }

    /// A short text.
    fn text(&mut self) -> Result<String, DebError> {
        let mut text = String::new();
        let error = self.error();
        self.data
            .by_ref()
            .take(64)
            .read_to_string(&mut text)
            .map_err(error)?;
        Ok(text)
    }

    /// Reads to the member's end.
    fn finish(mut self) -> Result<(), DebError> {
        let error = self.error();
        io::copy(&mut self.data, &mut io::sink()).map_err(&error)?;
        if self.data.limit() > 0 {
            return Err(error(io::ErrorKind::UnexpectedEof.into()));
        }
        if self.padded {
            // The last member's padding may be missing.
            io::copy(&mut self.data.into_inner().take(1), &mut io::sink()).map_err(error)?;
        }
        Ok(())
    }

    /// The member's data, decompressed.
    fn decoded(&mut self) -> Result<Box<dyn Read + '_>, DebError> {
        let error = self.error();
        let suffix = self
            .name
            .split_once(".tar")
            .map_or("", |(_, suffix)| suffix);
        Ok(match suffix {
            "" => Box::new(&mut self.data),
            ".gz" => Box::new(MultiGzDecoder::new(&mut self.data)),
            ".xz" => {
                let stream = Stream::new_stream_decoder(MAX_XZ_MEMORY_BYTES, CONCATENATED)
                    .map_err(|e| error(e.into()))?;
                Box::new(XzDecoder::new_stream(&mut self.data, stream))
            }
            ".zst" => Box::new(zstd::Decoder::new(&mut self.data).map_err(error)?),
            _ => {
                return Err(DebError::format(format!(
                    "`{}` is compressed in a way that is not known",
                    self.name.escape_debug()
                )));
            }
        })
    }
}

/// A tar entry without its data.
struct Entry {
    name: Vec<u8>,
    link: Vec<u8>,
    kind: EntryType,
    mode: u32,
    mtime: u64,
}

/// Hands every entry of a tar archive to `each`, with long names put together.
fn walk<R: Read>(
    member: &mut Member<'_, R>,
    budget: &Budget,
    mut each: impl FnMut(&Entry, &mut dyn Read) -> Result<(), DebError>,
) -> Result<(), DebError> {
    let name = member.name.clone();
    let error = |source| budget.error(&name, source);
    let mut archive = Archive::new(Within {
        inner: member.decoded()?,
        budget,
    });
    let (mut long_name, mut long_link) = (None, None);
    // Raw, because the crate itself would take a long name of any length into memory.
    for entry in archive.entries().map_err(error)?.raw(true) {
        let mut entry = entry.map_err(error)?;
        budget.count_entry()?;
        let kind = entry.header().entry_type();
        let mut text = || -> Result<Vec<u8>, DebError> {
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
                            return Err(DebError::format("a file's size stands in a pax header"));
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
