//! Handles of the processes that hold and wait, for a service that looks at all of them for each
//! who asks: of a handle the kernel tells in one call whether its process lives, of a number in
//! three, after writing all about it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::types::ProcessRef;

/// No more are kept, so that the descriptors of the connections are left.
const MAX_HANDLES: usize = 256;

/// Handles by number and start of the process; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Handles(Arc<Mutex<BTreeMap<(u32, u64), OwnedFd>>>);

/// Whether the process of a handle ended: then it can be read from (pidfd_open(2)).
pub(super) fn has_ended(handle: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
}

impl Handles {
    /// Whether the process lives; absent where there is no handle of it.
    pub(super) fn is_alive(&self, process: &ProcessRef) -> Option<bool> {
        let key = (process.pid, process.start_ticks);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = has_ended(known.get(&key)?);
        if ended {
            known.remove(&key);
        }
        Some(!ended)
    }

    /// Keeps a handle of a process that lives; `still` tells whether the number is still that
    /// process's once the handle is there.
    pub(super) fn insert_if_alive(&self, process: &ProcessRef, still: impl FnOnce() -> bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_HANDLES {
            known.retain(|_, handle| !has_ended(handle));
        }
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        if known.len() < MAX_HANDLES
            && let Some(pid) = pid
            && let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            && still()
        {
            known.insert((process.pid, process.start_ticks), handle);
        }
    }
}
