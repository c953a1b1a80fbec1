//! Landlock (landlock(7)), as far as sockets without a file go.

use std::io;

/// `struct landlock_ruleset_attr` of the kernel.
#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET`
const ABSTRACT_SOCKETS: u64 = 1;

/// From now on this process and its descendants reach no abstract Unix socket but their own. Such
/// sockets belong to a network and have no file and no mode, so that on the machine's network every
/// program that listens on one would be in reach (CVE-2020-15257). Needs no_new_privs.
///
/// # Errors
/// The kernel's: `EINVAL` or `E2BIG` before Linux 6.12, `ENOSYS` or `EOPNOTSUPP` without Landlock.
#[expect(unsafe_code, reason = "rustix has no Landlock")]
pub(crate) fn keep_to_own_sockets() -> io::Result<()> {
    let rules = Ruleset {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: ABSTRACT_SOCKETS,
    };
    // SAFETY: `rules` is the kernel's structure with its true size, and outlives the call.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const rules,
            size_of::<Ruleset>(),
            0,
        )
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory is passed. The descriptor is closed by the exec that follows, or with this
    // process.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, made, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
