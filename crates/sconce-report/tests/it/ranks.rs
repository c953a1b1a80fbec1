//! What is said of ranks that train together: who waits for whom, and how long they exchange.

use crate::made::{Made, Rank, WIDE, rules};
use insta::assert_snapshot;
use sconce_report::terminal;
use sconce_report::{VerdictSeverity, json};
use sconce_schema::training::{CollectiveTimes, PhaseTimes};

/// A rank that waits for a slower one waits in its exchange: both parts are told, everywhere alike.
#[test]
fn waiting_for_a_slower_rank_is_told_beside_the_exchange() {
    let mut fast = Rank::healthy().of(0, 2);
    fast.phases.backward_us += 21_800;
    let mut slow = Rank::healthy().of(1, 2);
    slow.phases.other_us += 21_800;
    fast.exchange = Some(CollectiveTimes {
        communication_us: Some(27_800),
        exposed_us: Some(25_600),
        ..CollectiveTimes::default()
    });
    slow.exchange = Some(CollectiveTimes {
        communication_us: Some(8_000),
        exposed_us: Some(7_000),
        ..CollectiveTimes::default()
    });
    let report = Made::of(vec![fast, slow]).report();
    let text = terminal::render_report(&report, WIDE);
    assert!(
        text.contains("27.8 ms a step · 25.6 ms of it hidden by nothing"),
        "{text}"
    );
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("21.8 ms is waiting for a slower rank, 3.80 ms the exchange itself"),
        "{text}"
    );
    let value: serde_json::Value = serde_json::from_str(&json::render_report(&report)).unwrap();
    let told = |rank: usize, name: &str| {
        let us = value["training"][rank]["exchange"][name].as_f64().unwrap() * 1e6;
        us.round()
    };
    assert_eq!(told(0, "exposed_seconds_per_step"), 25_600.0);
    assert_eq!(told(0, "waited_for_ranks_seconds_per_step"), 21_800.0);
    assert_eq!(told(0, "waited_for_exchange_seconds_per_step"), 3_800.0);
    assert_eq!(told(1, "waited_for_ranks_seconds_per_step"), 0.0);
    assert_eq!(told(1, "waited_for_exchange_seconds_per_step"), 7_000.0);
    let verdict = (report.verdicts.iter()).find(|one| one.rule == "exposed-communication");
    let evidence = verdict.unwrap().evidence.join("\n");
    assert!(
        evidence.contains("7.00 ms of it hidden by nothing"),
        "{evidence}"
    );
}

#[test]
fn ranks() {
    let mut slow = Rank::healthy().of(1, 2);
    slow.phases.data_us = 9_000;
    let mut fast = Rank::healthy().of(0, 2);
    fast.phases.backward_us += 8_600;
    let report = Made::of(vec![fast.clone(), slow.clone()]).report();
    assert_eq!(
        rules(&report),
        ["starved-by-data", "straggler"][1..]
            .iter()
            .chain(&["starved-by-data"])
            .copied()
            .collect::<Vec<_>>()
    );
    assert!(
        report.verdicts[0]
            .title
            .starts_with("rank 1: it holds the others up"),
        "{:?}",
        report.verdicts
    );
    assert!(report.verdicts[0].evidence[1].contains("waiting for data"));
    for rank in [&mut fast, &mut slow] {
        rank.phases.data_us = 400;
        rank.exchange = Some(CollectiveTimes {
            communication_us: Some(20_000),
            exposed_us: Some(12_000),
            ..CollectiveTimes::default()
        });
    }
    let report = Made::of(vec![fast, slow]).report();
    assert_eq!(rules(&report), ["exposed-communication"]);
    assert!(
        report.verdicts[0]
            .evidence
            .iter()
            .any(|text| text.contains("2 of 2 ranks"))
    );
    assert_snapshot!(terminal::render_report(&report, WIDE));
}

