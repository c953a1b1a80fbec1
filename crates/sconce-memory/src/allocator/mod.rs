//! PyTorch's CUDA caching allocator, simulated: the same requests get the same addresses, the
//! same counters, and run out of memory at the same request.
//!
//! The rules are those of `DeviceCachingAllocator` in `c10/cuda/CUDACachingAllocator.cpp`,
//! PyTorch 2.6 to 2.15; [`TorchVersion`] says what changed. Where that code walks a hash table, whose
//! order is an accident, the simulator goes by stream or by pool number: addresses do not depend on
//! it, but the peaks of `inactive_split` may.
//!
//! Not simulated: memory shared between processes, `backend:cudaMallocAsync`, checkpoints of
//! private pools, reuse within one captured graph (`graph_capture_record_stream_reuse`), and
//! fragmentation of physical memory, of which a real card's driver says nothing.

mod blocks;
pub mod device;
mod error;
mod events;
mod expandable;
mod malloc;
mod pools;
mod private;
mod reclaim;
pub mod settings;
pub mod sizes;
mod stats;
mod version;
mod view;

use std::collections::{BTreeMap, BTreeSet};

pub use device::{SimulatedGpu, SimulatedGpuError};
pub use error::{AllocationFailure, InvalidCall, OutOfMemory};
pub use private::{PoolId, PoolOptions, PoolScope};
pub use settings::{AllocatorSettings, SettingsError};
pub use stats::{PoolStat, Stat, Stats};
pub use version::{TorchVersion, TorchVersionError};
pub use view::{BlockState, BlockView, SegmentView};

use blocks::{BlockId, Blocks, ByAddress};
use events::StreamEvents;
use expandable::ExpandableSegments;
use pools::{BlockPool, PoolIndex};
use private::{PoolRedirection, PrivatePool};

/// What a request for no bytes gets.
pub const NULL: u64 = 0;

/// The allocator of one card.
///
/// A stream is the number that CUDA's handle of it is; 0 is the default stream. Blocks of
/// different streams are never mixed.
#[derive(Debug, Clone)]
pub struct Allocator {
    settings: AllocatorSettings,
    version: TorchVersion,
    device: SimulatedGpu,
    /// What the process may have.
    limit: Option<u64>,
    /// What it has of the card.
    reserved: u64,
    blocks: Blocks,
    allocated: ByAddress,
    pools: Vec<BlockPool>,
    vacant_pools: Vec<PoolIndex>,
    private: BTreeMap<PoolId, PrivatePool>,
    /// Private pools that nobody will use again.
    freeable: BTreeSet<PoolId>,
    /// Where requests go instead of the default pools.
    diversions: Vec<PoolRedirection>,
    segments: ExpandableSegments,
    /// Segments that were ever made of the card's memory.
    made: u64,
    events: StreamEvents,
    stats: Stats,
}

impl Allocator {
    /// An allocator that has nothing yet of its card.
    #[must_use]
    pub fn new(settings: AllocatorSettings, device: SimulatedGpu, version: TorchVersion) -> Self {
        let mut allocator = Self {
            limit: None,
            reserved: 0,
            blocks: Blocks::new(),
            allocated: ByAddress::default(),
            pools: vec![BlockPool::new(true, None), BlockPool::new(false, None)],
            vacant_pools: Vec::new(),
            private: BTreeMap::new(),
            freeable: BTreeSet::new(),
            diversions: Vec::new(),
            segments: ExpandableSegments::default(),
            made: 0,
            events: StreamEvents::default(),
            stats: Stats::default(),
            settings,
            version,
            device,
        };
        let fraction = allocator.settings.per_process_memory_fraction;
        if fraction < 1.0 {
            allocator.set_limit(fraction);
        }
        allocator
    }

    /// Gives back what [`Self::malloc`] gave. The block stays cached, and while other streams use
    /// it, it is not given again. [`NULL`] is ignored.
    ///
    /// # Errors
    /// [`InvalidCall::Address`]: nothing is allocated there.
    pub fn free(&mut self, address: u64) -> Result<(), InvalidCall> {
        if address == NULL {
            return Ok(());
        }
        let id = self.allocated.remove(&address);
        self.free_requested(id.ok_or(InvalidCall::Address { address })?);
        Ok(())
    }

