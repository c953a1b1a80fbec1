//! Snapshots of PyTorch's allocator: pickles of any bytes.

use sconce_memory::analysis::{Report, diff, report};
use sconce_memory::snapshot::{Limits, read};

/// What is read has sums that fit each other, and its report can be written and read again.
pub(crate) fn snapshot(data: &[u8]) {
    let Ok(snapshot) = read(data, &Limits::default()) else {
        return;
    };
    let mut said = report(&snapshot);
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
    assert!(diff(&said, &said).is_empty());
    let json = serde_json::to_string(&said).expect("a report is plain data");
    let again: Report = serde_json::from_str(&json).expect("what was written is read");
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