/// Two ranks with FSDP, each of which waits that long in its all-gathers.
fn sharded(base: &Rank, gathered_us: u64) -> Vec<Rank> {
    let steps = 400;
    let rank = |n| {
        let mut rank = base.clone().of(n, 2);
        rank.exchange = Some(CollectiveTimes {
            sharded_steps: Some(steps),
            all_gather_us: Some(steps * 12_000),
            all_gather_exposed_us: Some(steps * gathered_us),
            reduce_scatter_us: Some(steps * 5_000),
            reduce_scatter_exposed_us: Some(steps * 4_000),
            ..CollectiveTimes::default()
        });
        rank
    };
    vec![rank(0), rank(1)]
}

#[test]
fn what_fsdp_exchanges_is_waited_for_too() {
    let report = Made::of(sharded(&Rank::healthy(), 8_000)).report();
    assert_eq!(rules(&report), ["exposed-communication"]);
    let verdict = &report.verdicts[0];
    // 8 + 4 ms of a step of 46.5 ms.
    assert_eq!(verdict.weight, VerdictSeverity::Costly);
    assert!(verdict.title.contains(" 26 %"), "{}", verdict.title);
    assert_snapshot!(terminal::render_report(&report, WIDE));
    let mends = verdict.mends.join(" ");
    assert!(mends.contains("unshard(async_op=True)") && !mends.contains("register_comm_hook"));

    let report = Made::of(sharded(&Rank::on_card(), 8_000)).report();
    assert_eq!(rules(&report), ["exposed-communication"]);
    let mends = report.verdicts[0].mends.join(" ");
    assert!(mends.contains("set_modules_to_forward_prefetch") && !mends.contains("async_op"));

    // Hidden as far as it goes, or seen of too few steps.
    let hidden = Made::of(sharded(&Rank::healthy(), 500)).report();
    assert_eq!(rules(&hidden), [""; 0]);
    let mut few = sharded(&Rank::healthy(), 8_000);
    for rank in &mut few {
        rank.exchange.as_mut().unwrap().sharded_steps = Some(9);
    }
    assert_eq!(rules(&Made::of(few).report()), [""; 0]);
}

/// The fast one waits 20 ms for the slow one in an all-gather of its forward pass: that is no exchange that
/// could be hidden, and the slow one is named.
#[test]
fn a_sharded_rank_that_others_wait_for() {
    let ranks = |phase: fn(&mut PhaseTimes) -> &mut u64| {
        let mut ranks = sharded(&Rank::healthy(), 500);
        *phase(&mut ranks[0].phases) += 20_000;
        ranks[1].phases.forward_us += 20_000;
        let exchange = ranks[1].exchange.as_mut().unwrap();
        exchange.all_gather_exposed_us = Some(400 * 20_500);
        let report = Made::of(ranks).report();
        assert_eq!(rules(&report)[0], "straggler");
        assert!(!rules(&report).contains(&"exposed-communication"));
        assert!(report.verdicts[0].title.starts_with("rank 0: "));
        report.verdicts[0].evidence.join(" ")
    };
    assert!(ranks(|phases| &mut phases.other_us).contains("other, 20.0 ms longer"));
    // What the others waited for is in their forward pass too: the phase cannot be told.
    assert!(!ranks(|phases| &mut phases.backward_us).contains("longer a step"));
}

