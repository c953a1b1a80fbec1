//! Programs that are played: what they take of memory is a function of the values that they are told.

use super::*;

const KB: i64 = 1024;

/// A trial that took so many bytes, of a card that has 1,000 KiB for it.
fn trial(bytes: i64, reads: &[ValueRead]) -> ProbeReport {
    let step = r#"{"optimizer":0,"begin-us":1,"end-us":2}"#;
    let text = format!(
        r#"{{"format":1,"torch":"2.15.0","cuda":"13.2","python":"3.12.1","ended":"steps","wanted-steps":3,
        "steps":[{step},{step},{step}],"optimizers":1,"used-cuda":true,"error":null,"devices":[{{"name":"A",
        "total-bytes":9,"outside-bytes":1,"stats":{{}}}}],"holds":[]}}"#
    );
    let mut seen = ProbeReport::parse(&text).unwrap();
    seen.reads = reads.to_vec();
    let stats = &mut seen.devices[0].stats;
    stats.insert("requested_bytes.all.allocated".to_owned(), bytes);
    stats.insert(RESERVED.to_owned(), bytes);
    if bytes > 1000 * KB {
        stats.insert("num_ooms".to_owned(), 1);
        seen.ended = ObservationEnd::Exit;
    }
    seen
}

fn failed_trial(kind: &str, last: Option<SourceLine>) -> ProbeReport {
    let mut seen = trial(10 * KB, &[]);
    seen.ended = ObservationEnd::Exit;
    seen.steps.clear();
    seen.error = Some(crate::forecast::probe_report::ProgramError {
        kind: kind.to_owned(),
        message: String::new(),
        out_of_memory: false,
    });
    seen.answers = Some(crate::forecast::probe_report::SubstitutionReport {
        endless: Vec::new(),
        last,
    });
    seen
}

fn line(number: u32) -> SourceLine {
    SourceLine {
        file: "/w/train.py".to_owned(),
        line: number,
    }
}

fn read(number: u32, operation: &str) -> ValueRead {
    ValueRead {
        at: line(number),
        done: match operation {
            "nonzero" => ValueUse::Size,
            "bool" => ValueUse::Branch,
            _ => ValueUse::Value,
        },
        times: 3,
        by: None,
        code: String::new(),
        shown: false,
        operation: operation.to_owned(),
    }
}

/// Judges a program, and how many trials that took.
fn judged(
    reads: &[ValueRead],
    program: impl Fn(&SubstituteValues) -> ProbeReport,
) -> (ValueDependence, usize) {
    let mut zeros = program(&SubstituteValues::default());
    zeros.reads = reads.to_vec();
    let mut trials = 0;
    let judged = classify_dependence(&card(), &zeros, |answers, _| {
        trials += 1;
        Ok::<_, ()>(Some(program(answers)))
    });
    (judged.unwrap(), trials)
}

fn card() -> GpuBudget {
    GpuBudget {
        name: "A".to_owned(),
        total_bytes: 1000 * KB.unsigned_abs(),
        context_bytes: 0,
        context_reported: true,
        nccl_least_bytes: 0,
    }
}

fn selected(answers: &SubstituteValues) -> i64 {
    match answers.share {
        SelectedShare::None => 0,
        SelectedShare::Half => 1,
        SelectedShare::All => 2,
    }
}

