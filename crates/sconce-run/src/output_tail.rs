//! The end of what a command wrote, kept while Sconce carries it to the caller: what a failure is
//! explained by.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};
use rustix::termios::isatty;

use crate::sys::signals;

/// How much is kept, bytes. A traceback of many ranks fits.
pub(crate) const MAX_TAIL_BYTES: usize = 64 << 10;

/// The last bytes that were written; copies share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputTail(Arc<Mutex<VecDeque<u8>>>);

impl OutputTail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(MAX_TAIL_BYTES);
        kept.drain(..excess);
    }

    /// What is kept.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().copied().collect()
    }
}

/// What of a command's output its receiver did not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostOutput {
    /// How much is missing, bytes.
    pub bytes: u64,
    /// The kernel's number of the first error, errno(3).
    pub errno: i32,
}

/// Counts what is lost where a command goes on all the same; copies share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossCounter(Arc<Mutex<Option<LostOutput>>>);

impl LossCounter {
    fn add(&self, count: usize, error: Errno) {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = lost.get_or_insert(LostOutput {
            bytes: 0,
            errno: error.raw_os_error(),
        });
        lost.bytes += count as u64;
    }

    /// What was lost so far; `None` where all was taken.
    pub(crate) fn lost_output(&self) -> Option<LostOutput> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a command whose output is not taken.
#[derive(Debug, Clone)]
pub(crate) enum WriteFailure {
    /// Its next write fails, as where it had written there itself: `… | head` ends it.
    PassOn,
    /// It goes on, and what is missing is counted. There may be room again later.
    Count(LossCounter),
}

/// Carries what comes from `from` to `to` and keeps its end, until there is no more; once `stop` is
/// up, only what is there already.
pub(crate) fn carry(
    from: &OwnedFd,
    to: BorrowedFd<'_>,
    stop: &OwnedFd,
    tail: &OutputTail,
    on_failure: &WriteFailure,
) {
    let mut buffer = [0_u8; 16 * 1024];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut timeout = None;
    loop {
        match wait_readable(from.as_fd(), stop, timeout) {
            None if timeout.is_none() => timeout = Some(now),
            None | Some(false) => return,
            // EIO: nobody has the other end of a terminal open any more.
            Some(true) => match rustix::io::read(from, &mut buffer) {
                Ok(count) if count > 0 => {
                    tail.push(&buffer[..count]);
                    match (write_all(to, &buffer[..count]), on_failure) {
                        (Ok(()), _) => {}
                        (Err(_), WriteFailure::PassOn) => return,
                        (Err((left, error)), WriteFailure::Count(lost)) => lost.add(left, error),
                    }
                }
                Err(Errno::INTR) => {}
                _ => return,
            },
        }
    }
}

/// Waits until `fd` can be read (`Some(true)`), the stop flag is up and `fd` has nothing (`None`)
/// or the time is over (`Some(false)`).
pub(crate) fn wait_readable(
    fd: BorrowedFd<'_>,
    stop: &OwnedFd,
    timeout: Option<Timespec>,
) -> Option<bool> {
    loop {
        // With a timeout the stop flag has been seen.
        let watch_stop = if timeout.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut fds = [
            PollFd::from_borrowed_fd(fd, PollFlags::IN),
            PollFd::new(stop, watch_stop),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) if !fds[0].revents().is_empty() => return Some(true),
            Ok(_) if !fds[1].revents().is_empty() => return None,
            Ok(_) => return Some(false),
        }
    }
}

/// Writes all of it, and waits where `to` does not block and is full.
///
/// # Errors
/// How many bytes were not written, and the kernel's error.
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), (usize, Errno)> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(error) => return Err((bytes.len(), error)),
        }
    }
    Ok(())
}

