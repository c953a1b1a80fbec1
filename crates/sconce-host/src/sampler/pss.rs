//! Proportional set size: a page shared by n processes counts 1/n in each, so that the sum over
//! a tree of forked workers is what they take together.
//!
//! The kernel walks a process's page tables for it, which costs milliseconds for each GiB of
//! small pages. It is therefore read as often as [`PSS_SHARE`] allows, each time for the whole
//! tree, and reported in that sample only.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sconce_schema::Bytes;

use super::parse;
use super::reread_file::read_whole;

/// The largest share of one core that reading PSS takes, in the long run.
pub const PSS_SHARE: f64 = 0.005;

/// Reads the PSS of a tree, not too often.
#[derive(Debug)]
pub(super) struct PssReader {
    proc: PathBuf,
    due: Option<Instant>,
    buffer: Vec<u8>,
}

impl PssReader {
    pub(super) fn new(proc: PathBuf) -> Self {
        Self {
            proc,
            due: None,
            buffer: Vec::new(),
        }
    }

    /// The sum over `pids`; `None` when it is not due, or a process that is still there may not
    /// be looked at (a partial sum would mislead).
    pub(super) fn read_if_due(&mut self, pids: impl Iterator<Item = u32>) -> Option<Bytes> {
        let now = Instant::now();
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        let began = thread_cpu();
        let sum = self.sum(pids);
        self.due = Some(now + pause(thread_cpu().saturating_sub(began)));
        sum
    }

    fn sum(&mut self, pids: impl Iterator<Item = u32>) -> Option<Bytes> {
        let (mut sum, mut any) = (0_u64, false);
        for pid in pids {
            let path = self.proc.join(format!("{pid}/smaps_rollup"));
            let text = match File::open(&path) {
                Ok(file) => read_whole(&file, &mut self.buffer),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(_) => return None,
            };
            // A process that ended between opening and reading has no memory any more.
            if let Some(kib) = text.and_then(|text| parse::number_field(text, "Pss")) {
                any = true;
                sum = sum.checked_add(kib.checked_mul(1024)?)?;
            }
        }
        any.then_some(Bytes(sum))
    }
}

/// How long to wait after a reading that took `cost` of CPU time.
fn pause(cost: Duration) -> Duration {
    cost.div_f64(PSS_SHARE)
}

/// CPU time of this thread: on a busy machine the wall clock would count the others' turns.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_follows_the_cost() {
        assert_eq!(pause(Duration::from_millis(10)), Duration::from_secs(2));
        assert_eq!(pause(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn sums_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let write = |pid: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join(pid)).unwrap();
            std::fs::write(folder.path().join(pid).join("smaps_rollup"), text).unwrap();
        };
        write(
            "1",
            "00-ff ---p 00000000 00:00 0  [rollup]\nRss: 9 kB\nPss:    4 kB\n",
        );
        write("2", "Pss: 6 kB\n");
        write("3", "");
        let mut reader = PssReader::new(folder.path().to_owned());
        assert_eq!(reader.sum([1, 2, 3, 99].into_iter()), Some(Bytes(10 << 10)));
        assert_eq!(reader.sum([99].into_iter()), None);
        write("4", &format!("Pss: {} kB\n", u64::MAX));
        assert_eq!(reader.sum([4].into_iter()), None);
    }

    #[test]
    fn a_dear_reading_is_not_repeated_at_once() {
        let mut reader = PssReader::new("/proc".into());
        reader.due = Some(Instant::now() + Duration::from_secs(3600));
        assert_eq!(reader.read_if_due([std::process::id()].into_iter()), None);
    }
}
