//! Making items: under their locks, or beside others where locks tell nobody anything.

use std::fs;
use std::path::{Path, PathBuf};

use sconce_base::tree::remove_tree;
use sconce_schema::NoProgress;
use tracing::debug;

use super::{Store, TreeBuildOptions, make_folder};
use crate::item::ItemPaths;
use crate::item_access::{ItemAccess, MakeJob, RetryBackoff, Waiting};
use crate::lock::LockAttempt;
use crate::{StoreError, TreeBuildError};

impl<'a> TreeBuildOptions<'a> {
    /// What is made, for those who wait.
    fn job(&self) -> MakeJob<'a> {
        MakeJob {
            name: self.name,
            work: self.work,
            progress: self.progress,
        }
    }
}

impl Store {
    /// The folder of a tree, made by `build` if it is not in the store. `build` gets an empty
    /// folder with mode 0755; it runs at most once at a time for one `kind` and `key`, in all
    /// processes. `kind` and `key` are made of ASCII letters, digits and `._+-`.
    ///
    /// # Errors
    /// [`TreeBuildError::Build`] with what `build` returned, else [`TreeBuildError::Store`].
    pub fn build_tree<E>(
        &self,
        kind: &str,
        key: &str,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, TreeBuildError<E>> {
        let making = TreeBuildOptions {
            name: kind,
            work: &format!("makes {kind} {key}"),
            progress: &NoProgress,
            accept: &|_| true,
        };
        self.build_tree_with(kind, key, making, build)
    }

    /// As [`Store::build_tree`], where somebody is told of a wait, or a tree may be there that will not do.
    ///
    /// # Errors
    /// As [`Store::build_tree`].
    pub fn build_tree_with<E>(
        &self,
        kind: &str,
        key: &str,
        making: TreeBuildOptions<'_>,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, TreeBuildError<E>> {
        let place = self.item_paths(kind, key)?;
        self.make_item(&place, making.job(), making.accept, |work| {
            let content = work.join("content");
            make_folder(&content, 0o755).map_err(StoreError::from_io("create", &content))?;
            build(&content).map_err(TreeBuildError::Build)
        })
    }

    /// As [`Store::build_tree_with`], in a folder of its own: the item's lock is held for a rename alone. So
    /// who makes the item meanwhile does not wait for this process, which may be stopped for long; whoever
    /// comes second keeps nothing.
    ///
    /// # Errors
    /// As [`Store::build_tree`].
    pub fn build_tree_apart<E>(
        &self,
        kind: &str,
        key: &str,
        making: TreeBuildOptions<'_>,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, TreeBuildError<E>> {
        if !self.has_locks() {
            return self.build_tree_with(kind, key, making, build);
        }
        let place = self.item_paths(kind, key)?;
        // Of a kind without items, so that what a killed process leaves there is removed as all such work.
        let apart = self.item_paths(&format!("{kind}-apart"), key)?;
        let job = making.job();
        let mut waiting = Waiting::new(job);
        let held = loop {
            if let Some(content) = self.find_trusted_item(&place, making.accept)? {
                return Ok(content);
            }
            match apart.lock.try_lock_exclusive(making.work)?.into_guard() {
                Ok(held) => break held,
                Err(wait) => waiting.pause_for(wait),
            }
        };
        drop(waiting);
        apart.prepare_work_dir(&held)?;
        let content = apart.work.join("content");
        make_folder(&content, 0o755).map_err(StoreError::from_io("create", &content))?;
        let built = build(&content).map_err(TreeBuildError::Build);
        let made = built.and_then(|()| {
            self.make_item(&place, job, making.accept, |work| {
                let renamed = fs::rename(&content, work.join("content"));
                Ok(renamed.map_err(StoreError::from_io("rename", &content))?)
            })
        });
        // What cannot be removed now is removed by the next open.
        let _ = remove_tree(&apart.work);
        made
    }

    /// Removes an item, so that it is made anew when it is next asked for. One that a run uses stays.
    /// Says whether it is gone.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn remove_item(&self, kind: &str, key: &str) -> Result<bool, StoreError> {
        let place = self.item_paths(kind, key)?;
        if !self.has_locks() {
            place.set_aside()?;
            debug!(kind, key, "set an item aside");
            return Ok(true);
        }
        let mut pauses = RetryBackoff::new();
        let held = loop {
            match place.lock.try_lock_exclusive("removes it")? {
                LockAttempt::Alone(held) => break held,
                LockAttempt::Shared => return Ok(false),
                LockAttempt::Taken(_) => pauses.sleep_before_retry(),
            }
        };
        place.prepare_work_dir(&held)?;
        remove_tree(&place.work).map_err(StoreError::from_io("remove", &place.work))?;
        debug!(kind, key, "removed an item");
        Ok(true)
    }

    /// Makes an item unless one is there that `accept` takes: `fill` gets the work folder and leaves
    /// `content` in it.
    pub(crate) fn make_item<E: From<StoreError>>(
        &self,
        place: &ItemPaths,
        job: MakeJob<'_>,
        accept: &dyn Fn(&Path) -> bool,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let (work, path) = (job.work, place.folder.display());
        if !self.has_locks() {
            return self.make_item_beside(place, accept, fill);
        }
        let held = match self.wait_for_access(place, job, accept)? {
            ItemAccess::There(content) => {
                debug!(work, %path, "the item is there");
                return Ok(content);
            }
            ItemAccess::Mine(held) => held,
            ItemAccess::Beside => return self.make_item_beside(place, accept, fill),
        };
        place.prepare_work_dir(&held)?;
        let made = fill(&place.work).and_then(|()| Ok(self.publish(place, &place.work, accept)?));
        let is_made = made.is_ok();
        debug!(work, %path, is_made, "worked on the item");
        if !is_made {
            // What cannot be removed now is removed by the next open.
            let _ = remove_tree(&place.work);
        }
        made
    }

    /// As [`Store::make_item`] where locks tell nobody anything, or no more: in a directory of its own, so that nobody waits for
    /// anybody, and whoever comes second keeps nothing.
    fn make_item_beside<E: From<StoreError>>(
        &self,
        place: &ItemPaths,
        accept: &dyn Fn(&Path) -> bool,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Some(content) = self.find_trusted_item(place, accept)? {
            return Ok(content);
        }
        let work = place.create_own_work_dir()?;
        let made = fill(&work).and_then(|()| Ok(self.publish(place, &work, accept)?));
        if made.is_err() {
            let _ = remove_tree(&work);
        }
        made
    }

    /// Makes what lies in `work` the item, unless another one was first who had no lock to say so.
    fn publish(
        &self,
        place: &ItemPaths,
        work: &Path,
        accept: &dyn Fn(&Path) -> bool,
    ) -> Result<PathBuf, StoreError> {
        while !place.publish(work, self.view.boot_of_new_items())? {
            if let Some(content) = self.find_trusted_item(place, accept)? {
                remove_tree(work).map_err(StoreError::from_io("remove", work))?;
                return Ok(content);
            }
            place.set_aside()?;
        }
        Ok(place.content_path())
    }
}
