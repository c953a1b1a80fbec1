//! The simulator against a slow model of the same rules, on random programs in many settings:
//! after every step the same address, the same blocks and the same counters.

#![expect(
    clippy::expect_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use proptest::prelude::*;
use sconce_memory::allocator::settings::AllocatorSettings;
use sconce_memory::allocator::{
    Allocator, BlockView, PoolId, PoolOptions, PoolScope, SimulatedGpu, Stat, TorchVersion,
};

use crate::model::{Model, State};

use crate::model;

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone)]
enum Step {
    Malloc(u64, u64),
    /// One of those that are allocated, by its place among them.
    Free(usize),
    Use(usize, u64),
    Complete(u64, Option<usize>),
    Synchronize,
    AtOnce(bool),
    EmptyCache,
    EmptyPool(u64),
    Fraction(f64),
    Expandable(bool),
    Create(u64, PoolOptions),
    Begin(u64, Option<u64>, bool),
    End(u64),
    Release(u64),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        6 => 1_u64..64 * 1024,
        6 => 64 * 1024..MIB + 2048,
        8 => MIB..12 * MIB,
        6 => 12 * MIB..80 * MIB,
        2 => 80 * MIB..700 * MIB,
        // The same sizes again and again, as training asks for them.
        8 => prop::sample::select(vec![512, MIB, 3 * MIB, 20 * MIB, 21 * MIB, 33 * MIB, 64 * MIB, 128 * MIB]),
        1 => prop::sample::select(vec![3 << 30, 1 << 59]),
    ]
}

fn basic() -> BoxedStrategy<Step> {
    prop_oneof![
        30 => (size(), 0_u64..3).prop_map(|(bytes, stream)| Step::Malloc(bytes, stream)),
        26 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::EmptyCache),
    ]
    .boxed()
}

fn everything() -> BoxedStrategy<Step> {
    let options =
        any::<(bool, bool, bool)>().prop_map(|(own_allocator, use_on_oom, no_split)| PoolOptions {
            own_allocator,
            use_on_oom,
            no_split,
        });
    let streams = prop_oneof![Just(None), (0_u64..3).prop_map(Some)];
    let count = prop_oneof![Just(None), (1_usize..4).prop_map(Some)];
    prop_oneof![
        60 => basic(),
        12 => (any::<usize>(), 0_u64..4).prop_map(|(at, stream)| Step::Use(at, stream)),
        6 => (0_u64..4, count).prop_map(|(stream, count)| Step::Complete(stream, count)),
        1 => Just(Step::Synchronize),
        1 => any::<bool>().prop_map(Step::AtOnce),
        1 => prop::sample::select(vec![0.0, 0.3, 0.5, 0.9, 1.0]).prop_map(Step::Fraction),
        1 => any::<bool>().prop_map(Step::Expandable),
        2 => (1_u64..4, options).prop_map(|(pool, options)| Step::Create(pool, options)),
        3 => (1_u64..4, streams, any::<bool>())
            .prop_map(|(pool, stream, captures)| Step::Begin(pool, stream, captures)),
        5 => (1_u64..4).prop_map(Step::End),
        4 => (1_u64..4).prop_map(Step::Release),
        1 => (1_u64..4).prop_map(Step::EmptyPool),
    ]
    .boxed()
}

struct Both {
    fast: Allocator,
    slow: Model,
    live: Vec<u64>,
}

