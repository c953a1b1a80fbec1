//! From a package's bytes to its tree.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::{DebControl, DebError, alternatives, ar, control};
use crate::scoped_root::{OnConflict, ScopedRoot};
use crate::tar_stream::{Budget, MAX_TEXT_BYTES, unpack_entry, walk_entries};

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
    let budget = Budget::new(limits.bytes, limits.entries);
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
    let (mut text, mut conffiles, mut script) = (String::new(), String::new(), Vec::new());
    let name = member.name.clone();
    walk_entries(member.decoded()?, &name, &budget, |entry, data| {
        let into = match entry.name.strip_prefix(b"./").unwrap_or(&entry.name) {
            b"control" => &mut text,
            b"conffiles" => &mut conffiles,
            b"postinst" => {
                script.clear();
                let read = data.take(MAX_TEXT_BYTES).read_to_end(&mut script);
                return read
                    .map(|_| ())
                    .map_err(|source| budget.error("control.tar", source));
            }
            _ => return Ok(()),
        };
        into.clear();
        data.take(MAX_TEXT_BYTES)
            .read_to_string(into)
            .map(|_| ())
            .map_err(|source| budget.error("control.tar", source))
    })?;
    member.finish()?;
    let mut control = control::parse(&text, &conffiles)?;
    // A script may be a program.
    control.alternatives = str::from_utf8(&script).map_or_else(|_| Vec::new(), alternatives::parse);

    let mut member = Member::next(&mut reader, "data.tar")?;
    let mut inside = ScopedRoot::new(dest, OnConflict::Stay);
    let name = member.name.clone();
    walk_entries(member.decoded()?, &name, &budget, |entry, data| {
        unpack_entry(entry, data, &mut inside, &name, &budget)
    })?;
    member.finish()?;
    Ok(control)
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
