//! Reading the fixtures, which `tests/fixtures/make.py` writes, and things that are none.

use super::*;

fn fixture(name: &str) -> Snapshot {
    let bytes: &[u8] = match name {
        "2.0" => include_bytes!("../../tests/fixtures/torch-2.0-protocol-2.pickle"),
        "2.4" => include_bytes!("../../tests/fixtures/torch-2.4-protocol-3.pickle"),
        "2.9" => include_bytes!("../../tests/fixtures/torch-2.9-protocol-5.pickle"),
        "oom" => include_bytes!("../../tests/fixtures/torch-2.15-oom.pickle"),
        _ => include_bytes!("../../tests/fixtures/torch-2.15-leak.pickle"),
    };
    read(bytes, &SnapshotLimits::default()).unwrap()
}

#[test]
fn every_version_and_protocol_holds_the_same_program() {
    for version in ["2.0", "2.4", "2.9"] {
        let snapshot = fixture(version);
        let is_old = version == "2.0";
        assert_eq!(snapshot.segments.len(), 3, "{version}");
        assert_eq!(snapshot.trace_entries(0).len(), 63);
        assert_eq!(snapshot.device_numbers(), [0]);
        let first = &snapshot.trace_entries(0)[0];
        assert_eq!(first.action(), TraceAction::SegmentAlloc);
        assert_eq!(first.addr(), Some(0x7f2a_0000_0000));
        assert_eq!(first.size(), Some(20 << 20));
        assert_eq!(first.time_us().is_some(), !is_old);
        assert_eq!(snapshot.stream_of(first), Some(0));
        let frames: Vec<StackFrame> = snapshot.stack_frames(first.stack_id().unwrap()).collect();
        assert_eq!(frames.len(), 5);
        assert_eq!((frames[0].name, frames[0].line), ("convert", Some(1369)));
        assert_eq!(frames[4].filename, "/home/user/digits/train.py");
        // 2.0 has no addresses of blocks; they follow from the segment's.
        for (segment, blocks) in snapshot.segments_of(0) {
            let mut at = segment.address.unwrap();
            for block in blocks {
                assert_eq!(block.address, Some(at));
                at += block.size;
                let is_used = block.state == BlockUsage::Allocated;
                if is_used {
                    let frames = snapshot.stack_frames(block.stack.unwrap());
                    assert!(frames.count() > 0);
                    assert!(block.requested_size.is_some_and(|size| size > 0));
                }
            }
            assert_eq!(at - segment.address.unwrap(), segment.total_size.unwrap());
        }
        assert_eq!(snapshot.settings.is_some(), !is_old);
    }
}

#[test]
fn settings_say_what_was_in_effect() {
    let settings = fixture("oom").settings.unwrap();
    assert_eq!(settings.conf.as_deref(), Some(""));
    assert_eq!(settings.max_split_size_bytes, None);
    assert_eq!(settings.expandable_segments, Some(false));
    assert_eq!(settings.roundup_power2_divisions, []);
}

#[test]
fn a_failed_request_says_what_was_free() {
    let snapshot = fixture("oom");
    let oom = snapshot
        .trace_entries(0)
        .iter()
        .find(|event| event.action() == TraceAction::Oom);
    let oom = oom.unwrap();
    assert_eq!((oom.addr(), oom.device_free()), (None, Some(0)));
    assert_eq!(oom.size(), Some(12 << 20));
}

#[test]
fn what_ends_early_is_refused() {
    let bytes: &[u8] = include_bytes!("../../tests/fixtures/torch-2.4-protocol-3.pickle");
    for end in 0..bytes.len() {
        let error = read(&bytes[..end], &SnapshotLimits::default()).unwrap_err();
        let SnapshotError::Pickle(error) = error else {
            panic!("{error}");
        };
        assert!(
            matches!(error, PickleError::Truncated { offset } if offset == end as u64)
                || (end == 0 && matches!(error, PickleError::NoPickle)),
            "{end}: {error}"
        );
    }
}

