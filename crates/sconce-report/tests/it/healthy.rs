//! Each rule beside a healthy neighbour: what raises it, and what comes near and does not.

use crate::made::{Made, Rank, rules};
use sconce_report::{RunReport, VerdictSeverity};
use sconce_schema::Bytes;
use sconce_schema::event::{GpuSample, Pressure};
use sconce_schema::training::{GpuAllocatorCounters, PhaseTimes};

/// What is said of a run on a card that is busy, with something changed.
#[track_caller]
fn says(expected: &[&str], change: impl FnOnce(&mut Made)) -> RunReport {
    let mut made = Made::of(vec![Rank::on_card()]);
    change(&mut made);
    let report = made.report();
    assert_eq!(rules(&report), expected);
    report
}

fn card(made: &mut Made) -> &mut GpuSample {
    made.card.as_mut().expect("made with a card")
}

fn memory(made: &mut Made) -> &mut GpuAllocatorCounters {
    made.ranks[0].memory.as_mut().expect("made with memory")
}

/// The card computes longer than the host takes to start it.
const AHEAD: PhaseTimes = PhaseTimes {
    data_us: 0,
    copy_us: 0,
    forward_us: 40_000,
    backward_us: 60_000,
    optimizer_us: 0,
    other_us: 0,
};

#[test]
fn a_card_that_is_held_idle() {
    // It trains on the CPU and holds a card for 93 s.
    let held = |utilisation: u32, steps: u64| {
        let mut made = Made::of(vec![Rank::on_card()]);
        card(&mut made).utilisation_percent = Some(utilisation);
        made.ranks = vec![Rank::healthy()];
        made.steps = steps;
        made.report()
    };
    let report = held(0, 2_000);
    assert_eq!(rules(&report), ["idle-card"]);
    let verdict = &report.verdicts[0];
    assert!(
        verdict
            .title
            .ends_with("a kernel ran on it 0 % of the time"),
        "{verdict:?}"
    );
    assert!(
        verdict.gain.as_ref().unwrap().contains("94.0 s"),
        "{verdict:?}"
    );
    // It is used now and then; or the run is short.
    assert_eq!(rules(&held(5, 2_000)), [""; 0]);
    assert_eq!(rules(&held(0, 1_000)), [""; 0]);
}

#[test]
fn cudnn_is_not_asked_for_its_fastest() {
    fn network(made: &mut Made) -> &mut sconce_schema::training::TrainingSetup {
        let setup = &mut made.ranks[0].setup;
        setup.cudnn_benchmark = Some(false);
        setup.convolutions = Some(true);
        setup
    }
    says(&["cudnn-benchmark-off"], |made| {
        network(made);
    });
    says(&[], |made| network(made).cudnn_benchmark = Some(true));
    says(&[], |made| network(made).convolutions = Some(false));
    says(&[], |made| network(made).fixed_shapes = Some(false));
    // Where the card waits, its convolutions are not what takes the time.
    says(&[], |made| {
        network(made);
        card(made).utilisation_percent = Some(45);
        made.ranks[0].on_card = Some(AHEAD);
    });
}

#[test]
fn precision_on_a_card_that_gains() {
    for name in [
        "NVIDIA A100-SXM4-80GB",
        "Tesla T4",
        "NVIDIA GeForce RTX 4090",
    ] {
        says(&["no-mixed-precision"], |made| {
            made.ranks[0].setup.autocast = None;
            made.card_name = name;
        });
    }
    // Cards without tensor cores, one that no rule knows, parameters of 16 bits.
    for name in [
        "Tesla P100-PCIE-16GB",
        "NVIDIA TITAN Xp",
        "NVIDIA GeForce GTX 1080 Ti",
        "NVIDIA A1000000",
    ] {
        says(&[], |made| {
            made.ranks[0].setup.autocast = None;
            made.card_name = name;
        });
    }
    says(&[], |made| {
        made.ranks[0].setup.autocast = None;
        made.ranks[0].setup.dtype = Some("bfloat16".into());
    });
}

#[test]
fn small_kernels() {
    let report = says(&["launch-bound"], |made| {
        card(made).utilisation_percent = Some(30)
    });
    let share = report.verdicts[0].gain_share.unwrap();
    assert!((share - 0.7).abs() < 1e-9, "{share}");
    says(&[], |made| card(made).utilisation_percent = Some(65));
    says(&[], |made| {
        card(made).utilisation_percent = Some(30);
        made.ranks[0].on_card = Some(AHEAD);
    });
}

#[test]
fn copies_that_are_waited_for() {
    let copies = |us: u64, pinned: bool| {
        move |made: &mut Made| {
            made.ranks[0].phases.copy_us = us;
            made.ranks[0].setup.loader.as_mut().unwrap().pinned = pinned;
        }
    };
    let report = says(&["copies-not-overlapped"], copies(12_000, false));
    assert_eq!(report.verdicts[0].weight, VerdictSeverity::Costly);
    assert!(report.verdicts[0].mends[0].contains("pin_memory=True"));
    let report = says(&["copies-not-overlapped"], copies(6_500, true));
    assert_eq!(report.verdicts[0].weight, VerdictSeverity::Note);
    assert!(!report.verdicts[0].mends[0].contains("pin_memory=True"));
    says(&[], copies(4_000, false));
}

