//! Reading one run's record: line by line, in constant memory, whatever is in the file.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sconce_base::secrets;
use sconce_base::tree::open_regular_file;
use sconce_schema::event::{FORMAT, RecordEvent, RecordLine, RunStarted};
use serde::Deserialize;

use crate::fast_parser::{self, ProcessDetail};
use crate::process_names::ProcessNames;
use crate::segments::ClosedSegments;
use crate::write::io_error;
use crate::{FILE, RecordError};

/// A longer line is not read: the largest honest one, a sample of 16 cards with a thousand
/// processes each, has less than half of it.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;
/// Of a file no more than this many bytes are read. One of format 2 is closed at 4 MiB; one of format 1
/// was never closed, and a week of it has less. A file with a hole can have an end that nobody lives to see.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// As many damages are told one by one; the others are counted.
const MAX_DAMAGES: u64 = 1024;

/// A record: how the run began, and then, as an iterator, everything after it in the order it
/// was written.
#[derive(Debug)]
pub struct RecordReader<R> {
    /// The first line.
    pub started: RunStarted,
    /// The run went on when the record was opened.
    pub running: bool,
    /// Which part the file will be when it is closed, counted from 1.
    pub(crate) part: u32,
    parts: ClosedSegments,
    lines: Lines<R>,
    /// Absent where nobody asks for processes.
    names: Option<ProcessNames>,
    /// Damages that were found, and whether those that were not told were counted out.
    damages: u64,
    counted_out: bool,
}

/// A line that could not be read. The lines after it are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", place(*part, *line, kind))]
pub struct DamagedLine {
    /// The closed part that it is in, counted from 1; absent for the file `events.jsonl`.
    pub part: Option<u32>,
    /// Counted from 1; 0 where it is not one line.
    pub line: u64,
    /// What is wrong with it.
    pub kind: DamageKind,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// Not an event.
    #[error("not an event: {0}")]
    Malformed(String),
    /// Longer than any event.
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The beginning of a run, where one has begun.
    #[error("a second `started`")]
    SecondBeginning,
    /// The file could not be read on; nothing of it follows.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The part holds more than any part; the rest of it is not read.
    #[error("larger than any part of a record")]
    TooLarge,
    /// The parts up to this one are not there.
    #[error("missing")]
    Missing(u32),
    /// So many more damages, of which only the number is kept.
    #[error("{0} more lines that cannot be read")]
    More(u64),
}

impl DamagedLine {
    /// How many damages it stands for.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self.kind {
            DamageKind::More(count) => count,
            _ => 1,
        }
    }
}

/// Where damage is, as the beginning of a sentence.
fn place(part: Option<u32>, line: u64, kind: &DamageKind) -> String {
    let part = match (part, kind) {
        (Some(part), DamageKind::Missing(last)) if *last > part => {
            return format!("parts {part} to {last}: ");
        }
        (None, DamageKind::More(_)) => return String::new(),
        (Some(part), _) => format!("part {part}"),
        (None, _) => String::new(),
    };
    match (part.is_empty(), line) {
        (true, _) => format!("line {line}: "),
        (false, 0) => format!("{part}: "),
        (false, _) => format!("{part}, line {line}: "),
    }
}

/// Opens a record: `path` is the log's file, or the run's folder.
///
/// # Errors
/// [`RecordError::Newer`] when a newer program wrote it; [`RecordError::NotARecord`] when its
/// first line is not how a run begins; [`RecordError::Io`], also where it is no plain file: no link is
/// followed, and no pipe or device is read.
pub fn open_record(path: &Path) -> Result<RecordReader<BufReader<File>>, RecordError> {
    if path.is_dir() {
        read_file(&path.join(FILE))
    } else {
        read_file(path)
    }
}

/// As [`open_record`], of the file alone.
pub(crate) fn read_file(path: &Path) -> Result<RecordReader<BufReader<File>>, RecordError> {
    let (file, held) = open(path).map_err(io_error("read", path))?;
    let mut record = RecordReader::new(BufReader::new(file), path)?;
    record.running = held.unwrap_or_else(|| process_exists(record.started.sconce_pid));
    if record.part > 1
        && let Some(folder) = path.parent()
    {
        let parts = ClosedSegments::from_dir(folder, record.part, &record.started.id);
        record.parts = parts.map_err(io_error("read", folder))?;
    }
    Ok(record)
}

