//! Settings of PyTorch's allocator, programs of its calls, and its snapshots: pickles of any bytes.

use sconce_memory::allocator::{
    Allocator, AllocatorSettings, BlockState, SimulatedGpu, TorchVersion,
};
use sconce_memory::analysis::{SnapshotReport, analyze_snapshot, diff_reports};
use sconce_memory::program::Runner;
use sconce_memory::snapshot::{SnapshotLimits, read};

use crate::bytes::{parts, text};

/// The first byte chooses the release.
pub(crate) fn settings(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let Some(text) = text(rest) else { return };
    let settings = match AllocatorSettings::parse(text, release(first)) {
        Ok(settings) => settings,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let off_or_power = |count: &u64| *count == 0 || count.is_power_of_two();
    assert!(settings.roundup_power2_divisions.iter().all(off_or_power));
    assert!(settings.large_segment_size > 10 << 20);
    let part = settings.garbage_collection_threshold;
    assert!(part.is_none_or(|part| part > 0.0 && part < 1.0));
    assert!((0.0..=1.0).contains(&settings.per_process_memory_fraction));
    // Twice the same is once.
    assert_eq!(
        settings.with_conf(text, release(first)).as_ref(),
        Ok(&settings)
    );
}

pub(crate) fn settings_seeds() -> Vec<Vec<u8>> {
    [
        "\x0fexpandable_segments:True,max_split_size_mb:64,max_non_split_rounding_mb:48",
        "\x0froundup_power2_divisions:[1:4,4:2,16:1,64:8,>:2],large_segment_size_mb:40",
        "\x06garbage_collection_threshold:0.5,roundup_power2_divisions:8,backend:native",
        "\x0fexpandable_segments_reserve_by_class:[a:0.5,b:40G],per_process_memory_fraction:0x1p-1",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn release(byte: u8) -> TorchVersion {
    TorchVersion::new(2, 6 + u32::from(byte) % 10)
}

/// Settings, then the lines; on a card of 1 GiB.
pub(crate) fn program(data: &[u8]) {
    let [conf, program] = parts::<2>(data);
    let version = release(data.len() as u8);
    let conf = text(conf).unwrap_or_default();
    let settings = AllocatorSettings::parse(conf, version).unwrap_or_default();
    let device = SimulatedGpu::new(1 << 30).expect("it is a card");
    let mut runner = Runner::new(Allocator::new(settings, device, version));
    for line in program.split(|&byte| byte == b'\n').take(2000) {
        match runner.run_line(line) {
            Ok(Some(answer)) => drop(serde_json::to_string(&answer).expect("it can be written")),
            Ok(None) => {}
            Err(error) => assert_eq!(error.line, runner.line_count()),
        }
        check(runner.allocator());
    }
}

/// Segments do not overlap, blocks fill them, and the counters say what is there.
fn check(allocator: &Allocator) {
    let segments = allocator.segment_views();
    let (mut end, mut reserved, mut allocated) = (0, 0, 0);
    for segment in &segments {
        assert!(segment.address >= end && !segment.blocks.is_empty());
        end = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, end);
            assert!(block.size > 0 && block.requested_size <= block.size);
            end += block.size;
            if block.state == BlockState::Allocated {
                allocated += block.size;
            }
        }
        assert_eq!(end, segment.address + segment.total_size);
        reserved += segment.total_size;
    }
    let stats = allocator.stats();
    assert_eq!(stats.reserved_bytes.all.current, reserved.cast_signed());
    assert_eq!(stats.allocated_bytes.all.current, allocated.cast_signed());
    let device = allocator.device();
    assert!(reserved <= device.total_bytes() - device.free_bytes());
}

pub(crate) fn program_seeds() -> Vec<Vec<u8>> {
    let calls = br#"{"op":"alloc","id":1,"bytes":31457280,"stream":0}
{"op":"alloc","id":2,"bytes":1048576,"stream":1}
{"op":"record_stream","id":1,"stream":1}
{"op":"free","id":1}
{"op":"complete","stream":1,"events":1}
{"op":"create_pool","pool":[1,0],"use_on_oom":true,"no_split":true}
{"op":"begin_pool","pool":[1,0],"stream":1,"captures":true}
{"op":"alloc","id":3,"bytes":3145728,"stream":1}
{"op":"end_pool","pool":[1,0]}
{"op":"release_pool","pool":[1,0]}
{"op":"set_fraction","fraction":0.5}
{"op":"settings","conf":"expandable_segments:True,max_split_size_mb:32"}
{"op":"alloc","id":4,"bytes":900000000}
{"op":"free","id":3}
{"op":"empty_cache"}
{"op":"stats"}"#;
    [
        "",
        "expandable_segments:True",
        "garbage_collection_threshold:0.3,max_split_size_mb:64",
    ]
    .map(|conf| [conf.as_bytes(), b"\xff%%\xff", calls].concat())
    .to_vec()
}

/// What is read has sums that fit each other, and its report can be written and read again.
pub(crate) fn snapshot(data: &[u8]) {
    let Ok(snapshot) = read(data, &SnapshotLimits::default()) else {
        return;
    };
    let mut said = analyze_snapshot(&snapshot);
    // The only figure with a point: it may come back from JSON with another last digit.
    if let Some(settings) = &mut said.settings {
        settings.garbage_collection_threshold = None;
    }
    for device in &said.devices {
        let mut all = vec![&device.now];
        if let Some(traced) = &device.traced {
            all.push(&traced.peak.filled);
            all.extend(traced.ooms.iter().map(|oom| &oom.filled));
            assert!(traced.peak.entry <= traced.entries);
        }
        for filled in all {
            let purposes = filled.categories.iter().map(|one| one.bytes);
            assert_eq!(purposes.fold(0, u64::saturating_add), filled.bytes);
        }
    }
    assert!(diff_reports(&said, &said).is_empty());
    let json = serde_json::to_string(&said).expect("a report is plain data");
    let again: SnapshotReport = serde_json::from_str(&json).expect("what was written is read");
    assert_eq!(serde_json::to_string(&again).ok(), Some(json));
}

pub(crate) fn snapshot_seeds() -> Vec<Vec<u8>> {
    [
        &include_bytes!("../../crates/sconce-memory/tests/fixtures/torch-2.0-protocol-2.pickle")[..],
        include_bytes!("../../crates/sconce-memory/tests/fixtures/torch-2.4-protocol-3.pickle"),
        include_bytes!("../../crates/sconce-memory/tests/fixtures/torch-2.9-protocol-5.pickle"),
        include_bytes!("../../crates/sconce-memory/tests/fixtures/torch-2.15-leak.pickle"),
        include_bytes!("../../crates/sconce-memory/tests/fixtures/torch-2.15-oom.pickle"),
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}
