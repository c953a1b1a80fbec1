//! Replays of snapshots: those of the real allocator on a virtual card, and made-up ones.

use super::*;
use crate::snapshot::{SnapshotLimits, read};

const MIB: u64 = 1 << 20;
const RANDOM: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-real-random.pickle");
const RING: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-real-ring.pickle");
const PIECES: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-real-pieces.pickle");
const LEAK: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-leak.pickle");
const OLD: &[u8] = include_bytes!("../../tests/fixtures/torch-2.0-protocol-2.pickle");

fn snapshot(bytes: &[u8]) -> Snapshot {
    read(bytes, &SnapshotLimits::default()).unwrap()
}

fn asked(bytes: &[u8], question: &WhatIfQuery) -> DeviceWhatIf {
    let answer = what_if(&snapshot(bytes), question).unwrap();
    assert_eq!(answer.devices.len(), 1);
    answer.devices.into_iter().next().unwrap()
}

#[test]
fn a_trace_of_the_real_allocator_gets_its_own_addresses() {
    // With frees that wait for other streams, and emptied caches.
    let device = asked(RANDOM, &WhatIfQuery::default());
    let was = &device.as_it_was;
    assert_eq!(was.same_addresses, device.requests);
    assert_eq!((was.farthest_bytes, was.same_calls), (0, device.calls));
    assert_eq!(was.certainty, Certainty::Certain);
    assert_eq!(was.outcome.peak_reserved_bytes, device.peak_reserved_bytes);
    assert_eq!((device.reserved_before_bytes, device.room), (0, None));
    // Nothing was there before: both begin alike.
    assert_eq!(device.today, was.outcome);
}

#[test]
fn calls_of_every_kind_are_read() {
    let calls = calls::extract_calls(&snapshot(RANDOM), 0, false);
    let count = |wanted: fn(&calls::ReplayCall) -> bool| {
        calls.calls.iter().filter(|one| wanted(one)).count()
    };
    assert!(count(|call| matches!(call, calls::ReplayCall::FreeLater { .. })) > 0);
    assert_eq!(
        count(|call| matches!(call, calls::ReplayCall::EmptyCache)),
        3
    );
    assert!(calls.lanes.len() == 3 && calls.slots < 40);
}

#[test]
fn a_ring_begins_with_its_segments_as_they_stood() {
    let device = asked(RING, &WhatIfQuery::default());
    assert!(device.reserved_before_bytes > 0);
    let was = &device.as_it_was;
    assert_eq!((was.farthest_bytes, was.same_calls), (0, device.calls));
    assert_eq!(was.certainty, Certainty::Certain);
    // Without the cache of before, less is reserved.
    assert!(device.today.peak_reserved_bytes <= was.outcome.peak_reserved_bytes);
}

#[test]
fn a_request_that_failed_is_saved_by_other_settings() {
    let question = WhatIfQuery {
        confs: vec!["expandable_segments:True".to_owned(), String::new()],
        ..WhatIfQuery::default()
    };
    let device = asked(PIECES, &question);
    assert_eq!(device.oom_count, 1);
    assert_eq!(device.room.unwrap().source, CapacitySource::FailedRequest);
    let [grows, plain] = &device.asked[..] else {
        panic!("{device:?}");
    };
    assert_eq!((grows.saved, grows.failed_request_count()), (1, 0));
    assert_eq!((plain.saved, plain.failed_again), (0, 1));
    assert_eq!(device.best.unwrap().conf, "expandable_segments:True");
}

#[test]
fn the_best_settings_are_the_simplest_of_the_good() {
    let question = WhatIfQuery {
        search: true,
        ..WhatIfQuery::default()
    };
    let device = asked(PIECES, &question);
    let best = device.best.unwrap();
    assert_eq!(
        (best.conf.as_str(), best.saved),
        ("expandable_segments:True", 1)
    );
    assert!(
        device
            .searched
            .iter()
            .any(|one| one.conf.contains("large_segment_size_mb"))
    );
    // 2.9 did not know that one.
    let old = WhatIfQuery {
        version: Some(TorchVersion::new(2, 9)),
        ..question
    };
    let device = asked(PIECES, &old);
    assert!(
        !device
            .searched
            .iter()
            .any(|one| one.conf.contains("large_segment_size_mb"))
    );
}

#[test]
fn less_of_a_card_is_less() {
    let question = WhatIfQuery {
        capacity: Some(1024 * MIB),
        ..WhatIfQuery::default()
    };
    let device = asked(RANDOM, &question);
    assert!(device.peak_reserved_bytes > 1024 * MIB);
    assert!(device.today.peak_reserved_bytes <= 1024 * MIB);
    assert!(device.today.retries > 0);
    // What was is played on the card that it was.
    assert_eq!(device.as_it_was.certainty, Certainty::Certain);
    let too_much = WhatIfQuery {
        capacity: Some(u64::MAX),
        ..WhatIfQuery::default()
    };
    let error = what_if(&snapshot(RANDOM), &too_much).unwrap_err();
    assert!(matches!(error, WhatIfError::Capacity(_)));
}

#[test]
fn a_made_up_trace_is_played_too() {
    let device = asked(LEAK, &WhatIfQuery::default());
    assert!(device.live_before_bytes > 0);
    assert_eq!(
        device.as_it_was.outcome.peak_reserved_bytes,
        device.peak_reserved_bytes
    );
    let answer = what_if(&snapshot(OLD), &WhatIfQuery::default()).unwrap();
    assert_eq!((answer.torch.as_str(), answer.torch_given), ("2.6", false));
}

#[test]
fn what_cannot_be_answered_is_said() {
    let mut without = snapshot(LEAK);
    without.traces.clear();
    let error = what_if(&without, &WhatIfQuery::default()).unwrap_err();
    assert!(matches!(error, WhatIfError::NoTrace));
    for (conf, wanted) in [
        ("foo:1", "`foo:1`"),
        ("backend:cudaMallocAsync", "not simulated"),
    ] {
        let question = WhatIfQuery {
            confs: vec![conf.to_owned()],
            ..WhatIfQuery::default()
        };
        let error = what_if(&snapshot(LEAK), &question).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
    }
}

#[test]
fn an_answer_can_be_written_and_read() {
    let question = WhatIfQuery {
        search: true,
        ..WhatIfQuery::default()
    };
    let answer = what_if(&snapshot(PIECES), &question).unwrap();
    let json = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<WhatIf>(&json).unwrap(), answer);
}

proptest::proptest! {
    /// Whatever is read of a damaged snapshot, it is played or refused.
    #[test]
    fn a_damaged_snapshot_never_makes_it_fall(
        changes in proptest::collection::vec((0..14_512usize, proptest::prelude::any::<u8>()), 1..6)
    ) {
        let mut bytes = PIECES.to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(snapshot) = read(&bytes[..], &SnapshotLimits::default()) {
            let _ = what_if(&snapshot, &WhatIfQuery::default());
        }
    }
}
