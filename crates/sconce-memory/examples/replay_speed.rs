//! Prints how many calls a second of a snapshot's trace are played, on one core:
//! `replay_speed SNAPSHOT`. Reading it is not counted, making calls of its trace is.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "it is a program that prints"
)]

use std::fs::File;
use std::time::Instant;

use sconce_memory::replay::{WhatIfQuery, what_if};
use sconce_memory::snapshot::{SnapshotLimits, read};

fn main() {
    let path = std::env::args_os().nth(1).expect("a snapshot is named");
    let begin = Instant::now();
    let file = File::open(path).expect("it is there");
    let snapshot = read(file, &SnapshotLimits::default()).expect("it is a snapshot");
    let entries = snapshot.events.len();
    println!(
        "{entries} entries, read in {:.2} s",
        begin.elapsed().as_secs_f64()
    );
    for (name, confs, search) in [
        ("as it was", vec![], false),
        ("one setting", vec!["expandable_segments:True"], false),
        ("search", vec![], true),
    ] {
        let question = WhatIfQuery {
            version: Some(sconce_memory::allocator::TorchVersion::MAX_KNOWN),
            confs: confs.into_iter().map(str::to_owned).collect(),
            search,
            ..WhatIfQuery::default()
        };
        let begin = Instant::now();
        let answer = what_if(&snapshot, &question).expect("it has a trace");
        let seconds = begin.elapsed().as_secs_f64();
        let plays = |card: &sconce_memory::replay::DeviceWhatIf| {
            // As it was, and the same afresh where the trace begins within the run.
            let fresh = usize::from(card.reserved_before_bytes + card.live_before_bytes > 0);
            card.calls * (1 + fresh + card.asked.len() + card.searched.len())
        };
        let calls: usize = answer.devices.iter().map(plays).sum();
        println!(
            "{name}: {calls} calls in {seconds:.2} s, {:.1} million a second",
            calls as f64 / seconds / 1e6
        );
    }
}
