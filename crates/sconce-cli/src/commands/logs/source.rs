//! One log, from its oldest file to what is written now.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sconce_run::logs;

/// How long the time before a line is, without the space after it.
const TIMESTAMP_BYTES: usize = 24;
/// A longer line is given in parts.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLine {
    /// When it began; that of the line before where it has none.
    pub(super) stamp: String,
    /// Without its end.
    pub(super) text: Vec<u8>,
}

/// A log that is read.
#[derive(Debug)]
pub(super) struct LogReader {
    /// The file that is written.
    path: PathBuf,
    /// Open files, the oldest first; what they are called meanwhile does not matter.
    files: VecDeque<BufReader<File>>,
    /// What was read of a line.
    buffer: Vec<u8>,
    /// Whether the buffer is a whole line.
    whole: bool,
    stamp: String,
    next: Option<LogLine>,
}

impl LogReader {
    /// A log that is not there has no lines yet.
    pub(super) fn open(folder: &Path, name: &str) -> Self {
        let numbers = (0..=logs::RETAINED_FILES).rev();
        let files =
            numbers.filter_map(|number| File::open(logs::log_path(folder, name, number)).ok());
        Self {
            path: logs::log_path(folder, name, 0),
            files: files.map(BufReader::new).collect(),
            buffer: Vec::new(),
            whole: false,
            stamp: String::new(),
            next: None,
        }
    }

    /// The next line, which stays the next; with `complete` also one without its end.
    pub(super) fn peek_line(&mut self, complete: bool) -> Option<&LogLine> {
        if self.next.is_none() {
            while !self.whole && self.read() {}
            if self.whole || complete && !self.buffer.is_empty() {
                self.whole = false;
                let text = std::mem::take(&mut self.buffer);
                self.next = Some(self.line(text));
            }
        }
        self.next.as_ref()
    }

    /// The line that was looked at.
    pub(super) fn take_line(&mut self) -> Option<LogLine> {
        self.next.take()
    }

    /// Reads on; false when there is nothing more now.
    fn read(&mut self) -> bool {
        let Some(file) = self.files.front_mut() else {
            return self.follow();
        };
        let mut limited = std::io::Read::take(&mut *file, MAX_LINE_BYTES);
        match limited.read_until(b'\n', &mut self.buffer) {
            Ok(count) if count > 0 => {
                self.whole =
                    self.buffer.ends_with(b"\n") || self.buffer.len() as u64 >= MAX_LINE_BYTES;
                true
            }
            // A file that cannot be read has ended as well.
            _ if self.files.len() > 1 => {
                self.files.pop_front();
                true
            }
            _ => self.follow(),
        }
    }

    /// Opens the file that is written, where it is another one by now.
    fn follow(&mut self) -> bool {
        let Ok(now) = File::open(&self.path) else {
            return false;
        };
        let number = |file: &File| file.metadata().ok().map(|it| (it.dev(), it.ino()));
        let same = (self.files.back()).is_some_and(|file| number(file.get_ref()) == number(&now));
        if !same {
            self.files.push_back(BufReader::new(now));
        }
        !same
    }

    /// Without the time before it, and without its end.
    fn line(&mut self, mut text: Vec<u8>) -> LogLine {
        while text.last().is_some_and(|byte| b"\r\n".contains(byte)) {
            text.pop();
        }
        let stamped = text.get(TIMESTAMP_BYTES) == Some(&b' ')
            && text[TIMESTAMP_BYTES - 1] == b'Z'
            && text[..TIMESTAMP_BYTES].iter().all(u8::is_ascii_graphic);
        if stamped {
            let rest = text.split_off(TIMESTAMP_BYTES + 1);
            text.truncate(TIMESTAMP_BYTES);
            self.stamp = String::from_utf8_lossy(&text).into_owned();
            text = rest;
        }
        LogLine {
            stamp: self.stamp.clone(),
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const T: &str = "2026-11-22T10:23:20.123Z";

    fn all(source: &mut LogReader, complete: bool) -> Vec<String> {
        let mut lines = Vec::new();
        while source.peek_line(complete).is_some() {
            let line = source.take_line().unwrap();
            lines.push(String::from_utf8_lossy(&line.text).into_owned());
        }
        lines
    }

    #[test]
    fn files_are_read_from_the_oldest_on_and_followed_through_their_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |number| logs::log_path(folder.path(), "web", number);
        std::fs::create_dir(at(0).parent().unwrap()).unwrap();
        std::fs::write(at(1), format!("{T} old\n{T} cut")).unwrap();
        std::fs::write(at(0), format!(" in two\n{T} new\n{T} half")).unwrap();
        let mut source = LogReader::open(folder.path(), "web");
        assert_eq!(all(&mut source, false), ["old", "cut in two", "new"]);
        let mut file = File::options().append(true).open(at(0)).unwrap();
        file.write_all(b" done\n").unwrap();
        std::fs::rename(at(0), at(2)).unwrap();
        std::fs::write(at(0), format!("{T} newest\nno time")).unwrap();
        assert_eq!(all(&mut source, false), ["half done", "newest"]);
        assert_eq!(source.stamp, T);
        assert_eq!(all(&mut source, true), ["no time"]);
    }

    #[test]
    fn a_log_may_be_missing_and_may_hold_anything() {
        let folder = tempfile::tempdir().unwrap();
        let mut source = LogReader::open(folder.path(), "web");
        assert_eq!(all(&mut source, true), Vec::<String>::new());
        let path = logs::log_path(folder.path(), "web", 0);
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let mut bytes = vec![b'x'; 3 << 20];
        bytes.extend_from_slice(b"\n\xff\xfe\n\n");
        std::fs::write(&path, bytes).unwrap();
        let lines = all(&mut source, true);
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), (3 << 20) + 6);
        assert_eq!(lines.last().map(String::as_str), Some(""));
    }
}
