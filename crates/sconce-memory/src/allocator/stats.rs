//! Counters, by PyTorch's own names (`torch.cuda.memory_stats`).

use std::collections::BTreeMap;

use super::PoolId;

/// One counter. `allocated` and `freed` are sums since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: i64,
    /// The most that `current` was.
    pub peak: i64,
    /// What was added in all.
    pub allocated: i64,
    /// What was taken off in all.
    pub freed: i64,
}

impl Stat {
    pub(super) fn add(&mut self, amount: u64) {
        // Amounts are below 2^60; sums of them wrap, as they do there.
        let amount = amount.cast_signed();
        self.current = self.current.wrapping_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    pub(super) fn sub(&mut self, amount: u64) {
        let amount = amount.cast_signed();
        self.current = self.current.wrapping_sub(amount);
        self.freed = self.freed.wrapping_add(amount);
    }

    /// The four figures by name.
    #[must_use]
    pub fn figures_by_name(&self) -> [(&'static str, i64); 4] {
        [
            ("current", self.current),
            ("peak", self.peak),
            ("allocated", self.allocated),
            ("freed", self.freed),
        ]
    }
}

/// One counter for both pools and their sum. Private pools count as the default pool of their
/// kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// Both.
    pub all: Stat,
    /// Requests up to 1 MiB.
    pub small_pool: Stat,
    /// Larger ones.
    pub large_pool: Stat,
}

impl PoolStat {
    pub(super) fn add(&mut self, small: bool, amount: u64) {
        self.all.add(amount);
        self.pool(small).add(amount);
    }

    pub(super) fn sub(&mut self, small: bool, amount: u64) {
        self.all.sub(amount);
        self.pool(small).sub(amount);
    }

    fn pool(&mut self, small: bool) -> &mut Stat {
        match small {
            true => &mut self.small_pool,
            false => &mut self.large_pool,
        }
    }

    /// The three counters by name.
    #[must_use]
    pub fn stats_by_pool(&self) -> [(&'static str, &Stat); 3] {
        [
            ("all", &self.all),
            ("large_pool", &self.large_pool),
            ("small_pool", &self.small_pool),
        ]
    }
}

/// All counters. Bytes are bytes; the rest are numbers of things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that were given and not yet freed.
    pub allocation: PoolStat,
    /// Their blocks' bytes: rounded, and with what was not split off.
    pub allocated_bytes: PoolStat,
    /// Segments of `cudaMalloc`; expandable ones do not count.
    pub segment: PoolStat,
    /// Bytes of segments, and mapped bytes of expandable ones.
    pub reserved_bytes: PoolStat,
    /// Blocks that are allocated, or freed and still in use by a stream.
    pub active: PoolStat,
    /// Their bytes.
    pub active_bytes: PoolStat,
    /// Free blocks in segments that are partly in use; expandable ones do not count.
    pub inactive_split: PoolStat,
    /// Their bytes.
    pub inactive_split_bytes: PoolStat,
    /// What was asked for, of active blocks.
    pub requested_bytes: PoolStat,
    /// `reserved_bytes` of each private pool that ever had some.
    pub reserved_bytes_by_private_pools: BTreeMap<PoolId, PoolStat>,
    /// Requests for blocks too large to be split.
    pub oversize_allocations: Stat,
    /// Segments too large to be split.
    pub oversize_segments: Stat,
    /// Times that everything was given back and the card asked again.
    pub num_alloc_retries: u64,
    /// Out-of-memory errors.
    pub num_ooms: u64,
    /// Times that all streams were waited for.
    pub num_sync_all_streams: u64,
    /// `cudaMalloc` and mappings that succeeded.
    pub num_device_alloc: u64,
    /// `cudaFree` and unmappings.
    pub num_device_free: u64,
    /// Requests that `throw_on_cudamalloc_oom` refused.
    pub num_oom_rejections: u64,
}

impl Stats {
    /// The counters that are kept by pool, by name.
    #[must_use]
    pub fn by_pool(&self) -> [(&'static str, &PoolStat); 9] {
        [
            ("active", &self.active),
            ("active_bytes", &self.active_bytes),
            ("allocated_bytes", &self.allocated_bytes),
            ("allocation", &self.allocation),
            ("inactive_split", &self.inactive_split),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("segment", &self.segment),
        ]
    }

    /// Every counter by the name that `torch.cuda.memory_stats` has for it.
    #[must_use]
    pub fn counters_by_name(&self) -> BTreeMap<String, i64> {
        let mut all = BTreeMap::new();
        let mut pooled = |name: &str, stat: &PoolStat| {
            for (pool, stat) in stat.stats_by_pool() {
                for (figure, value) in stat.figures_by_name() {
                    all.insert(format!("{name}.{pool}.{figure}"), value);
                }
            }
        };
        for (name, stat) in self.by_pool() {
            pooled(name, stat);
        }
        for (pool, stat) in &self.reserved_bytes_by_private_pools {
            pooled(
                &format!("reserved_bytes_by_private_pools.{}_{}", pool.0, pool.1),
                stat,
            );
        }
        for (name, stat) in [
            ("oversize_allocations", &self.oversize_allocations),
            ("oversize_segments", &self.oversize_segments),
        ] {
            for (figure, value) in stat.figures_by_name() {
                all.insert(format!("{name}.{figure}"), value);
            }
        }
        for (name, value) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
        ] {
            all.insert(name.to_owned(), value.cast_signed());
        }
        all
    }

    /// `torch.cuda.reset_peak_memory_stats`: peaks become what is now.
    pub fn reset_peaks(&mut self) {
        self.each(|stat| stat.peak = stat.current);
    }

    /// `torch.cuda.reset_accumulated_memory_stats`: sums and numbers of events become 0.
    pub fn reset_accumulated(&mut self) {
        self.each(|stat| (stat.allocated, stat.freed) = (0, 0));
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
        self.num_oom_rejections = 0;
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        let pooled = [
            &mut self.allocation,
            &mut self.allocated_bytes,
            &mut self.segment,
            &mut self.reserved_bytes,
            &mut self.active,
            &mut self.active_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ];
        let private = self.reserved_bytes_by_private_pools.values_mut();
        for stat in pooled.into_iter().chain(private) {
            change(&mut stat.all);
            change(&mut stat.small_pool);
            change(&mut stat.large_pool);
        }
        change(&mut self.oversize_allocations);
        change(&mut self.oversize_segments);
    }
}
