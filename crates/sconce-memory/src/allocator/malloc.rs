//! One request: a cached block, or a new segment, or what can be given back first.

use super::blocks::{Block, BlockId};
use super::pools::PoolIndex;
use super::{AllocationFailure, Allocator, NULL, OutOfMemory, sizes};

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Rounded.
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) pool: PoolIndex,
    /// What the card is asked for.
    pub(super) segment: u64,
    /// Whether it may come from an expandable segment.
    pub(super) expandable: bool,
}

impl Allocator {
    /// Memory for `bytes` on `stream`: its address. No bytes are [`NULL`], and nothing happens.
    ///
    /// # Errors
    /// [`OutOfMemory`], after everything was given back that could be.
    pub fn malloc(&mut self, bytes: u64, stream: u64) -> Result<u64, OutOfMemory> {
        if bytes == 0 {
            return Ok(NULL);
        }
        if bytes >= sizes::EXABYTE {
            return Err(self.out_of_memory(AllocationFailure::Exabyte, bytes, bytes, bytes));
        }
        if self.diversions.is_empty() {
            self.process_events();
        }
        let size = sizes::round_size(bytes, &self.settings);
        let mut request = Request {
            size,
            stream,
            pool: self.pool_for(size, stream),
            segment: sizes::segment_size(size, &self.settings),
            expandable: self.settings.expandable_segments,
        };
        request.expandable &= !self.has_own_allocator(request.pool);
        let found = match self.take_free(&request) {
            Some(id) => Ok(id),
            None => self.find_or_reclaim(&mut request),
        };
        let id =
            found.map_err(|why| self.out_of_memory(why, bytes, request.size, request.segment))?;
        Ok(self.hand_out(id, &request, bytes))
    }

    /// What is done where no cached block serves, in PyTorch's order.
    fn find_or_reclaim(&mut self, request: &mut Request) -> Result<BlockId, AllocationFailure> {
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if self.settings.throw_on_cudamalloc_oom && self.is_beyond_limit(request) {
            self.stats.num_oom_rejections += 1;
            return Err(AllocationFailure::Rejected);
        }
        if let Some(id) = self.grow(request) {
            return Ok(id);
        }
        if let Some(id) = self.borrow_from_pools(request) {
            return Ok(id);
        }
        if self.release_oversize(request)
            && let Some(id) = self.grow(request)
        {
            return Ok(id);
        }
        if self.may_reclaim() {
            self.release_cached(None);
            self.stats.num_alloc_retries += 1;
            if let Some(id) = self.grow(request) {
                return Ok(id);
            }
        }
        self.stats.num_ooms += 1;
        Err(AllocationFailure::Exhausted)
    }

