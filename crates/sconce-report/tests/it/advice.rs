//! Records of real runs, judged anew: no advice that the record itself contradicts.
//!
//! Most are of `scripts/test.d/trouble.py`, by `sconce run --host` on two cores (AMD EPYC, virtual,
//! Linux 6.18) with torch 2.15 and gloo, under SCHED_RR, as others used the machine; the machine's
//! name and the folders are changed, nothing else. `handed-over-N`: `trouble.py handed-over 300 N`,
//! N loader workers. `straggler-backward`: two ranks, `trouble.py straggler-backward 100`; rank 1
//! sleeps 20 ms in each backward pass. `straggler-wide` and `wide-ranks`: `trouble.py KIND 150`, the same and its
//! healthy neighbour with larger layers, contained and beside other work. `handed-over-busy-N`: another script with
//! batches of 8 rows in steps of less than a millisecond, N workers, contained, beside programs that kept both cores
//! busy; cut after 400 steps and without the figures of each process. `bursts-N`: `trouble.py bursts 300 N`, not
//! under SCHED_RR. The healthy ones: `trouble.py KIND 200`, and two ranks of `trouble.py ranks 100`.

use std::path::Path;

use sconce_record::RecordReader;
use sconce_report::{RunReport, Verdict};

fn report(text: &str) -> RunReport {
    let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl"));
    RunReport::from_record(record.expect("it begins as a record"))
}

macro_rules! record {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../records/runs/", $name, ".jsonl")),
        )
    };
}

fn verdict<'a>(report: &'a RunReport, rule: &str) -> Option<&'a Verdict> {
    report.verdicts.iter().find(|verdict| verdict.rule == rule)
}

/// All that is told to be changed.
fn mends(report: &RunReport) -> String {
    let mends = report.verdicts.iter().flat_map(|verdict| &verdict.mends);
    mends.map(|mend| format!("{mend}\n")).collect()
}

/// Whether more workers are advised, in whatever words: `num_workers=` of more than there are.
fn advises_workers(mends: &str) -> bool {
    let numbers = mends.split("num_workers=").skip(1);
    let more = |text: &str| !text.starts_with('0');
    mends.contains("more workers") || numbers.into_iter().any(more)
}

/// Steps took 0.5 ms without workers and several times as long with them, with as many as there were.
#[test]
fn workers_are_no_mend_for_batches_that_stand_ready() {
    let records = [
        record!("handed-over-0"),
        record!("handed-over-1"),
        record!("handed-over-2"),
        record!("handed-over-4"),
        record!("handed-over-8"),
    ];
    let mut steps = Vec::new();
    for (workers, (name, text)) in [0, 1, 2, 4, 8].into_iter().zip(records) {
        let report = report(text);
        let rank = &report.training[0];
        let loader = rank.setup.as_ref().and_then(|setup| setup.loader.as_ref());
        assert_eq!(loader.map(|loader| loader.workers), Some(workers), "{name}");
        steps.push(rank.step_times.expect("300 steps").median_us);
        let mends = mends(&report);
        assert!(!advises_workers(&mends), "{name}: {mends}");
        if workers == 0 {
            continue;
        }
        // The time is told, and what it is.
        let verdict = verdict(&report, "starved-by-data").expect(name);
        assert!(
            verdict
                .mends
                .iter()
                .any(|mend| mend.contains("`num_workers=0`")),
            "{mends}"
        );
        assert!(mends.contains("fewer, larger batches"), "{name}: {mends}");
        assert!(
            !mends.contains("prefetch_factor") && !mends.contains("__getitem__"),
            "{mends}"
        );
    }
    assert!(
        steps[1..].iter().all(|step| *step > 1.5 * steps[0]),
        "{steps:?}"
    );
}

