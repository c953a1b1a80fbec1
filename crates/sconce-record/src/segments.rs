//! Closed parts of a record: what `events.jsonl` was until it had grown, compressed.
//!
//! A part is read by itself: it begins with `started`, as the file that is being written does. That
//! file says in its first line which part it will be, and what it says decides: a part with its own
//! number or a later one is a copy of it that a kill left behind, and is not read.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use sconce_base::tree::open_regular_file;
use sconce_schema::event::RecordLine;

use crate::RecordError;
use crate::read::{DamageKind, DamagedLine, RecordReader};

/// A file that has grown to this many bytes is closed.
pub(crate) const ROTATE_AT_BYTES: u64 = 4 << 20;
/// Of a part no more than this many bytes are unpacked: an honest one has [`ROTATE_AT_BYTES`] and a line.
const MAX_PART_BYTES: u64 = 2 * ROTATE_AT_BYTES;
/// No honest part needs a larger window to unpack (a power of two).
const MAX_WINDOW_LOG: u32 = 23;
const LEVEL: i32 = 3;
/// As many parts are unpacked and read ahead: each takes some ten times its size in memory.
const MAX_PREFETCHED_PARTS: usize = 4;
/// No honest record has more parts: at 4 MiB each, these are 256 GiB.
const MAX_PARTS: usize = 1 << 16;

/// What a reader gets of a line.
pub(crate) type ReadResult = Result<RecordLine, DamagedLine>;

/// The file name of a part, counted from 1.
pub(crate) fn file_name(number: u32) -> String {
    format!("events-{number:04}.jsonl.zst")
}

/// The number of a part's file name.
fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("events-")?.strip_suffix(".jsonl.zst")?;
    let number = digits.parse().ok()?;
    (self::file_name(number) == name).then_some(number)
}

/// Compresses `from` into `to`, which must not be there. The bytes are on the disk when this returns:
/// what they replace may have been there for an hour.
pub(crate) fn compress(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut source = File::open(from)?;
    let file = (File::options().write(true).create_new(true).mode(0o600)).open(to)?;
    let mut encoder = zstd::Encoder::new(file, LEVEL)?;
    encoder.include_checksum(true)?;
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_data()
}

/// The closed parts before the file that is being written, read in order, several at once.
#[derive(Debug, Default)]
pub(crate) struct ClosedSegments {
    id: String,
    without_processes: bool,
    /// Those that are still to be begun.
    waiting: VecDeque<Part>,
    /// Those that are being read, in order.
    reading: VecDeque<(u32, JoinHandle<Vec<ReadResult>>)>,
    /// What is read of the first of them.
    ready: std::vec::IntoIter<ReadResult>,
}

#[derive(Debug)]
enum Part {
    There(u32, PathBuf),
    /// From the first to the last of these.
    Missing(u32, u32),
}

impl ClosedSegments {
    /// The parts in `folder` before `before`, of the run `id`.
    pub(crate) fn from_dir(folder: &Path, before: u32, id: &str) -> io::Result<Self> {
        let mut there: Vec<u32> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let found = entry?.file_name().to_str().and_then(number);
            there.extend(found.filter(|number| (1..before).contains(number)));
            if there.len() > MAX_PARTS {
                return Err(io::Error::other(format!("more than {MAX_PARTS} parts")));
            }
        }
        there.sort_unstable();
        let (mut waiting, mut next) = (VecDeque::new(), 1);
        for number in there {
            if next < number {
                waiting.push_back(Part::Missing(next, number - 1));
            }
            waiting.push_back(Part::There(number, folder.join(file_name(number))));
            next = number + 1;
        }
        if next < before {
            waiting.push_back(Part::Missing(next, before - 1));
        }
        Ok(Self {
            id: id.to_owned(),
            waiting,
            ..Self::default()
        })
    }

    /// As [`RecordReader::without_processes`].
    pub(crate) fn without_processes(&mut self) {
        self.without_processes = true;
    }

    /// Keeps as many parts under way as there are cores, and no more than [`MAX_PREFETCHED_PARTS`].
    fn begin(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        while self.reading.len() < cores.min(MAX_PREFETCHED_PARTS) {
            let (number, work): (u32, Box<dyn FnOnce() -> Vec<ReadResult> + Send>) =
                match self.waiting.pop_front() {
                    None => return,
                    Some(Part::Missing(first, last)) => (
                        first,
                        Box::new(move || vec![Err(damage(first, 0, DamageKind::Missing(last)))]),
                    ),
                    Some(Part::There(number, path)) => {
                        let (id, without) = (self.id.clone(), self.without_processes);
                        (number, Box::new(move || read(number, &path, &id, without)))
                    }
                };
            self.reading.push_back((number, std::thread::spawn(work)));
        }
    }
}

