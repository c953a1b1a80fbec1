//! Single rules on hand-made cases, at their borders, and what releases changed in them.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use sconce_memory::allocator::device::{MALLOC_BASE, RESERVE_BASE};
use sconce_memory::allocator::{
    AllocationFailure, Allocator, AllocatorSettings, InvalidCall, NULL, PoolId, PoolOptions,
    PoolScope, SimulatedGpu, TorchVersion,
};

const MIB: u64 = 1 << 20;
const POOL: PoolId = PoolId(1, 0);

fn on(conf: &str, mib: u64, version: TorchVersion) -> Allocator {
    let settings = AllocatorSettings::parse(conf, version).unwrap();
    Allocator::new(settings, SimulatedGpu::new(mib * MIB).unwrap(), version)
}

fn newest(conf: &str, mib: u64) -> Allocator {
    on(conf, mib, TorchVersion::MAX_KNOWN)
}

/// Addresses of requests in MiB on the default stream.
fn take<const N: usize>(allocator: &mut Allocator, mib: [u64; N]) -> [u64; N] {
    mib.map(|mib| allocator.malloc(mib * MIB, 0).unwrap())
}

#[test]
fn nothing_comes_of_nothing() {
    let mut allocator = newest("", 64);
    assert_eq!(allocator.malloc(0, 0), Ok(NULL));
    assert_eq!(allocator.free(NULL), Ok(()));
    assert_eq!(allocator.record_stream(NULL, 1), Ok(()));
    assert_eq!(
        allocator.free(512),
        Err(InvalidCall::Address { address: 512 })
    );
    let error = allocator.malloc(1 << 60, 0).unwrap_err();
    assert_eq!(error.why, AllocationFailure::Exabyte);
    assert_eq!(allocator.stats(), newest("", 64).stats());
}

#[test]
fn what_is_split_off_is_more_than_one_mebibyte() {
    let mut allocator = newest("", 64);
    // 20 MiB for 19: what is left stays with the block.
    let [first] = take(&mut allocator, [9]);
    let [second] = take(&mut allocator, [10]);
    assert_eq!((first, second), (MALLOC_BASE, MALLOC_BASE + 9 * MIB));
    assert_eq!(allocator.block_size(second), Some(11 * MIB));
    assert_eq!(allocator.stats().allocated_bytes.all.current, 20 << 20);
    assert_eq!(allocator.stats().requested_bytes.all.current, 19 << 20);
}

#[test]
fn a_block_that_is_not_split_may_be_so_much_larger() {
    let conf = "max_split_size_mb:64";
    let mut allocator = newest(conf, 512);
    let [block] = take(&mut allocator, [84]);
    allocator.free(block).unwrap();
    let [other] = take(&mut allocator, [64]);
    assert_ne!(other, block, "20 MiB are too many");
    let [same] = take(&mut allocator, [66]);
    assert_eq!(same, block);
    assert_eq!(allocator.block_size(same), Some(84 * MIB));
    assert_eq!(allocator.stats().oversize_allocations.current, 2);
}

#[test]
fn as_many_large_blocks_go_as_are_needed() {
    let mut allocator = newest("max_split_size_mb:64", 192);
    for block in take(&mut allocator, [64, 64, 64]) {
        allocator.free(block).unwrap();
    }
    let [block] = take(&mut allocator, [128]);
    let stats = allocator.stats();
    assert_eq!((stats.num_device_free, stats.num_alloc_retries), (2, 0));
    assert_eq!(
        block,
        MALLOC_BASE + 64 * MIB,
        "the largest, then the highest, went"
    );
}

#[test]
fn expandable_segments_grow_by_pages() {
    let mut allocator = newest("expandable_segments:True", 128);
    let [first] = take(&mut allocator, [30]);
    assert_eq!(first, RESERVE_BASE);
    assert_eq!(allocator.stats().reserved_bytes.all.current, 40 << 20);
    let [second] = take(&mut allocator, [30]);
    assert_eq!(second, RESERVE_BASE + 30 * MIB);
    assert_eq!(allocator.stats().reserved_bytes.all.current, 60 << 20);
    // The page that both have a part of stays.
    allocator.free(first).unwrap();
    allocator.empty_cache();
    assert_eq!(allocator.stats().reserved_bytes.all.current, 40 << 20);
    allocator.free(second).unwrap();
    allocator.empty_cache();
    assert_eq!(allocator.stats().reserved_bytes.all.current, 0);
    assert_eq!(allocator.segment_views(), []);
    assert_eq!(allocator.device().free_bytes(), 128 * MIB);
    // More than there is, and nothing of it stays.
    let error = allocator.malloc(200 * MIB, 0).unwrap_err();
    assert_eq!(
        (error.tried, error.allocated, error.reserved),
        (200 * MIB, 0, 0)
    );
    assert!(!error.to_string().contains("expandable"), "{error}");
}

