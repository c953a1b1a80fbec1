//! Reading an OSV database: an export as one zip of JSON files, one JSON file with a list of
//! entries or with one entry after another (JSON lines), or a folder of JSON files. One entry is
//! in memory at a time, however large the database is.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ReaderAt, ZipArchive};
use sconce_schema::{Bytes, Hint, exit};
use serde::Serialize;
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};

use super::osv::OsvEntry;
use crate::debian::release::days_since_1970;
use sconce_base::input::{UnusableInput, open_regular};
use sconce_base::text::to_printable;

/// What a database may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// One entry's JSON, bytes.
    pub entry_bytes: u64,
    /// All entries of a zip, unpacked, bytes.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Folders within folders.
    pub depth: u32,
}

impl Default for DatabaseLimits {
    /// 8 MiB an entry, 16 GiB and four million entries: ten times what all ecosystems have
    /// together, and an entry ten times the largest.
    fn default() -> Self {
        Self {
            entry_bytes: 8 << 20,
            bytes: 16 << 30,
            entries: 4_000_000,
            depth: 8,
        }
    }
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DatabaseSummary {
    /// Entries, of every ecosystem.
    pub entries: u64,
    /// When the newest of them was changed, `2026-11-18T22:17:43` in UTC: how old the database is.
    pub newest: Option<String>,
}

impl DatabaseSummary {
    /// Whole days from the newest change to `now`; 0 for one that is still to come.
    #[must_use]
    pub fn age_days(&self, now: SystemTime) -> Option<u64> {
        let newest = self.newest.as_deref()?;
        let part = |range: std::ops::Range<usize>| newest.get(range)?.parse::<u64>().ok();
        let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
        if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let today = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs() / 86_400;
        Some(today.saturating_sub(days_since_1970(year, month, day)))
    }
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is in it is no database.
    #[error("{} is not an OSV database", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ContentError,
    },
    /// There is no entry in it: an audit with it would find nothing, whatever the lock holds.
    #[error("{} holds no OSV entry", path.display())]
    Empty {
        /// The file or folder.
        path: PathBuf,
    },
    /// Folders within folders without end.
    #[error("{} is nested more than {limit} folders deep", path.display())]
    Deep {
        /// The folder.
        path: PathBuf,
        /// The limit.
        limit: u32,
    },
}

