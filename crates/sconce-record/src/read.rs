//! Reading one run's record: line by line, in constant memory, whatever is in the file.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sconce_schema::event::{Event, FORMAT, Line, Started};
use serde::Deserialize;

use crate::write::io_error;
use crate::{FILE, RecordError};

/// A longer line is not read: the largest honest one, a sample of 16 cards with a thousand
/// processes each, has less than half of it.
pub(crate) const LONGEST_LINE: usize = 1 << 20;

/// A record: how the run began, and then, as an iterator, everything after it in the order it
/// was written.
#[derive(Debug)]
pub struct Record<R> {
    /// The first line.
    pub started: Started,
    /// The run went on when the record was opened.
    pub running: bool,
    lines: Lines<R>,
}

/// A line that could not be read. The lines after it are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Damage {
    /// Counted from 1.
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
    /// The file could not be read on; nothing follows.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// Opens a record: `path` is the log's file, or the run's folder.
///
/// # Errors
/// [`RecordError::Newer`] when a newer program wrote it; [`RecordError::NotARecord`] when its
/// first line is not how a run begins; [`RecordError::Io`].
pub fn read(path: &Path) -> Result<Record<BufReader<File>>, RecordError> {
    let path = &(if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    });
    let file = File::open(path).map_err(io_error("read", path))?;
    // Asked before the first line is read: a run that ends meanwhile has its last line in the file.
    let held = is_locked(&file);
    let mut record = Record::new(BufReader::new(file), path)?;
    record.running = held.unwrap_or_else(|| process_exists(record.started.sconce_pid));
    Ok(record)
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
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        if let Ok(Format { format }) = serde_json::from_slice(first)
            && format > FORMAT
        {
            return Err(RecordError::Newer {
                path: path.to_owned(),
                found: format,
            });
        }
        let line: Line =
            serde_json::from_slice(first).map_err(|error| not_a_record(error.to_string()))?;
        let Event::Started(started) = line.event else {
            return Err(not_a_record("it does not begin with `started`".to_owned()));
        };
        Ok(Self {
            started: *started,
            running: false,
            lines,
        })
    }
}

impl<R: BufRead> Iterator for Record<R> {
    type Item = Result<Line, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = match self.lines.raw()? {
            Ok(false) => DamageKind::TooLong,
            Err(error) => DamageKind::Unreadable(error.to_string()),
            Ok(true) => match serde_json::from_slice::<Line>(&self.lines.buffer) {
                Ok(line) if matches!(line.event, Event::Started(_)) => DamageKind::SecondBeginning,
                Ok(line) => return Some(Ok(line)),
                // The last line, torn by a kill or still being written: as if it were not there.
                Err(_) if !self.lines.buffer.ends_with(b"\n") => return None,
                Err(error) => DamageKind::Malformed(without_line(&error)),
            },
        };
        Some(Err(Damage {
            line: self.lines.number,
            kind,
        }))
    }
}

/// What is wrong, without the line number that counts inside this one line.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    format!("{what}, at column {}", error.column())
}

#[derive(Debug)]
struct Lines<R> {
    from: R,
    /// Of the line in the buffer, counted from 1.
    number: u64,
    /// The line that was read last, its newline included.
    buffer: Vec<u8>,
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
            self.number += 1;
            self.buffer.clear();
            let mut limited = (&mut self.from).take(LONGEST_LINE as u64);
            let result = match limited.read_until(b'\n', &mut self.buffer) {
                Ok(0) => return None,
                Ok(LONGEST_LINE) if !self.buffer.ends_with(b"\n") => {
                    self.from.skip_until(b'\n').map(|_| false)
                }
                Ok(_) if self.buffer.trim_ascii().is_empty() => continue,
                result => result.map(|_| true),
            };
            self.failed = result.is_err();
            return Some(result);
        }
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
    fn what_is_no_record_is_refused() {
        let newer = STARTED.replace("\"format\":1", "\"format\":2,\"new-thing\":{}");
        assert!(matches!(
            open(newer.as_bytes()),
            Err(RecordError::Newer { found: 2, .. })
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