/// Carries a command's standard error to the caller's, where that is no terminal. Where both
/// standard outputs are the same file, both are carried, so that their order stays.
#[derive(Debug)]
pub(crate) struct ErrorRelay {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// What the command writes to in place of the caller's.
#[derive(Debug)]
pub(crate) struct RelayedStreams {
    pub(crate) writer: OwnedFd,
    /// Standard output too.
    pub(crate) both: bool,
}

impl ErrorRelay {
    /// Begins; `None` where standard error is a terminal, whose program is to find it, or is closed.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(
        tail: OutputTail,
        on_failure: WriteFailure,
    ) -> io::Result<Option<(Self, RelayedStreams)>> {
        let Ok(to) = stderr().try_clone_to_owned() else {
            return Ok(None);
        };
        if isatty(&to) {
            return Ok(None);
        }
        let (from, writer) = std::io::pipe()?;
        let from = OwnedFd::from(from);
        let stop = signals::stop_flag()?;
        let stopped = stop.try_clone()?;
        let thread = std::thread::Builder::new().name("error-out".to_owned());
        let thread =
            thread.spawn(move || carry(&from, to.as_fd(), &stopped, &tail, &on_failure))?;
        let relay = Self {
            stop,
            thread: Some(thread),
        };
        let streams = RelayedStreams {
            writer: writer.into(),
            both: is_same_file(stdout(), stderr()),
        };
        Ok(Some((relay, streams)))
    }
}

impl Drop for ErrorRelay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let identity = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    #[test]
    fn the_end_of_what_goes_by_is_kept() {
        let tail = OutputTail::default();
        tail.push(&vec![b'a'; MAX_TAIL_BYTES]);
        tail.push(b"the end");
        let kept = tail.to_bytes();
        assert_eq!(kept.len(), MAX_TAIL_BYTES);
        assert!(kept.starts_with(b"aaa") && kept.ends_with(b"athe end"));
    }

    #[test]
    fn what_is_carried_arrives_and_a_stop_takes_what_is_there() {
        let (from, mut source) = std::io::pipe().unwrap();
        let (mut sink, to) = std::io::pipe().unwrap();
        let (from, to) = (OwnedFd::from(from), OwnedFd::from(to));
        let stop = signals::stop_flag().unwrap();
        source.write_all(b"one\ntwo\n").unwrap();
        // The writer stays open, as where a process of the run is left.
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
        let tail = OutputTail::default();
        carry(&from, to.as_fd(), &stop, &tail, &WriteFailure::PassOn);
        assert_eq!(tail.to_bytes(), b"one\ntwo\n");
        drop(to);
        let mut text = String::new();
        sink.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn who_writes_to_nobody_is_told_so() {
        let (from, mut source) = std::io::pipe().unwrap();
        let (sink, to) = std::io::pipe().unwrap();
        drop(sink);
        let (from, to) = (OwnedFd::from(from), OwnedFd::from(to));
        let stop = signals::stop_flag().unwrap();
        source.write_all(b"lost").unwrap();
        let carrying = std::thread::spawn(move || {
            let tail = OutputTail::default();
            carry(&from, to.as_fd(), &stop, &tail, &WriteFailure::PassOn);
        });
        carrying.join().unwrap();
        let error = source.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_and_the_writer_goes_on() {
        let (from, mut source) = std::io::pipe().unwrap();
        // Every write to it is ENOSPC, full(4).
        let full = File::options().write(true).open("/dev/full").unwrap();
        let from = OwnedFd::from(from);
        let stop = signals::stop_flag().unwrap();
        let (tail, lost) = (OutputTail::default(), LossCounter::default());
        let writing = std::thread::spawn(move || {
            for _ in 0..100 {
                source.write_all(&[b'x'; 4096]).unwrap();
            }
            source.write_all(b"the end").unwrap();
        });
        let on_failure = WriteFailure::Count(lost.clone());
        carry(&from, full.as_fd(), &stop, &tail, &on_failure);
        writing.join().unwrap();
        assert!(tail.to_bytes().ends_with(b"xthe end"));
        let errno = Errno::NOSPC.raw_os_error();
        let bytes = 100 * 4096 + 7;
        assert_eq!(lost.lost_output(), Some(LostOutput { bytes, errno }));
    }

    #[test]
    fn files_are_told_apart() {
        let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let copy: File = one.try_clone().unwrap();
        assert!(is_same_file(one.as_fd(), copy.as_fd()));
        assert!(!is_same_file(one.as_fd(), other.as_fd()));
    }
}
