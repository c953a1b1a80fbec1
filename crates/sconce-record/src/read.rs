//! Reading one run's record: line by line, in constant memory, whatever is in the file.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sconce_schema::event::{Event, FORMAT, Line, Started};
use sconce_schema::secrets;
use serde::Deserialize;

use crate::file;
use crate::names::Names;
use crate::parts::Parts;
use crate::write::io_error;
use crate::{FILE, RecordError};

/// A longer line is not read: the largest honest one, a sample of 16 cards with a thousand
/// processes each, has less than half of it.
pub(crate) const LONGEST_LINE: usize = 1 << 20;
/// Of a file no more than this many bytes are read. One of format 2 is closed at 4 MiB; one of format 1
/// was never closed, and a week of it has less. A file with a hole can have an end that nobody lives to see.
const LARGEST_FILE: u64 = 4 << 30;
/// As many damages are told one by one; the others are counted.
const MOST_DAMAGES: u64 = 1024;

/// A record: how the run began, and then, as an iterator, everything after it in the order it
/// was written.
#[derive(Debug)]
pub struct Record<R> {
    /// The first line.
    pub started: Started,
    /// The run went on when the record was opened.
    pub running: bool,
    /// Which part the file will be when it is closed, counted from 1.
    pub(crate) part: u32,
    parts: Parts,
    lines: Lines<R>,
    /// Absent where processes' names are not asked for.
    names: Option<Names>,
    /// Damages that were found, and whether those that were not told were counted out.
    damages: u64,
    counted_out: bool,
}

/// A line that could not be read. The lines after it are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", place(*part, *line, kind))]
pub struct Damage {
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
    #[error("longer than {LONGEST_LINE} bytes")]
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

impl Damage {
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
pub fn read(path: &Path) -> Result<Record<BufReader<File>>, RecordError> {
    if path.is_dir() {
        read_file(&path.join(FILE))
    } else {
        read_file(path)
    }
}

/// As [`read`], of the file alone.
pub(crate) fn read_file(path: &Path) -> Result<Record<BufReader<File>>, RecordError> {
    let (file, held) = open(path).map_err(io_error("read", path))?;
    let mut record = Record::new(BufReader::new(file), path)?;
    record.running = held.unwrap_or_else(|| process_exists(record.started.sconce_pid));
    if record.part > 1
        && let Some(folder) = path.parent()
    {
        let parts = Parts::find(folder, record.part, &record.started.id);
        record.parts = parts.map_err(io_error("read", folder))?;
    }
    Ok(record)
}

/// The file that is being written, and whether it is. The lock is asked for before the first line is
/// read: a run that ends meanwhile has its last line in the file. When the file was closed between
/// the two, its lock was let go although the run goes on: then the one in its place is opened.
fn open(path: &Path) -> io::Result<(File, Option<bool>)> {
    /// A writer closes a file every few minutes.
    const TRIES: usize = 8;
    let mut tries = 0;
    loop {
        let file = file::open(path)?;
        let held = is_locked(&file);
        tries += 1;
        let same = || -> io::Result<bool> {
            let (ours, now) = (file.metadata()?, path.metadata()?);
            Ok((ours.dev(), ours.ino()) == (now.dev(), now.ino()))
        };
        if held != Some(false) || tries == TRIES || same()? {
            return Ok((file, held));
        }
    }
}

/// Whether a [`crate::Writer`] holds the file; `None` on a file system that knows no locks.
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

impl<R: BufRead> Record<R> {
    /// Reads the beginning of a record; `path` is named in errors. `running` is set to false.
    ///
    /// # Errors
    /// As [`read`].
    pub fn new(from: R, path: &Path) -> Result<Self, RecordError> {
        let mut lines = Lines {
            from,
            number: 0,
            buffer: Vec::new(),
            left: LARGEST_FILE,
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
        let line: Line = serde_json::from_slice(first)
            .map_err(|error| not_a_record(shortened(&error.to_string())))?;
        let Event::Started(mut started) = line.event else {
            return Err(not_a_record("it does not begin with `started`".to_owned()));
        };
        // Of a record of before, or of another's.
        started.command = secrets::command(&started.command);
        Ok(Self {
            started: *started,
            running: false,
            part: head.part.unwrap_or(1),
            parts: Parts::default(),
            lines,
            names: Some(Names::default()),
            damages: 0,
            counted_out: false,
        })
    }
}

impl<R: BufRead> Record<R> {
    /// Does not put back what processes are called, their parents and roles, where a line leaves them out:
    /// of a day's record that takes a part of the time, and most readers do not look at them.
    #[must_use]
    pub fn without_names(mut self) -> Self {
        self.names = None;
        self.parts.without_names();
        self
    }