    /// Best fit: the smallest free block of the stream that is large enough.
    pub(super) fn take_free(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pools[request.pool as usize].searches += 1;
        }
        let pool = &self.pools[request.pool as usize];
        let mut blocks = pool.free_from(request.stream, request.size);
        let mut found = blocks.next()?;
        if self.blocks[found].segment.is_some() {
            if request.expandable {
                // A block counts as large as it could become, so a larger one may fit better.
                while self.blocks[found].segment.is_some() {
                    match blocks.next() {
                        Some(next) if self.room(next) < self.room(found) => found = next,
                        _ => break,
                    }
                }
            } else {
                found = blocks.find(|&id| self.blocks[id].segment.is_none())?;
            }
        }
        drop(blocks);
        let limit = self.settings.split_limit();
        let size = self.blocks[found].size;
        let unfit = match request.size < limit {
            true => size >= limit,
            false => {
                let rounding = self.settings.max_non_split_rounding;
                size >= request.size.saturating_add(rounding)
            }
        };
        if unfit {
            return None;
        }
        self.free_remove(found);
        Some(found)
    }

    /// A block's size with the unmapped addresses that follow it.
    fn room(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let next = block.next.map(|next| &self.blocks[next]);
        block.size + next.filter(|next| !next.mapped).map_or(0, |next| next.size)
    }

    fn is_beyond_limit(&self, request: &Request) -> bool {
        let wanted = self.reserved.saturating_add(request.segment);
        self.limit.is_some_and(|limit| wanted > limit)
    }

    /// More memory of the card, for one request.
    fn grow(&mut self, request: &Request) -> Option<BlockId> {
        if self.is_beyond_limit(request) {
            return None;
        }
        if request.expandable {
            let id = self.allocate_expandable_block(request)?;
            self.count_private(request.pool);
            return Some(id);
        }
        let address = self.device.malloc(request.segment)?;
        self.count_private(request.pool);
        self.count_reserved(request.pool, request.segment, true);
        let small = self.is_small(request.pool);
        self.stats.segment.add(small, 1);
        if request.segment >= self.settings.split_limit() {
            self.stats.oversize_segments.add(1);
        }
        self.stats.num_device_alloc += 1;
        let mut block = Block::new(address, request.segment, request.stream, request.pool);
        if self.version.older_segments_first() {
            self.made += 1;
            block.age = self.made;
        }
        Some(self.add_block(block))
    }

    /// Whether what a request leaves of a block becomes a block of its own.
    fn splits(&self, id: BlockId, request: &Request) -> bool {
        let block = &self.blocks[id];
        if self.never_splits(block.pool) {
            return false;
        }
        let rest = block.size - request.size;
        match self.is_small(block.pool) || request.expandable {
            true => rest >= sizes::MIN_BLOCK,
            false => request.size < self.settings.split_limit() && rest > sizes::SMALL,
        }
    }

    /// Makes a block that no pool has the request's own; gives its address.
    fn hand_out(&mut self, id: BlockId, request: &Request, bytes: u64) -> u64 {
        let small = self.is_small(request.pool);
        let was_split = self.blocks[id].is_split();
        let counts = self.blocks[id].segment.is_none();
        let splits = self.splits(id, request);
        let stats = &mut self.stats;
        let id = if splits {
            // The request gets the low addresses.
            let rest = id;
            let (taken, before) = {
                let rest = &mut self.blocks[rest];
                let mut taken =
                    Block::new(rest.address, request.size, request.stream, request.pool);
                taken.segment = rest.segment;
                taken.age = rest.age;
                rest.address += request.size;
                rest.size -= request.size;
                (taken, rest.prev)
            };
            if counts && was_split {
                stats.inactive_split_bytes.sub(small, request.size);
            } else if counts {
                let size = self.blocks[rest].size;
                stats.inactive_split_bytes.add(small, size);
                stats.inactive_split.add(small, 1);
            }
            let taken = self.add_block(taken);
            self.blocks.link_between(before, taken, Some(rest));
            self.free_insert(rest);
            taken
        } else {
            if counts && was_split {
                let size = self.blocks[id].size;
                stats.inactive_split_bytes.sub(small, size);
                stats.inactive_split.sub(small, 1);
            }
            id
        };
        let block = &mut self.blocks[id];
        block.allocated = true;
        block.requested = bytes;
        let (address, size) = (block.address, block.size);
        self.allocated.insert(address, id);
        let stats = &mut self.stats;
        stats.allocation.add(small, 1);
        stats.allocated_bytes.add(small, size);
        stats.active.add(small, 1);
        stats.active_bytes.add(small, size);
        stats.requested_bytes.add(small, bytes);
        if size >= self.settings.split_limit() {
            stats.oversize_allocations.add(1);
        }
        address
    }

    /// What `free` does with a block that it found.
    pub(super) fn free_requested(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.allocated = false;
        let (size, pool, elsewhere) = (block.size, block.pool, block.used_elsewhere);
        let small = self.is_small(pool);
        self.stats.allocation.sub(small, 1);
        self.stats.allocated_bytes.sub(small, size);
        if size >= self.settings.split_limit() {
            self.stats.oversize_allocations.sub(1);
        }
        if !elsewhere {
            self.free_completed(id);
        } else if self.diversions.is_empty() {
            self.record_events(id);
        } else {
            self.events.defer_events(id);
        }
    }

    /// Puts a block that nobody uses any more into its pool, with its free neighbours.
    pub(super) fn free_completed(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (size, requested, pool) = (block.size, block.requested, block.pool);
        let counts = block.segment.is_none();
        let small = self.is_small(pool);
        let (mut blocks, mut bytes) = (0_i64, 0_i64);
        for neighbour in [block.prev, block.next] {
            let merged = self.try_merge_blocks(id, neighbour);
            if merged > 0 {
                blocks -= 1;
                bytes -= merged.cast_signed();
            }
        }
        self.free_insert(id);
        let block = &self.blocks[id];
        if block.is_split() {
            blocks += 1;
            bytes += block.size.cast_signed();
        }
        let stats = &mut self.stats;
        if counts {
            for (stat, change) in [
                (&mut stats.inactive_split, blocks),
                (&mut stats.inactive_split_bytes, bytes),
            ] {
                match change {
                    0 => {}
                    1.. => stat.add(small, change.unsigned_abs()),
                    _ => stat.sub(small, change.unsigned_abs()),
                }
            }
        }
        stats.active.sub(small, 1);
        stats.active_bytes.sub(small, size);
        stats.requested_bytes.sub(small, requested);
    }

    /// Takes a neighbour into a block, if it is free and as mapped; gives its size.
    pub(super) fn try_merge_blocks(&mut self, id: BlockId, neighbour: Option<BlockId>) -> u64 {
        let Some(other) = neighbour else { return 0 };
        let gone = &self.blocks[other];
        if !gone.is_idle() || gone.mapped != self.blocks[id].mapped {
            return 0;
        }
        match gone.mapped {
            true => self.free_remove(other),
            false => self.unmapped_remove(other),
        }
        let gone = &self.blocks[other];
        let (address, size, prev, next) = (gone.address, gone.size, gone.prev, gone.next);
        let block = &mut self.blocks[id];
        block.size += size;
        if block.prev == neighbour {
            block.address = address;
            block.prev = prev;
            if let Some(prev) = prev {
                self.blocks[prev].next = Some(id);
            }
        } else {
            block.next = next;
            if let Some(next) = next {
                self.blocks[next].prev = Some(id);
            }
        }
        self.remove_block(other);
        size
    }

    fn out_of_memory(
        &self,
        why: AllocationFailure,
        requested: u64,
        rounded: u64,
        tried: u64,
    ) -> OutOfMemory {
        let now = |stat: &super::PoolStat| u64::try_from(stat.all.current).unwrap_or(0);
        let private = self.pools.iter().filter(|pool| pool.owner.is_some());
        let knows = self.version.advice_knows_settings();
        OutOfMemory {
            why,
            requested,
            rounded,
            tried,
            total: self.device.total_bytes(),
            free: self.device.free_bytes(),
            allowed: self.limit,
            allocated: now(&self.stats.allocated_bytes),
            reserved: now(&self.stats.reserved_bytes),
            in_private_pools: private.map(|pool| pool.free_bytes).sum(),
            advice: !(knows && self.settings.expandable_segments),
        }
    }
}
