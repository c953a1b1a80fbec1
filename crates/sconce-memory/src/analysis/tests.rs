//! What is said of the fixtures (`tests/fixtures/README.md`).

use super::*;
use crate::snapshot::{SnapshotLimits, read};

const LEAK: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-leak.pickle");
const OOM: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-oom.pickle");
const OLD: &[u8] = include_bytes!("../../tests/fixtures/torch-2.0-protocol-2.pickle");
const NEW: &[u8] = include_bytes!("../../tests/fixtures/torch-2.9-protocol-5.pickle");
const MIB: u64 = 1 << 20;

fn said(bytes: &[u8]) -> DeviceReport {
    let report = analyze_snapshot(&read(bytes, &SnapshotLimits::default()).unwrap());
    assert_eq!(report.devices.len(), 1);
    report.devices.into_iter().next().unwrap()
}

#[test]
fn the_peak_is_what_the_program_held_at_once() {
    for bytes in [OLD, NEW] {
        let device = said(bytes);
        let traced = device.traced.unwrap();
        // In the second step, when the first gradient is there and both activations still are: 2
        // parameters, 4 states of the optimizer, the gradient, the input, activations of 2 layers.
        let memory = 2 * MIB + 1000;
        let filled = &traced.peak.filled;
        let activations = 6 * MIB + 4096;
        assert_eq!(filled.bytes, 7 * memory + 600 * 1024 + activations);
        assert_eq!(filled.blocks, 10);
        assert_eq!((filled.unrecorded_bytes, traced.live_before_bytes), (0, 0));
        assert_eq!((traced.unmatched, traced.oom_count), (0, 0));
        let categories = filled
            .categories
            .iter()
            .map(|group| (group.category, group.bytes));
        let categories: Vec<(MemoryCategory, u64)> = categories.collect();
        assert_eq!(
            categories,
            [
                (MemoryCategory::OptimizerState, 4 * memory),
                (MemoryCategory::Activations, activations),
                (MemoryCategory::Parameters, 2 * memory),
                (MemoryCategory::Backward, memory),
                (MemoryCategory::Other, 600 * 1024),
            ]
        );
        let first = &filled.places[0];
        let place = first.place.as_ref().unwrap();
        assert_eq!((place.line, place.function.as_str()), (Some(36), "step"));
        assert_eq!(first.blocks, 4);
        assert!(
            first.stack[0].ends_with("adamw.py:150 _init_group"),
            "{:?}",
            first.stack
        );
    }
}

#[test]
fn sums_of_all_groups_are_the_whole() {
    for bytes in [OLD, NEW, LEAK, OOM] {
        let device = said(bytes);
        let fragments = &device.fragments;
        assert_eq!(
            fragments.live_bytes + fragments.stuck_bytes + fragments.returnable_bytes,
            fragments.reserved_bytes
        );
        for filled in [&device.now, &device.traced.as_ref().unwrap().peak.filled] {
            let sums = [
                filled.places.iter().map(|one| one.bytes).sum::<u64>(),
                filled.modules.iter().map(|one| one.bytes).sum(),
                filled.categories.iter().map(|one| one.bytes).sum(),
            ];
            assert_eq!(sums, [filled.bytes; 3]);
        }
    }
}

#[test]
fn a_timeline_adds_up_to_the_report() {
    for bytes in [OLD, NEW, LEAK, OOM] {
        let snapshot = read(bytes, &SnapshotLimits::default()).unwrap();
        let device = said(bytes);
        let traced = device.traced.unwrap();
        let timeline = build_timeline(&snapshot, device.device).unwrap();
        let first = timeline.groups.iter().map(|group| group.first_bytes);
        let mut live: u64 = first.sum();
        assert_eq!(live, traced.live_before_bytes);
        let mut reserved = timeline.first_reserved_bytes;
        let (mut peak, mut most_reserved, mut fails) = (live, reserved, 0);
        let mut last_us = 0;
        for entry in &timeline.entries {
            match entry.does {
                EntryKind::Takes => live += entry.bytes,
                EntryKind::Gives => live -= entry.bytes,
                EntryKind::Reserves => reserved += entry.bytes,
                EntryKind::Returns => reserved -= entry.bytes,
                EntryKind::Fails => fails += 1,
            }
            peak = peak.max(live);
            most_reserved = most_reserved.max(reserved);
            assert!(entry.after_us >= last_us && entry.group < timeline.groups.len());
            last_us = entry.after_us;
        }
        assert_eq!(peak, traced.peak.filled.bytes);
        assert_eq!(most_reserved, traced.peak_reserved_bytes);
        assert_eq!((fails, live), (traced.oom_count, device.now.bytes));
    }
}

