//! A helper program that does not outlive its parent.
#![expect(
    unsafe_code,
    reason = "what a child does between fork and exec has no safe interface"
)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the kernel kill the program when the thread that starts it ends, however that ends
/// (`PR_SET_PDEATHSIG`, prctl(2)). A program that changes its user loses this.
pub(crate) fn kill_with_parent(command: &mut Command) {
    let parent = getpid();
    let follow = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before that.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    };
    // SAFETY: after fork the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(follow) };
}
