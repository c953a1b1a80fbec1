//! A terminal for the command: made inside the container, joined to the caller's outside.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use crate::init_config::Credentials;
use crate::output_tail::{OutputTail, WriteFailure, carry, wait_readable, write_all};
use crate::protocol::InitFailure;
use crate::sys::signals;

/// Both ends of a new terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The supervisor's.
    pub(crate) master: OwnedFd,
    /// The command's.
    pub(crate) slave: OwnedFd,
}

/// Makes a terminal from the /dev that this process sees, owned by the run's user.
pub(crate) fn open_if(
    wanted: bool,
    owner: Option<&Credentials>,
) -> Result<Option<Terminal>, InitFailure> {
    if !wanted {
        return Ok(None);
    }
    let open = || {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = rustix::fs::open(c"/dev/ptmx", flags, Mode::empty())?;
        unlockpt(&master)?;
        let peer = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, peer)?;
        if let Some(owner) = owner.filter(|owner| owner.change) {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            rustix::fs::fchown(&slave, Some(uid), Some(gid))?;
        }
        Ok::<_, rustix::io::Errno>(Terminal { master, slave })
    };
    open()
        .map(Some)
        .map_err(InitFailure::at_step("open a terminal"))
}

/// Makes `slave` this session's terminal and its standard input, output and error.
pub(crate) fn set_controlling_terminal(slave: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::process::ioctl_tiocsctty(slave)?;
    rustix::stdio::dup2_stdin(slave)?;
    rustix::stdio::dup2_stdout(slave)?;
    rustix::stdio::dup2_stderr(slave)
}

/// The caller's terminal in raw mode, while this lives: keys go to the command as they are.
#[derive(Debug)]
struct RawMode;

/// The settings to return to.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

impl RawMode {
    /// Does nothing when the caller's input is no terminal.
    fn enter() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        // The release build aborts on a panic, which runs this hook and no destructor.
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                previous(info);
            }));
        });
        tcsetattr(stdin, OptionalActions::Flush, &raw)?;
        Ok(Some(Self))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // A panic while the lock is held must not become a deadlock.
    if let Ok(mut before) = BEFORE.try_lock()
        && let Some(before) = before.take()
    {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before);
    }
}

/// Carries bytes between the caller's terminal and the command's, until it is dropped: then what
/// the command still wrote is written, and the caller's terminal is given back.
#[derive(Debug)]
pub(crate) struct Relay {
    master: OwnedFd,
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
    _raw: Option<RawMode>,
}

impl Relay {
    /// Begins. Each direction has a thread, so that a command that does not read can still write.
    /// `tail` keeps the end of what it writes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(master: OwnedFd, tail: OutputTail) -> io::Result<Self> {
        let mut relay = Self {
            stop: signals::stop_flag()?,
            threads: Vec::with_capacity(2),
            _raw: RawMode::enter()?,
            master,
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let ends = || Ok::<_, io::Error>((relay.master.try_clone()?, relay.stop.try_clone()?));
        let (master, stop) = ends()?;
        let inward = thread("terminal-in").spawn(move || carry_in(&master, &stop))?;
        let (master, stop) = ends()?;
        relay.threads.push(inward);
        let outward = move || {
            let on_failure = WriteFailure::PassOn;
            carry(&master, rustix::stdio::stdout(), &stop, &tail, &on_failure);
        };
        relay.threads.push(thread("terminal-out").spawn(outward)?);
        relay.copy_size();
        Ok(relay)
    }

    /// Gives the command's terminal the size of the caller's window.
    pub(crate) fn copy_size(&self) {
        if let Ok(size) = tcgetwinsize(rustix::stdio::stdin()) {
            let _ = tcsetwinsize(&self.master, size);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The end-of-file key, for a command whose caller's input is no terminal and has ended.
const END_OF_FILE: u8 = 4;

fn carry_in(master: &OwnedFd, stop: &OwnedFd) {
    let stdin = rustix::stdio::stdin();
    let mut buffer = [0_u8; 4096];
    while let Some(true) = wait_readable(stdin, stop, None) {
        let bytes: &[u8] = match rustix::io::read(stdin, &mut buffer) {
            Ok(count) if count > 0 => &buffer[..count],
            Err(Errno::INTR | Errno::AGAIN) => continue,
            _ => &[END_OF_FILE],
        };
        let ended = bytes == [END_OF_FILE] && !io::stdin().is_terminal();
        if write_all(master.as_fd(), bytes).is_err() || ended {
            return;
        }
    }
}
