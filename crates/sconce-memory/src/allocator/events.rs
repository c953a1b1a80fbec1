//! Blocks that other streams use: after `free`, an event on each of those streams has to complete
//! before the block is free again.
//!
//! PyTorch asks the card at the next `malloc` which events completed, stream by stream, and stops
//! at the first that did not. Here an event completes when that is said ([`Allocator::complete_events`]),
//! or at once, as on a virtual card ([`Allocator::complete_at_once`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::blocks::{AddressHasher, BlockId};
use super::{Allocator, PoolId};

/// Streams that use each block, besides its own.
type Uses = HashMap<BlockId, BTreeSet<u64>, BuildHasherDefault<IdHasher>>;
type IdHasher = AddressHasher;

#[derive(Debug, Clone, Default)]
pub(super) struct StreamEvents {
    queues: BTreeMap<u64, Queue>,
    uses: Uses,
    /// Uses that began while requests were diverted: by the end of that, they have completed.
    diverted_uses: Uses,
    /// Blocks freed meanwhile: asking for events would spoil a capture.
    deferred: Vec<BlockId>,
    at_once: bool,
}

/// A stream's events, oldest first.
#[derive(Debug, Clone, Default)]
struct Queue {
    blocks: VecDeque<BlockId>,
    /// How many of them, from the front, have completed.
    completed: usize,
}

impl StreamEvents {
    pub(super) fn record_use(&mut self, id: BlockId, stream: u64, diverted: bool) {
        self.uses.entry(id).or_default().insert(stream);
        if diverted {
            self.diverted_uses.entry(id).or_default().insert(stream);
        }
    }

    pub(super) fn defer_events(&mut self, id: BlockId) {
        self.deferred.push(id);
    }
}

impl Allocator {
    /// The oldest `count` events of a stream that have not completed do so; all of them where no
    /// count is given. The blocks are free from the next [`Self::malloc`] on.
    pub fn complete_events(&mut self, stream: u64, count: Option<usize>) {
        if let Some(queue) = self.events.queues.get_mut(&stream) {
            let waiting = queue.blocks.len() - queue.completed;
            queue.completed += count.unwrap_or(waiting).min(waiting);
        }
    }

    /// `torch.cuda.synchronize`: every event has completed.
    pub fn synchronize(&mut self) {
        for queue in self.events.queues.values_mut() {
            queue.completed = queue.blocks.len();
        }
    }

    /// Whether events complete as soon as they are recorded.
    pub fn complete_at_once(&mut self, at_once: bool) {
        self.events.at_once = at_once;
    }

    /// Events that have not been seen to complete.
    #[must_use]
    pub fn outstanding_events(&self) -> usize {
        let queues = self.events.queues.values();
        queues.map(|queue| queue.blocks.len()).sum()
    }

    /// One event on each stream that uses a freed block.
    pub(super) fn record_events(&mut self, id: BlockId) {
        let streams = self.events.uses.remove(&id).unwrap_or_default();
        self.events.diverted_uses.remove(&id);
        let block = &mut self.blocks[id];
        block.used_elsewhere = false;
        for stream in streams {
            block.events += 1;
            let queue = self.events.queues.entry(stream).or_default();
            queue.blocks.push_back(id);
        }
    }

    fn record_deferred(&mut self) {
        for id in std::mem::take(&mut self.events.deferred) {
            if let Some(within) = self.events.diverted_uses.remove(&id)
                && let Some(uses) = self.events.uses.get_mut(&id)
            {
                uses.retain(|stream| !within.contains(stream));
            }
            self.record_events(id);
            if self.blocks[id].events == 0 {
                self.free_completed(id);
            }
        }
    }

    /// What `malloc` does first: frees blocks whose events completed.
    pub(super) fn process_events(&mut self) {
        if !self.events.deferred.is_empty() {
            self.record_deferred();
        }
        if self.events.queues.is_empty() {
            return;
        }
        let mut queues = std::mem::take(&mut self.events.queues);
        queues.retain(|_, queue| {
            let completed = match self.events.at_once {
                true => queue.blocks.len(),
                false => std::mem::take(&mut queue.completed),
            };
            for id in queue.blocks.drain(..completed) {
                self.completed(id);
            }
            queue.completed = 0;
            !queue.blocks.is_empty()
        });
        self.events.queues = queues;
    }

    /// Waits for all events, or for those of one private pool's blocks.
    pub(super) fn synchronize_events(&mut self, pool: Option<PoolId>) {
        self.stats.num_sync_all_streams += 1;
        self.record_deferred();
        let mut queues = std::mem::take(&mut self.events.queues);
        queues.retain(|_, queue| {
            let completed = std::mem::take(&mut queue.completed);
            let waiting = std::mem::take(&mut queue.blocks);
            for (place, id) in waiting.into_iter().enumerate() {
                let owner = self.pools[self.blocks[id].pool as usize].owner;
                if pool.is_none() || owner == pool {
                    self.completed(id);
                } else {
                    queue.completed += usize::from(place < completed);
                    queue.blocks.push_back(id);
                }
            }
            !queue.blocks.is_empty()
        });
        self.events.queues = queues;
    }

    fn completed(&mut self, id: BlockId) {
        self.blocks[id].events -= 1;
        if self.blocks[id].events == 0 {
            self.free_completed(id);
        }
    }
}
