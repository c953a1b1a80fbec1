//! Locks of flock(2) where a file system has none: Lustre without its option, some that FUSE brings.

use std::io;

use rustix::io::Errno;

/// Whether an error of flock(2) says that the file system has no locks, and not that another one has this one.
#[must_use]
pub fn are_unsupported(error: &io::Error) -> bool {
    let without = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| without.contains(&errno))
}

/// What came of a lock, for work that goes on where there are none.
///
/// # Errors
/// Any other.
pub fn if_supported(locked: io::Result<()>) -> io::Result<()> {
    match locked {
        Err(error) if are_unsupported(&error) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_one_has_is_no_file_system_without_locks() {
        for errno in [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP] {
            assert!(if_supported(Err(errno.into())).is_ok());
        }
        for errno in [Errno::WOULDBLOCK, Errno::IO, Errno::INTR, Errno::ACCESS] {
            assert!(if_supported(Err(errno.into())).is_err());
        }
    }
}
