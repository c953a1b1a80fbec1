//! Verdicts and comparisons, from records made by hand (`made`) to text.

use crate::made::{Made, Rank, WIDE, rules};
use insta::assert_snapshot;
use sconce_report::compare::{Comparison, RunTable, StepTimeComparison};
use sconce_report::terminal;
use sconce_report::{RunReport, VerdictSeverity, json};
use sconce_schema::Bytes;
use sconce_schema::event::{Pressure, Sample};
use sconce_schema::training::{
    CollectiveTimes, GpuAllocatorCounters, GpuOutOfMemory, LeakCandidate, MemoryHolder, PhaseTimes,
};

fn starved() -> Made {
    let mut rank = Rank::healthy();
    rank.phases.data_us = 35_000;
    rank.empty = 89;
    let mut made = Made::of(vec![rank]);
    made.last.cpu_us = Some(50_000_000);
    made
}

fn leaking() -> Made {
    let mut rank = Rank::healthy();
    rank.rss_growth = 64 * 1024;
    Made::of(vec![rank])
}

fn out_of_memory() -> Made {
    let mut made = Made::of(vec![Rank::on_card()]);
    made.oom = Some(GpuOutOfMemory {
        pid: 100,
        device: 0,
        step: 401,
        phase: Some("forward".into()),
        asked: Some(Bytes::from_mib(2_048)),
        free: Some(Bytes::from_mib(700)),
        total: Some(Bytes::from_mib(81_920)),
        memory: Some(GpuAllocatorCounters {
            allocated: Bytes::from_mib(60_000),
            reserved: Bytes::from_mib(79_000),
            ..GpuAllocatorCounters::default()
        }),
        stack: vec!["model.py:31 forward".into(), "train.py:12 <module>".into()],
        holders: vec![MemoryHolder {
            bytes: Bytes::from_mib(30_000),
            blocks: 12,
            stack: vec!["model.py:28 forward".into()],
            tensor: None,
        }],
        snapshot: Some("oom-100.pickle".into()),
        ..GpuOutOfMemory::default()
    });
    made
}

#[test]
fn healthy_runs_have_none() {
    assert_eq!(rules(&Made::of(vec![Rank::healthy()]).report()), [""; 0]);
    assert_eq!(rules(&Made::of(vec![Rank::on_card()]).report()), [""; 0]);
    let two = vec![Rank::healthy().of(0, 2), Rank::healthy().of(1, 2)];
    assert_eq!(rules(&Made::of(two).report()), [""; 0]);
}

#[test]
fn a_starved_run() {
    let report = starved().report();
    assert_eq!(rules(&report), ["starved-by-data"]);
    let verdict = &report.verdicts[0];
    assert_eq!(verdict.weight, VerdictSeverity::Costly);
    let share = 35_000.0 / 81_100.0;
    assert!(
        (verdict.gain_share.unwrap() - share).abs() < 0.01,
        "{verdict:?}"
    );
    assert_snapshot!(terminal::render_report(&report, WIDE));
    assert_snapshot!(json::render_report(&report));
}

#[test]
fn what_to_change_depends_on_what_is_set() {
    let mends = |workers: u32, cpu_us: u64| {
        let mut made = starved();
        made.ranks[0].setup.loader.as_mut().unwrap().workers = workers;
        made.last.cpu_us = Some(cpu_us);
        made.report().verdicts[0].mends[0].clone()
    };
    assert!(
        mends(0, 50_000_000).contains("`num_workers=6`"),
        "{}",
        mends(0, 50_000_000)
    );
    assert!(mends(2, 50_000_000).contains("`num_workers=8`, 2 now"));
    assert!(mends(8, 263_000_000).contains("CPU limit of 8 is used up: give it more (`--cpus`)"));
}

