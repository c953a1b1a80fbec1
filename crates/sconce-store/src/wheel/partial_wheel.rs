//! Bytes of a slow download, kept so that a killed one goes on where it was.
//!
//! A wheel is unpacked while it arrives and its own bytes are not kept: on a fast line fetching
//! them again costs less than writing everything twice. Once a download turns out to be slow, its
//! bytes from there on also go to a file below `partial/`. The next command that wants the wheel
//! reads the beginning from the server, then this file, then the rest from the server. Nothing in
//! the file is trusted: every byte is hashed and unpacked as if it had just arrived.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file begins with the offset in the wheel of its first byte, as a little-endian u64.
const HEAD: u64 = 8;

/// When a download is slow enough to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowThreshold {
    /// A download is not judged before it has been under way this long.
    pub after: Duration,
    /// It is slow if at its present speed it still takes this long.
    pub remaining: Duration,
}

impl Default for SlowThreshold {
    /// After 2 s, 20 s: below that, fetching again costs less than a person notices.
    fn default() -> Self {
        Self {
            after: Duration::from_secs(2),
            remaining: Duration::from_secs(20),
        }
    }
}

impl SlowThreshold {
    /// Whether a download of `size` bytes is slow that brought `got` bytes in `elapsed`.
    pub(super) fn is_slow(self, elapsed: Duration, got: u64, size: u64) -> bool {
        let left = size.saturating_sub(got) as f64 / got.max(1) as f64;
        elapsed >= self.after && elapsed.as_secs_f64() * left >= self.remaining.as_secs_f64()
    }
}

/// The kept bytes of one wheel. One process at a time has it: the one that holds the item's lock.
#[derive(Debug)]
pub(super) struct PartialWheel {
    path: PathBuf,
    file: File,
    /// Offsets in the wheel of the first byte and of the one after the last.
    start: u64,
    end: u64,
}

impl PartialWheel {
    /// What an earlier process kept, if it kept anything.
    pub(super) fn open_existing(path: &Path) -> Option<Self> {
        let file = File::options().read(true).append(true).open(path).ok()?;
        let mut head = [0; HEAD as usize];
        file.read_exact_at(&mut head, 0).ok()?;
        let length = file.metadata().ok()?.len() - HEAD;
        let start = u64::from_le_bytes(head);
        Some(Self {
            path: path.to_owned(),
            file,
            start,
            end: start.checked_add(length)?,
        })
    }

    /// Begins to keep bytes at the offset `start`, in place of what was kept before.
    pub(super) fn create(path: &Path, start: u64) -> io::Result<Self> {
        remove_if_present(path)?;
        let mut file = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(path)?;
        file.write_all(&start.to_le_bytes())?;
        Ok(Self {
            path: path.to_owned(),
            file,
            start,
            end: start,
        })
    }

    /// Offset in the wheel of the first byte that is kept.
    pub(super) fn start_offset(&self) -> u64 {
        self.start
    }

    /// Reads from the offset `at` of the wheel; 0 if these bytes are not kept.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if at < self.start || at >= self.end {
            return Ok(0);
        }
        self.file.read_at(buffer, HEAD + at - self.start)
    }

    /// Keeps `bytes` of the wheel, which begin at `at`; those that do not follow what is kept are
    /// not kept.
    pub(super) fn append(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at == self.end {
            self.file.write_all(bytes)?;
            self.end += bytes.len() as u64;
        }
        Ok(())
    }

    /// Forgets the bytes.
    pub(super) fn remove(self) -> io::Result<()> {
        remove_if_present(&self.path)
    }
}

/// Removes a part; one that is not there counts as removed.
pub(super) fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        assert!(PartialWheel::open_existing(&path).is_none());
        let mut part = PartialWheel::create(&path, 100).unwrap();
        part.append(100, b"abc").unwrap();
        part.append(104, b"not the next").unwrap();
        part.append(103, b"de").unwrap();
        drop(part);
        let part = PartialWheel::open_existing(&path).unwrap();
        let read = |at| {
            let mut buffer = [0; 16];
            let n = part.read(at, &mut buffer).unwrap();
            String::from_utf8(buffer[..n].to_vec()).unwrap()
        };
        assert_eq!(part.start_offset(), 100);
        assert_eq!(
            [read(99), read(100), read(104), read(105)],
            ["", "abcde", "e", ""]
        );
        assert_eq!(PartialWheel::create(&path, 7).unwrap().start_offset(), 7);
        PartialWheel::open_existing(&path)
            .unwrap()
            .remove()
            .unwrap();
        assert!(PartialWheel::open_existing(&path).is_none());
    }

    #[test]
    fn files_of_others_are_no_parts() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("empty", &b""[..]),
            ("short", b"1234567"),
            ("far", &[0xff; 9]),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            assert!(PartialWheel::open_existing(&path).is_none(), "{name}");
        }
    }

    #[test]
    fn slow_is_what_takes_long_still() {
        let slow = SlowThreshold::default();
        let seconds = Duration::from_secs;
        // 1 MB a second: the first two seconds tell nothing.
        assert!(!slow.is_slow(seconds(1), 1_000_000, 500_000_000));
        assert!(slow.is_slow(seconds(3), 3_000_000, 500_000_000));
        assert!(!slow.is_slow(seconds(481), 481_000_000, 500_000_000));
        // 100 MB a second.
        assert!(!slow.is_slow(seconds(3), 300_000_000, 500_000_000));
        // Nothing came at all.
        assert!(slow.is_slow(seconds(3), 0, 500_000_000));
        assert!(!slow.is_slow(seconds(3), 9, 9));
    }
}
