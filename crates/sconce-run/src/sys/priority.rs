//! sched_setscheduler(2), which rustix lacks.

use std::io;

/// Gives this thread, and what it starts from now on, only time that nobody else wants.
#[expect(unsafe_code, reason = "rustix has no sched_setscheduler")]
pub(crate) fn only_when_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the structure and keeps no pointer to it; 0 is this thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
