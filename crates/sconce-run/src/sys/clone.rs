//! New processes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct clone_args` of the kernel (clone(2)); libc has it for some C libraries only.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Which of the two processes this is.
pub(crate) enum CloneResult {
    /// The new one.
    Child,
    /// The old one, with a handle on the new one.
    Parent {
        /// In the caller's process-id namespace.
        pid: i32,
        /// Becomes readable when the child has ended.
        pidfd: OwnedFd,
    },
}

/// `fork` with namespaces: `flags` are the `CLONE_NEW…` flags wanted. The child begins as a
/// member of `cgroup` (a v2 folder) when one is given.
///
/// # Errors
/// The kernel's: `ENOSYS` where clone3 is missing and a cgroup was asked for.
///
/// # Safety
/// Where the caller has more than one thread, the child may only make plain system calls until it
/// executes a program or exits: locks held by other threads (the allocator's) stay locked.
#[expect(unsafe_code, reason = "no safe interface to clone exists")]
pub(crate) unsafe fn fork(
    flags: libc::c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<CloneResult> {
    let mut pidfd: libc::c_int = -1;
    let pid = match cgroup {
        Some(cgroup) => {
            let args = CloneArgs {
                // CLONE_INTO_CGROUP is beyond 32 bits.
                flags: (flags | libc::CLONE_PIDFD) as u64 | 0x2_0000_0000,
                pidfd: &raw mut pidfd as u64,
                exit_signal: libc::SIGCHLD as u64,
                cgroup: cgroup.as_raw_fd() as u64,
                ..CloneArgs::default()
            };
            // SAFETY: `args` is the kernel's structure with its true size; `pidfd` outlives the
            // call; without CLONE_VM and with a null stack the child has a copy of this stack.
            unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) }
        }
        // The older call, because container engines answer clone3 with ENOSYS.
        // SAFETY: as above. Arguments: flags, stack, where the pidfd goes; the two that follow
        // are null, so that their order, which differs between machines, is of no matter.
        None => unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::c_long::from(flags | libc::CLONE_PIDFD | libc::SIGCHLD),
                0_usize,
                &raw mut pidfd,
                0_usize,
                0_usize,
            )
        },
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(CloneResult::Child),
        pid => Ok(CloneResult::Parent {
            pid: pid as i32,
            // SAFETY: the kernel has just made this descriptor for us.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// Ends this process at once, without destructors or exit handlers.
#[expect(unsafe_code, reason = "std's exit runs exit handlers")]
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` takes any number and does not return.
    unsafe { libc::_exit(i32::from(code)) }
}