#[test]
fn memory_in_pieces() {
    says(&["fragmentation"], |made| {
        memory(made).reserved_peak = Bytes::from_mib(70_000)
    });
    // Little of the card, or little of what was reserved.
    says(&[], |made| {
        memory(made).reserved_peak = Bytes::from_mib(40_000)
    });
    says(&[], |made| {
        memory(made).allocated_peak = Bytes::from_mib(60_000);
        memory(made).reserved_peak = Bytes::from_mib(70_000);
    });
}

#[test]
fn clocks_that_are_held_down() {
    let held = |reason: &'static str| {
        move |made: &mut Made| card(made).throttle = Some(vec![reason.to_owned()])
    };
    for reason in ["sw-thermal-slowdown", "hw-thermal-slowdown"] {
        says(&["too-hot"], held(reason));
    }
    says(&["power-limited"], held("sw-power-cap"));
    let report = says(&["power-limited"], held("hw-power-brake-slowdown"));
    assert_eq!(report.verdicts[0].weight, VerdictSeverity::Costly);
    for reason in ["gpu-idle", "applications-clocks-setting", "sync-boost"] {
        says(&[], held(reason));
    }
    // Too few readings.
    says(&[], |made| {
        held("hw-thermal-slowdown")(made);
        made.steps = 150;
    });
}

#[test]
fn memory_of_the_machine() {
    fn stalled(us: u64) -> Option<Pressure> {
        Some(Pressure {
            memory_some_us: Some(us),
            ..Pressure::default()
        })
    }
    // Of 18.6 s.
    says(&["memory-pressure"], |made| {
        made.last.pressure = stalled(2_000_000)
    });
    says(&[], |made| made.last.pressure = stalled(600_000));
    says(&["swapping"], |made| {
        made.last.swap = Some(Bytes::from_mib(64))
    });
    says(&[], |made| made.last.swap = Some(Bytes::from_mib(32)));
}

#[test]
fn a_limit_of_cpus() {
    // Of the time in which it wanted to run: 60 s of CPU time, and so much more.
    says(&["cpu-limit"], |made| {
        made.last.throttled_us = Some(25_000_000)
    });
    says(&[], |made| made.last.throttled_us = Some(15_000_000));
}

/// A run of 300 steps on the CPU, of which each keeps so much more of malloc's memory and of the resident set.
fn keeping(heap: Option<u64>, resident: u64) -> RunReport {
    let mut rank = Rank::healthy();
    (rank.heap_growth, rank.rss_growth) = (heap, resident);
    let mut made = Made::of(vec![rank]);
    made.steps = 300;
    made.report()
}

/// A leak fills what lies free in the heap: the resident set stays as it is for as long.
#[test]
fn a_leak_that_the_resident_set_does_not_show() {
    let report = keeping(Some(64 * 1024), 0);
    assert_eq!(rules(&report), ["memory-grows"]);
    let verdict = &report.verdicts[0];
    assert_eq!(verdict.title, "the process's memory grows by 64 KiB a step");
    assert!(
        verdict
            .evidence
            .iter()
            .any(|line| line.starts_with("heap: 31")),
        "{verdict:?}"
    );
    // Both, told once; what is not malloc's, beside a log of numbers or nothing; a C library that tells nothing
    // of its heap.
    for heap in [Some(64 * 1024), Some(100), Some(0), None] {
        let report = keeping(heap, 64 * 1024);
        assert_eq!(rules(&report), ["memory-grows"]);
        let same = report.verdicts[0]
            .evidence
            .iter()
            .any(|line| line.contains("the same of"));
        assert!(!same, "{:?}", report.verdicts[0]);
    }
}

#[test]
fn a_heap_that_stays_is_no_leak() {
    assert_eq!(rules(&keeping(Some(0), 0)), [""; 0]);
    // A log of numbers.
    assert_eq!(rules(&keeping(Some(100), 0)), [""; 0]);
}

#[test]
fn what_grows_on_the_card() {
    let grows = |bytes: u64, reserved: u64, blocks: u64| {
        move |made: &mut Made| {
            let rank = &mut made.ranks[0];
            rank.allocated_growth = bytes;
            rank.reserved_growth = reserved;
            rank.blocks_growth = blocks;
            made.steps = 300;
        }
    };
    let report = says(&["card-memory-grows"], grows(64 * 1024, 64 * 1024, 10));
    let title = &report.verdicts[0].title;
    assert_eq!(title, "tensors on the card grow by 64 KiB a step");
    // A loss of four bytes that is kept each step is a block of 512.
    says(&["card-blocks-grow"], grows(512, 0, 10));
    says(&["card-blocks-grow"], grows(0, 0, 10));
    says(&[], grows(0, 0, 2));
    says(&["card-cache-grows"], grows(0, 1 << 20, 0));
    says(&[], grows(0, 64 * 1024, 0));
}
