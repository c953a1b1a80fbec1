//! Ending a process that a record names: it is held by a pidfd first, and looked at then, so that a
//! number that was given to somebody else meanwhile is never hit.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{self, Pid, PidfdFlags};
use sconce_record::RunEntry;
use sconce_report::live::{Signal, SignalRecipient};

/// A process's parents are followed no further than this.
const MAX_ANCESTORS: usize = 256;

/// Why nothing is ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignalError {
    #[error("the run is not on record any longer")]
    NoRun,
    #[error("this run has ended")]
    Ended,
    #[error("this run is on the machine `{0}`")]
    Elsewhere(String),
    #[error("process {0} has ended")]
    Gone(u32),
    #[error("process {0} is not one of this run's")]
    NotOurs(u32),
    #[error("process {0} does not write this run's record: it may be another one by now")]
    NotTheWriter(u32),
    #[error("process {pid} cannot be ended: {source}")]
    Refused { pid: u32, source: Errno },
}

/// A process that is held.
pub(super) struct ProcessHandle {
    pid: u32,
    handle: OwnedFd,
}

impl ProcessHandle {
    /// Holds the process that is meant; `shown` is the run of which the screen shows processes.
    pub(super) fn open_process(
        target: &SignalRecipient,
        shown: Option<&str>,
        entries: &[RunEntry],
    ) -> Result<Self, SignalError> {
        let id = match target {
            SignalRecipient::Run(id) => Some(id.as_str()),
            SignalRecipient::Process { .. } => shown,
        };
        let run = entries
            .iter()
            .find(|run| Some(run.started.id.as_str()) == id);
        let run = run.ok_or(SignalError::NoRun)?;
        let host = &run.started.host.hostname;
        let here = rustix::system::uname();
        if here.nodename().to_bytes() != host.as_bytes() {
            return Err(SignalError::Elsewhere(host.clone()));
        }
        let sconce = run.started.sconce_pid;
        let pid = match target {
            SignalRecipient::Run(_) => sconce,
            SignalRecipient::Process { pid, .. } => *pid,
        };
        let raw = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(SignalError::NotOurs(pid))?;
        let handle =
            process::pidfd_open(raw, PidfdFlags::empty()).map_err(|source| match source {
                Errno::SRCH => SignalError::Gone(pid),
                source => SignalError::Refused { pid, source },
            })?;
        // Asked after the process is held: while its `sconce` holds the record, that number is its.
        if !sconce_record::open_record(&run.path).is_ok_and(|record| record.running) {
            return Err(SignalError::Ended);
        }
        // On a file system without locks the record's number is all there is, and it may be another's by
        // now. Its `sconce` has the file open, and nobody else writes it.
        if !has_open(sconce, &run.path) {
            return Err(SignalError::NotTheWriter(sconce));
        }
        match target {
            SignalRecipient::Process { name, .. }
                if !(is_called(pid, name) && descends(pid, sconce)) =>
            {
                Err(SignalError::NotOurs(pid))
            }
            _ => Ok(Self { pid, handle }),
        }
    }

    /// Sends it the signal.
    pub(super) fn send_signal(self, signal: Signal) -> Result<(), SignalError> {
        let pid = self.pid;
        let number = match signal {
            Signal::Term => process::Signal::TERM,
            Signal::Kill => process::Signal::KILL,
        };
        process::pidfd_send_signal(&self.handle, number).map_err(|source| match source {
            Errno::SRCH => SignalError::Gone(pid),
            source => SignalError::Refused { pid, source },
        })
    }
}

/// A signal's name.
pub(super) fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::Term => "SIGTERM",
        Signal::Kill => "SIGKILL",
    }
}

/// Whether a process has a file open. Of one that may not be looked into it is not known, and so not true.
fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(file) = path.metadata() else {
        return false;
    };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    // Following such a link opens nothing: it names what is open.
    open.filter_map(|entry| entry.ok()?.path().metadata().ok())
        .any(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
}

fn is_called(pid: u32, name: &str) -> bool {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end_matches('\n') == name
}

/// Whether one of its parents is `ancestor`.
fn descends(pid: u32, ancestor: u32) -> bool {
    std::iter::successors(Some(pid), |pid| parent(*pid))
        .skip(1)
        .take(MAX_ANCESTORS)
        .any(|pid| pid == ancestor)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parent_of(&String::from_utf8_lossy(&stat)).filter(|parent| *parent > 0)
}

/// The parent in `/proc/PID/stat` (proc(5)): the second word after the name, which may have brackets
/// and spaces of its own.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_behind_hostile_names() {
        assert_eq!(parent_of("12 (a) S 1 (b) R 7) S 5 12 12"), Some(5));
        assert_eq!(parent_of("12 (python) S 4 12 12"), Some(4));
        assert_eq!(parent_of(""), None);
        assert_eq!(parent_of("12 (x) S"), None);
    }

    /// As on a file system without locks, where the number was given to somebody else: here the lock is
    /// held and the number is another's.
    #[test]
    fn a_number_that_is_another_process_is_not_aimed_at() {
        let dir = tempfile::tempdir().unwrap();
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let uname = rustix::system::uname();
        let started = |pid: u32| {
            let host = uname.nodename().to_string_lossy();
            format!(
                r#"{{"t_us":0,"event":"started","format":2,"id":"a-1","unix-ms":1,"command":["true"],"folder":"/","mode":"host","sconce-pid":{pid},"limits":{{}},"host":{{"hostname":"{host}","kernel":"6","cpus":1,"memory":1}},"gpus":[]}}"#
            ) + "\n"
        };
        let run = dir.path().join("a-1");
        fs::create_dir(&run).unwrap();
        let path = run.join(sconce_record::FILE);
        let aim = |pid: u32| {
            fs::write(&path, started(pid)).unwrap();
            let held = fs::File::options().append(true).open(&path).unwrap();
            held.try_lock().unwrap();
            let entries = sconce_record::list_runs(dir.path()).unwrap().runs;
            assert_eq!(entries.len(), 1);
            ProcessHandle::open_process(&SignalRecipient::Run("a-1".to_owned()), None, &entries)
                .map(|aim| aim.pid)
        };
        let refused = aim(other.id());
        let ours = aim(std::process::id());
        other.kill().unwrap();
        other.wait().unwrap();
        let number = other.id();
        assert!(matches!(refused, Err(SignalError::NotTheWriter(pid)) if pid == number));
        assert_eq!(ours.unwrap(), std::process::id());
    }

    #[test]
    fn this_test_descends_from_who_started_it() {
        let own = std::process::id();
        let started_by = parent(own).unwrap();
        assert!(descends(own, started_by));
        assert!(!descends(started_by, own));
    }
}