fn why(judged: &ValueDependence) -> &UnboundedReason {
    match judged {
        ValueDependence::Unknown { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_only_shown_needs_no_trial() {
    let mut shown = read(3, "number");
    shown.shown = true;
    let (said, trials) = judged(&[shown], |_| trial(100 * KB, &[]));
    assert_eq!((said, trials), (ValueDependence::Free, 0));
    assert_eq!(
        judged(&[], |_| trial(100 * KB, &[])),
        (ValueDependence::Free, 0)
    );
}

#[test]
fn what_changes_no_memory_is_free_after_few_trials() {
    let reads = [read(3, "number"), read(4, "bool")];
    let (said, trials) = judged(&reads, |_| trial(100 * KB, &reads));
    assert_eq!((said, trials), (ValueDependence::Free, 3));
    let reads = [read(3, "nonzero")];
    let (said, trials) = judged(&reads, |_| trial(100 * KB, &reads));
    assert_eq!((said, trials), (ValueDependence::Free, 1));
}

#[test]
fn what_two_places_decide_together_is_tried() {
    // `if a and not b`: where all are told the same it is never so.
    for pattern in [ValuePattern::Varied, ValuePattern::VariedAgain] {
        let reads = [read(3, "bool"), read(4, "bool")];
        let of = |bytes: i64| {
            let reads = reads.clone();
            move |answers: &SubstituteValues| {
                let both = answers.pattern == pattern;
                trial(if both { bytes } else { 100 } * KB, &reads)
            }
        };
        let said = judged(&reads, of(3000)).0;
        assert_eq!(why(&said), &UnboundedReason::Disagree, "{pattern:?}");
        let ValueDependence::Bounded { most } = judged(&reads, of(300)).0 else {
            panic!()
        };
        assert_eq!(most.pattern, pattern);
    }
}

#[test]
fn a_size_behind_a_condition_is_a_size() {
    // `if n > 0: torch.empty(int(n), …)`.
    let reads = [read(3, "bool"), read(4, "number")];
    let of = |each: i64| {
        let reads = reads.clone();
        move |answers: &SubstituteValues| {
            let rows = if answers.truth {
                i64::from(answers.number)
            } else {
                0
            };
            trial(100 * KB + rows * each, &reads)
        }
    };
    assert_eq!(why(&judged(&reads, of(1)).0), &UnboundedReason::Size);
    // So many rows that the card is full with either number.
    assert!(matches!(
        judged(&reads, of(KB * KB)).0,
        ValueDependence::Unknown { .. }
    ));
}

#[test]
fn what_does_not_fit_but_with_true_is_not_known() {
    // `if not bool(loss < 100)`: zeros say that it is not, and so does every other step.
    let reads = [read(3, "bool")];
    let said = judged(&reads, |answers| {
        let always = answers.truth && answers.pattern == ValuePattern::Always;
        trial(if always { 100 } else { 3000 } * KB, &reads)
    });
    assert_eq!(why(&said.0), &UnboundedReason::Disagree);
}

#[test]
fn a_selection_has_bounds() {
    let reads = [read(7, "nonzero")];
    let of = |each: i64| {
        move |answers: &SubstituteValues| {
            trial((100 + each * selected(answers)) * KB, &[read(7, "nonzero")])
        }
    };
    let (said, _) = judged(&reads, of(100));
    let all = SubstituteValues {
        share: SelectedShare::All,
        truth: true,
        ..SubstituteValues::default()
    };
    assert_eq!(said, ValueDependence::Bounded { most: all });
    // 100 of 1,000 with none, 700 with half, 1,300 with all.
    let (said, _) = judged(&reads, of(600));
    let ValueDependence::Unknown { why, lines, with } = said else {
        panic!("{said:?}")
    };
    assert_eq!((why, lines[0].at.line), (UnboundedReason::Disagree, 7));
    let verdicts: Vec<FitOutcome> = with.iter().map(|one| one.verdict).collect();
    assert_eq!(
        verdicts,
        [FitOutcome::Fits, FitOutcome::DoesNotFit, FitOutcome::Fits]
    );
    // What does not fit with nothing does not fit with more.
    let (said, _) = judged(&reads, |answers| {
        trial((2000 + selected(answers)) * KB, &reads)
    });
    assert!(matches!(said, ValueDependence::Bounded { .. }), "{said:?}");
}

#[test]
fn both_ways_of_a_branch_are_gone() {
    for operation in ["bool", "number"] {
        let reads = [read(7, operation)];
        let of = |more: i64| {
            let reads = reads.clone();
            move |answers: &SubstituteValues| {
                let other = answers.truth && operation == "bool";
                let other = other || (operation == "number" && answers.number > 1000);
                trial(if other { more } else { 100 } * KB, &reads)
            }
        };
        assert!(
            matches!(judged(&reads, of(300)).0, ValueDependence::Bounded { .. }),
            "{operation}"
        );
        assert_eq!(
            why(&judged(&reads, of(3000)).0),
            &UnboundedReason::Disagree,
            "{operation}"
        );
    }
}

#[test]
fn a_number_that_is_a_size_has_no_bounds() {
    let reads = [read(9, "number")];
    let (said, _) = judged(&reads, |answers| {
        trial(100 * KB + i64::from(answers.number), &reads)
    });
    assert_eq!(why(&said), &UnboundedReason::Size);
}

#[test]
fn a_check_that_ends_the_program_is_left_at_zero() {
    // `if isnan(loss): raise`, beside a mask.
    let reads = [read(3, "bool"), read(7, "nonzero")];
    let program =
        |answers: &SubstituteValues| match answers.truth && !answers.pinned.contains(&line(3)) {
            true => failed_trial("RuntimeError", Some(line(3))),
            false => trial((100 + selected(answers)) * KB, &reads),
        };
    let ValueDependence::Bounded { most } = judged(&reads, program).0 else {
        panic!()
    };
    assert_eq!(
        (most.share, most.pinned),
        (SelectedShare::All, vec![line(3)])
    );
    // What fails whatever is pinned is not known.
    let fails = |answers: &SubstituteValues| match answers.are_zeros() {
        true => trial(100 * KB, &reads),
        false => failed_trial("ValueError", None),
    };
    let kind = "ValueError".to_owned();
    assert_eq!(
        why(&judged(&reads, fails).0),
        &UnboundedReason::Fails { kind }
    );
}

#[test]
fn loops_and_reads_without_an_answer_are_not_known() {
    let reads = [read(3, "bool")];
    let endless = |answers: &SubstituteValues| {
        let mut seen = trial((100 + i64::from(answers.truth)) * KB, &reads);
        seen.answers = Some(crate::forecast::probe_report::SubstitutionReport {
            endless: vec![line(3)],
            last: Some(line(3)),
        });
        seen
    };
    assert_eq!(why(&judged(&reads, endless).0), &UnboundedReason::Loop);
    let reads = [read(3, "copy")];
    let told = [read(5, UNANSWERED)];
    let (said, _) = judged(&reads, |_| trial(100 * KB, &told));
    assert_eq!(why(&said), &UnboundedReason::Unanswered);
}

#[test]
fn answers_are_written_as_the_probe_reads_them() {
    let answers = SubstituteValues {
        share: SelectedShare::Half,
        truth: true,
        number: 37,
        pattern: ValuePattern::VariedAgain,
        pinned: vec![line(3), line(4)],
    };
    let expected = (
        "half,1,37,varied-again".to_owned(),
        "/w/train.py:3\n/w/train.py:4".to_owned(),
    );
    assert_eq!(answers.to_env_values(), expected);
    assert!(SubstituteValues::default().are_zeros() && !answers.are_zeros());
}

/// `n = int(lengths.max()); if n > 64: raise`, and what comes then is of size n.
#[test]
fn a_size_that_is_checked_is_no_check_alone() {
    let reads = [read(3, "number")];
    let sized = |answers: &SubstituteValues| match answers.number {
        65.. => failed_trial("ValueError", Some(line(3))),
        n => trial(100 * KB + i64::from(n) * KB, &reads),
    };
    let (said, _) = judged(&reads, sized);
    assert_eq!(*why(&said), UnboundedReason::Size);
    // A loss that is checked decides nothing else.
    let checked = |answers: &SubstituteValues| match answers.number {
        65.. => failed_trial("AssertionError", Some(line(3))),
        _ => trial(100 * KB, &reads),
    };
    let (said, _) = judged(&reads, checked);
    assert!(
        matches!(
            said,
            ValueDependence::Free | ValueDependence::Bounded { .. }
        ),
        "{said:?}"
    );
}

/// Lengths are padded to whole tiles, or whole tiles are counted: both make one size of several numbers.
#[test]
fn a_size_that_is_rounded_is_a_size() {
    let reads = [read(9, "number")];
    for tile in [8, 64, 128, 512, 1024] {
        for round in [u32::div_ceil, |number: u32, tile| number / tile] {
            let (said, _) = judged(&reads, |answers| {
                trial(
                    100 * KB + i64::from(round(answers.number, tile)) * KB / 16,
                    &reads,
                )
            });
            assert_eq!(why(&said), &UnboundedReason::Size, "{tile}");
        }
    }
    // The same of lengths that are checked.
    let checked = |answers: &SubstituteValues| match answers.number {
        513.. => failed_trial("ValueError", Some(line(9))),
        n => trial(100 * KB + i64::from(n.div_ceil(128)) * KB, &reads),
    };
    assert_eq!(why(&judged(&reads, checked).0), &UnboundedReason::Size);
}

#[test]
fn what_other_threads_read_is_not_known() {
    let mut zeros = trial(100 * KB, &[]);
    zeros.reads_elsewhere = 3;
    let said = classify_dependence(&card(), &zeros, |_, _| {
        Ok::<_, ()>(Some(trial(100 * KB, &[])))
    })
    .unwrap();
    assert_eq!(why(&said), &UnboundedReason::OtherThreads);
}

/// Judges a program with a condition on a value: `left` is what is left on the card after so many steps in which it
/// was true.
fn judged_with_memory_left(left: fn(usize) -> i64) -> ValueDependence {
    let reads = [read(3, "bool")];
    let trial_of = |answers: &SubstituteValues, count: usize| {
        let is_true = |step: &usize| match answers.pattern {
            _ if !answers.truth => false,
            ValuePattern::EveryOtherStep => step.is_multiple_of(2),
            ValuePattern::Always => true,
            ValuePattern::Varied => !step.is_multiple_of(3),
            ValuePattern::VariedAgain => step.is_multiple_of(3),
        };
        let after = |step| 100 * KB + left((0..=step).filter(is_true).count());
        let mut seen = trial(after(count - 1), &reads);
        let step = seen.steps[0].clone();
        seen.steps = (0..count)
            .map(|at| {
                let bytes = after(at).unsigned_abs();
                let mut step = step.clone();
                step.devices
                    .push(crate::forecast::probe_report::ObservedStepGpu {
                        allocated_bytes: Some(bytes),
                        allocated_peak_bytes: Some(bytes),
                        requested_bytes: None,
                    });
                step
            })
            .collect();
        let stats = &mut seen.devices[0].stats;
        stats.insert(crate::forecast::ALLOCATED.to_owned(), after(count - 1));
        seen
    };
    let zeros = trial_of(&SubstituteValues::default(), 3);
    let judged = classify_dependence(&card(), &zeros, |answers, length| {
        let count = match length {
            TrialLength::AsAsked => 3,
            TrialLength::AtLeast(steps) => steps as usize,
        };
        Ok::<_, ()>(Some(trial_of(answers, count)))
    });
    judged.unwrap()
}

#[test]
fn what_is_kept_each_time_that_a_value_says_so_grows() {
    let said = judged_with_memory_left(|times| 8 * KB * times as i64);
    let UnboundedReason::Growth {
        step_bytes,
        steps_left,
    } = why(&said)
    else {
        panic!("{said:?}")
    };
    // Every other step, watched for nine: five of them are true.
    assert_eq!((*step_bytes, *steps_left), (4 * 1024, 214));
    // The card is full while it is watched.
    let said = judged_with_memory_left(|times| 190 * KB * times as i64);
    assert_eq!(why(&said), &UnboundedReason::Disagree);
}

#[test]
fn what_is_kept_once_does_not_grow() {
    // The weights that were the best ones, which take each other's place; and nothing but a few numbers.
    for left in [
        |times: usize| 64 * KB * times.min(1) as i64,
        |times| i64::from(times > 0),
    ] {
        let said = judged_with_memory_left(left);
        assert!(matches!(said, ValueDependence::Bounded { .. }), "{said:?}");
    }
}