impl Both {
    fn new(text: &str, capacity: u64, version: TorchVersion) -> Self {
        let settings = AllocatorSettings::parse(text, version).expect("they are settings");
        let device = SimulatedGpu::new(capacity).expect("it is a card");
        Self {
            fast: Allocator::new(settings.clone(), device, version),
            slow: Model::new(settings, capacity, version),
            live: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (fast, slow) = (&mut self.fast, &mut self.slow);
        match *step {
            Step::Malloc(bytes, stream) => {
                let got = fast.malloc(bytes, stream).ok();
                prop_assert_eq!(got, slow.malloc(bytes, stream), "{:?}", step);
                self.live.extend(got.filter(|&address| address != 0));
            }
            Step::Free(at) => {
                if !self.live.is_empty() {
                    let address = self.live.swap_remove(at % self.live.len());
                    prop_assert_eq!(fast.free(address), Ok(()));
                    prop_assert!(fast.free(address).is_err());
                    slow.free_address(address);
                }
            }
            Step::Use(at, stream) => {
                if !self.live.is_empty() {
                    let address = self.live[at % self.live.len()];
                    prop_assert_eq!(fast.record_stream(address, stream), Ok(()));
                    slow.use_on(address, stream);
                }
            }
            Step::Complete(stream, count) => {
                fast.complete_events(stream, count);
                slow.complete(stream, count);
            }
            Step::Synchronize => {
                fast.synchronize();
                slow.synchronize();
            }
            Step::AtOnce(at_once) => {
                fast.complete_at_once(at_once);
                slow.at_once = at_once;
            }
            Step::EmptyCache => {
                fast.empty_cache();
                slow.release_all(None);
            }
            Step::EmptyPool(pool) => {
                fast.empty_pool(PoolId(0, pool));
                slow.release_all(Some(PoolId(0, pool)));
            }
            Step::Fraction(fraction) => {
                prop_assert_eq!(fast.set_fraction(fraction), Ok(()));
                slow.set_fraction(fraction);
            }
            Step::Expandable(expandable_segments) => {
                let settings = AllocatorSettings {
                    expandable_segments,
                    ..fast.settings().clone()
                };
                fast.set_settings(settings.clone());
                slow.settings = settings;
            }
            Step::Create(pool, options) => {
                let made = fast.create_pool(PoolId(0, pool), options).is_ok();
                prop_assert_eq!(made, slow.create_pool(PoolId(0, pool), options));
            }
            Step::Begin(pool, stream, captures) => {
                let takes = stream.map_or(PoolScope::All, PoolScope::Stream);
                let begun = fast.begin_pool(PoolId(0, pool), takes, captures).is_ok();
                prop_assert_eq!(begun, slow.begin_pool(PoolId(0, pool), takes, captures));
            }
            Step::End(pool) => {
                let ended = fast.end_pool(PoolId(0, pool)).is_ok();
                prop_assert_eq!(ended, slow.end_pool(PoolId(0, pool)));
            }
            Step::Release(pool) => {
                let released = fast.release_pool(PoolId(0, pool)).is_ok();
                prop_assert_eq!(released, slow.release_pool(PoolId(0, pool)));
            }
        }
        self.slow.count();
        self.same_counts(step)
    }

    fn same_counts(&self, step: &Step) -> Result<(), TestCaseError> {
        let stats = self.fast.stats();
        let check = |name, pool: Option<bool>, stat: &Stat| {
            let count = self.slow.counts[&(name, pool)];
            let slow = (count.now.cast_signed(), count.peak.cast_signed());
            prop_assert_eq!(
                (stat.current, stat.peak),
                slow,
                "{} {:?} {:?}",
                name,
                pool,
                step
            );
            prop_assert_eq!(stat.allocated - stat.freed, stat.current, "{}", name);
            Ok(())
        };
        for (name, stat) in stats.by_pool() {
            check(name, None, &stat.all)?;
            check(name, Some(true), &stat.small_pool)?;
            check(name, Some(false), &stat.large_pool)?;
        }
        check("oversize_allocations", None, &stats.oversize_allocations)?;
        check("oversize_segments", None, &stats.oversize_segments)?;
        let numbers = model::Numbers {
            ooms: stats.num_ooms,
            retries: stats.num_alloc_retries,
            waits: stats.num_sync_all_streams,
            card_allocs: stats.num_device_alloc,
            card_frees: stats.num_device_free,
            rejections: stats.num_oom_rejections,
        };
        prop_assert_eq!(&numbers, &self.slow.numbers, "{:?}", step);
        Ok(())
    }

    /// Every block where and as the model has it.
    fn same_blocks(&self) -> Result<(), TestCaseError> {
        let mut slow = Vec::new();
        for segment in &self.slow.segments {
            for piece in &segment.pieces {
                if piece.state != State::Unmapped {
                    let block = BlockView {
                        address: piece.from,
                        size: piece.size,
                        requested_size: piece.asked,
                        state: piece.shown(),
                    };
                    let of = (segment.stream, segment.small, segment.pool);
                    slow.push((of, segment.page.is_some(), block));
                }
            }
        }
        slow.sort_by_key(|(.., block)| block.address);
        let mut fast = Vec::new();
        for segment in self.fast.segment_views() {
            let size: u64 = segment.blocks.iter().map(|block| block.size).sum();
            prop_assert_eq!(size, segment.total_size);
            prop_assert_eq!(segment.blocks[0].address, segment.address);
            for block in segment.blocks {
                let of = (segment.stream, segment.small, segment.pool);
                fast.push((of, segment.is_expandable, block));
            }
        }
        prop_assert_eq!(fast, slow);
        let mut live = self.live.clone();
        live.sort_unstable();
        prop_assert_eq!(live, self.slow.busy().into_iter().collect::<Vec<_>>());
        Ok(())
    }
}

fn compare(
    text: &str,
    capacity: u64,
    version: TorchVersion,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut both = Both::new(text, capacity, version);
    for step in steps {
        both.step(step)?;
        both.same_blocks()?;
    }
    Ok(())
}

/// Failures become tests of their own, not a file of seeds.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// One property a setting: a failure names it.
macro_rules! same_in {
    ($($name:ident: $text:expr, $mib:expr;)*) => {$(
        proptest! {
            #![proptest_config(config(40))]
            #[test]
            fn $name(steps in prop::collection::vec(basic(), 1..160)) {
                compare($text, $mib * MIB, TorchVersion::MAX_KNOWN, &steps)?;
            }
        }
    )*};
}

same_in! {
    by_default: "", 8192;
    on_a_small_card: "", 512;
    with_max_split: "max_split_size_mb:64", 1024;
    with_max_split_and_rounding: "max_split_size_mb:32,max_non_split_rounding_mb:48", 1024;
    with_roundup: "roundup_power2_divisions:8", 2048;
    with_a_roundup_list: "roundup_power2_divisions:[1:4,4:2,16:1,64:8,256:4,>:2]", 2048;
    expandable: "expandable_segments:True", 8192;
    expandable_on_a_small_card: "expandable_segments:True", 512;
    expandable_with_max_split: "expandable_segments:True,max_split_size_mb:64", 1024;
    expandable_with_garbage: "expandable_segments:True,garbage_collection_threshold:0.5,\
        per_process_memory_fraction:0.9", 1024;
    with_garbage_and_a_fraction: "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9", 1024;
    with_a_fraction: "per_process_memory_fraction:0.5", 1024;
    with_rejections: "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True", 1024;
    with_large_segments: "large_segment_size_mb:40", 2048;
    expandable_with_large_segments: "large_segment_size_mb:40,expandable_segments:True", 2048;
}

proptest! {
    #![proptest_config(config(400))]

    /// Streams, events, pools and changes of settings, in any release.
    #[test]
    fn with_everything(
        text in prop::sample::select(vec![
            "", "expandable_segments:True", "max_split_size_mb:64",
            "expandable_segments:True,max_split_size_mb:32,max_non_split_rounding_mb:48",
            "garbage_collection_threshold:0.5", "expandable_segments:True,garbage_collection_threshold:0.3",
        ]),
        mib in prop::sample::select(vec![128, 640, 2048]),
        minor in 6_u32..16,
        steps in prop::collection::vec(everything(), 1..200),
    ) {
        compare(text, mib * MIB, TorchVersion::new(2, minor), &steps)?;
    }
}
