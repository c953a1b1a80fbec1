//! Waiting for one's turn to make an item, or for it to be made by somebody else.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sconce_schema::{Progress, WaitCause};

use crate::item::ItemPaths;
use crate::lock::{ItemGuard, LockAttempt};
use crate::{Store, StoreError};

/// Time between the first two tries; each next one takes twice as long, up to [`MAX_RETRY_DELAY`].
const MIN_RETRY_DELAY: Duration = Duration::from_millis(10);
/// How long an item may have been good before who waits for it sees that.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(200);
/// A wait that is over after so many tries, half a second, is not worth a line.
const SILENT_ATTEMPTS: u32 = 6;
/// After so many, another second, a maker that does not say who it is will not say it any more.
const UNKNOWN_MAKER_ATTEMPTS: u32 = 12;

/// What is made, for those who wait and for those who are told.
#[derive(Clone, Copy)]
pub(crate) struct MakeJob<'a> {
    /// What the progress calls it: a file's name, a kind of the store.
    pub(crate) name: &'a str,
    /// What its maker does: `installs six-1.16.0-py2.py3-none-any.whl`.
    pub(crate) work: &'a str,
    /// Who is told of a wait.
    pub(crate) progress: &'a dyn Progress,
}

/// What a wait came to.
pub(crate) enum ItemAccess {
    /// The item is there, and this is what it holds.
    There(PathBuf),
    /// Nobody else makes or uses it.
    Mine(ItemGuard),
    /// Another machine has made it for too long: it is made beside.
    Beside,
}

/// The times between tries, each a little different, so that those who wait do not march in step.
pub(crate) struct RetryBackoff {
    next: Duration,
    tries: u32,
}

impl RetryBackoff {
    pub(crate) fn new() -> Self {
        Self {
            next: MIN_RETRY_DELAY,
            tries: 0,
        }
    }

    /// How many pauses there were.
    pub(crate) fn pause_count(&self) -> u32 {
        self.tries
    }

    pub(crate) fn sleep_before_retry(&mut self) {
        let chance = RandomState::new().hash_one(self.tries) % 512;
        let share = 0.75 + chance as f64 / 1024.0;
        thread::sleep(self.next.mul_f64(share));
        self.next = (self.next * 2).min(MAX_RETRY_DELAY);
        self.tries += 1;
    }
}

/// A wait for other processes: the times between tries, and what is told of it. Each one that is waited for
/// is told once, and that it is over.
pub(crate) struct Waiting<'a> {
    job: MakeJob<'a>,
    pauses: RetryBackoff,
    told: Option<WaitCause>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(job: MakeJob<'a>) -> Self {
        Self {
            job,
            pauses: RetryBackoff::new(),
            told: None,
        }
    }

    /// Waits until the next try. What is waited for is told when that takes long.
    pub(crate) fn pause_for(&mut self, wait: WaitCause) {
        let untold = match wait {
            WaitCause::Unknown => UNKNOWN_MAKER_ATTEMPTS,
            WaitCause::Maker(_) | WaitCause::Users => SILENT_ATTEMPTS,
        };
        if self.pauses.tries >= untold && self.told.as_ref() != Some(&wait) {
            tracing::debug!(work = self.job.work, %wait, "waits");
            self.job.progress.waits(self.job.name, Some(&wait));
            self.told = Some(wait);
        }
        self.pauses.sleep_before_retry();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.told.is_some() {
            self.job.progress.waits(self.job.name, None);
        }
    }
}

/// Whether a maker on another machine is waited for.
fn is_elsewhere(wait: &WaitCause) -> bool {
    let WaitCause::Maker(maker) = wait else {
        return false;
    };
    let name = rustix::system::uname();
    name.nodename().to_str() != Ok(maker.host.as_str())
}

impl Store {
    /// Waits until another process has made the item, and `accept` takes what it holds, or until nobody
    /// else makes or uses it; not forever where the maker is on another machine.
    pub(crate) fn wait_for_access(
        &self,
        place: &ItemPaths,
        job: MakeJob<'_>,
        accept: &dyn Fn(&Path) -> bool,
    ) -> Result<ItemAccess, StoreError> {
        let mut waiting = Waiting::new(job);
        let began = Instant::now();
        loop {
            if let Some(content) = self.find_trusted_item(place, accept)? {
                return Ok(ItemAccess::There(content));
            }
            let wait = match place.lock.try_lock_exclusive(job.work)? {
                // It may have been made between the look and the lock.
                LockAttempt::Alone(held) => {
                    return Ok(match self.find_trusted_item(place, accept)? {
                        Some(content) => ItemAccess::There(content),
                        None => ItemAccess::Mine(held),
                    });
                }
                LockAttempt::Taken(Some(maker)) => WaitCause::Maker(maker),
                LockAttempt::Taken(None) => WaitCause::Unknown,
                LockAttempt::Shared => match self.reuse_item_in_use(place, accept)? {
                    Some(content) => return Ok(ItemAccess::There(content)),
                    None => WaitCause::Users,
                },
            };
            if is_elsewhere(&wait) && began.elapsed() >= self.view.max_remote_wait {
                tracing::info!(work = job.work, %wait, "is not waited for any longer");
                return Ok(ItemAccess::Beside);
            }
            waiting.pause_for(wait);
        }
    }

    /// Waits until nobody else holds the right to `kind` and `key`, and takes it. For work on files that
    /// are no item, or not yet.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn acquire_exclusive(
        &self,
        kind: &str,
        key: &str,
        work: &str,
        progress: &dyn Progress,
    ) -> Result<ItemGuard, StoreError> {
        let place = self.item_paths(kind, key)?;
        let job = MakeJob {
            name: kind,
            work,
            progress,
        };
        loop {
            // Only an item can be made beside.
            if let ItemAccess::Mine(held) = self.wait_for_access(&place, job, &|_| false)? {
                return Ok(held);
            }
        }
    }
}
