//! What the services of a run write: each in a file of its own that is closed when it has grown, so
//! that all that is ever kept of one is bounded.
//!
//! A line of a file is the time at which it began and what was written, `TIME TEXT`. A service is
//! never held up: what the disk does not take is dropped, and counted where it would stand.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder of the logs, in a run's.
pub const FOLDER: &str = "logs";

/// The size at which a file is closed, bytes.
pub const ROTATE_AT_BYTES: u64 = 8 << 20;

/// How many closed files are kept of each service beside the one that is written.
pub const RETAINED_FILES: u32 = 4;

/// The file of a service, or of the run's own command (`run`): `number` 0 is the one that is
/// written, higher ones are older.
#[must_use]
pub fn log_path(folder: &Path, name: &str, number: u32) -> PathBuf {
    folder.join(FOLDER).join(match number {
        0 => format!("{name}.log"),
        number => format!("{name}.log.{number}"),
    })
}

/// A file of which the end can be cut off.
trait Cut: Write {
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Cut for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Where bytes go.
trait Files {
    type File: Cut;
    /// A new, empty file; the old ones step back.
    fn next(&mut self) -> io::Result<Self::File>;
    fn now_us(&self) -> u64;
}

/// One log that is written.
struct Log<F: Files> {
    files: F,
    file: Option<F::File>,
    size: u64,
    close_at: u64,
    /// What comes next goes on with a line.
    in_line: bool,
    /// The file ends within a line.
    torn: bool,
    /// Bytes dropped since the last that were written, and why.
    dropped: Option<(u64, io::Error)>,
    /// All bytes that were ever dropped, of every log of the run.
    lost: Arc<AtomicU64>,
}

impl<F: Files> Log<F> {
    fn new(files: F, close_at: u64, lost: Arc<AtomicU64>) -> Self {
        Self {
            files,
            file: None,
            size: 0,
            close_at,
            in_line: false,
            torn: false,
            dropped: None,
            lost,
        }
    }

    /// Its file is there before it is written to: who has written nothing is known by it. Where it
    /// cannot be made, the first line says so.
    fn begin(&mut self) {
        self.file = self.files.next().ok();
    }

    /// Writes, or counts as dropped.
    fn take(&mut self, bytes: &[u8]) {
        let text = self.stamped(bytes);
        match self.write(&text) {
            Ok(()) => self.in_line = bytes.last() != Some(&b'\n'),
            Err(error) => {
                let lost = bytes.len() as u64;
                self.lost.fetch_add(lost, Ordering::Relaxed);
                let before = self.dropped.take().map_or(0, |(count, _)| count);
                self.dropped = Some((before + lost, error));
                // What comes next begins a line.
                self.in_line = false;
            }
        }
    }

    /// With the time before each line that begins in it.
    fn stamped(&self, bytes: &[u8]) -> Vec<u8> {
        let now = stamp(self.files.now_us());
        let mut text = Vec::with_capacity(bytes.len() + now.len() + 1);
        let mut in_line = self.in_line;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !in_line {
                text.extend_from_slice(now.as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(line);
            in_line = false;
        }
        text
    }

    /// The last that is written: what was dropped is said once more, for there may be room now.
    fn end(&mut self) {
        if self.dropped.is_some() {
            let _ = self.write(&[]);
        }
    }

    /// Writes what was dropped before, and `text`: both, or nothing.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.file.is_none() || self.size >= self.close_at {
            // Where there is no room for a new file, the old one is not written any further.
            self.file = None;
            self.file = Some(self.files.next()?);
            (self.size, self.torn) = (0, false);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut all = Vec::with_capacity(text.len());
        if let Some((count, why)) = &self.dropped {
            if self.torn {
                all.push(b'\n');
            }
            let now = stamp(self.files.now_us());
            writeln!(all, "{now} [sconce: {count} bytes are missing here: {why}]")?;
        }
        all.extend_from_slice(text);
        if let Err(error) = file.write_all(&all) {
            // What was written before the disk was full is counted with the rest.
            self.torn |= file.cut(self.size).is_err();
            return Err(error);
        }
        self.size += all.len() as u64;
        self.torn = all.last() != Some(&b'\n');
        self.dropped = None;
        Ok(())
    }
}

/// Files of this machine.
struct OnDisk {
    folder: PathBuf,
    name: String,
}

impl Files for OnDisk {
    type File = File;