impl Iterator for ClosedSegments {
    type Item = ReadResult;

    fn next(&mut self) -> Option<ReadResult> {
        loop {
            if let Some(line) = self.ready.next() {
                return Some(line);
            }
            self.begin();
            let (number, work) = self.reading.pop_front()?;
            let lines = work.join().unwrap_or_else(|_| {
                let kind = DamageKind::Unreadable("its reader failed".to_owned());
                vec![Err(damage(number, 0, kind))]
            });
            self.ready = lines.into_iter();
            // Before these lines are looked at: that takes a while too.
            self.begin();
        }
    }
}

fn damage(part: u32, line: u64, kind: DamageKind) -> DamagedLine {
    DamagedLine {
        part: Some(part),
        line,
        kind,
    }
}

/// Everything in one part that can be read.
fn read(number: u32, path: &Path, id: &str, without_processes: bool) -> Vec<ReadResult> {
    let unreadable = |why: String| vec![Err(damage(number, 0, DamageKind::Unreadable(why)))];
    let text = match unpack(path) {
        Ok(text) => text,
        Err(error) => return unreadable(error.to_string()),
    };
    let mut lines: Vec<ReadResult> = match RecordReader::new(text.bytes.as_slice(), path) {
        Ok(record) if record.started.id != id => {
            return unreadable(format!("it is of the run `{}`", record.started.id));
        }
        Ok(record) if without_processes => record.without_processes().into_lines(),
        Ok(record) => record.into_lines(),
        // It was cut before its first line ended.
        Err(_) if text.end.is_some() => Vec::new(),
        Err(error) => vec![Err(damage(
            number,
            1,
            DamageKind::Malformed(match error {
                RecordError::NotARecord { why, .. } => why,
                other => other.to_string(),
            }),
        ))],
    };
    for line in &mut lines {
        if let Err(damage) = line {
            damage.part = Some(number);
        }
    }
    lines.extend(text.end.map(|kind| Err(damage(number, 0, kind))));
    lines
}

/// What a part holds, and why that is not all of it.
struct Text {
    bytes: Vec<u8>,
    end: Option<DamageKind>,
}

fn unpack(path: &Path) -> io::Result<Text> {
    let mut packed = Vec::new();
    open_regular_file(path)?
        .take(MAX_PART_BYTES)
        .read_to_end(&mut packed)?;
    // At once, into the room that an honest part needs; what is not honest is read as far as it goes.
    if let Ok(bytes) = zstd::bulk::decompress(&packed, MAX_PART_BYTES as usize) {
        return Ok(Text { bytes, end: None });
    }
    let mut decoder = zstd::Decoder::with_buffer(packed.as_slice())?;
    decoder.window_log_max(MAX_WINDOW_LOG)?;
    // One byte more than may be read: when it is there, there is more.
    let (mut bytes, mut limited) = (Vec::new(), decoder.take(MAX_PART_BYTES + 1));
    let end = match limited.read_to_end(&mut bytes) {
        Err(error) => Some(DamageKind::Unreadable(error.to_string())),
        Ok(_) if limited.limit() == 0 => Some(DamageKind::TooLarge),
        Ok(_) => None,
    };
    Ok(Text { bytes, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        for (text, expected) in [
            ("events-0001.jsonl.zst", Some(1)),
            ("events-12345.jsonl.zst", Some(12_345)),
            ("events-1.jsonl.zst", None),
            ("events-+001.jsonl.zst", None),
            ("events-0001.jsonl", None),
            (".events-0001.jsonl.zst", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
