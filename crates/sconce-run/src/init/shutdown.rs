//! How processes end: reaping, signalling, and ending what is left.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use sconce_schema::event::ExitStatus;

/// Reaps one child that has ended; tells which and how.
pub(super) fn reap_child() -> Option<(Pid, ExitStatus)> {
    loop {
        let (pid, status) = wait(WaitOptions::NOHANG).ok()??;
        if let Some(exit) = how(status) {
            return Some((pid, exit));
        }
    }
}

fn how(status: rustix::process::WaitStatus) -> Option<ExitStatus> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(ExitStatus::Code(code as u8)),
        (None, Some(signal)) => Some(ExitStatus::Signal(signal)),
        (None, None) => None,
    }
}

/// Passes a signal on.
#[expect(unsafe_code, reason = "rustix names signals, and ours come as numbers")]
pub(super) fn send_signal(command: Pid, signal: i32) {
    // SAFETY: kill takes any numbers; the pid is that of a child that was not yet reaped, so that
    // no other process can have it.
    unsafe { libc::kill(command.as_raw_nonzero().get(), signal) };
}

/// Signals every process of a child's group, of which it is the leader.
#[expect(unsafe_code, reason = "rustix names signals, and ours come as numbers")]
pub(super) fn signal_group(leader: Pid, signal: i32) {
    let leader = leader.as_raw_nonzero().get();
    // SAFETY: as above. The child may not be the leader of its group yet; then it gets the signal
    // alone.
    unsafe {
        if libc::kill(-leader, signal) != 0 {
            libc::kill(leader, signal);
        }
    }
}

/// Kills what is left of a group whose leader was reaped a moment ago. (The number is nobody else's
/// while the group has members; that it was given away in this moment would take all numbers.)
#[expect(unsafe_code, reason = "the leader of the group is gone")]
pub(super) fn kill_group(leader: Pid) {
    // SAFETY: kill takes any numbers; a leader is never 1, so that this is no `kill(-1)`.
    unsafe { libc::kill(-leader.as_raw_nonzero().get(), libc::SIGKILL) };
}

/// What belongs to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillScope {
    /// Every process of the namespace of which this one is process 1.
    Namespace,
    /// The children of this process, to which their orphans come.
    Children,
}

/// Kills everything but this process. Returns when nothing else is left, with the command's end if
/// it came only now.
pub(super) fn kill_everything(command: Option<Pid>, reach: KillScope) -> Option<ExitStatus> {
    let mut ended = None;
    loop {
        match reach {
            // Asked again, because outside of a namespace the call would reach the machine.
            KillScope::Namespace if getpid().is_init() => {
                // SAFETY: -1 reaches every process of this namespace but process 1, which we are.
                #[expect(unsafe_code, reason = "rustix has no kill of everything")]
                unsafe {
                    libc::kill(-1, libc::SIGKILL)
                };
            }
            _ => {
                for pid in children() {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        // Killed parents hand their children to this process; they are killed in the next round.
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == command => ended = how(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return ended,
        }
    }
}

/// The direct children of this process.
fn children() -> Vec<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}
