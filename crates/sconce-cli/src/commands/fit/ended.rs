//! How a command ended of which no process told what it did.

use std::path::Path;

use sconce_record::list_runs;
use sconce_report::describe_signal;
use sconce_schema::Bytes;
use sconce_schema::event::{ExitStatus, RecordEvent};

use super::failure::FitError;
use super::trial::SEEN;

/// What the probe leaves in a trial's folder once a process has imported torch (`leave_mark` of
/// `python/sconce_probe/fit.py`).
const TORCH_MARK: &str = "torch";
/// SIGKILL, which the kernel sends for want of memory.
const KILL: i32 = 9;
/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV: what a program does to itself.
const CRASHES: [i32; 6] = [4, 5, 6, 7, 8, 11];

/// A command that a signal ended, or what it started.
#[derive(Debug, PartialEq)]
pub(super) struct SignalledEnd {
    pub(super) code: u8,
    pub(super) signal: i32,
    /// Whether a process of it had imported torch.
    pub(super) had_torch: bool,
    /// Processes that the kernel killed because memory ran out; `None` where it does not count them.
    pub(super) oom_kills: Option<u64>,
    /// The run's memory limit.
    pub(super) limit: Option<Bytes>,
}

impl SignalledEnd {
    /// What the signal did to it: `killed (SIGKILL)`.
    pub(super) fn describe_signal(&self) -> String {
        let (name, meaning) = describe_signal(self.signal);
        format!("{meaning} ({name})")
    }

    /// What it had not come to.
    pub(super) fn describe_progress(&self) -> &'static str {
        match self.had_torch {
            true => "before its steps were taken",
            false => "before any process of it had imported torch",
        }
    }

    /// Who sent the signal, as far as that is known, and what to do.
    pub(super) fn hint(&self) -> Option<String> {
        let limit = match self.limit {
            Some(limit) => format!("its memory limit is {limit} (`memory` under [run])"),
            None => {
                "it had no memory limit of its own, so the machine's memory was full".to_owned()
            }
        };
        match (self.signal, self.oom_kills) {
            (KILL, Some(1..)) => Some(format!("the kernel killed it for want of memory: {limit}")),
            (KILL, Some(0)) => Some(
                "the kernel counted no kill for want of memory: somebody else sent it".to_owned(),
            ),
            (KILL, None) => Some(match self.limit {
                Some(_) => format!("the kernel may have killed it for want of memory: {limit}"),
                None => "the kernel may have killed it for want of memory: it had no limit of its own, and \
                         the kernel's log (`dmesg`) names what it kills"
                    .to_owned(),
            }),
            (signal, _) if CRASHES.contains(&signal) => {
                Some("`python -X faulthandler` prints the line at which it was".to_owned())
            }
            _ => None,
        }
    }
}

/// Why no process of a trial told anything: by the mark of torch, and by the trial's own record, where there is
/// one.
pub(super) fn explain_silence(folder: &Path, code: u8) -> FitError {
    let had_torch = folder.join(SEEN).join(TORCH_MARK).exists();
    let listing = list_runs(&folder.join("runs")).unwrap_or_default();
    let run = listing.runs.into_iter().next();
    let limit = run.as_ref().and_then(|run| run.started.limits.memory);
    let ended = match run.and_then(|run| run.last).map(|line| line.event) {
        Some(RecordEvent::Ended(ended)) => Some(ended),
        _ => None,
    };
    let signal = match ended.as_ref().map(|ended| ended.exit) {
        Some(ExitStatus::Signal(signal)) => Some(signal),
        // Shells tell a signal so, as the server of trials does.
        _ => matches!(code, 129..=159).then(|| i32::from(code) - 128),
    };
    match (signal, had_torch) {
        (Some(signal), _) => FitError::Signalled(SignalledEnd {
            code,
            signal,
            had_torch,
            oom_kills: ended.and_then(|ended| ended.last.oom_kills),
            limit,
        }),
        (None, true) => FitError::NoExitHandlers { code },
        (None, false) => FitError::NoTorch { code },
    }
}

#[cfg(test)]
mod tests {
    use sconce_schema::{Hint as _, exit};

    use super::*;

    fn trial(marked: bool, code: u8) -> FitError {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(SEEN)).unwrap();
        if marked {
            std::fs::write(folder.path().join(SEEN).join(TORCH_MARK), "").unwrap();
        }
        explain_silence(folder.path(), code)
    }

    #[test]
    fn what_ended_a_command_is_told_apart() {
        assert_eq!(trial(false, 7), FitError::NoTorch { code: 7 });
        for code in [0, 1, 7, 255] {
            assert_eq!(trial(true, code), FitError::NoExitHandlers { code });
        }
        let told = |marked, code| trial(marked, code).to_string();
        assert_eq!(
            told(true, 139),
            "the command ended with 139: it, or what it started, was ended by a segmentation fault (SIGSEGV) \
             before its steps were taken"
        );
        assert_eq!(
            told(false, 143),
            "the command ended with 143: it, or what it started, was asked to end (SIGTERM) before any process \
             of it had imported torch"
        );
        assert!(!trial(true, 134).hint().unwrap().contains("memory"));
        assert_eq!(trial(true, 137).exit_code(), exit::BAD_INPUT);
    }

    #[test]
    fn a_kill_is_the_kernels_where_that_is_known() {
        let hint = |oom_kills, limit| {
            let end = SignalledEnd {
                code: 137,
                signal: KILL,
                had_torch: true,
                oom_kills,
                limit,
            };
            end.hint().unwrap()
        };
        let limit = Some(Bytes::from_mib(512));
        assert_eq!(
            hint(Some(1), limit),
            "the kernel killed it for want of memory: its memory limit is 512 MiB (`memory` under [run])"
        );
        assert!(hint(Some(2), None).contains("the machine's memory was full"));
        assert!(hint(Some(0), limit).contains("somebody else sent it"));
        assert!(
            hint(None, limit).contains("may have killed it")
                && hint(None, limit).contains("512 MiB")
        );
        assert!(hint(None, None).contains("no limit of its own"));
    }
}
