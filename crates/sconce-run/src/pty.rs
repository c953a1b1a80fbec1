//! A terminal for the command: made inside the container, joined to the caller's outside.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use crate::plan::Credentials;
use crate::protocol::Failure;
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
) -> Result<Option<Terminal>, Failure> {
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
    open().map(Some).map_err(Failure::step("open a terminal"))
}

/// Makes `slave` this session's terminal and its standard input, output and error.
pub(crate) fn adopt(slave: BorrowedFd<'_>) -> rustix::io::Result<()> {
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
    if let Ok(mut before) = BEFORE.try_lock() {
        if let Some(before) = before.take() {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before);
        }
    }
}

/// Carries bytes between the caller's terminal and the command's, until [`Relay::finish`].
#[derive(Debug)]
pub(crate) struct Relay {
    master: OwnedFd,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    raw: Option<RawMode>,
}

impl Relay {
    /// Begins.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(master: OwnedFd) -> io::Result<Self> {
        let raw = RawMode::enter()?;
        let stop = signals::stop_flag()?;
        let (theirs, stop_theirs) = (master.try_clone()?, stop.try_clone()?);
        let relay = Self {
            thread: Some(std::thread::Builder::new().name("terminal".to_owned()).spawn(move || carry(theirs, &stop_theirs))?),
            master,
            stop,
            raw,
        };
        relay.copy_size();
        Ok(relay)
    }

    /// Gives the command's terminal the size of the caller's window.
    pub(crate) fn copy_size(&self) {
        if let Ok(size) = tcgetwinsize(rustix::stdio::stdin()) {
            let _ = tcsetwinsize(&self.master, size);
        }
    }

    /// Writes what the command still wrote, and gives the caller's terminal back.
    pub(crate) fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.raw = None;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

/// The end-of-file key, for a command whose caller's input is no terminal and has ended.
const END_OF_FILE: u8 = 4;

fn carry(master: OwnedFd, stop: &OwnedFd) {
    let mut master = std::fs::File::from(master);
    let mut buffer = [0_u8; 16 * 1024];
    let (mut input_open, mut stopping) = (true, false);
    loop {
        let stdin = rustix::stdio::stdin();
        let mut fds = vec![
            PollFd::new(&master, PollFlags::IN),
            PollFd::new(stop, if stopping { PollFlags::empty() } else { PollFlags::IN }),
        ];
        if input_open && !stopping {
            fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        // Once the run is over, only what is there already.
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = poll(&mut fds, stopping.then_some(&now));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            // EIO: nobody has the other end open any more.
            match master.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    if write_out(&buffer[..count]).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        } else if stopping {
            return;
        }
        stopping |= ready[1];
        if ready.get(2) == Some(&true) {
            match rustix::io::read(stdin, &mut buffer) {
                Ok(count) if count > 0 => {
                    let _ = master.write_all(&buffer[..count]);
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                _ => {
                    input_open = false;
                    let _ = master.write_all(&[END_OF_FILE]);
                }
            }
        }
    }
}

fn write_out(mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout().as_fd(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
