//! Giving memory back to the card: old blocks, blocks that are never split, or all that is cached.

use super::blocks::BlockId;
use super::malloc::Request;
use super::pools::{LARGE_POOL, PoolIndex, SMALL_POOL};
use super::{Allocator, PoolId};

impl Allocator {
    /// `torch.cuda.empty_cache`: waits for all events, then gives back all segments that are
    /// entirely free, and the free pages of expandable ones. While requests go to another pool,
    /// only pools that were released are emptied.
    pub fn empty_cache(&mut self) {
        self.release_cached(None);
    }

    /// The same for one private pool that was released; for others nothing happens.
    pub fn empty_pool(&mut self, pool: PoolId) {
        self.release_cached(Some(pool));
    }

    /// Garbage is collected only where a fraction was set too.
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold.is_some()
    }

    /// Gives back free segments of the large pool that were not used for longer than the average,
    /// until enough came together.
    pub(super) fn collect_garbage(&mut self) {
        let (Some(limit), Some(part)) = (self.limit, self.settings.garbage_collection_threshold)
        else {
            return;
        };
        // PyTorch multiplies in floating point too.
        let threshold = (part * limit as f64) as u64;
        if self.reserved <= threshold {
            return;
        }
        let target = self.reserved - threshold;
        let pool = &self.pools[LARGE_POOL as usize];
        let age = |id: BlockId| pool.searches - self.blocks[id].free_since;
        let mut old: Vec<(BlockId, u64)> = pool
            .free_blocks()
            .filter(|&id| !self.blocks[id].is_split())
            .map(|id| (id, age(id)))
            .collect();
        let mut total_age: u64 = old.iter().map(|(_, age)| age).sum();
        let mut count = old.len();
        let mut reclaimed = 0;
        while reclaimed < target && count > 0 {
            let average = total_age as f64 / count as f64;
            let before = old.len();
            // One round frees all that are old enough, beyond the target too.
            old.retain(|&(id, age)| {
                let stays = self.blocks[id].segment.is_some() || (age as f64) < average;
                if !stays {
                    reclaimed += self.blocks[id].size;
                    total_age -= age;
                    count -= 1;
                    self.release_block(id);
                }
                stays
            });
            if old.len() == before {
                return;
            }
        }
    }

    /// Gives back one block that is never split and large enough, or several of the largest that
    /// together are. Says whether that came to enough.
    ///
    /// Such a block is split after all where `expandable_segments` was switched on while it was there.
    /// PyTorch then frees the whole segment under its other pieces; here it stays.
    pub(super) fn release_oversize(&mut self, request: &Request) -> bool {
        let Some(limit) = self.settings.max_split_size else {
            return false;
        };
        let wanted = request.size.max(limit);
        let pool = &self.pools[request.pool as usize];
        let is_whole = |id: BlockId| {
            let block = &self.blocks[id];
            block.segment.is_none() && !block.is_split()
        };
        let first = pool.free_from(request.stream, wanted).next();
        if let Some(id) = first.filter(|&id| is_whole(id)) {
            self.release_block(id);
            return true;
        }
        let mut released = 0;
        let mut chosen = Vec::new();
        for id in pool.free_below(request.stream, wanted) {
            let block = &self.blocks[id];
            if released >= wanted || block.size < limit {
                break;
            }
            if is_whole(id) {
                released += block.size;
                chosen.push(id);
            }
        }
        for id in chosen {
            self.release_block(id);
        }
        released >= wanted
    }

    pub(super) fn release_cached(&mut self, only: Option<PoolId>) {
        if only.is_none() && self.may_reclaim() {
            self.synchronize_events(None);
            self.release_blocks(LARGE_POOL);
            self.release_blocks(SMALL_POOL);
        }
        let freeable = self.freeable.iter().copied();
        let pools: Vec<PoolId> = freeable
            .filter(|&pool| only.is_none_or(|only| only == pool))
            .collect();
        for id in pools {
            if only.is_some() {
                self.synchronize_events(only);
            }
            let Some(pool) = self.private.get(&id) else {
                continue;
            };
            let (small, large) = (pool.small, pool.large);
            self.release_blocks(small);
            self.release_blocks(large);
            self.forget_if_empty(id);
        }
    }

    /// All segments of a pool that are entirely free, and free pages.
    fn release_blocks(&mut self, pool: PoolIndex) {
        let free: Vec<BlockId> = self.pools[pool as usize].free_blocks().collect();
        let (expandable, plain): (Vec<BlockId>, Vec<BlockId>) = free
            .into_iter()
            .partition(|&id| self.blocks[id].segment.is_some());
        for id in plain {
            if !self.blocks[id].is_split() {
                self.release_block(id);
            }
        }
        for id in expandable {
            self.unmap_block(id);
        }
    }

    /// `cudaFree` of a whole segment.
    fn release_block(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (address, size, pool) = (block.address, block.size, block.pool);
        self.device.free_allocation(address);
        self.count_reserved(pool, size, false);
        self.uncount_private(pool);
        let small = self.is_small(pool);
        self.stats.num_device_free += 1;
        self.stats.segment.sub(small, 1);
        if size >= self.settings.split_limit() {
            self.stats.oversize_segments.sub(1);
        }
        self.free_remove(id);
        self.remove_block(id);
    }
}
