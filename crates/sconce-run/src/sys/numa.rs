//! set_mempolicy(2), which rustix lacks.

use std::io;

use sconce_schema::NumberSet;

/// `MPOL_PREFERRED` and `MPOL_PREFERRED_MANY` of the kernel's include/uapi/linux/mempolicy.h; the
/// second is of Linux 5.15.
const ONE: libc::c_int = 1;
const SEVERAL: libc::c_int = 5;

/// Has this thread, and what it starts and executes from now on, take memory of these nodes as long
/// as they have some.
///
/// # Errors
/// The kernel's: `EINVAL` where it does not know one of the nodes.
#[expect(unsafe_code, reason = "rustix has no set_mempolicy")]
pub(crate) fn prefer_nodes(nodes: &NumberSet) -> io::Result<()> {
    let mode = if nodes.len() == 1 { ONE } else { SEVERAL };
    // The kernel takes one bit less than it is told.
    let bits = NumberSet::END + 1;
    // SAFETY: the kernel reads that many bits, which the set has, and keeps no pointer to them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            mode,
            nodes.as_words().as_ptr(),
            u64::from(bits),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
