use super::*;

/// A model of 24 blocks, 100 bytes each, and 300 bytes of state.
fn oracle(asked: &PlanCandidate) -> TrialOutcome {
    let mut activations = 2400.0 / asked.value.map_or(1.0, |value| 64.0 / value as f64);
    let (mut state, mut cache, mut ms) = (300.0, 120.0, 100.0);
    for plan in asked.plans.iter() {
        match plan {
            TrainingPlan::Bf16 => (activations, ms) = (activations * 0.6, ms * 0.5),
            TrainingPlan::Checkpoint(blocks) => {
                activations *= 1.0 - f64::from(blocks.unwrap_or(23)) / 24.0;
                ms *= 1.3;
            }
            TrainingPlan::ForeachOff => state -= 40.0,
            TrainingPlan::Fused => state -= 30.0,
            TrainingPlan::Expandable => cache = 10.0,
            TrainingPlan::Offload => (activations, ms) = (activations * 0.1, ms * 5.0),
            TrainingPlan::EightBit => return TrialOutcome::Failed("not installed".to_owned()),
            TrainingPlan::Zero1 => (state, ms) = (state - 90.0, ms + 10.0),
            TrainingPlan::Zero2 => (state, ms) = (state - 150.0, ms + 20.0),
            TrainingPlan::Zero3 => (state, ms) = (state - 200.0, ms + 30.0),
            TrainingPlan::Fp16 | TrainingPlan::Ddp => {}
        }
    }
    TrialOutcome::Ran(TrialFigures {
        allocated_bytes: (activations + state) as u64,
        reserved_bytes: (activations + state + cache) as u64,
        libraries_bytes: 0,
        step_ms: Some(ms),
        of_cards_ms: Vec::new(),
        exchange_ms: None,
        blocks: Some(24),
    })
}

fn names(room_bytes: u64, values: &[u64]) -> Vec<String> {
    names_with(&[], room_bytes, values)
}

fn names_with(more: &[TrainingPlan], room_bytes: u64, values: &[u64]) -> Vec<String> {
    let TrialOutcome::Ran(plain) = oracle(&PlanCandidate::default()) else {
        unreachable!()
    };
    let mut wanted = PlanSearchInput {
        plain,
        room_bytes,
        singles: vec![
            TrainingPlan::Bf16,
            TrainingPlan::Checkpoint(None),
            TrainingPlan::ForeachOff,
            TrainingPlan::Fused,
            TrainingPlan::EightBit,
            TrainingPlan::Expandable,
            TrainingPlan::Offload,
        ],
        values: values.to_vec(),
    };
    wanted.singles.extend(more);
    let run = |asked: &[PlanCandidate]| Ok::<_, ()>(asked.iter().map(oracle).collect());
    let trials = search_plans(&wanted, run).unwrap();
    let name = |trial: &PlanTrial| match trial.asked.value {
        Some(value) => format!("{} {value}", trial.asked.plans),
        None => trial.asked.plans.to_string(),
    };
    trials.iter().skip(7 + more.len()).map(name).collect()
}

#[test]
fn what_costs_nothing_is_enough() {
    let tried = names(1800, &[]);
    assert_eq!(
        tried,
        [
            "bf16+foreach-off+expandable",
            "bf16+checkpoint+foreach-off+expandable"
        ]
    );
}

#[test]
fn as_few_blocks_as_fit_are_checkpointed() {
    let tried = names(1000, &[]);
    let rest = tried[2..].iter().map(String::as_str);
    assert_eq!(
        rest.collect::<Vec<_>>(),
        [
            "bf16+checkpoint=14+foreach-off+expandable",
            "bf16+checkpoint=17+foreach-off+expandable"
        ]
    );
}

#[test]
fn a_flag_of_the_users_is_tried_too() {
    let tried = names(1000, &[32, 16, 8, 4]);
    assert_eq!(tried[0], " 32");
    assert_eq!(
        tried[3..5],
        [
            "bf16+foreach-off+expandable 32",
            "bf16+foreach-off+expandable 16"
        ]
    );
}