    fn line(&mut self) -> Option<Result<Line, Damage>> {
        if let Some(line) = self.parts.next() {
            return Some(line);
        }
        let kind = match self.lines.raw()? {
            Ok(false) => DamageKind::TooLong,
            Err(error) => DamageKind::Unreadable(error.to_string()),
            Ok(true) => match parse(&self.lines.buffer) {
                Ok(line) if matches!(line.event, Event::Started(_)) => DamageKind::SecondBeginning,
                Ok(mut line) => {
                    if let Event::Sample(sample) = &mut line.event
                        && let Some(names) = &mut self.names
                    {
                        names.restore(sample);
                    }
                    return Some(Ok(line));
                }
                // The last line, torn by a kill or still being written: as if it were not there.
                Err(_) if !self.lines.buffer.ends_with(b"\n") && self.lines.left > 0 => {
                    return None;
                }
                Err(error) => DamageKind::Malformed(without_line(&error)),
            },
        };
        Some(Err(Damage {
            part: None,
            line: self.lines.number,
            kind,
        }))
    }
}

impl<R: BufRead> Iterator for Record<R> {
    type Item = Result<Line, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.line() {
                Some(Err(damage)) => {
                    let told = self.damages < MOST_DAMAGES;
                    self.damages = self.damages.saturating_add(damage.count());
                    if told {
                        return Some(Err(damage));
                    }
                }
                None if self.damages > MOST_DAMAGES && !self.counted_out => {
                    self.counted_out = true;
                    return Some(Err(Damage {
                        part: None,
                        line: 0,
                        kind: DamageKind::More(self.damages - MOST_DAMAGES),
                    }));
                }
                line => return line,
            }
        }
    }
}

/// A line that is known to be text as a whole is read faster than one whose every key is looked at.
fn parse(line: &[u8]) -> serde_json::Result<Line> {
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
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
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
                let text = format!("larger than {LARGEST_FILE} bytes");
                return Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, text)));
            }
            self.number += 1;
            self.buffer.clear();
            let mut limited = (&mut self.from).take(self.left.min(LONGEST_LINE as u64));
            let read = limited.read_until(b'\n', &mut self.buffer);
            self.left -= *read.as_ref().unwrap_or(&0) as u64;
            let result = match read {
                Ok(0) => return None,
                Ok(LONGEST_LINE) if !self.buffer.ends_with(b"\n") => self.skip().map(|()| false),
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A first line, as it is written.
    const STARTED: &str = r#"{"t_us":0,"event":"started","format":1,"id":"digits-20261121-0034-7f3a","name":"digits","unix-ms":1795221240000,"command":["python","train.py"],"folder":"/home/ada/digits","mode":"container","sconce-pid":4123,"limits":{"cpus":2.0,"memory":4294967296},"host":{"hostname":"sun","kernel":"6.12.48","cpus":8,"memory":33554432000},"gpus":[]}"#;

    fn open(text: &[u8]) -> Result<Record<&[u8]>, RecordError> {
        Record::new(text, Path::new("events.jsonl"))
    }

    #[test]
    fn an_older_record_is_shown_without_secrets() {
        let older = STARTED.replace(r#""train.py"]"#, r#""train.py","--token","s3same"]"#);
        let text = format!("{older}\n");
        let record = open(text.as_bytes()).unwrap();
        let told = ["python", "train.py", "--token", "(masked)"];
        assert_eq!(record.started.command, told);
    }

    #[test]
    fn what_was_written_is_read() {
        let text = format!(
            "{STARTED}\n{}\n{}\n{}\n",
            r#"{"t_us":5,"event":"unenforced","what":"memory","why":"no cgroup may be made"}"#,
            r#"{"t_us":1000000,"event":"sample","cpu-us":990000,"memory":4096}"#,
            r#"{"t_us":1500000,"event":"ended","exit":{"code":0},"last":{}}"#,
        );
        let record = open(text.as_bytes()).unwrap();
        assert_eq!(record.started.id, "digits-20261121-0034-7f3a");
        let lines: Vec<Line> = record.map(Result::unwrap).collect();
        let times: Vec<u64> = lines.iter().map(|line| line.t_us).collect();
        assert_eq!(times, [5, 1_000_000, 1_500_000]);
        let Event::Sample(sample) = &lines[1].event else {
            panic!("{lines:?}");
        };
        assert_eq!(sample.cpu_us, Some(990_000));
        assert_eq!(sample.rss, None);
        assert!(matches!(lines[2].event, Event::Ended(_)));
    }

    #[test]
    fn names_are_put_back_for_those_who_look_at_them() {
        let text = format!(
            "{STARTED}\n{}\n{}\n",
            r#"{"t_us":1,"event":"sample","by-process":[{"pid":7,"name":"python","cpu-us":1}]}"#,
            r#"{"t_us":2,"event":"sample","by-process":[{"pid":7,"cpu-us":2}]}"#,
        );
        let last = |record: Record<&[u8]>| match record.last().unwrap().unwrap().event {
            Event::Sample(mut sample) => sample.by_process.remove(0),
            other => panic!("{other:?}"),
        };
        let with = last(open(text.as_bytes()).unwrap());
        let without = last(open(text.as_bytes()).unwrap().without_names());
        assert_eq!((with.name.as_str(), with.cpu_us), ("python", 2));
        assert_eq!((without.name.as_str(), without.cpu_us), ("", 2));
    }

    #[test]
    fn a_torn_last_line_is_not_there() {
        let whole = format!(
            "{STARTED}\n{}",
            r#"{"t_us":1,"event":"sample","cpu-us":17}"#
        );
        for end in 0..=whole.len() {
            let Ok(record) = open(&whole.as_bytes()[..end]) else {
                assert!(end < STARTED.len(), "the first line is whole");
                continue;
            };
            let lines: Vec<_> = record.map(Result::unwrap).collect();
            assert_eq!(lines.len(), usize::from(end == whole.len()), "at {end}");
        }
    }

    #[test]
    fn damage_is_named_and_the_rest_is_read() {
        let sample = r#"{"t_us":1,"event":"sample"}"#;
        let long = "x".repeat(LONGEST_LINE + 1);
        let text = format!(
            "{STARTED}\n\n{sample}\n{{\"t_us\":\n{STARTED}\n{long}\n{}\n{sample}\n",
            r#"{"t_us":-1,"event":"sample"}"#
        );
        let (good, bad): (Vec<_>, Vec<_>) = open(text.as_bytes()).unwrap().partition(Result::is_ok);
        assert_eq!(good.len(), 2);
        let bad: Vec<String> = bad
            .into_iter()
            .map(|damage| damage.unwrap_err().to_string())
            .collect();
        assert_eq!(
            bad,
            [
                "line 4: not an event: EOF while parsing a value, at column 0",
                "line 5: a second `started`",
                "line 6: longer than 1048576 bytes",
                "line 7: not an event: invalid value: integer `-1`, expected u64, at column 10",
            ]
        );
    }

    #[test]
    fn damages_beyond_a_bound_are_counted_and_no_text_of_them_is_long() {
        let sample = r#"{"t_us":1,"event":"sample"}"#;
        let bad = format!("{{\"t_us\":1,\"event\":\"{}\"}}\n", "x".repeat(1000));
        let text = format!("{STARTED}\n{}{sample}\n", bad.repeat(3000));
        let (good, bad): (Vec<_>, Vec<_>) = open(text.as_bytes()).unwrap().partition(Result::is_ok);
        assert_eq!(good.len(), 1);
        let bad: Vec<Damage> = bad.into_iter().map(Result::unwrap_err).collect();
        assert_eq!(bad.len() as u64, MOST_DAMAGES + 1);
        assert_eq!(bad.iter().map(Damage::count).sum::<u64>(), 3000);
        assert!(bad.iter().all(|damage| damage.to_string().len() < 400));
        let last = bad.last().unwrap().to_string();
        assert_eq!(last, "1976 more lines that cannot be read");
    }

    #[test]
    fn what_has_no_end_is_read_so_far() {
        let mut record = open(format!("{STARTED}\n").as_bytes())
            .map(|_| ())
            .and_then(|()| {
                let endless = std::io::Cursor::new(format!("{STARTED}\n{{\"t_us\":1"))
                    .chain(std::io::repeat(0))
                    .take(1 << 40);
                Record::new(BufReader::new(endless), Path::new("events.jsonl"))
            });
        let record = record.as_mut().unwrap();
        // As if most of it had been read: four gibibytes take seconds.
        record.lines.left = 3 << 20;
        let damages: Vec<String> = record.map(|line| line.unwrap_err().to_string()).collect();
        assert_eq!(
            damages,
            [
                "line 2: longer than 1048576 bytes",
                "line 2: cannot be read: larger than 4294967296 bytes"
            ]
        );
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let newer = STARTED.replace("\"format\":1", "\"format\":3,\"new-thing\":{}");
        assert!(matches!(
            open(newer.as_bytes()),
            Err(RecordError::Newer { found: 3, .. })
        ));
        for text in [
            "",
            "\n\n",
            "{}",
            "hello\n",
            r#"{"t_us":1,"event":"sample"}"#,
        ] {
            let error = open(text.as_bytes()).unwrap_err();
            assert!(matches!(error, RecordError::NotARecord { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, at in 0_usize..2_000) {
            let _ = open(&bytes).map(Iterator::count);
            // The same bytes in the middle of a good record.
            let mut text = format!("{STARTED}\n{STARTED}\n").into_bytes();
            let at = at.min(text.len());
            let rest = text.split_off(at);
            text.append(&mut bytes);
            text.extend(rest);
            let _ = open(&text).map(Iterator::count);
        }
    }
}
