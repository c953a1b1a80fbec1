//! getrusage(2), which rustix lacks.

use std::mem::MaybeUninit;

use sconce_schema::units::Bytes;

use crate::ResourceUsage;

/// What the children of this process used that have ended and were waited for, with theirs.
#[expect(unsafe_code, reason = "rustix has no getrusage")]
pub(crate) fn of_children() -> Option<ResourceUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, for which zeroes are valid too.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    let micros = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let micros = u64::try_from(time.tv_usec).ok()?;
        seconds.checked_mul(1_000_000)?.checked_add(micros)
    };
    Some(ResourceUsage {
        user_us: micros(usage.ru_utime)?,
        system_us: micros(usage.ru_stime)?,
        // The kernel counts it in KiB.
        max_rss: Bytes::from_kib(u64::try_from(usage.ru_maxrss).ok()?),
    })
}
