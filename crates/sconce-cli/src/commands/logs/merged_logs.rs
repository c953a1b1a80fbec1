//! The logs of a run as one: the line that was written first comes first.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::source::{LogLine, LogReader};
use crate::output;
use sconce_app::failure::Result;

/// Time between two looks at whether more was written.
pub(super) const LOG_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Several logs that are read together.
pub(super) struct MergedLogs {
    logs: Vec<(String, LogReader)>,
}

impl MergedLogs {
    pub(super) fn open(folder: &Path, names: Vec<String>) -> Self {
        let mut merged = Self { logs: Vec::new() };
        merged.add_new_logs(folder, names);
        merged
    }

    /// Those of these that are not there yet.
    pub(super) fn add_new_logs(&mut self, folder: &Path, names: Vec<String>) {
        for name in names {
            if self.logs.iter().all(|(known, _)| *known != name) {
                let source = LogReader::open(folder, &name);
                self.logs.push((name, source));
            }
        }
    }

    pub(super) fn are_several(&self) -> bool {
        self.logs.len() > 1
    }

    /// The next line and whose it is. A line without its end counts with `complete`, where nothing is
    /// added to it any more.
    pub(super) fn next(&mut self, complete: bool) -> Option<(&str, LogLine)> {
        let stamps = self
            .logs
            .iter_mut()
            .enumerate()
            .filter_map(|(at, (_, log))| Some((log.peek_line(complete)?.stamp.clone(), at)));
        let (_, at) = stamps.min()?;
        let (name, log) = self.logs.get_mut(at)?;
        Some((name, log.take_line()?))
    }
}

/// A line as it is printed, with its log's name where several are shown.
pub(super) fn format_line(name: Option<&str>, stamped: bool, line: &LogLine) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(name) = name {
        text.extend_from_slice(format!("{name} | ").as_bytes());
    }
    if stamped {
        text.extend_from_slice(format!("{} ", line.stamp).as_bytes());
    }
    text.extend_from_slice(&line.text);
    text.push(b'\n');
    text
}

/// The last lines of a log, without what a terminal would obey.
pub(crate) fn last_lines(folder: &Path, name: &str, count: usize) -> Vec<String> {
    let mut source = LogReader::open(folder, name);
    let mut last = VecDeque::new();
    while source.peek_line(true).is_some() {
        if let Some(line) = source.take_line() {
            last.push_back(line.text);
        }
        if last.len() > count {
            last.pop_front();
        }
    }
    let tame = |text: Vec<u8>| {
        let text = String::from_utf8_lossy(&text);
        text.chars()
            .map(|c| match c {
                '\t' => ' ',
                c if sconce_base::text::is_unprintable(c) => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect()
    };
    last.into_iter().map(tame).collect()
}

/// Prints what services write while their run goes on in this terminal.
pub(crate) struct Follower {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Begins; the logs need not be there yet. `None` where no thread can be had.
    pub(crate) fn start(folder: PathBuf, names: Vec<String>) -> Option<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let follow = move || {
            let mut logs = MergedLogs::open(&folder, names);
            loop {
                // Looked at first: what was written before the end is read below.
                let over = until.load(Ordering::Acquire);
                if !matches!(print_all(&mut logs, over), Ok(true)) || over {
                    return;
                }
                std::thread::sleep(LOG_POLL_INTERVAL);
            }
        };
        let named = std::thread::Builder::new().name("services' lines".to_owned());
        let thread = named.spawn(follow).ok()?;
        Some(Self { ended, thread })
    }

    /// The run has ended: prints the rest.
    pub(crate) fn finish(self) {
        self.ended.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}

/// False when nobody reads it any more.
fn print_all(logs: &mut MergedLogs, complete: bool) -> Result<bool> {
    while let Some((name, line)) = logs.next(complete) {
        if !output::write_bytes(&format_line(Some(name), false, &line))? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_run::logs;

    fn written(name: &str, text: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = logs::log_path(folder.path(), name, 0);
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        folder
    }

    #[test]
    fn the_last_lines_are_tame() {
        let folder = written("web", b"one\ntwo\nthree \x1b[2J\xff\tend");
        assert_eq!(
            last_lines(folder.path(), "web", 2),
            ["two", "three \u{fffd}[2J\u{fffd} end"]
        );
        assert_eq!(last_lines(folder.path(), "other", 2), Vec::<String>::new());
    }

    #[test]
    fn lines_of_several_come_by_their_time() {
        let at = |second| format!("2026-11-22T10:23:2{second}.123Z");
        let folder = written("a", format!("{} 1\n{} 3\n", at(1), at(3)).as_bytes());
        let other = logs::log_path(folder.path(), "b", 0);
        std::fs::write(other, format!("{} 2\n{} half", at(2), at(4))).unwrap();
        let mut merged = MergedLogs::open(folder.path(), vec!["a".to_owned(), "b".to_owned()]);
        let mut all = |complete| {
            let mut lines = Vec::new();
            while let Some((name, line)) = merged.next(complete) {
                lines.push(String::from_utf8(format_line(Some(name), false, &line)).unwrap());
            }
            lines
        };
        assert_eq!(all(false), ["a | 1\n", "b | 2\n", "a | 3\n"]);
        assert_eq!(all(true), ["b | half\n"]);
    }
}
