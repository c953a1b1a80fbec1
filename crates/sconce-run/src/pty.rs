//! A terminal for the command: made inside the container, joined to the caller's outside.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use crate::init_config::Credentials;
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
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(master: OwnedFd) -> io::Result<Self> {
        let mut relay = Self {
            stop: signals::stop_flag()?,
            threads: Vec::with_capacity(2),
            _raw: RawMode::enter()?,
            master,
        };
        for (name, carry) in [
            ("terminal-in", carry_in as fn(OwnedFd, OwnedFd)),
            ("terminal-out", carry_out),
        ] {
            let (master, stop) = (relay.master.try_clone()?, relay.stop.try_clone()?);
            let thread = std::thread::Builder::new().name(name.to_owned());
            relay
                .threads
                .push(thread.spawn(move || carry(master, stop))?);
        }
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

fn carry_in(master: OwnedFd, stop: OwnedFd) {
    let stdin = rustix::stdio::stdin();
    let mut buffer = [0_u8; 4096];
    while let Some(true) = ready(stdin, &stop, None) {
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

fn carry_out(master: OwnedFd, stop: OwnedFd) {
    let mut buffer = [0_u8; 16 * 1024];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut timeout = None;
    loop {
        match ready(master.as_fd(), &stop, timeout) {
            // Once the run is over, only what is there already.
            None if timeout.is_none() => timeout = Some(now),
            None | Some(false) => return,
            // EIO: nobody has the other end open any more.
            Some(true) => match rustix::io::read(&master, &mut buffer) {
                Ok(count) if count > 0 => {
                    if write_all(rustix::stdio::stdout(), &buffer[..count]).is_err() {
                        return;
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
fn ready(fd: BorrowedFd<'_>, stop: &OwnedFd, timeout: Option<Timespec>) -> Option<bool> {
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

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
