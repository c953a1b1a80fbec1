//! Executing a program.

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

/// Marks every descriptor from `first` on to be closed by the next exec. Plain system calls only.
///
/// # Errors
/// The kernel's; `ENOSYS` or `EINVAL` before Linux 5.11.
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
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