#[test]
fn a_leak_is_found_in_a_ring_that_began_later() {
    let traced = said(LEAK).traced.unwrap();
    assert!(traced.live_before_bytes > 0);
    let leaks = traced.leaks.unwrap();
    assert_eq!(leaks.unit, TrendUnit::Step);
    let [leak] = &leaks.places[..] else {
        panic!("{leaks:?}");
    };
    assert_eq!(leak.bytes_per_unit, 1_500_000);
    assert_eq!(leaks.bytes_per_unit, 1_500_000);
    assert_eq!(leak.rising_percent, 100);
    assert_eq!(leak.place.as_ref().unwrap().line, Some(38));
}

#[test]
fn a_failed_request_is_explained() {
    let traced = said(OOM).traced.unwrap();
    let [oom] = &traced.ooms[..] else {
        panic!("{:?}", traced.ooms);
    };
    assert_eq!(oom.asked_bytes, Some(12 * MIB));
    assert_eq!(oom.device_free_bytes, Some(0));
    assert_eq!(oom.reserved_bytes, 100 * MIB);
    assert_eq!(
        (oom.free_bytes, oom.largest_free_bytes),
        (52 * MIB, 4 * MIB)
    );
    assert_eq!(oom.reason, OomReason::Fragmented);
    assert_eq!(oom.in_the_way_bytes, Some(4 * MIB));
    let [pin] = &oom.in_the_way[..] else {
        panic!("{:?}", oom.in_the_way);
    };
    assert_eq!(
        pin.place.as_ref().unwrap().file,
        "/home/user/digits/load.py"
    );
    assert_eq!(
        oom.place.as_ref().unwrap().file,
        "/home/user/digits/model.py"
    );
}

#[test]
fn blocks_that_keep_segments_are_named() {
    let fragments = said(OOM).fragments;
    assert_eq!(fragments.stuck_bytes, 52 * MIB);
    assert_eq!(fragments.returnable_bytes, 0);
    assert_eq!(fragments.pinned.len(), 5);
    let worst = &fragments.pinned[0];
    assert_eq!((worst.total_bytes, worst.free_bytes), (20 * MIB, 12 * MIB));
    assert_eq!((worst.live_blocks, worst.largest_free_bytes), (2, 4 * MIB));
    assert_eq!(worst.pins[0].place.as_ref().unwrap().line, Some(12));
}

#[test]
fn two_reports_differ_where_they_differ() {
    let of = |bytes: &[u8]| analyze_snapshot(&read(bytes, &SnapshotLimits::default()).unwrap());
    assert!(diff_reports(&of(NEW), &of(NEW)).is_empty());
    let found = diff_reports(&of(NEW), &of(LEAK));
    let [device] = &found.devices[..] else {
        panic!("{found:?}");
    };
    assert!(device.after.unwrap().peak_bytes > device.before.unwrap().peak_bytes);
    let growth: i128 = device
        .changes
        .iter()
        .map(FunctionChange::growth_bytes)
        .sum();
    let (before, after) = (device.before.unwrap(), device.after.unwrap());
    assert_eq!(
        growth,
        i128::from(after.peak_bytes) - i128::from(before.peak_bytes)
    );
    // 2.0 says nothing of settings.
    let names = diff_reports(&of(OLD), &of(NEW)).settings;
    assert!(
        names
            .iter()
            .any(|(name, before, _)| name == "conf" && before.is_none())
    );
}

#[test]
fn a_report_can_be_written_and_read() {
    let written = analyze_snapshot(&read(OOM, &SnapshotLimits::default()).unwrap());
    let json = serde_json::to_string(&written).unwrap();
    assert_eq!(
        serde_json::from_str::<SnapshotReport>(&json).unwrap(),
        written
    );
}

#[test]
fn without_a_history_the_end_is_told() {
    let mut snapshot = read(OOM, &SnapshotLimits::default()).unwrap();
    snapshot.traces.clear();
    let report = analyze_snapshot(&snapshot);
    assert_eq!(report.devices[0].traced, None);
    assert_eq!(report.devices[0].now.bytes, 48 * MIB);
}

