//! Private pools: of CUDA graphs, whose addresses must stay, and of `torch.cuda.MemPool`.

use std::fmt;

use super::blocks::BlockId;
use super::malloc::Request;
use super::pools::{BlockPool, LARGE_POOL, PoolIndex, SMALL_POOL};
use super::{Allocator, InvalidCall, sizes};

/// A pool's name, as snapshots write it: graphs have `(0, n)`, pools of the user `(n, 0)`, the
/// default pool `(0, 0)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u64, pub u64);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.0, self.1)
    }
}

/// What `torch.cuda.MemPool(…)` can be told. Releases that do not know an option ignore it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// `allocator`: it has its own functions for segments; none of its are expandable.
    pub own_allocator: bool,
    /// `use_on_oom`: its free blocks serve the default pool's requests when memory runs out.
    pub use_on_oom: bool,
    /// `no_split`: its blocks are not split.
    pub no_split: bool,
}

/// Which requests go to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolScope {
    /// Those of every stream: `torch.cuda.use_mem_pool`, with one thread.
    All,
    /// Those of one stream.
    Stream(u64),
}

#[derive(Debug, Clone)]
pub(super) struct PrivatePool {
    pub(super) small: PoolIndex,
    pub(super) large: PoolIndex,
    /// Who uses it: graphs, and the user's own handle.
    users: u32,
    /// Calls to the card whose memory was not given back.
    segments: u32,
    options: PoolOptions,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PoolRedirection {
    pool: PoolId,
    takes: PoolScope,
    /// A graph is being captured: the card may not be waited for.
    captures: bool,
}

impl Allocator {
    /// `torch.cuda.MemPool(…)`: a pool that its maker uses until [`Self::release_pool`].
    ///
    /// # Errors
    /// [`InvalidCall::PoolExists`], [`InvalidCall::DefaultPool`].
    pub fn create_pool(&mut self, pool: PoolId, options: PoolOptions) -> Result<(), InvalidCall> {
        if pool == PoolId::default() {
            return Err(InvalidCall::DefaultPool);
        }
        if self.private.contains_key(&pool) {
            return Err(InvalidCall::PoolExists { pool });
        }
        let made = PrivatePool {
            small: self.add_pool(BlockPool::new(true, Some(pool))),
            large: self.add_pool(BlockPool::new(false, Some(pool))),
            users: 1,
            segments: 0,
            options: match self.version.pool_options() {
                true => options,
                false => PoolOptions::default(),
            },
        };
        self.private.insert(pool, made);
        Ok(())
    }

    /// Requests go to a pool from here on, and it has one more user: a graph's capture begins
    /// (`captures`), or a `with torch.cuda.use_mem_pool`. A pool that is not there is made.
    ///
    /// # Errors
    /// [`InvalidCall::Begun`], [`InvalidCall::Released`], [`InvalidCall::DefaultPool`].
    pub fn begin_pool(
        &mut self,
        pool: PoolId,
        takes: PoolScope,
        captures: bool,
    ) -> Result<(), InvalidCall> {
        if self.diversions.iter().any(|other| other.pool == pool) {
            return Err(InvalidCall::Begun { pool });
        }
        match self.private.get_mut(&pool) {
            None => self.create_pool(pool, PoolOptions::default())?,
            Some(known) if known.users == 0 => return Err(InvalidCall::Released { pool }),
            Some(known) => known.users = known.users.saturating_add(1),
        }
        self.diversions.push(PoolRedirection {
            pool,
            takes,
            captures,
        });
        Ok(())
    }

    /// Requests go to a pool no more. It still has its user: see [`Self::release_pool`].
    ///
    /// # Errors
    /// [`InvalidCall::NotBegun`].
    pub fn end_pool(&mut self, pool: PoolId) -> Result<(), InvalidCall> {
        let place = self.diversions.iter().position(|other| other.pool == pool);
        self.diversions
            .remove(place.ok_or(InvalidCall::NotBegun { pool })?);
        Ok(())
    }

    /// A user less: a graph was reset, a `with torch.cuda.use_mem_pool` ended, or a `MemPool` was
    /// deleted. Without users, a pool's memory goes back to the card when the cache is emptied.
    ///
    /// # Errors
    /// [`InvalidCall::NoPool`], [`InvalidCall::Released`].
    pub fn release_pool(&mut self, pool: PoolId) -> Result<(), InvalidCall> {
        let known = self
            .private
            .get_mut(&pool)
            .ok_or(InvalidCall::NoPool { pool })?;
        known.users = known
            .users
            .checked_sub(1)
            .ok_or(InvalidCall::Released { pool })?;
        if known.users == 0 {
            self.freeable.insert(pool);
        }
        Ok(())
    }