/// Batches stand ready, and taking one takes 35 ms: of what the machine's others leave of the CPUs, or of its size.
#[test]
fn handing_over_is_no_matter_of_milliseconds() {
    let mends = |cores: f64, change: &dyn Fn(&mut Made)| {
        let mut made = starved();
        made.ranks[0].empty = 1;
        change(&mut made);
        let wall_us = made.report().wall_us as f64;
        made.last.cpu_us = Some((wall_us * cores) as u64);
        let report = made.report();
        assert_eq!(rules(&report), ["starved-by-data"]);
        report.verdicts[0].mends.join("\n")
    };
    let advised = |mends: String| {
        assert!(mends.contains("hand over less"), "{mends}");
        mends.contains("`num_workers=0`")
    };
    // The workers compute for less of the time than is waited: 43 %.
    assert!(advised(mends(0.3, &|_| {})));
    assert!(advised(mends(1.3, &|_| {})));
    // They compute for longer, which the process that trains would do itself; or wait for disks.
    assert!(!advised(mends(1.6, &|_| {})));
    assert!(!advised(mends(6.0, &|_| {})));
    let disks = |made: &mut Made| {
        made.last.pressure = Some(Pressure {
            io_some_us: Some(10_000_000),
            ..Pressure::default()
        });
    };
    assert!(!advised(mends(0.3, &disks)));
    // A batch that is taken in 3 ms is small, whatever computes beside.
    let small = |made: &mut Made| {
        let phases = &mut made.ranks[0].phases;
        (phases.data_us, phases.forward_us, phases.backward_us) = (3_000, 2_000, 3_000);
    };
    assert!(advised(mends(6.0, &small)));
}

/// Without a limit there is none to be raised, and CPUs that others keep busy are not the run's.
#[test]
fn who_keeps_the_cpus_busy_is_told_apart() {
    let report = |cpu_us: u64, busy_cores: f64| {
        let mut made = starved();
        made.limits.cpus = None;
        made.last.cpu_us = Some(cpu_us);
        let wall_us = made.report().wall_us as f64;
        made.last.cpus_busy_us = vec![(wall_us * busy_cores) as u64];
        made.report().verdicts.remove(0)
    };
    // 0.4 of 8 cores are its own, all the rest others'.
    let verdict = report(12_000_000, 7.9);
    let mends = verdict.mends.join("\n");
    assert!(!mends.contains("--cpus"), "{mends}");
    assert!(
        mends.contains("other programs keep the machine's CPUs busy (7.8 of 8)"),
        "{mends}"
    );
    // Two workers that use a third of a core wait; more of them help.
    assert!(verdict.mends[0].contains("`num_workers=4`, 2 now; they use little CPU"));
    let evidence = verdict.evidence.join("\n");
    assert!(
        evidence.contains("others of the machine used 7.8 of its 8 CPUs"),
        "{evidence}"
    );
    // All of them are its own.
    let mends = report(263_000_000, 8.0).mends.join("\n");
    assert!(
        mends.contains("the run uses the machine's 8 CPUs"),
        "{mends}"
    );
    assert!(!mends.contains("--cpus") && !mends.contains("other programs"));
}

/// No copies were seen: that is not 0 s of them.
#[test]
fn copies_that_were_not_seen_are_compared_with_nothing() {
    let report = Made::of(vec![Rank::healthy()]).report();
    let phases = |before: &RunReport, after: &RunReport| {
        let told = json::render_comparison(&Comparison::from_reports(before, after));
        let value: serde_json::Value = serde_json::from_str(&told).unwrap();
        let phases = value["phases"].as_array().unwrap().clone();
        phases.into_iter().find(|phase| phase["what"] == "copy")
    };
    assert_eq!(phases(&report, &report), None);
    let mut rank = Rank::on_card();
    rank.phases.copy_us = 2_000;
    let copied = Made::of(vec![rank]).report();
    let phase = phases(&report, &copied).unwrap();
    assert_eq!(phase["before"], serde_json::Value::Null);
    assert!(phase["after"].as_f64().unwrap() > 0.001);
}