/// The file that is being written, and whether it is. The lock is asked for before the first line is
/// read: a run that ends meanwhile has its last line in the file. When the file was closed between
/// the two, its lock was let go although the run goes on: then the one in its place is opened.
fn open(path: &Path) -> io::Result<(File, Option<bool>)> {
    /// A writer closes a file every few minutes.
    const MAX_RETRIES: usize = 8;
    let mut tries = 0;
    loop {
        let file = open_regular_file(path)?;
        let held = is_locked(&file);
        tries += 1;
        let same = || -> io::Result<bool> {
            let (ours, now) = (file.metadata()?, path.metadata()?);
            Ok((ours.dev(), ours.ino()) == (now.dev(), now.ino()))
        };
        if held != Some(false) || tries == MAX_RETRIES || same()? {
            return Ok((file, held));
        }
    }
}

/// Whether a [`crate::RecordWriter`] holds the file; `None` on a file system that knows no locks.
fn is_locked(file: &File) -> Option<bool> {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            Some(false)
        }
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}

fn process_exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

impl<R: BufRead> RecordReader<R> {
    /// Reads the beginning of a record; `path` is named in errors. `running` is set to false.
    ///
    /// # Errors
    /// As [`open_record`].
    pub fn new(from: R, path: &Path) -> Result<Self, RecordError> {
        let mut lines = Lines {
            from,
            number: 0,
            buffer: Vec::new(),
            left: MAX_FILE_BYTES,
            failed: false,
        };
        let not_a_record = |why: String| RecordError::NotARecord {
            path: path.to_owned(),
            why,
        };
        let first = match lines.raw() {
            Some(Ok(true)) => &lines.buffer,
            Some(Ok(false)) => return Err(not_a_record(DamageKind::TooLong.to_string())),
            Some(Err(error)) => return Err(io_error("read", path)(error)),
            None => return Err(not_a_record("it is empty".to_owned())),
        };

        // The format is read first, by itself, so that a newer one is named as such.
        #[derive(Default, Deserialize)]
        struct Head {
            format: u32,
            part: Option<u32>,
        }
        let head: Head = serde_json::from_slice(first).unwrap_or_default();
        if head.format > FORMAT {
            return Err(RecordError::Newer {
                path: path.to_owned(),
                found: head.format,
            });
        }
        let line: RecordLine = serde_json::from_slice(first)
            .map_err(|error| not_a_record(shortened(&error.to_string())))?;
        let RecordEvent::Started(mut started) = line.event else {
            return Err(not_a_record("it does not begin with `started`".to_owned()));
        };
        // Of a record of before, or of another's.
        started.command = secrets::mask_command(&started.command);
        Ok(Self {
            started: *started,
            running: false,
            part: head.part.unwrap_or(1),
            parts: ClosedSegments::default(),
            lines,
            names: Some(ProcessNames::default()),
            damages: 0,
            counted_out: false,
        })
    }
}

impl<R: BufRead> RecordReader<R> {
    /// Leaves out what single processes did ([`Sample::by_process`](sconce_schema::event::Sample)): of a
    /// day's record that takes a part of the time, and most readers do not look at it.
    #[must_use]
    pub fn without_processes(mut self) -> Self {
        self.names = None;
        self.parts.without_processes();
        self
    }

    fn processes(&self) -> ProcessDetail {
        match self.names {
            Some(_) => ProcessDetail::Read,
            None => ProcessDetail::LeaveOut,
        }
    }

    /// Puts back what processes are called, their parents and roles; or leaves them out.
    fn complete(&mut self, line: &mut RecordLine) {
        if let RecordEvent::Sample(sample) = &mut line.event {
            match &mut self.names {
                Some(names) => names.restore_omitted_details(sample),
                None => sample.by_process.clear(),
            }
        }
    }

    fn line(&mut self) -> Option<Result<RecordLine, DamagedLine>> {
        if let Some(line) = self.parts.next() {
            return Some(line);
        }
        let kind = match self.lines.raw()? {
            Ok(false) => DamageKind::TooLong,
            Err(error) => DamageKind::Unreadable(error.to_string()),
            Ok(true) => match parse(&self.lines.buffer, self.processes()) {
                Ok(line) if matches!(line.event, RecordEvent::Started(_)) => {
                    DamageKind::SecondBeginning
                }
                Ok(mut line) => {
                    self.complete(&mut line);
                    return Some(Ok(line));
                }
                // The last line, torn by a kill or still being written: as if it were not there.
                Err(_) if !self.lines.buffer.ends_with(b"\n") && self.lines.left > 0 => {
                    return None;
                }
                Err(error) => DamageKind::Malformed(without_line(&error)),
            },
        };
        Some(Err(DamagedLine {
            part: None,
            line: self.lines.number,
            kind,
        }))
    }
}

