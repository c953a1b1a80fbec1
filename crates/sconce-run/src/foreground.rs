//! A program of somebody else's in the foreground, whose end this program outlives: signals are its own.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::sys::signals::Catcher;

/// How often the end is looked for where the kernel does not tell it (pidfd_open(2), Linux 5.3).
const EXIT_POLL: Duration = Duration::from_millis(100);

/// Runs a program to its end. What a terminal sends reaches it as it reaches this one, which goes on; what somebody else
/// sends to this one is passed on to it.
///
/// # Errors
/// It cannot be started.
pub fn run_in_foreground(command: &mut Command) -> io::Result<ExitStatus> {
    let signals = Catcher::new()?;
    let mut child = command.spawn()?;
    let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let fd = signals.fd();
        let mut waits = vec![PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        waits.extend(
            end.as_ref()
                .map(|end| PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)),
        );
        let timeout = match end {
            Some(_) => None,
            None => Some(Timespec::try_from(EXIT_POLL).map_err(io::Error::other)?),
        };
        match poll(&mut waits, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(caught) = signals.next() {
            if !caught.by_terminal {
                pass_on(&child, caught.signal);
            }
        }
    }
}

fn pass_on(child: &Child, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended meanwhile.
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn it_ends_as_the_program_does() {
        let run = |script: &str| run_in_foreground(Command::new("sh").args(["-c", script]));
        assert_eq!(run("exit 9").unwrap().code(), Some(9));
        assert_eq!(run("kill -KILL $$").unwrap().signal(), Some(9));
        // A signal for this process is passed on, and ends the program alone.
        let status =
            run("sleep 60 & trap \"kill $!; exit 7\" USR1; kill -USR1 $PPID; wait").unwrap();
        assert_eq!(status.code(), Some(7));
        assert!(run_in_foreground(&mut Command::new("/no/such/program")).is_err());
    }
}
