//! Installing a filter of system calls.

use std::io;

/// One instruction of a classic BPF program (`struct sock_filter`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeccompInstruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

#[repr(C)]
struct Program {
    len: u16,
    filter: *const SeccompInstruction,
}

/// Filters the system calls of this thread and of all its descendants, for good. Needs
/// no_new_privs to be set.
///
/// # Errors
/// The kernel's: `EINVAL` where the kernel has no seccomp filters or the program is malformed.
#[expect(unsafe_code, reason = "rustix has no seccomp")]
pub(crate) fn install_filter(program: &[SeccompInstruction]) -> io::Result<()> {
    let program = Program {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr(),
    };
    // SAFETY: `program` describes a live slice of the kernel's own layout; the kernel copies and
    // checks it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