    fn add_pool(&mut self, pool: BlockPool) -> PoolIndex {
        if let Some(index) = self.vacant_pools.pop() {
            self.pools[index as usize] = pool;
            return index;
        }
        self.pools.push(pool);
        u32::try_from(self.pools.len() - 1).unwrap_or(u32::MAX)
    }

    /// Removes a released pool that has nothing of the card any more. One that requests still go
    /// to stays; PyTorch would fail at the next of them.
    pub(super) fn forget_if_empty(&mut self, id: PoolId) {
        let Some(pool) = self.private.get(&id) else {
            return;
        };
        let halves = [pool.small, pool.large];
        let blocks: usize = halves
            .iter()
            .map(|&half| self.pools[half as usize].blocks)
            .sum();
        let begun = self.diversions.iter().any(|other| other.pool == id);
        if pool.segments == 0 && blocks == 0 && !begun {
            self.private.remove(&id);
            self.freeable.remove(&id);
            self.vacant_pools.extend(halves);
        }
    }

    /// The pool that a request comes from.
    pub(super) fn pool_for(&self, size: u64, stream: u64) -> PoolIndex {
        let small = size <= sizes::SMALL;
        if !self.diversions.is_empty() {
            let takes = |diversion: &&PoolRedirection| match diversion.takes {
                PoolScope::All => true,
                PoolScope::Stream(taken) => taken == stream,
            };
            let diversion = match self.version.last_pool_wins() {
                true => self.diversions.iter().rev().find(takes),
                false => self.diversions.iter().find(takes),
            };
            if let Some(pool) = diversion.and_then(|diversion| self.private.get(&diversion.pool)) {
                return if small { pool.small } else { pool.large };
            }
        }
        if small { SMALL_POOL } else { LARGE_POOL }
    }

    /// Whether all that is cached may be given back to serve a request.
    pub(super) fn may_reclaim(&self) -> bool {
        match self.version.pools_reclaim() {
            true => !self.diversions.iter().any(|diversion| diversion.captures),
            false => self.diversions.is_empty(),
        }
    }

    fn owner(&self, pool: PoolIndex) -> Option<&PrivatePool> {
        self.private.get(&self.pools[pool as usize].owner?)
    }

    pub(super) fn has_own_allocator(&self, pool: PoolIndex) -> bool {
        self.owner(pool)
            .is_some_and(|pool| pool.options.own_allocator)
    }

    pub(super) fn never_splits(&self, pool: PoolIndex) -> bool {
        self.owner(pool).is_some_and(|pool| pool.options.no_split)
    }

    /// A pool got memory of the card.
    pub(super) fn count_private(&mut self, pool: PoolIndex) {
        if let Some(owner) = self.pools[pool as usize].owner
            && let Some(pool) = self.private.get_mut(&owner)
        {
            pool.segments = pool.segments.saturating_add(1);
        }
    }

    /// A pool gave memory back.
    pub(super) fn uncount_private(&mut self, pool: PoolIndex) {
        if let Some(owner) = self.pools[pool as usize].owner
            && let Some(pool) = self.private.get_mut(&owner)
        {
            pool.segments = pool.segments.saturating_sub(1);
        }
    }

    /// A free block of a pool that helps out; the request is then that pool's.
    pub(super) fn borrow_from_pools(&mut self, request: &mut Request) -> Option<BlockId> {
        if self.pools[request.pool as usize].owner.is_some() {
            return None;
        }
        let begun = |id| self.diversions.iter().any(|diversion| diversion.pool == id);
        let helping: Vec<(PoolIndex, PoolIndex)> = self
            .private
            .iter()
            .filter(|(id, pool)| pool.options.use_on_oom && pool.users > 0 && !begun(**id))
            .map(|(_, pool)| (pool.small, pool.large))
            .collect();
        for (small, large) in helping {
            let from = Request {
                pool: match request.size <= sizes::SMALL {
                    true => small,
                    false => large,
                },
                expandable: false,
                ..*request
            };
            if let Some(id) = self.take_free(&from) {
                *request = from;
                return Some(id);
            }
        }
        None
    }
}