/// On a machine that others keep busy taking a batch takes 6 and 10 ms; without workers steps took a fifth of that.
#[test]
fn batches_that_are_handed_over_late_on_a_busy_machine_are_better_loaded_here() {
    for (name, text) in [record!("handed-over-busy-1"), record!("handed-over-busy-2")] {
        let report = report(text);
        let verdict = verdict(&report, "starved-by-data").expect(name);
        assert!(
            verdict.mends[0].contains("`num_workers=0`"),
            "{name}: {verdict:?}"
        );
        assert!(!advises_workers(&mends(&report)), "{name}: {verdict:?}");
    }
}

/// Batches take 32 ms and steps less than one: most of the time no batch is there. Of eight workers that end together
/// the first alone is waited for, so that three batches in four stood ready all the same.
#[test]
fn workers_that_cannot_keep_up_are_too_few_though_most_batches_stood_ready() {
    for (workers, (name, text)) in [(4, record!("bursts-4")), (8, record!("bursts-8"))] {
        let report = report(text);
        let loader = report.training[0].loader.expect(name);
        let empty = loader.empty.expect(name) as f64 / loader.batches as f64;
        assert!(workers == 4 || empty < 0.25, "{name}: {empty}");
        let mends = mends(&report);
        assert!(advises_workers(&mends), "{name}: {mends}");
        assert!(
            !mends.contains("num_workers=0") && !mends.contains("hand over"),
            "{name}: {mends}"
        );
    }
}

/// What the exchange's advice is made of.
const EXCHANGE_WORDS: [&str; 4] = ["compress", "comm_hook", "bucket", "no_sync"];

#[test]
fn a_rank_that_is_late_in_its_backward_pass_is_no_slow_exchange() {
    let (_, text) = record!("straggler-backward");
    let report = report(text);
    let share = |rank: usize| {
        let rank = &report.training[rank];
        let exposed = rank.exchange.and_then(|exchange| exchange.exposed_us);
        exposed.expect("DDP told it") as f64 / rank.step_times.expect("steps").mean_us
    };
    // As the record has it: the one waits for most of its steps, the other for little of them.
    assert!(
        share(0) > 0.4 && share(1) < 0.1,
        "{} {}",
        share(0),
        share(1)
    );
    assert!(verdict(&report, "exposed-communication").is_none());
    let late = verdict(&report, "late-in-backward").expect("it is named");
    assert!(late.title.starts_with("rank 1: "), "{}", late.title);
    assert_eq!(report.verdicts.len(), 1);
    let mends = mends(&report);
    for word in EXCHANGE_WORDS {
        assert!(!mends.contains(word), "{mends}");
    }
}

/// The exchange takes long too, which is said after what takes longer.
#[test]
fn a_late_rank_comes_before_an_exchange_that_is_waited_for_less() {
    let (_, text) = record!("straggler-wide");
    let report = report(text);
    let found: Vec<&str> = report.verdicts.iter().map(|it| it.rule.as_str()).collect();
    assert_eq!(found, ["late-in-backward", "exposed-communication"]);
    let late = &report.verdicts[0];
    assert!(late.title.starts_with("rank 1: "), "{}", late.title);
    let mends = late.mends.join("\n");
    assert!(mends.contains("hooks on gradients"), "{mends}");
    assert!(!mends.contains("its card"), "{mends}");
    for word in EXCHANGE_WORDS {
        assert!(!mends.contains(word), "{mends}");
    }
}

/// The same ranks, none of which is late: what they wait for is the exchange.
#[test]
fn ranks_with_a_slow_exchange_are_not_late() {
    let (_, text) = record!("wide-ranks");
    let report = report(text);
    let found: Vec<&str> = report.verdicts.iter().map(|it| it.rule.as_str()).collect();
    assert_eq!(found, ["exposed-communication"]);
}

#[test]
fn healthy_runs_are_told_nothing_of_the_kind() {
    for (name, text) in [
        record!("healthy"),
        record!("healthy-workers"),
        record!("healthy-noisy"),
        record!("caching"),
        record!("healthy-ranks"),
    ] {
        let report = report(text);
        let found: Vec<&str> = report.verdicts.iter().map(|it| it.rule.as_str()).collect();
        assert_eq!(found, [""; 0], "{name}");
    }
}