/// What is wrong in a database.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The archive.
    #[error("the zip archive is broken")]
    Zip(#[source] rawzip::Error),
    /// An entry of the archive cannot be unpacked.
    #[error("`{name}` cannot be unpacked")]
    Unpack {
        /// The entry's file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// An entry of the archive is compressed in a way that these exports are not.
    #[error("`{name}` is compressed with another method than deflate")]
    Method {
        /// The entry's file.
        name: String,
    },
    /// Not an entry.
    #[error("{name} is not an OSV entry")]
    Entry {
        /// The file of the entry, or its number.
        name: String,
        /// What is wrong, with its line.
        source: serde_json::Error,
    },
    /// More than [`DatabaseLimits`] allow.
    #[error("{what} is more than {limit}")]
    TooLarge {
        /// `one entry`, `the whole archive`.
        what: &'static str,
        /// The limit.
        limit: Bytes,
    },
    /// More entries than [`DatabaseLimits`] allow.
    #[error("it holds more than {limit} entries")]
    TooMany {
        /// The limit.
        limit: u64,
    },
    /// It cannot be read to its end.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

impl Hint for DatabaseError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { source, .. } if source.kind() != io::ErrorKind::NotFound => {
                Some(UnusableInput::of(source)?.hint().to_owned())
            }
            _ => Some(
                "--db takes an ecosystem's `all.zip` as OSV exports it, a JSON list of entries, \
                 JSON lines, or a folder of .json files"
                    .to_owned(),
            ),
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Gives every entry of the database at `path` to `each`.
///
/// # Errors
/// [`DatabaseError`] at the first entry that is none: an audit that passes over some says "clear"
/// without knowing it.
pub fn read_database(
    path: &Path,
    limits: DatabaseLimits,
    each: &mut dyn FnMut(&OsvEntry),
) -> Result<DatabaseSummary, DatabaseError> {
    let mut reader = Reader::new(limits, each);
    let metadata = fs::metadata(path).map_err(|source| not_read(path, source))?;
    if metadata.is_dir() {
        folder(path, limits.depth, &mut reader)?;
    } else {
        file(path, &mut reader)?;
    }
    match reader.seen {
        DatabaseSummary { entries: 0, .. } => Err(DatabaseError::Empty {
            path: path.to_owned(),
        }),
        seen => Ok(seen),
    }
}

fn not_read(path: &Path, source: io::Error) -> DatabaseError {
    DatabaseError::Read {
        path: path.to_owned(),
        source,
    }
}

fn file(path: &Path, reader: &mut Reader<'_>) -> Result<(), DatabaseError> {
    let open = open_regular(path).map_err(|source| not_read(path, source))?;
    let mut open = BufReader::with_capacity(1 << 16, open.into_file());
    let start = open.fill_buf().map_err(|source| not_read(path, source))?;
    let done = if start.starts_with(b"PK") {
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        ZipArchive::from_file(open.into_inner(), &mut buffer)
            .map_err(ContentError::Zip)
            .and_then(|zip| reader.archive(&zip, &mut buffer))
    } else {
        reader.stream(open)
    };
    done.map_err(|source| DatabaseError::Content {
        path: path.to_owned(),
        source,
    })
}

/// Links are not followed: a folder may come from anywhere.
fn folder(path: &Path, depth: u32, reader: &mut Reader<'_>) -> Result<(), DatabaseError> {
    if depth == 0 {
        return Err(DatabaseError::Deep {
            path: path.to_owned(),
            limit: reader.limits.depth,
        });
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(|source| not_read(path, source))? {
        let entry = entry.map_err(|source| not_read(path, source))?;
        let kind = entry.file_type().map_err(|source| not_read(path, source))?;
        let path = entry.path();
        if kind.is_dir() || (kind.is_file() && path.extension().is_some_and(|e| e == "json")) {
            found.push((path, kind.is_dir()));
        }
    }
    found.sort();
    for (path, is_folder) in found {
        if is_folder {
            folder(&path, depth - 1, reader)?;
        } else {
            file(&path, reader)?;
        }
    }
    Ok(())
}

/// As [`read_database`], of a zip archive.
///
/// # Errors
/// [`ContentError`].
pub fn read_archive(
    bytes: impl Read + Seek,
    limits: DatabaseLimits,
    each: &mut dyn FnMut(&OsvEntry),
) -> Result<DatabaseSummary, ContentError> {
    let mut reader = Reader::new(limits, each);
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let zip = ZipArchive::from_seekable(bytes, &mut buffer).map_err(ContentError::Zip)?;
    reader.archive(&zip, &mut buffer)?;
    Ok(reader.seen)
}

/// As [`read_database`], of JSON: a list of entries, or entries one after another.
///
/// # Errors
/// [`ContentError`].
pub fn read_json(
    text: impl BufRead,
    limits: DatabaseLimits,
    each: &mut dyn FnMut(&OsvEntry),
) -> Result<DatabaseSummary, ContentError> {
    let mut reader = Reader::new(limits, each);
    reader.stream(text)?;
    Ok(reader.seen)
}

struct Reader<'a> {
    limits: DatabaseLimits,
    each: &'a mut dyn FnMut(&OsvEntry),
    seen: DatabaseSummary,
    /// Unpacked from zips so far.
    bytes: u64,
}

impl<'a> Reader<'a> {
    fn new(limits: DatabaseLimits, each: &'a mut dyn FnMut(&OsvEntry)) -> Self {
        Self {
            limits,
            each,
            seen: DatabaseSummary::default(),
            bytes: 0,
        }
    }

    fn take(&mut self, entry: &OsvEntry) -> Result<(), ContentError> {
        if self.seen.entries == self.limits.entries {
            return Err(ContentError::TooMany {
                limit: self.limits.entries,
            });
        }
        self.seen.entries += 1;
        let modified = utc(&entry.modified);
        if modified > self.seen.newest.as_deref() {
            self.seen.newest = modified.map(str::to_owned);
        }
        (self.each)(entry);
        Ok(())
    }

    fn archive<R: ReaderAt>(
        &mut self,
        zip: &ZipArchive<R>,
        buffer: &mut [u8],
    ) -> Result<(), ContentError> {
        let mut entries = zip.entries(buffer);
        let mut text = Vec::new();
        while let Some(listed) = entries.next_entry().map_err(ContentError::Zip)? {
            let name = String::from_utf8_lossy(listed.file_path().as_ref()).into_owned();
            if !name.ends_with(".json") {
                continue;
            }
            let name = to_printable(&name, 200);
            let method = listed.compression_method();
            let entry = zip
                .get_entry(listed.wayfinder())
                .map_err(ContentError::Zip)?;
            text.clear();
            let read = match method {
                CompressionMethod::STORE => {
                    self.unpack(entry.verifying_reader(entry.reader()), &mut text)
                }
                CompressionMethod::DEFLATE => {
                    let inflate = DeflateDecoder::new(entry.reader());
                    self.unpack(entry.verifying_reader(inflate), &mut text)
                }
                _ => return Err(ContentError::Method { name }),
            };
            read.map_err(|source| ContentError::Unpack {
                name: name.clone(),
                source,
            })?;
            self.check_sizes(text.len() as u64)?;
            let entry = serde_json::from_slice(&text).map_err(|source| ContentError::Entry {
                name: format!("`{name}`"),
                source,
            })?;
            self.take(&entry)?;
        }
        Ok(())
    }

    /// One byte more than the limit, so that a larger entry is seen as such and not unpacked
    /// further.
    fn unpack(&self, from: impl Read, text: &mut Vec<u8>) -> io::Result<()> {
        let most = self.limits.entry_bytes.saturating_add(1);
        from.take(most).read_to_end(text).map(drop)
    }

    fn check_sizes(&mut self, size: u64) -> Result<(), ContentError> {
        self.bytes = self.bytes.saturating_add(size);
        for (what, size, limit) in [
            ("one entry", size, self.limits.entry_bytes),
            ("the whole archive", self.bytes, self.limits.bytes),
        ] {
            if size > limit {
                let limit = Bytes(limit);
                return Err(ContentError::TooLarge { what, limit });
            }
        }
        Ok(())
    }

    fn stream(&mut self, mut text: impl BufRead) -> Result<(), ContentError> {
        let first = first_character(&mut text).map_err(ContentError::Read)?;
        let left = Cell::new(self.limits.entry_bytes);
        let metered = EntrySizeLimit {
            text,
            left: &left,
            limit: self.limits.entry_bytes,
        };
        let mut stopped = None;
        let done = if first == Some(b'[') {
            let mut json = serde_json::Deserializer::from_reader(metered);
            let list = List {
                reader: self,
                left: &left,
                stopped: &mut stopped,
            };
            json.deserialize_seq(list).and_then(|()| json.end())
        } else {
            let mut json = serde_json::Deserializer::from_reader(metered).into_iter::<OsvEntry>();
            loop {
                match json.next() {
                    None => break Ok(()),
                    Some(Err(error)) => break Err(error),
                    Some(Ok(entry)) => self.take(&entry)?,
                }
                left.set(self.limits.entry_bytes);
            }
        };
        match (stopped, done) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(source)) => Err(ContentError::Entry {
                name: format!("entry {}", self.seen.entries + 1),
                source,
            }),
        }
    }
}

