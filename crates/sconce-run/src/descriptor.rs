//! Descriptors that whoever started the program handed to it.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Standard input, standard output and standard error are everybody's.
const STANDARD: RawFd = 2;

/// A duplicate of the descriptor `number`, with which it shares offset and flags.
///
/// # Errors
/// `EBADF` where it is not open, or is one of this program's own files: those are closed at exec, which none
/// is that was handed on.
#[expect(
    unsafe_code,
    reason = "a descriptor that is known by its number alone is duplicated"
)]
pub fn duplicate_inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD takes any number and touches no memory.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    if number > STANDARD && flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_DUPFD_CLOEXEC takes any number and touches no memory.
    let own = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, STANDARD + 1) };
    if own == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn files_of_the_program_are_not_handed_on() {
        assert!(duplicate_inherited_fd(2).is_ok());
        let own = tempfile::tempfile().unwrap();
        for number in [own.as_raw_fd(), -1, RawFd::MAX] {
            let error = duplicate_inherited_fd(number).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{number}");
        }
    }
}