#[test]
fn what_waits_for_more_steps_is_said() {
    let mut made = starved();
    made.steps = 20;
    let report = made.report();
    let text = terminal::render_report(&report, WIDE);
    assert!(text.contains("nothing found; not judged: "), "{text}");
    assert!(text.contains("rules, mostly: too few steps: 20"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&json::render_report(&report)).unwrap();
    let rules = value["rules_not_judged"].as_array().unwrap();
    let starved = rules
        .iter()
        .find(|one| one["rule"] == "starved-by-data")
        .unwrap();
    assert_eq!(starved["too_little"], true);
    // Trained on the CPU: no rule about a card waits for more.
    assert!(rules.iter().all(|one| one["rule"] != "launch-bound"));
    let report = Made::of(vec![Rank::healthy()]).report();
    let text = terminal::render_report(&report, WIDE);
    assert!(
        text.contains("none: nothing is known to be wrong"),
        "{text}"
    );
}

#[test]
fn too_little_is_no_verdict() {
    let mut short = starved();
    short.steps = 40;
    assert_eq!(rules(&short.report()), [""; 0]);
    let mut short = leaking();
    short.steps = 240;
    assert_eq!(rules(&short.report()), [""; 0]);
}

#[test]
fn a_leak_is_found_within_300_steps() {
    let mut made = leaking();
    made.steps = 300;
    let report = made.report();
    assert_eq!(rules(&report), ["memory-grows"]);
    assert_snapshot!(terminal::render_report(&report, WIDE));
}

#[test]
fn what_is_kept_is_named_where_it_may_be_the_reason() {
    let kept = |name: &str, each: u64, graph| LeakCandidate {
        name: Some(name.into()),
        of: Some("<module>".into()),
        adds: vec![format!("/home/ada/train.py:31 {name}.append(loss)")],
        holds: "float32[]".into(),
        grown: 200,
        steps: 200,
        bytes: Bytes(200 * each),
        graph,
    };
    let report = |kept: Vec<LeakCandidate>| {
        let mut made = leaking();
        made.ranks[0].setup.kept = kept;
        let report = made.report();
        assert_eq!(rules(&report), ["memory-grows"]);
        let verdict = &report.verdicts[0];
        (verdict.evidence.join("\n"), verdict.mends.join("\n"))
    };
    // A log of numbers grows too: 24 bytes of 64 KiB a step are no reason.
    let (evidence, mends) = report(vec![kept("losses", 4, true), kept("history", 24, false)]);
    assert!(
        evidence.contains(
            "kept in `losses`: float32[], with the graph that it hangs on, 1.0 more a step"
        ),
        "{evidence}"
    );
    assert!(evidence.contains("train.py:31 losses.append(loss)"));
    assert!(!mends.contains("--leak-stacks"));
    let (evidence, mends) = report(vec![kept("history", 24, false)]);
    assert!(!evidence.contains("history") && mends.contains("--leak-stacks"));
    let (evidence, _) = report(vec![
        kept("history", 24, false),
        kept("inputs", 60_000, false),
    ]);
    assert!(evidence.contains("`inputs`") && !evidence.contains("history"));

    // Blocks on the card, by frames of which the innermost are PyTorch's.
    let mut rank = Rank::on_card();
    rank.allocated_growth = 64 * 1024;
    rank.setup.kept = vec![LeakCandidate {
        name: None,
        of: None,
        adds: vec![
            "/usr/lib/python3/torch/nn/modules/linear.py:9 forward".into(),
            "train.py:12 step".into(),
        ],
        holds: "blocks on the card".into(),
        grown: 0,
        ..kept("", 64 * 1024, false)
    }];
    let report = Made::of(vec![rank]).report();
    assert_eq!(rules(&report), ["card-memory-grows"]);
    let evidence = report.verdicts[0].evidence.join("\n");
    assert!(
        evidence.contains("kept in blocks on the card, 64 KiB more a step"),
        "{evidence}"
    );
    assert!(
        evidence.contains("what adds to it: train.py:12 step"),
        "{evidence}"
    );
}

#[test]
fn a_leak_on_the_card() {
    let mut rank = Rank::on_card();
    rank.allocated_growth = 64 * 1024;
    assert_eq!(
        rules(&Made::of(vec![rank.clone()]).report()),
        ["card-memory-grows"]
    );
    rank.allocated_growth = 200 << 20;
    let report = Made::of(vec![rank]).report();
    assert_eq!(
        report.verdicts[0].weight,
        VerdictSeverity::Fatal,
        "{:?}",
        report.verdicts
    );
}

#[test]
fn a_card_out_of_memory() {
    let report = out_of_memory().report();
    assert_eq!(rules(&report), ["card-out-of-memory"]);
    assert_snapshot!(terminal::render_report(&report, WIDE));
}

/// A run on a card with one thing changed, and its verdicts.
fn with(change: impl FnOnce(&mut Made)) -> Vec<String> {
    let mut made = Made::of(vec![Rank::on_card()]);
    change(&mut made);
    rules(&made.report())
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[test]
fn one_thing_at_a_time() {
    let card = |made: &mut Made, change: fn(&mut sconce_schema::event::GpuSample)| {
        change(made.card.as_mut().unwrap())
    };
    assert_eq!(
        with(|made| made.ranks[0].phases.copy_us = 12_000),
        ["copies-not-overlapped"]
    );
    assert_eq!(
        with(|made| card(made, |card| card.utilisation_percent = Some(40))),
        ["launch-bound"]
    );
    // The host was ahead of the card: it is not the launches that take the time.
    let ahead = PhaseTimes {
        forward_us: 40_000,
        backward_us: 60_000,
        ..PhaseTimes::default()
    };
    assert_eq!(
        with(|made| {
            card(made, |card| card.utilisation_percent = Some(40));
            made.ranks[0].on_card = Some(ahead);
        }),
        [""; 0]
    );
    let memory = |made: &mut Made, change: fn(&mut GpuAllocatorCounters)| {
        change(made.ranks[0].memory.as_mut().unwrap())
    };
    assert_eq!(
        with(|made| memory(made, |memory| memory.reserved_peak =
            Bytes::from_mib(70_000))),
        ["fragmentation"]
    );
    assert_eq!(
        with(|made| memory(made, |memory| memory.retries = 3)),
        ["allocator-retries"]
    );
    assert_eq!(
        with(|made| {
            made.steps = 2_000;
            card(made, |card| card.utilisation_percent = Some(0));
            made.ranks[0].phases.data_us = 0;
        }),
        ["launch-bound", "idle-card"]
    );
    assert_eq!(
        with(|made| made.last.throttled_us = Some(60_000_000)),
        ["cpu-limit"]
    );
    assert_eq!(
        with(|made| {
            made.last.pressure = Some(Pressure {
                memory_some_us: Some(4_000_000),
                ..Pressure::default()
            });
            made.last.swap = Some(Bytes::from_mib(900));
        }),
        ["memory-pressure"]
    );
    assert_eq!(
        with(|made| made.last.swap = Some(Bytes::from_mib(900))),
        ["swapping"]
    );
    assert_eq!(
        with(|made| card(made, |card| card.throttle =
            Some(vec!["sw-thermal-slowdown".into()]))),
        ["too-hot"]
    );
    assert_eq!(
        with(|made| card(made, |card| card.throttle =
            Some(vec!["sw-power-cap".into()]))),
        ["power-limited"]
    );
    assert_eq!(
        with(|made| made.ranks[0].setup.autocast = None),
        ["no-mixed-precision"]
    );
    assert_eq!(
        with(|made| {
            made.ranks[0].setup.autocast = None;
            made.card_name = "Tesla P100-PCIE-16GB";
        }),
        [""; 0]
    );
    assert_eq!(
        with(|made| {
            made.ranks[0].setup.cudnn_benchmark = Some(false);
            made.ranks[0].setup.convolutions = Some(true);
        }),
        ["cudnn-benchmark-off"]
    );
    assert_eq!(
        with(|made| made.last = Sample {
            oom_kills: Some(1),
            ..made.last.clone()
        }),
        ["killed-for-memory"]
    );
}

/// Eight workers that take 30 ms a batch, beside a step of 2 ms, end in bursts: of a hundred batches seven were not
/// ready, though loading holds the run.
#[test]
fn batches_in_bursts_are_loaded_and_not_handed_over() {
    let mends = |workers: u32, empty: u64| {
        let mut made = starved();
        made.ranks[0].empty = empty;
        made.ranks[0].setup.loader.as_mut().unwrap().workers = workers;
        let report = made.report();
        assert_eq!(report.verdicts[0].rule, "starved-by-data");
        report.verdicts[0].mends.join("\n")
    };
    for (workers, empty) in [(8, 7), (8, 12), (4, 20), (2, 40), (1, 60)] {
        let mends = mends(workers, empty);
        assert!(
            mends.contains("more workers") && !mends.contains("num_workers=0"),
            "{workers}: {mends}"
        );
    }
    for (workers, empty) in [(8, 2), (4, 6), (1, 30)] {
        let mends = mends(workers, empty);
        assert!(
            mends.contains("hand over less") && !mends.contains("more workers"),
            "{workers}: {mends}"
        );
    }
}

#[test]
fn starved_and_mended() {
    let (before, after) = (starved(), {
        let mut made = Made::of(vec![Rank::healthy()]);
        made.ranks[0].setup.loader.as_mut().unwrap().workers = 8;
        made.command = "python train.py --workers 8";
        made
    });
    let (before, after) = (before.report(), after.report());
    let comparison = Comparison::from_reports(&before, &after);
    let StepTimeComparison::Compared(shift) = comparison.step_time else {
        panic!("{comparison:?}");
    };
    assert!(
        shift.is_real() && (shift.share - (46_500.0 / 81_100.0 - 1.0)).abs() < 0.01,
        "{shift:?}"
    );
    assert_snapshot!(terminal::render_comparison(&comparison, WIDE));
    assert_snapshot!(json::render_comparison(&comparison));
    let same = Comparison::from_reports(&before, &before);
    assert!(same.changed.is_empty() && same.gone.is_empty() && same.new.is_empty());
    assert!(!terminal::render_comparison(&same, WIDE).contains("the difference is real"));
}

#[test]
fn many_runs_are_a_table() {
    let run = |workers: u32, host: &str| {
        let mut made = Made::of(vec![Rank::healthy()]);
        made.ranks[0].setup.loader.as_mut().unwrap().workers = workers;
        made.command = match workers {
            2 => "python train.py --workers 2 --out x",
            4 => "python train.py --workers 4 --out x",
            _ => "python train.py --workers 8 --out x",
        };
        let mut report = made.report();
        report.started.id = format!("demo_{workers}-0");
        host.clone_into(&mut report.started.host.hostname);
        report
    };
    let reports = [run(2, "n2"), run(4, "n10"), run(8, "n10")];
    let table = RunTable::from_reports(&reports);
    assert_snapshot!(terminal::render_run_table(&table, WIDE));
    assert_snapshot!(json::render_run_table(&table));
}

#[test]
fn what_cannot_be_judged_is_not_gone() {
    let before = starved().report();
    // Not accounted.
    let mut blind = starved();
    blind.ranks.clear();
    let blind = blind.report();
    let comparison = Comparison::from_reports(&before, &blind);
    assert!(comparison.gone.is_empty(), "{comparison:?}");
    let [one] = comparison.not_judged.as_slice() else {
        panic!("{comparison:?}");
    };
    assert!(one.of_after && one.why.contains("--no-probe"), "{one:?}");
    assert_snapshot!(terminal::render_comparison(&comparison, WIDE));
    assert_snapshot!(json::render_comparison(&comparison));
    // What only one run tells is not changed.
    assert!(comparison.changed.is_empty(), "{:?}", comparison.changed);
    let unknown: Vec<&str> = (comparison.not_known.iter())
        .map(|one| one.what.as_str())
        .collect();
    assert!(unknown.contains(&"model") && unknown.contains(&"loader workers"));

    // Too short; and the same the other way round, where it is not new.
    let mut short = starved();
    short.steps = 40;
    let short = short.report();
    for comparison in [
        Comparison::from_reports(&before, &short),
        Comparison::from_reports(&short, &before),
    ] {
        assert!(comparison.gone.is_empty() && comparison.new.is_empty());
        assert_eq!(
            comparison.not_judged[0].why,
            "too few steps: 40, where it takes 50"
        );
    }

    // A leak: few steps, and no pressure told.
    let before = leaking().report();
    let mut short = leaking();
    short.steps = 60;
    let short = short.report();
    let comparison = Comparison::from_reports(&before, &short);
    assert_eq!(
        comparison.not_judged[0].why,
        "too few steps: 60, where it takes 250"
    );
    let mut waits = Made::of(vec![Rank::healthy()]);
    waits.last.pressure = Some(Pressure {
        memory_some_us: Some(4_000_000),
        ..Pressure::default()
    });
    let (waits, not_told) = (waits.report(), Made::of(vec![Rank::healthy()]).report());
    let comparison = Comparison::from_reports(&waits, &not_told);
    assert!(
        comparison.not_judged[0].why.starts_with("not measured: "),
        "{comparison:?}"
    );
}

#[test]
fn what_is_known_to_be_otherwise_is_gone() {
    let on_card = |change: fn(&mut Made)| {
        let mut made = Made::of(vec![Rank::on_card()]);
        change(&mut made);
        made.report()
    };
    let healthy = Made::of(vec![Rank::healthy()]).report();
    let fine = on_card(|_| {});
    for (before, after) in [
        // Another process group, another place to train: the rule is answered.
        (
            on_card(|made| made.ranks[0].phases.copy_us = 12_000),
            &healthy,
        ),
        (on_card(|made| made.ranks[0].setup.autocast = None), &fine),
        (leaking().report(), &healthy),
        (out_of_memory().report(), &fine),
        (
            on_card(|made| {
                made.last.oom_kills = Some(1);
            }),
            &fine,
        ),
        (
            on_card(|made| {
                made.ranks[0].allocated_growth = 64 * 1024;
            }),
            &healthy,
        ),
    ] {
        let comparison = Comparison::from_reports(&before, after);
        assert_eq!(comparison.gone.len(), 1, "{comparison:?}");
        assert!(comparison.not_judged.is_empty(), "{comparison:?}");
    }
}

#[test]
fn a_whole_cpu_is_free_or_it_is_not() {
    let mut made = starved();
    made.ranks[0].setup.loader.as_mut().unwrap().workers = 0;
    // 7.03 of 8: 0.97 are free.
    let report = made.report();
    let wall_us = report.wall_us as f64;
    made.last.cpu_us = Some((wall_us * 7.03) as u64);
    let verdict = made.report().verdicts.remove(0);
    assert!(
        verdict
            .evidence
            .iter()
            .any(|text| text.starts_with("0.9 of 8 CPUs were free on average; the run used 7")),
        "{verdict:?}"
    );
    assert!(
        verdict
            .mends
            .iter()
            .any(|text| text.contains("CPU limit of 8 is used up"))
    );
}

#[test]
fn a_report_has_one_mean_step() {
    let report = starved().report();
    let verdict = &report.verdicts[0];
    let rank = &report.training[0];
    let mean_ms = rank.step_times.unwrap().mean_us / 1e3;
    let said = format!("of a mean step of {mean_ms:.1} ms");
    assert!(verdict.evidence[0].contains(&said), "{verdict:?}");
    let bar = rank
        .phase_shares()
        .iter()
        .find(|share| share.0 == "data")
        .unwrap()
        .1;
    assert!((bar - verdict.gain_share.unwrap()).abs() < 1e-9, "{bar}");
}

#[test]
fn what_no_phase_accounts_for_is_said() {
    let mut made = Made::of(vec![Rank::healthy()]);
    made.ranks[0].phases.other_us = 90_000;
    let report = made.report();
    assert_eq!(rules(&report), ["mostly-other"]);
    assert!(report.verdicts[0].title.starts_with("66 % of a step"));
    assert!(
        report.verdicts[0].mends[0].contains("py-spy record --subprocesses -- python train.py`")
    );
    made.command = "torchrun --nproc-per-node 2 gpt.py";
    let mends = made.report().verdicts.remove(0).mends;
    assert!(
        mends[0].contains("-- torchrun --nproc-per-node 2 gpt.py`"),
        "{mends:?}"
    );
    // Batches, and no optimizer's step.
    let mut made = Made::of(vec![Rank::healthy()]);
    made.steps = 10;
    let text = made.record().replace("\"steps\":10,", "\"steps\":0,");
    let record =
        sconce_record::RecordReader::new(text.as_bytes(), std::path::Path::new("events.jsonl"));
    assert_eq!(rules(&RunReport::from_record(record.unwrap())), ["no-step"]);
}

#[test]
fn hints_fit_the_backend() {
    let mends = |backend: Option<&str>| {
        let rank = |n| {
            let mut rank = Rank::healthy().of(n, 2);
            rank.setup.backend = backend.map(str::to_owned);
            rank.exchange = Some(CollectiveTimes {
                communication_us: Some(20_000),
                exposed_us: Some(12_000),
                ..CollectiveTimes::default()
            });
            rank
        };
        let report = Made::of(vec![rank(0), rank(1)]).report();
        assert_eq!(rules(&report), ["exposed-communication"]);
        report.verdicts[0].mends.join(" ")
    };
    assert!(mends(Some("nccl")).contains("NCCL"));
    for gloo in [mends(Some("gloo")), mends(Some("cpu:gloo,cuda:nccl"))] {
        assert!(
            !gloo.contains("NCCL") && gloo.contains("GLOO_SOCKET_IFNAME"),
            "{gloo}"
        );
        assert!(!gloo.contains("bf16_compress_hook"), "NCCL's alone");
    }
    assert!(!mends(None).contains("NCCL"));
}

#[test]
fn what_a_record_says_does_not_steer_the_terminal() {
    let mut made = out_of_memory();
    let hostile = "\u{1b}[2J{rate}\u{202e}".to_owned();
    made.ranks[0].setup.model = Some(hostile.clone());
    made.ranks[0].allocated_growth = 64 * 1024;
    made.ranks[0].setup.kept = vec![LeakCandidate {
        name: Some(hostile.clone()),
        of: Some(hostile.clone()),
        adds: vec![hostile.clone()],
        holds: hostile.clone(),
        graph: true,
        ..LeakCandidate::default()
    }];
    let oom = made.oom.as_mut().unwrap();
    oom.stack = vec![hostile.clone()];
    oom.holders[0].stack = vec![hostile.clone()];
    oom.phase = Some(hostile);
    let report = made.report();
    let text = terminal::render_report(&report, WIDE)
        + &terminal::render_comparison(&Comparison::from_reports(&report, &report), WIDE);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    assert!(text.contains("{rate}"));
}
