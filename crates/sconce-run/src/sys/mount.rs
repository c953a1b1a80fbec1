//! mount_setattr(2), which rustix lacks.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The mount cannot be written through.
pub(crate) const RDONLY: u64 = 0x1;
/// Set-user-id bits do nothing.
pub(crate) const NOSUID: u64 = 0x2;
/// Device nodes do nothing.
pub(crate) const NODEV: u64 = 0x4;
/// Nothing can be executed.
pub(crate) const NOEXEC: u64 = 0x8;
const IDMAP: u64 = 0x10_0000;

/// `struct mount_attr` of the kernel (mount_setattr(2)).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Adds attributes to the mount at `path` below `at` (an empty path is `at` itself), and to those
/// below it when `recursive`. With `users`, the mount also shows its files' owners as that user
/// namespace maps them. All or nothing. Plain system calls only.
///
/// # Errors
/// The kernel's: `ENOSYS` before Linux 5.12, `EINVAL` from a file system that cannot map owners.
#[expect(unsafe_code, reason = "rustix has no mount_setattr")]
pub(crate) fn set_attributes(
    at: impl AsFd,
    path: &CStr,
    recursive: bool,
    attributes: u64,
    users: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: attributes | users.map_or(0, |_| IDMAP),
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let recursive = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `path` ends with a zero byte and `attr` is the kernel's structure with its true
    // size; both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_fd().as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