/// Each is held against those that it trains with.
#[test]
fn ranks_of_two_launchers() {
    let mut slow = Rank::healthy();
    slow.phases.forward_us *= 2;
    let ranks = [0, 1].map(|rank| Rank::healthy().of(rank, 2));
    let others = [0, 1].map(|rank| slow.clone().of(rank, 2).of_group(2));
    let mut made = Made::of(ranks.into_iter().chain(others).collect());
    made.last.training_left_out = Some(44);
    let report = made.report();
    let names: Vec<String> = report.training.iter().map(|rank| rank.name()).collect();
    assert_eq!(
        names,
        ["rank 0", "rank 1", "rank 0 of group 2", "rank 1 of group 2"]
    );
    assert_eq!(rules(&report), [""; 0]);
    let text = terminal::render_report(&report, WIDE);
    assert!(text.contains("rank 1 of group 2"), "{text}");
    assert!(text.contains("and 44 processes that trained"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&json::render_report(&report)).unwrap();
    assert_eq!(
        (&json["training"][3]["group"], &json["training_left_out"]),
        (&2.into(), &44.into())
    );
}

/// Two ranks of four wait alike for one of another machine, which this record knows nothing of.
#[test]
fn ranks_of_other_machines_may_be_who_is_waited_for() {
    let of_world = |world: u32| {
        let rank = |n| {
            let mut rank = Rank::healthy().of(n, world);
            rank.setup.backend = Some("nccl".to_owned());
            rank.exchange = Some(CollectiveTimes {
                communication_us: Some(20_000),
                exposed_us: Some(18_000),
                ..CollectiveTimes::default()
            });
            rank
        };
        let report = Made::of(vec![rank(0), rank(1)]).report();
        assert_eq!(rules(&report), ["exposed-communication"]);
        let verdict = &report.verdicts[0];
        (verdict.evidence.join("\n"), verdict.mends.join("\n"))
    };
    let (evidence, mends) = of_world(4);
    assert!(
        evidence.contains("2 of them are not in this record"),
        "{evidence}"
    );
    assert!(!mends.contains("exchange less"), "{mends}");
    assert!(
        mends.starts_with("look at the ranks that are not in this record"),
        "{mends}"
    );
    let (evidence, mends) = of_world(2);
    assert!(!evidence.contains("not in this record"), "{evidence}");
    assert!(
        mends.contains("bf16_compress_hook") && !mends.contains("in this record"),
        "{mends}"
    );
}

/// Ranks that wait so long at exchanges, in steps of some 46 ms.
fn waiting(exposed_us: &[u64]) -> Made {
    let world = u32::try_from(exposed_us.len()).expect("few ranks");
    let ranks = (0..world).zip(exposed_us).map(|(n, us)| {
        let mut rank = Rank::healthy().of(n, world);
        rank.exchange = Some(CollectiveTimes {
            communication_us: Some(us + 2_000),
            exposed_us: Some(*us),
            ..CollectiveTimes::default()
        });
        rank
    });
    Made::of(ranks.collect())
}

/// Who waits the least came last, which no phase but the backward pass explains.
#[test]
fn the_rank_that_others_wait_for_in_its_backward_pass_is_named() {
    let report = waiting(&[16_000, 15_000, 1_000, 16_500]).report();
    assert_eq!(rules(&report), ["late-in-backward"]);
    let late = &report.verdicts[0];
    assert_eq!(
        late.title,
        "rank 2: the other ranks wait for its backward pass 15.0 ms a step, 32 % of it"
    );
    assert_eq!(late.weight, VerdictSeverity::Costly);
    // Little of a step; little of what is waited for; one that comes early.
    assert_eq!(
        rules(&waiting(&[9_000, 9_000, 500, 9_000]).report()),
        [""; 0]
    );
    let slow = waiting(&[22_000, 22_000, 12_000, 22_000]).report();
    assert_eq!(rules(&slow), ["exposed-communication"]);
    assert_eq!(
        rules(&waiting(&[16_000, 1_000, 1_000, 1_500]).report()),
        [""; 0]
    );
    let mut apart = waiting(&[16_000, 15_000, 1_000, 16_500]);
    // It trains with others.
    apart.ranks[2].group = Some(2);
    assert_eq!(rules(&apart.report()), ["exposed-communication"]);
    // Too few steps for what DDP measures of them.
    let mut short = waiting(&[16_000, 15_000, 1_000, 16_500]);
    short.steps = 90;
    assert_eq!(rules(&short.report()), [""; 0]);
}

/// What is late before its backward pass is told so, and its backward pass by the rest alone.
#[test]
fn a_rank_that_is_late_in_two_phases_is_told_both() {
    let mut made = waiting(&[42_000, 1_000]);
    made.ranks[0].phases.backward_us += 40_000;
    made.ranks[1].phases.backward_us += 20_000;
    made.ranks[1].phases.other_us += 20_000;
    let report = made.report();
    assert_eq!(rules(&report), ["late-in-backward", "straggler"]);
    assert!(report.verdicts[0].title.contains("21.0 ms a step"));
    assert!(report.verdicts[1].title.contains("by 20.0 ms a step"));
    made.ranks[0].exchange.as_mut().unwrap().exposed_us = Some(22_000);
    assert_eq!(rules(&made.report()), ["straggler"]);
}
