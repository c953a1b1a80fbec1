//! Signals: caught by the supervisor and passed on; blocked in init; reset for the command.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Signals that a person or a scheduler sends to `sconce` and means for the command.
const FORWARDED: [libc::c_int; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Where the handler writes; -1 while nobody listens.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// A signal that was sent to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: i32,
    /// Sent by the terminal's driver, to everything in the terminal's foreground group.
    pub(crate) by_terminal: bool,
}

/// Catches the forwarded signals and changes of the window's size while it lives. One at a time
/// in a process: a second one takes over until it ends.
pub(crate) struct Catcher {
    reader: OwnedFd,
    /// Kept open for the handler.
    writer: OwnedFd,
    before: i32,
    previous: Vec<(libc::c_int, libc::sigaction)>,
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let pipe = PIPE.load(Ordering::Relaxed);
    if pipe < 0 {
        return;
    }
    // SAFETY: the kernel passes a valid siginfo_t to a handler installed with SA_SIGINFO.
    #[expect(unsafe_code, reason = "a signal handler is given a raw pointer")]
    let by_terminal = !info.is_null() && unsafe { (*info).si_code } == libc::SI_KERNEL;
    let message = [signal as u8, u8::from(by_terminal)];
    // rustix makes a plain system call and leaves errno alone, so that a handler may use it. A
    // full pipe means that signals wait already.
    // SAFETY: the descriptor stays open for as long as PIPE names it (see `drop`).
    #[expect(unsafe_code, reason = "the descriptor comes from a static")]
    let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(pipe) }, &message);
}

impl Catcher {
    /// Begins to catch.
    ///
    /// # Errors
    /// The kernel's, when there is no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(
            rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
        )?;
        let before = PIPE.swap(writer.as_raw_fd(), Ordering::SeqCst);
        let previous = FORWARDED
            .into_iter()
            .chain([libc::SIGWINCH])
            .filter_map(|signal| Some((signal, replace(signal)?)))
            .collect();
        Ok(Self {
            reader,
            writer,
            before,
            previous,
        })
    }

    /// Readable when a signal waits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The next signal that waits.
    pub(crate) fn next(&self) -> Option<ReceivedSignal> {
        let mut message = [0_u8; 2];
        match rustix::io::read(&self.reader, &mut message) {
            Ok(2) => Some(ReceivedSignal {
                signal: i32::from(message[0]),
                by_terminal: message[1] != 0,
            }),
            _ => None,
        }
    }
}

/// Installs the handler; gives what was there, or nothing where the caller ignores the signal
/// (nohup does), which stays so.
#[expect(unsafe_code, reason = "sigaction takes raw handlers")]
fn replace(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads; `old` is written by the kernel. Both structures are
    // plain data for which zeroes are valid.
    let old = unsafe {
        if libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr()) != 0 {
            return None;
        }
        old.assume_init()
    };
    if old.sa_sigaction == libc::SIG_IGN {
        return None;
    }
    // SAFETY: `on_signal` has the type that SA_SIGINFO asks for and makes only plain system calls.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = on_signal as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut new.sa_mask);
        (libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0).then_some(old)
    }
}

impl Drop for Catcher {
    fn drop(&mut self) {
        for (signal, old) in &self.previous {
            // SAFETY: `old` is what sigaction gave for this signal.
            #[expect(unsafe_code, reason = "sigaction takes raw handlers")]
            unsafe {
                libc::sigaction(*signal, &raw const *old, std::ptr::null_mut());
            }
        }
        // The handlers are gone before the descriptor is.
        PIPE.store(self.before, Ordering::SeqCst);
        let _ = self.writer.as_fd();
    }
}

/// Blocks every signal and gives a descriptor that is readable when a child has ended. For init,
/// which nothing but the supervisor and SIGKILL may stop.
///
/// # Errors
/// The kernel's, when there is no descriptor left.
#[expect(unsafe_code, reason = "rustix has no signalfd")]
pub(crate) fn children_ended() -> io::Result<OwnedFd> {
    // SAFETY: the sets are initialised by sigfillset and sigemptyset before they are used; the
    // descriptor is new and ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Empties a signal descriptor.
pub(crate) fn drain(fd: BorrowedFd<'_>) {
    let mut buffer = [0_u8; 1024];
    while rustix::io::read(fd, &mut buffer).is_ok_and(|n| n > 0) {}
}

/// What a command expects: no signal blocked, and SIGPIPE (which Rust's runtime ignores) fatal.
/// Handlers vanish with exec; what the caller of `sconce` ignored stays ignored.
#[expect(unsafe_code, reason = "rustix has no sigprocmask")]
pub(crate) fn reset_for_command() {
    // SAFETY: the set is initialised before it is used; SIG_DFL is a valid handler.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// A flag that one thread raises and another waits for in poll.
pub(crate) fn stop_flag() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}