#[test]
fn what_costs_most_comes_last_and_a_search_ends() {
    let tried = names(272, &[]);
    assert_eq!(
        tried.last().unwrap(),
        "bf16+checkpoint+foreach-off+expandable+offload"
    );
    let tried = names(0, &[2, 1]);
    assert!(tried.len() < 12, "{tried:?}");
}

#[test]
fn what_cannot_run_is_left_out() {
    let plain = TrialFigures {
        allocated_bytes: 1,
        reserved_bytes: 1,
        libraries_bytes: 0,
        step_ms: None,
        of_cards_ms: Vec::new(),
        exchange_ms: None,
        blocks: None,
    };
    let wanted = PlanSearchInput {
        plain,
        room_bytes: 0,
        singles: vec![TrainingPlan::Bf16],
        values: vec![1],
    };
    let run = |asked: &[PlanCandidate]| {
        Ok::<_, ()>(
            asked
                .iter()
                .map(|_| TrialOutcome::Failed(String::new()))
                .collect(),
        )
    };
    assert_eq!(search_plans(&wanted, run).unwrap().len(), 2);
    assert_eq!(
        search_plans(&wanted, |_| Err::<Vec<TrialOutcome>, _>(7)),
        Err(7)
    );
}

#[test]
fn each_way_to_divide_is_tried_with_what_costs_no_time() {
    let divided = [TrainingPlan::Zero1, TrainingPlan::Zero3];
    let free = "bf16+foreach-off+expandable";
    let tried = names_with(&divided, 1600, &[]);
    let expected = [
        free.to_owned(),
        "bf16+checkpoint+foreach-off+expandable".to_owned(),
        format!("{free}+zero1"),
        format!("{free}+zero3"),
    ];
    assert_eq!(tried, expected);
    // Where none of them fits, as few blocks as fit are checkpointed with the first that does then.
    let tried = names_with(&divided, 240, &[]);
    let rest: Vec<&str> = tried[4..].iter().map(String::as_str).collect();
    assert_eq!(
        rest,
        [
            "bf16+checkpoint+foreach-off+expandable+zero1",
            "bf16+checkpoint+foreach-off+expandable+zero3",
        ]
    );
}

#[test]
fn an_optimizer_of_less_precision_is_shown_and_not_put_into_all() {
    let with_eight_bit = |asked: &PlanCandidate| {
        let has = asked
            .plans
            .iter()
            .any(|plan| plan == TrainingPlan::EightBit);
        let rest = asked
            .plans
            .iter()
            .filter(|plan| *plan != TrainingPlan::EightBit);
        let rest = PlanCandidate {
            plans: rest.fold(TrainingPlans::default(), |plans, plan| {
                plans.with_plan(plan)
            }),
            value: asked.value,
        };
        let mut outcome = oracle(&rest);
        if let (TrialOutcome::Ran(figures), true) = (&mut outcome, has) {
            figures.allocated_bytes -= 100;
            figures.reserved_bytes -= 100;
            figures.step_ms = figures.step_ms.map(|ms| ms * 0.9);
        }
        outcome
    };
    let tried = |room_bytes| {
        let TrialOutcome::Ran(plain) = oracle(&PlanCandidate::default()) else {
            unreachable!()
        };
        let wanted = PlanSearchInput {
            plain,
            room_bytes,
            singles: vec![
                TrainingPlan::Bf16,
                TrainingPlan::EightBit,
                TrainingPlan::Expandable,
            ],
            values: Vec::new(),
        };
        let run = |asked: &[PlanCandidate]| Ok::<_, ()>(asked.iter().map(with_eight_bit).collect());
        let trials = search_plans(&wanted, run).unwrap();
        let names = trials.iter().skip(3).map(|one| one.asked.plans.to_string());
        names.collect::<Vec<String>>()
    };
    let shown = ["bf16+expandable", "bf16+8-bit+expandable"];
    assert_eq!(tried(1800), shown);
    assert_eq!(tried(0), shown);
}