    /// `Tensor.record_stream`: `stream` uses the block too. Its own stream, and [`NULL`], are
    /// ignored.
    ///
    /// # Errors
    /// [`InvalidCall::Address`]: nothing is allocated there.
    pub fn record_stream(&mut self, address: u64, stream: u64) -> Result<(), InvalidCall> {
        if address == NULL {
            return Ok(());
        }
        let id = self.allocated.get(&address).copied();
        let id = id.ok_or(InvalidCall::Address { address })?;
        if self.blocks[id].stream != stream {
            self.blocks[id].used_elsewhere = true;
            self.events
                .record_use(id, stream, !self.diversions.is_empty());
        }
        Ok(())
    }

    /// `torch.cuda.set_per_process_memory_fraction`.
    ///
    /// # Errors
    /// [`InvalidCall::Fraction`]: not from 0 to 1.
    pub fn set_fraction(&mut self, fraction: f64) -> Result<(), InvalidCall> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(InvalidCall::Fraction { fraction });
        }
        self.set_limit(fraction);
        Ok(())
    }

    fn set_limit(&mut self, fraction: f64) {
        // PyTorch multiplies in floating point too.
        let limit = (fraction * self.device.total_bytes() as f64) as u64;
        let lifted = fraction >= 1.0 && self.version.whole_fraction_is_no_limit();
        self.limit = (!lifted).then_some(limit);
    }

    /// Other settings from here on, as `torch.cuda.memory._set_allocator_settings`. A
    /// `per_process_memory_fraction` counts at the beginning alone.
    pub fn set_settings(&mut self, settings: AllocatorSettings) {
        self.settings = settings;
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &AllocatorSettings {
        &self.settings
    }

    /// The release whose rules are followed.
    #[must_use]
    pub fn version(&self) -> TorchVersion {
        self.version
    }

    /// The card.
    #[must_use]
    pub fn device(&self) -> &SimulatedGpu {
        &self.device
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The counters, to reset them.
    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// The bytes of the block at `address`: what the request took, rounded and with what was not
    /// split off. Absent: nothing is allocated there.
    #[must_use]
    pub fn block_size(&self, address: u64) -> Option<u64> {
        let id = self.allocated.get(&address)?;
        Some(self.blocks[*id].size)
    }

    fn free_insert(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        let pool = &mut self.pools[block.pool as usize];
        block.free_since = pool.searches;
        pool.insert_free(block, id);
    }

    fn free_remove(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool as usize].remove_free(block);
    }

    fn unmapped_insert(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool as usize].insert_unmapped(block, id);
    }

    fn unmapped_remove(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools[block.pool as usize].remove_unmapped(block);
    }

    fn add_block(&mut self, block: blocks::Block) -> BlockId {
        self.pools[block.pool as usize].blocks += 1;
        self.blocks.insert(block)
    }

    fn remove_block(&mut self, id: BlockId) {
        self.pools[self.blocks[id].pool as usize].blocks -= 1;
        self.blocks.remove(id);
    }

    fn is_small(&self, pool: PoolIndex) -> bool {
        self.pools[pool as usize].small
    }

    /// Counts bytes of the card, by pool and in all.
    fn count_reserved(&mut self, pool: PoolIndex, bytes: u64, more: bool) {
        let BlockPool { small, owner, .. } = self.pools[pool as usize];
        let private = owner.map(|owner| {
            let by_pool = &mut self.stats.reserved_bytes_by_private_pools;
            by_pool.entry(owner).or_default()
        });
        let stats = [Some(&mut self.stats.reserved_bytes), private];
        for stat in stats.into_iter().flatten() {
            match more {
                true => stat.add(small, bytes),
                false => stat.sub(small, bytes),
            }
        }
        self.reserved = match more {
            true => self.reserved.saturating_add(bytes),
            false => self.reserved.saturating_sub(bytes),
        };
    }
}