/// A pickle of a trace: actions, addresses, sizes, and the line of `serve.py` that each is from.
fn pickled(entries: &[(&str, u64, u64, u32)]) -> Vec<u8> {
    let text = |text: &str| {
        [
            b"X",
            &(text.len() as u32).to_le_bytes()[..],
            text.as_bytes(),
        ]
        .concat()
    };
    let number = |number: u64| [b"\x8a\x08", &number.to_le_bytes()[..]].concat();
    let dict = |pairs: &[(&str, Vec<u8>)]| {
        let pairs = pairs
            .iter()
            .flat_map(|(key, value)| [text(key), value.clone()]);
        [
            b"}(".to_vec(),
            pairs.collect::<Vec<_>>().concat(),
            b"u".to_vec(),
        ]
        .concat()
    };
    let list = |items: Vec<Vec<u8>>| [b"](".to_vec(), items.concat(), b"e".to_vec()].concat();
    let entries = entries.iter().map(|(action, addr, size, line)| {
        let frame = dict(&[
            ("filename", text("/srv/serve.py")),
            ("line", number(u64::from(*line))),
            ("name", text("answer")),
        ]);
        dict(&[
            ("action", text(action)),
            ("addr", number(*addr)),
            ("size", number(*size)),
            ("frames", list(vec![frame])),
        ])
    });
    let traces = list(vec![list(entries.collect())]);
    let top = dict(&[("segments", b"]".to_vec()), ("device_traces", traces)]);
    [b"\x80\x02".to_vec(), top, b".".to_vec()].concat()
}

#[test]
fn without_an_optimizer_windows_stand_for_steps() {
    // A server: each request needs 8 MiB for its time, and every tenth leaves 100,000 bytes.
    let mut entries = Vec::new();
    for request in 0..1000 {
        entries.push(("alloc", 7, 8 * MIB, 10));
        if request % 10 == 0 {
            entries.push(("alloc", 1000 + request, 100_000, 20));
        }
        entries.push(("free_requested", 7, 8 * MIB, 10));
        entries.push(("free_completed", 7, 8 * MIB, 10));
    }
    let leaks = said(&pickled(&entries)).traced.unwrap().leaks.unwrap();
    assert_eq!((leaks.unit, leaks.units), (TrendUnit::Window, 18));
    let [leak] = &leaks.places[..] else {
        panic!("{leaks:?}");
    };
    assert_eq!(leak.place.as_ref().unwrap().line, Some(20));
    let windows = 3100.0 / 129.0;
    let expected = 10_000_000.0 / windows;
    assert!(
        (leak.bytes_per_unit as f64 / expected - 1.0).abs() < 0.1,
        "{leak:?}"
    );

    // The same without what is left.
    entries.retain(|(_, _, _, line)| *line == 10);
    let leaks = said(&pickled(&entries)).traced.unwrap().leaks.unwrap();
    assert_eq!(leaks.places, []);
}

#[test]
fn a_free_of_what_is_not_known_was_there_before() {
    let entries = [
        ("free_completed", 1, 500, 1),
        ("alloc", 1, 100, 2),
        ("free_completed", 1, 100, 2),
        ("free_completed", 1, 100, 2),
        ("alloc", 2, 300, 3),
        ("alloc", 2, 700, 4),
    ];
    let traced = said(&pickled(&entries)).traced.unwrap();
    assert_eq!((traced.live_before_bytes, traced.unmatched), (500, 2));
    // Only one of the two at address 2 can be there: the end of the first is missing.
    assert_eq!(traced.peak.filled.bytes, 700);
    assert_eq!(traced.leaks, None);
}

proptest::proptest! {
    /// Whatever is read of a damaged snapshot, something is said of it.
    #[test]
    fn a_damaged_snapshot_never_makes_it_fall(
        changes in proptest::collection::vec((0..5960usize, proptest::prelude::any::<u8>()), 1..6)
    ) {
        let mut bytes = OOM.to_vec();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Ok(snapshot) = read(&bytes[..], &SnapshotLimits::default()) {
            let report = analyze_snapshot(&snapshot);
            let _ = diff_reports(&report, &report);
        }
    }
}
