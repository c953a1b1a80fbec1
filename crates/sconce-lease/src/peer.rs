//! The other end of a connection, as the kernel tells it.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use super::LeaseSystem;
use super::handles::has_ended;
use super::types::ProcessRef;

/// A handle of the process at the other end (Linux 6.5, include/uapi/asm-generic/socket.h); the C
/// library's headers do not name it yet.
const SO_PEERPIDFD: libc::c_int = 77;

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Effective user id when it connected.
    pub uid: u32,
    /// Its process, as this process's namespace numbers it; absent where it has no number here, as
    /// in a container with process numbers of its own that is beside this one, or is gone.
    pub pid: Option<u32>,
    /// A handle of that process, which no later process can have; absent before Linux 6.5.
    pub handle: Option<OwnedFd>,
}

impl Peer {
    /// The process, if it lives. Its number may be another's already; where there is a handle,
    /// that is found out: what was read of the number is of the right process if that one still
    /// lives afterwards.
    #[must_use]
    pub fn find_process(&self, world: &dyn LeaseSystem) -> Option<ProcessRef> {
        let process = world.process(self.pid?)?;
        self.lives().then_some(process)
    }

    fn lives(&self) -> bool {
        !self.handle.as_ref().is_some_and(has_ended)
    }
}

/// Who is at the other end, as the kernel says.
///
/// # Errors
/// The kernel's.
pub fn identify_peer(stream: &UnixStream) -> io::Result<Peer> {
    let mut told = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(stream, libc::SO_PEERCRED, &mut told)?;
    let mut handle: libc::c_int = -1;
    let handle = match option(stream, SO_PEERPIDFD, &mut handle) {
        Ok(()) => Some(owned(handle)),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => None,
        Err(error) if is_gone(&error) => {
            return Ok(Peer {
                uid: told.uid,
                pid: None,
                handle: None,
            });
        }
        Err(error) => return Err(error),
    };
    Ok(Peer {
        uid: told.uid,
        // The kernel gives 0 for a process without a number here.
        pid: u32::try_from(told.pid).ok().filter(|&pid| pid != 0),
        handle,
    })
}

/// Whether that is how the kernel says that the process ended: the words changed with its releases.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ESRCH | libc::EINVAL | libc::ENODATA)
    )
}

#[expect(
    unsafe_code,
    reason = "the descriptor comes from a system call that rustix does not have"
)]
fn owned(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the caller has it from the kernel, which made it for this call alone.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Reads a socket option. `rustix` takes the process for one that has a number, which it may not.
#[expect(unsafe_code, reason = "rustix cannot say that a process has no number")]
fn option<T>(stream: &UnixStream, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let size = size_of::<T>();
    let mut length = libc::socklen_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the kernel writes `length` bytes at most to `value`, which has as many; both callers
    // give plain numbers, of which every value is one.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    };
    match code {
        0 if length as usize == size => Ok(()),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