/// A list of entries, each given away as it is read.
struct List<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: &'r Cell<u64>,
    stopped: &'r mut Option<ContentError>,
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of OSV entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        while let Some(entry) = from.next_element::<OsvEntry>()? {
            if let Err(error) = self.reader.take(&entry) {
                *self.stopped = Some(error);
                return Err(A::Error::custom("stopped"));
            }
            self.left.set(self.reader.limits.entry_bytes);
        }
        Ok(())
    }
}

/// Ends with an error when one entry takes more bytes than it may: a parser would take them all
/// into memory.
struct EntrySizeLimit<'c, R> {
    text: R,
    left: &'c Cell<u64>,
    limit: u64,
}

impl<R: Read> Read for EntrySizeLimit<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.text.read(buffer)?;
        let left = self.left.get().checked_sub(n as u64).ok_or_else(|| {
            io::Error::other(ContentError::TooLarge {
                what: "one entry",
                limit: Bytes(self.limit),
            })
        })?;
        self.left.set(left);
        Ok(n)
    }
}

/// The first byte that is no white space, without taking it.
fn first_character(text: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let bytes = text.fill_buf()?;
        let space = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let (first, all) = (bytes.get(space).copied(), bytes.len());
        text.consume(space);
        if first.is_some() || all == 0 {
            return Ok(first);
        }
    }
}

/// The date and time of an RFC 3339 text in UTC, which is how the schema wants them: without
/// fractions, so that texts have the order of times.
fn utc(text: &str) -> Option<&str> {
    let (time, rest) = text.split_at_checked(19)?;
    let is_time = time.bytes().zip(*b"dddd-dd-ddTdd:dd:dd").all(|(b, form)| {
        if form == b'd' {
            b.is_ascii_digit()
        } else {
            b == form
        }
    });
    (is_time && rest.ends_with('Z')).then_some(time)
}

#[cfg(test)]
mod tests;
