//! Executing a program.

use rustix::process::{Resource, getrlimit};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Null-terminated array of pointers to `strings`, which must outlive it.
pub(crate) fn null_terminated_pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// Executes `program`; returns only when that failed. `argv` and `envp` come from [`null_terminated_pointers`].
///
/// # Safety
/// The pointers in `argv` and `envp` must be valid, and the last of each null.
#[expect(unsafe_code, reason = "exec takes arrays of C strings")]
pub(crate) unsafe fn execve(
    program: &CStr,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> io::Error {
    // SAFETY: the caller's promise; `program` ends with a zero byte.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Executes the program open as `program`; returns only when that failed. Makes one plain system
/// call, so that the child of a process with threads may use it.
///
/// # Safety
/// As for [`execve`].
#[expect(unsafe_code, reason = "exec takes arrays of C strings")]
pub(crate) unsafe fn execveat(
    program: BorrowedFd<'_>,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> io::Error {
    // SAFETY: the caller's promise; AT_EMPTY_PATH takes an empty path.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// No process has more descriptors where nobody set `fs.nr_open` (proc_sys_fs(5)).
const MAX_DESCRIPTORS: u64 = 1 << 20;

/// Marks every descriptor from `first` on to be closed by the next exec. Plain system calls only.
///
/// # Errors
/// The kernel's.
#[expect(unsafe_code, reason = "rustix has no close_range")]
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no memory is passed. Only the close-on-exec flag changes, so no descriptor that
    // somebody owns is closed here.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        _ if done == 0 => Ok(()),
        // Before Linux 5.11, where runs without a container work.
        Some(libc::ENOSYS | libc::EINVAL) => mark_one_by_one(first),
        _ => Err(error),
    }
}

/// As [`close_on_exec_from`], a call for each number that a descriptor of this process may have.
///
/// # Errors
/// The kernel's.
#[expect(
    unsafe_code,
    reason = "the numbers are of descriptors that nobody here owns"
)]
fn mark_one_by_one(first: u32) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let limit = limit.current.unwrap_or(MAX_DESCRIPTORS);
    let limit = limit.min(MAX_DESCRIPTORS);
    for number in u64::from(first)..limit {
        let Ok(number) = libc::c_int::try_from(number) else {
            break;
        };
        // SAFETY: no memory is passed, and only a flag changes.
        let done = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        let error = io::Error::last_os_error();
        if done != 0 && error.raw_os_error() != Some(libc::EBADF) {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    fn an_old_kernels_descriptors_are_marked_one_by_one() {
        let file = std::fs::File::open("/dev/null").unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        mark_one_by_one(file.as_raw_fd().unsigned_abs()).unwrap();
        assert_eq!(fcntl_getfd(&file).unwrap(), FdFlags::CLOEXEC);
    }
}