impl RecordReader<&[u8]> {
    /// All of it that can be read. Lines that are as a writer writes them are read where they lie: nobody
    /// looks for their ends before, and nobody copies them.
    pub(crate) fn into_lines(mut self) -> Vec<Result<RecordLine, DamagedLine>> {
        std::iter::from_fn(|| match self.in_place() {
            Some(line) => Some(Ok(line)),
            None => self.next(),
        })
        .collect()
    }

    fn in_place(&mut self) -> Option<RecordLine> {
        let text = self.lines.from;
        let (mut line, rest) = fast_parser::parse_line(text, self.processes())?;
        let rest = rest.strip_prefix(b"\n")?;
        let length = text.len() - rest.len();
        if length > MAX_LINE_BYTES || matches!(line.event, RecordEvent::Started(_)) {
            return None;
        }
        self.lines.from = rest;
        self.lines.number += 1;
        self.lines.left = self.lines.left.saturating_sub(length as u64);
        self.complete(&mut line);
        Some(line)
    }
}

impl<R: BufRead> Iterator for RecordReader<R> {
    type Item = Result<RecordLine, DamagedLine>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.line() {
                Some(Err(damage)) => {
                    let told = self.damages < MAX_DAMAGES;
                    self.damages = self.damages.saturating_add(damage.count());
                    if told {
                        return Some(Err(damage));
                    }
                }
                None if self.damages > MAX_DAMAGES && !self.counted_out => {
                    self.counted_out = true;
                    return Some(Err(DamagedLine {
                        part: None,
                        line: 0,
                        kind: DamageKind::More(self.damages - MAX_DAMAGES),
                    }));
                }
                line => return line,
            }
        }
    }
}

/// A line that is known to be text as a whole is read faster than one whose every key is looked at.
fn parse(line: &[u8], processes: ProcessDetail) -> serde_json::Result<RecordLine> {
    if let Some((line, b"" | b"\n")) = fast_parser::parse_line(line, processes) {
        return Ok(line);
    }
    match std::str::from_utf8(line) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(line),
    }
}

/// What is wrong, without the line number that counts inside this one line.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    format!("{}, at column {}", shortened(what), error.column())
}

/// What is told of a line has no more than this of the line itself.
fn shortened(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 200;
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[derive(Debug)]
struct Lines<R> {
    from: R,
    /// Of the line in the buffer, counted from 1.
    number: u64,
    /// The line that was read last, its newline included.
    buffer: Vec<u8>,
    /// Bytes that may still be read.
    left: u64,
    /// The file failed once; it may fail for ever.
    failed: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line that is not empty; `Ok(false)` for one that is too long to keep.
    fn raw(&mut self) -> Option<io::Result<bool>> {
        loop {
            if self.failed {
                return None;
            }
            if self.left == 0 {
                self.failed = true;
                let text = format!("larger than {MAX_FILE_BYTES} bytes");
                return Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, text)));
            }
            self.number += 1;
            self.buffer.clear();
            let mut limited = (&mut self.from).take(self.left.min(MAX_LINE_BYTES as u64));
            let read = limited.read_until(b'\n', &mut self.buffer);
            self.left -= *read.as_ref().unwrap_or(&0) as u64;
            let result = match read {
                Ok(0) => return None,
                Ok(MAX_LINE_BYTES) if !self.buffer.ends_with(b"\n") => self.skip().map(|()| false),
                Ok(_) if self.buffer.trim_ascii().is_empty() => continue,
                result => result.map(|_| true),
            };
            self.failed = result.is_err();
            return Some(result);
        }
    }

    /// Goes on to the end of a line that is too long to keep.
    fn skip(&mut self) -> io::Result<()> {
        let mut limited = (&mut self.from).take(self.left);
        let skipped = limited.skip_until(b'\n')?;
        self.left -= skipped as u64;
        Ok(())
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