fn said(body: &[u8]) -> String {
    let bytes = [b"\x80\x04", body, b"."].concat();
    match read(&bytes[..], &SnapshotLimits::default()) {
        Ok(snapshot) => format!("{} segments", snapshot.segments.len()),
        Err(SnapshotError::Pickle(error)) => error.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_no_snapshot_is_said() {
    let no = |what: &str| format!("the pickle is no snapshot of the allocator: {what}");
    let segments = b"}(X\x08\0\0\0segments";
    let with = |rest: &[u8]| said(&[&segments[..], rest].concat());
    assert_eq!(said(b"N"), no("it is neither a dict nor a list"));
    assert_eq!(said(b"}"), no("it has no `segments`"));
    assert_eq!(
        said(b"]K\x01a"),
        no("it is a list of something else than segments")
    );
    assert_eq!(with(b"Nu"), no("its segments are no list of segments"));
    assert_eq!(
        with(b"]K\x01au"),
        no("its segments are no list of segments")
    );
    assert_eq!(with(b"]u"), "0 segments");
    let traces = b"]X\x0d\0\0\0device_traces";
    let traces = |rest: &[u8]| with(&[&traces[..], rest].concat());
    let no_traces = no("its traces are no list of lists of entries");
    assert_eq!(traces(b"Nu"), no_traces);
    assert_eq!(traces(b"]u"), "0 segments");
    assert_eq!(traces(b"]]au"), "0 segments");
    let entry = b"}X\x06\0\0\0action\x8c\x03newsq\x00";
    assert_eq!(traces(&[b"]]", &entry[..], b"aau"].concat()), "0 segments");
    // One entry in two traces, and a list of entries and numbers.
    assert_eq!(
        traces(&[b"](]q\x01", &entry[..], b"ah\x01eu"].concat()),
        no_traces
    );
    assert_eq!(
        traces(&[b"](](", &entry[..], b"K\x01eeu"].concat()),
        no_traces
    );
}

#[test]
fn blocks_are_in_one_segment() {
    let block = b"}(X\x05\0\0\0stateX\x08\0\0\0inactiveX\x04\0\0\0sizeK\x07u";
    let head = b"}(X\x0a\0\0\0total_sizeK\x07X\x06\0\0\0blocks";
    let list = [b"]q\x05", &block[..], b"a"].concat();
    let one = [&b"]("[..], head, &list, b"ue"].concat();
    assert_eq!(said(&one), "1 segments");
    let two = [&b"]("[..], head, &list, b"u", head, b"h\x05ue"].concat();
    assert!(
        said(&two).contains("or another segment's"),
        "{}",
        said(&two)
    );
}

#[test]
fn there_are_limits() {
    let bytes: &[u8] = include_bytes!("../../tests/fixtures/torch-2.15-leak.pickle");
    let enough = SnapshotLimits::default();
    for limits in [
        SnapshotLimits {
            events: 100,
            ..enough
        },
        SnapshotLimits {
            blocks: 3,
            ..enough
        },
        SnapshotLimits {
            segments: 1,
            ..enough
        },
        SnapshotLimits {
            text_bytes: 100,
            ..enough
        },
        SnapshotLimits {
            frames: 20,
            ..enough
        },
        SnapshotLimits {
            others: 3,
            ..enough
        },
    ] {
        let error = read(bytes, &limits).unwrap_err();
        assert!(
            matches!(error, SnapshotError::Pickle(PickleError::TooMany { .. })),
            "{error}"
        );
    }
}

proptest::proptest! {
    /// A fixture with some bytes changed is read or refused; what is read can be walked through.
    #[test]
    fn a_damaged_snapshot_is_read_or_refused(
        changes in proptest::collection::vec((0..6165usize, proptest::prelude::any::<u8>()), 1..8)
    ) {
        let mut bytes = include_bytes!("../../tests/fixtures/torch-2.4-protocol-3.pickle").to_vec();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Ok(snapshot) = read(&bytes[..], &SnapshotLimits::default()) {
            for device in snapshot.device_numbers() {
                for event in snapshot.trace_entries(device) {
                    let frames = event.stack_id().map_or(0, |stack| snapshot.stack_frames(stack).count());
                    proptest::prop_assert!(frames <= 100);
                }
                for (segment, blocks) in snapshot.segments_of(device) {
                    proptest::prop_assert_eq!(segment.blocks.len(), blocks.len());
                }
            }
        }
    }
}
