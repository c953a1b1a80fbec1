//! What this process may do with a store, and what others are told of it: the directory may be another user's, be
//! mounted for reading, lie on a file system of many machines, or have locks that tell nobody anything.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{Access, access};

use crate::StoreError;
use crate::file_system::{is_local, local_locks};
use crate::item::TrustedBoots;
use crate::lock::{ItemLock, is_refused};

/// How long a maker on another machine is waited for: longer than most things take to make. A lock may outlive a
/// machine that went down (NFSv3's until it is back), and its maker cannot be asked.
const MAX_REMOTE_WAIT: Duration = Duration::from_secs(600);
/// The directories of a store.
const DIRECTORIES: [&str; 4] = ["items", "locks", "partial", "tmp"];
/// An empty file that the first of several machines leaves, for the one whose own disk it is: that one cannot see that
/// others use it, and its locks are none of theirs.
const SHARED_MARK: &str = "shared";

/// As which machine a store is opened, for tests.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The kernel's id of its boot.
    pub boot: Option<String>,
    /// That the store lies on a file system of many machines, whatever it lies on.
    pub is_shared: bool,
    /// That its locks are seen by nobody, whatever they are.
    pub lacks_locks: bool,
    /// How long a maker on another machine is waited for, where that is not as usual.
    pub max_wait: Option<Duration>,
}

impl Machine {
    /// This one.
    pub(crate) fn of_this_boot() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot = boot.map(|text| text.trim().to_owned());
        Self {
            boot: boot.filter(|text| !text.is_empty()),
            ..Self::default()
        }
    }
}

/// How a store is seen from here.
#[derive(Debug, Clone)]
pub(crate) struct StoreView {
    /// The kernel's id of this boot; absent where /proc does not tell it.
    boot: Option<String>,
    /// Whether the file system is one that other machines may use.
    is_shared: bool,
    /// Whether other machines use the directory, as far as is known.
    pub(crate) has_other_machines: bool,
    /// Whether items can be made and removed.
    pub(crate) is_writable: bool,
    /// The mount option that keeps locks on this machine.
    local_locks: Option<&'static str>,
    /// How long a maker on another machine is waited for.
    pub(crate) max_remote_wait: Duration,
    /// Whether locks work, once that was tried.
    locks_work: Arc<OnceLock<bool>>,
}

impl StoreView {
    /// Looks at the store in `root`, and makes what is missing in it where that may be. `is_new` has whoever cannot make
    /// it told so.
    pub(crate) fn open(root: &Path, machine: Machine, is_new: bool) -> Result<Self, StoreError> {
        let is_shared = machine.is_shared || !is_local(root);
        let mut is_writable = true;
        for name in DIRECTORIES {
            let path = root.join(name);
            match super::private_folders(&path) {
                Err(StoreError::Disk { source, .. }) if !is_new && is_refused(&source) => {
                    is_writable = false;
                }
                made => made?,
            }
            is_writable &= access(&path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        }
        let mark = root.join(SHARED_MARK);
        if is_shared && is_writable && !mark.exists() {
            // Without it the others sync later.
            let _ = fs::File::create(&mark);
        }
        let locks_work = OnceLock::new();
        if machine.lacks_locks {
            let _ = locks_work.set(false);
        }
        Ok(Self {
            boot: machine.boot,
            is_shared,
            has_other_machines: is_shared || mark.exists(),
            is_writable,
            local_locks: is_shared.then(|| local_locks(root)).flatten(),
            max_remote_wait: machine.max_wait.unwrap_or(MAX_REMOTE_WAIT),
            locks_work: Arc::new(locks_work),
        })
    }

    /// This machine's boot.
    pub(crate) fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    /// Which boots vouch for items.
    pub(crate) fn trusted_boots(&self) -> TrustedBoots<'_> {
        match (self.is_shared, self.boot()) {
            (true, _) => TrustedBoots::Any,
            (false, Some(boot)) => TrustedBoots::Own(boot),
            (false, None) => TrustedBoots::None,
        }
    }

    /// The boot that stands in items made here; `None` where the disk confirms them before they appear.
    pub(crate) fn boot_of_new_items(&self) -> Option<&str> {
        self.boot().filter(|_| !self.has_other_machines)
    }

    /// Whether locks tell others what this process does. Tried once, by whoever is about to write.
    pub(crate) fn has_locks(&self, root: &Path) -> bool {
        let tried = || ItemLock::find_obstacle(&root.join("locks")).is_none();
        self.local_locks.is_none() && !self.is_own_disk() && *self.locks_work.get_or_init(tried)
    }

    /// Whether it lies on a disk of this machine that others use over the network.
    fn is_own_disk(&self) -> bool {
        self.has_other_machines && !self.is_shared
    }

    /// Why locks tell others nothing.
    pub(crate) fn lock_obstacle(&self, root: &Path) -> StoreError {
        if let Some(option) = self.local_locks {
            let path = root.to_owned();
            return StoreError::LocalLocks { path, option };
        }
        if self.is_own_disk() {
            let mark = root.join(SHARED_MARK);
            return StoreError::OwnDisk { mark };
        }
        let obstacle = ItemLock::find_obstacle(&root.join("locks"));
        obstacle.unwrap_or_else(|| StoreError::NoLocks {
            path: root.join("locks"),
            source: io::ErrorKind::Unsupported.into(),
        })
    }
}
