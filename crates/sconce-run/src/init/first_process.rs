//! The first process of a container that an engine made, as init sees it beside the engine.
//!
//! The command shares its process ids with init, so its end does not end what it started. Where the
//! engine is a reaper of orphans (crun), that comes to the engine, which goes on until the last of
//! it is gone. A run ends with its command, so init ends the rest. And an engine that ends before its
//! container has not said how the command ended (podman, by a signal in its first moment: code 0).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// How often something is looked at of which nothing tells.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long an engine has to say how the command ended, once that has. Then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Watches a container's first process.
pub(super) struct FirstProcessWatch<'a> {
    /// The process's parent, which goes on until all that comes to it has ended. `None` where the engine has
    /// another program start it (podman), and ends by itself.
    engine: Option<Pid>,
    /// The engine writes the process's number there.
    pid_file: &'a Path,
    state: WatchState,
}

enum WatchState {
    /// The engine has not made the container yet.
    Expected,
    Running(OwnedFd),
    /// Since when.
    Ended(Instant),
    /// It cannot be watched: the run ends with the engine.
    Unknown,
}

impl<'a> FirstProcessWatch<'a> {
    /// Watches the process that the engine is going to start; `is_parent` if it does so itself.
    pub(super) fn new(engine: Pid, is_parent: bool, pid_file: &'a Path) -> Self {
        Self {
            engine: is_parent.then_some(engine),
            pid_file,
            state: WatchState::Expected,
        }
    }

    /// Whether it has begun and not ended yet.
    pub(super) fn is_running(&mut self) -> bool {
        self.look();
        matches!(self.state, WatchState::Running(_))
    }

    /// Signals it, where its engine cannot be relied on to pass signals on: podman drops them until it has seen
    /// its container run. Tells whether it did.
    pub(super) fn signal(&mut self, signal: i32) -> bool {
        self.look();
        match (&self.state, Signal::from_named_raw(signal)) {
            (WatchState::Running(process), Some(signal)) if self.engine.is_none() => {
                pidfd_send_signal(process, signal).is_ok()
            }
            _ => false,
        }
    }

    /// Whether it has begun, ended or not.
    pub(super) fn has_begun(&mut self) -> bool {
        self.look();
        !matches!(self.state, WatchState::Expected)
    }

    fn look(&mut self) {
        if matches!(self.state, WatchState::Expected)
            && let Some(pid) = read_pid(self.pid_file)
        {
            self.state = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => WatchState::Running(process),
                // It had nothing to do for longer than a look. Its number may still be that of the
                // group or session of what it left, which is no process (pidfd_open(2): EINVAL).
                Err(Errno::SRCH | Errno::INVAL) => WatchState::Ended(Instant::now()),
                Err(_) => WatchState::Unknown,
            };
        }
        if let WatchState::Running(process) = &self.state
            && is_readable(process)
        {
            self.state = WatchState::Ended(Instant::now());
        }
    }

    /// Looks whether it has begun or ended; where it has ended, kills what it left to the engine.
    /// The engine must not have been reaped.
    pub(super) fn advance(&mut self) {
        let Some(engine) = self.engine else {
            return;
        };
        self.look();
        if let WatchState::Ended(since) = self.state {
            for pid in children_of(engine) {
                let _ = kill_process(pid, Signal::KILL);
            }
            if since.elapsed() >= END_TIMEOUT {
                let _ = kill_process(engine, Signal::KILL);
            }
        }
    }

    /// Becomes readable when it has ended.
    pub(super) fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            WatchState::Running(process) => Some(process.as_fd()),
            _ => None,
        }
    }

    /// When to look again whatever happens.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match self.state {
            _ if self.engine.is_none() => None,
            WatchState::Expected | WatchState::Ended(_) => Some(Instant::now() + LOOK_EVERY),
            WatchState::Running(_) | WatchState::Unknown => None,
        }
    }
}

fn read_pid(file: &Path) -> Option<Pid> {
    read_pid_text(&std::fs::read_to_string(file).ok()?)
}

fn read_pid_text(text: &str) -> Option<Pid> {
    Pid::from_raw(text.trim_ascii().parse().ok()?)
}

fn is_readable(fd: &OwnedFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

/// The children of a process, whichever of its threads is their parent.
fn children_of(parent: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| {
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| parent_in(&stat) == Some(parent))
    })
    .collect()
}

/// The parent in a `stat` file: the second field after the name (proc(5)), which may hold spaces,
/// brackets and bytes that are no text.
fn parent_in(stat: &[u8]) -> Option<Pid> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let parent = fields.split_ascii_whitespace().nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_a_process_is_called() {
        for (stat, parent) in [
            (&b"12 (sh) S 7 12 12 0 -1"[..], Pid::from_raw(7)),
            (b"12 (a) R 9 (\xff) S 7 12 12", Pid::from_raw(7)),
            (b"12 (kthreadd) S 0 0 0", None),
            (b"12 (sh) S", None),
            (b"12 (sh)", None),
            (b"", None),
        ] {
            assert_eq!(parent_in(stat), parent, "{}", stat.escape_ascii());
        }
    }

    /// On a slow machine the engine has taken the process before its number is read.
    #[test]
    fn a_process_whose_number_is_a_session_still_has_ended() {
        use std::os::unix::process::CommandExt;
        use std::process::{Command, Stdio};

        let mut engine = Command::new("sleep").arg("600").spawn().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 600 >&- 2>&- & echo $!"])
            .stdout(Stdio::piped());
        // A group of its own, as a container's first process has.
        let first = command.process_group(0).spawn().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), first.id().to_string()).unwrap();
        let left = first.wait_with_output().unwrap().stdout;
        let left = read_pid_text(std::str::from_utf8(&left).unwrap());

        let mut watch = FirstProcessWatch::new(Pid::from_child(&engine), true, file.path());
        watch.advance();
        let has_ended = matches!(watch.state, WatchState::Ended(_));
        kill_process(left.unwrap(), Signal::KILL).unwrap();
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert!(has_ended);
    }

    #[test]
    fn a_file_without_a_number_names_no_process() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, pid) in [
            ("", None),
            ("x", None),
            ("0", None),
            ("7\n", Pid::from_raw(7)),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(read_pid(file.path()), pid, "{text}");
        }
    }
}