#[test]
fn a_fraction_of_one_is_a_limit_up_to_2_8() {
    for (minor, allowed) in [(8, Some(64 * MIB)), (9, None)] {
        let mut allocator = on("", 64, TorchVersion::new(2, minor));
        allocator.set_fraction(1.0).unwrap();
        let error = allocator.malloc(100 * MIB, 0).unwrap_err();
        assert_eq!(error.allowed, allowed, "2.{minor}");
    }
    assert!(newest("", 64).set_fraction(1.1).is_err());
}

#[test]
fn what_is_rejected_gives_nothing_back() {
    let conf = "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True";
    let mut allocator = newest(conf, 128);
    let [block] = take(&mut allocator, [40]);
    allocator.free(block).unwrap();
    let error = allocator.malloc(50 * MIB, 0).unwrap_err();
    assert_eq!(error.why, AllocationFailure::Rejected);
    let stats = allocator.stats();
    assert_eq!((stats.num_oom_rejections, stats.num_ooms), (1, 0));
    assert_eq!(stats.reserved_bytes.all.current, 40 << 20);
}

#[test]
fn the_pool_begun_last_takes_requests_from_2_9_on() {
    let other = PoolId(2, 0);
    for (minor, pool) in [(8, POOL), (9, other)] {
        let mut allocator = on("", 64, TorchVersion::new(2, minor));
        allocator.begin_pool(POOL, PoolScope::All, false).unwrap();
        allocator.begin_pool(other, PoolScope::All, false).unwrap();
        allocator.malloc(1, 0).unwrap();
        assert_eq!(allocator.segment_views()[0].pool, pool, "2.{minor}");
    }
}

#[test]
fn memory_is_given_back_within_a_pool_from_2_13_on() {
    for (minor, captures, fits) in [(12, false, false), (13, false, true), (13, true, false)] {
        let mut allocator = on("", 64, TorchVersion::new(2, minor));
        let [block] = take(&mut allocator, [40]);
        allocator.free(block).unwrap();
        allocator
            .begin_pool(POOL, PoolScope::All, captures)
            .unwrap();
        let got = allocator.malloc(40 * MIB, 0);
        assert_eq!(got.is_ok(), fits, "2.{minor} {captures}");
    }
}

#[test]
fn a_pool_helps_out_when_it_was_told_to() {
    for (use_on_oom, fits) in [(false, false), (true, true)] {
        let mut allocator = newest("", 64);
        let options = PoolOptions {
            use_on_oom,
            ..PoolOptions::default()
        };
        allocator.create_pool(POOL, options).unwrap();
        allocator
            .begin_pool(POOL, PoolScope::Stream(0), false)
            .unwrap();
        let [block] = take(&mut allocator, [40]);
        allocator.free(block).unwrap();
        allocator.end_pool(POOL).unwrap();
        allocator.release_pool(POOL).unwrap();
        let got = allocator.malloc(30 * MIB, 0);
        assert_eq!(got.is_ok(), fits);
        if let Err(error) = got {
            assert_eq!(error.in_private_pools, 40 * MIB);
        }
    }
}

#[test]
fn a_released_pool_is_emptied_with_the_cache() {
    let mut allocator = newest("", 64);
    allocator.begin_pool(POOL, PoolScope::All, true).unwrap();
    let [block] = take(&mut allocator, [40]);
    allocator.end_pool(POOL).unwrap();
    allocator.free(block).unwrap();
    allocator.empty_cache();
    let by_pool = |allocator: &Allocator| {
        allocator.stats().reserved_bytes_by_private_pools[&POOL]
            .all
            .current
    };
    assert_eq!(by_pool(&allocator), 40 << 20);
    allocator.release_pool(POOL).unwrap();
    assert_eq!(
        allocator.begin_pool(POOL, PoolScope::All, true),
        Err(InvalidCall::Released { pool: POOL })
    );
    allocator.empty_pool(POOL);
    assert_eq!(
        (by_pool(&allocator), allocator.segment_views().len()),
        (0, 0)
    );
    assert_eq!(allocator.begin_pool(POOL, PoolScope::All, true), Ok(()));
}

#[test]
fn counters_are_named_as_torch_names_them() {
    let mut allocator = newest("", 64);
    take(&mut allocator, [1, 3]);
    let stats = allocator.stats().counters_by_name();
    for (name, value) in [
        ("allocation.all.current", 2),
        ("allocated_bytes.large_pool.peak", 3 << 20),
        ("reserved_bytes.small_pool.allocated", 2 << 20),
        ("inactive_split_bytes.all.current", 18 << 20),
        ("oversize_segments.current", 0),
        ("num_device_alloc", 2),
        ("num_sync_all_streams", 0),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    assert_eq!(stats.len(), 9 * 3 * 4 + 2 * 4 + 6);
}