    fn next(&mut self) -> io::Result<File> {
        let at = |number| log_path(&self.folder, &self.name, number);
        for folder in [&self.folder, &self.folder.join(FOLDER)] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        // Before the old ones step back: where it cannot be made, it is tried again, and each step
        // costs the oldest.
        let hidden = self.folder.join(FOLDER).join(format!(".{}.new", self.name));
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&hidden)?;
        file.set_len(0)?;
        for number in (0..RETAINED_FILES).rev() {
            match std::fs::rename(at(number), at(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(hidden, at(0))?;
        Ok(file)
    }

    fn now_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
    }
}

/// A time as it stands before a line: `2026-11-22T10:42:17.123Z`, always of this length.
fn stamp(unix_us: u64) -> String {
    let (seconds, millis) = (unix_us / 1_000_000, unix_us / 1_000 % 1_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days from 0000-03-01, in eras of 400 years (the proleptic Gregorian calendar).
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{of_month:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The time as it stands before lines.
#[must_use]
pub fn stamp_of(unix_ms: u64) -> String {
    stamp(unix_ms.saturating_mul(1_000))
}

/// Logs of a run while it goes on.
#[derive(Debug, Default)]
pub(crate) struct LogWriters {
    /// Where they come from, until they are begun.
    waiting: Vec<(String, OwnedFd)>,
    threads: Vec<JoinHandle<()>>,
    lost: Arc<AtomicU64>,
}

impl LogWriters {
    /// A pipe for a service; gives the end to write to.
    ///
    /// # Errors
    /// The kernel's, when there is no descriptor left.
    pub(crate) fn add_service(&mut self, name: &str) -> io::Result<OwnedFd> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        self.waiting.push((name.to_owned(), reader));
        Ok(writer)
    }

    /// Begins to write, below a run's folder. What was written before waits in the pipes.
    ///
    /// # Errors
    /// The kernel's, when there can be no more threads.
    pub(crate) fn start_writing(&mut self, folder: &Path) -> io::Result<()> {
        for (name, reader) in self.waiting.drain(..) {
            let thread = std::thread::Builder::new().name(format!("log {name}"));
            let files = OnDisk {
                folder: folder.to_owned(),
                name,
            };
            let mut log = Log::new(files, ROTATE_AT_BYTES, Arc::clone(&self.lost));
            log.begin();
            self.threads
                .push(thread.spawn(move || carry(File::from(reader), log))?);
        }
        Ok(())
    }

    /// Bytes that the disk did not take so far.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything is written: when nobody has the other ends open any more.
    pub(crate) fn finish(&mut self) {
        self.waiting.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn carry<F: Files>(mut from: impl Read, mut log: Log<F>) {
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => log.take(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    log.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Files in memory on a disk that has room for so many bytes.
    #[derive(Clone, Default)]
    struct Disk(Rc<RefCell<(Vec<Vec<u8>>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (files, room) = &mut *self.0.borrow_mut();
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= count;
            files.last_mut().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Cut for Disk {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            let (files, room) = &mut *self.0.borrow_mut();
            let last = files.last_mut().unwrap();
            let length = usize::try_from(length).unwrap();
            *room += last.len() - length;
            last.truncate(length);
            Ok(())
        }
    }

    impl Files for Disk {
        type File = Self;

        fn next(&mut self) -> io::Result<Self> {
            self.0.borrow_mut().0.push(Vec::new());
            Ok(self.clone())
        }

        fn now_us(&self) -> u64 {
            1_795_343_000_123_000
        }
    }

    fn disk(room: usize) -> Disk {
        Disk(Rc::new(RefCell::new((Vec::new(), room))))
    }

    fn log(disk: &Disk, close_at: u64) -> Log<Disk> {
        Log::new(disk.clone(), close_at, Arc::default())
    }

    fn text(disk: &Disk) -> Vec<String> {
        let files = &disk.0.borrow().0;
        let text =
            |file: &Vec<u8>| String::from_utf8_lossy(file).replace(&stamp(disk.now_us()), "T");
        files.iter().map(text).collect()
    }

    #[test]
    fn lines_have_the_time_at_which_they_began() {
        let disk = disk(1 << 20);
        let mut log = log(&disk, ROTATE_AT_BYTES);
        for bytes in [&b"one\ntwo"[..], b" and a half\n", b"\n", b"\xffthree"] {
            log.take(bytes);
        }
        assert_eq!(
            text(&disk),
            ["T one\nT two and a half\nT \nT \u{fffd}three"]
        );
    }

    #[test]
    fn a_file_that_has_grown_is_closed_even_within_a_line() {
        let disk = disk(1 << 20);
        let mut log = log(&disk, 40);
        for bytes in [&b"one\n"[..], b"two\n", b"three\n", b"four", b"five"] {
            log.take(bytes);
        }
        assert_eq!(text(&disk), ["T one\nT two\n", "T three\nT four", "five"]);
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_where_it_would_stand() {
        const NOTE: &str = "T [sconce: 19 bytes are missing here: no storage space]\n";
        for (before, kept) in [(&b"one\n"[..], "T one\n"), (b"one", "T one\n")] {
            let disk = disk(40);
            let mut log = log(&disk, ROTATE_AT_BYTES);
            for bytes in [before, b"two and more\n", b"three\n"] {
                log.take(bytes);
            }
            disk.0.borrow_mut().1 = 1 << 20;
            log.take(b"four\n");
            log.end();
            // A line of its own, wherever the disk was full.
            assert_eq!(text(&disk).concat(), format!("{kept}{NOTE}T four\n"));
            assert_eq!(log.lost.load(Ordering::Relaxed), 19);
        }
    }

    #[test]
    fn what_was_missing_last_is_said_at_the_end() {
        let disk = disk(0);
        let mut log = log(&disk, ROTATE_AT_BYTES);
        log.take(b"one\n");
        disk.0.borrow_mut().1 = 1 << 20;
        log.end();
        let told = text(&disk).concat();
        assert!(
            told.starts_with("T [sconce: 4 bytes are missing here: "),
            "{told}"
        );
    }

    #[test]
    fn where_there_is_no_room_for_a_new_file_the_old_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut files = OnDisk {
            folder: run.clone(),
            name: "web".to_owned(),
        };
        for number in 0..=RETAINED_FILES {
            writeln!(files.next().unwrap(), "{number}").unwrap();
        }
        // In the way of the new file.
        let hidden = run.join(FOLDER).join(".web.new");
        std::fs::create_dir(&hidden).unwrap();
        for _ in 0..3 {
            assert!(files.next().is_err());
        }
        let read = |number| std::fs::read_to_string(log_path(&run, "web", number)).unwrap();
        let kept: Vec<_> = (0..=RETAINED_FILES).rev().map(read).collect();
        assert_eq!(kept, ["0\n", "1\n", "2\n", "3\n", "4\n"]);
    }

    #[test]
    fn all_that_is_kept_is_bounded_and_private() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let files = OnDisk {
            folder: folder.path().join("run"),
            name: "web".to_owned(),
        };
        let mut log = Log::new(files, 8, Arc::default());
        let at = |number| log_path(&folder.path().join("run"), "web", number);
        log.begin();
        assert_eq!(at(0).metadata().unwrap().len(), 0);
        for number in 0..20 {
            log.take(format!("{number}\n").as_bytes());
        }
        let read = |number| std::fs::read_to_string(at(number)).unwrap();
        assert!(read(0).ends_with(" 19\n") && read(RETAINED_FILES).ends_with(" 15\n"));
        assert!(!at(RETAINED_FILES + 1).exists());
        assert_eq!(at(0).metadata().unwrap().mode() & 0o777, 0o600);
        let logs = at(0).parent().unwrap().metadata().unwrap();
        assert_eq!(logs.mode() & 0o777, 0o700);
    }

    #[test]
    fn times_are_utc() {
        for (unix_us, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999Z"),
            (951_868_800_000_000, "2000-03-01T00:00:00.000Z"),
            (1_795_343_000_123_456, "2026-11-22T10:23:20.123Z"),
        ] {
            assert_eq!(stamp(unix_us), text);
        }
    }
}
