use super::*;
use crate::forecast::probe_report::SourceLine;
use crate::forecast::{FitOutcome, GpuBudget, of_card};

fn seen(rest: &str, requested: &[u64]) -> ProbeReport {
    let step = |bytes: &u64| {
        format!(
            r#"{{"optimizer":0,"begin-us":1,"end-us":2,"devices":[{{"requested-bytes":{bytes}}}]}}"#
        )
    };
    let steps: Vec<String> = requested.iter().map(step).collect();
    let text = format!(
        r#"{{"format":1,"torch":"2.15.0","cuda":"13.2","python":"3.12.1","ended":"steps","wanted-steps":3,
        "steps":[{}],"optimizers":1,"used-cuda":true,"error":null,"devices":[],"holds":[]{rest}}}"#,
        steps.join(",")
    );
    ProbeReport::parse(&text).unwrap()
}

fn batches(shapes: &str) -> Vec<InconclusiveReason> {
    let rest = format!(r#","batches":[{{"batch-size":8,"batches":3,"shapes":{shapes}}}]"#);
    inconclusive_reasons(&seen(&rest, &[10, 20, 30]))
}

#[test]
fn batches_of_one_shape_are_known() {
    assert_eq!(batches("[[[8,117],[8]]]"), []);
    assert_eq!(batches("[]"), []);
    // The last batch of an epoch has fewer elements.
    assert_eq!(batches("[[[8,117],[8]],[[3,117],[3]]]"), []);
}

#[test]
fn batches_of_several_shapes_are_not_known_beyond() {
    for (shapes, largest) in [
        ("[[[8,93]],[[8,140]],[[8,117]]]", vec![vec![8, 140]]),
        ("[[[3,117]],[[8,117]]]", vec![vec![8, 117]]),
        ("[[[8,3,32,32]],[[8,3,64,64]]]", vec![vec![8, 3, 64, 64]]),
        // Nodes of graphs: more than the batch has elements.
        ("[[[120,4]],[[90,4]]]", vec![vec![120, 4]]),
    ] {
        let found = batches(shapes);
        let [InconclusiveReason::Shapes { largest: told, .. }] = &found[..] else {
            panic!("{shapes}: {found:?}")
        };
        assert_eq!(*told, largest);
    }
}

#[test]
fn steps_that_ask_for_different_amounts_are_not_known_beyond() {
    // The first step makes the optimizer's state.
    assert_eq!(inconclusive_reasons(&seen("", &[900, 1000, 1100])), []);
    assert_eq!(inconclusive_reasons(&seen("", &[900, 1000, 1101])), []);
    let found = inconclusive_reasons(&seen("", &[900, 1000, 1150]));
    let expected = InconclusiveReason::Sizes {
        least_bytes: 100,
        most_bytes: 150,
    };
    assert_eq!(found, [expected]);
    assert_eq!(inconclusive_reasons(&seen("", &[900])), []);
}

#[test]
fn what_is_compiled_is_compared_once_it_is() {
    let compiled = |requested: &[u64]| seen(r#","compiled":true"#, requested);
    assert_eq!(
        inconclusive_reasons(&compiled(&[900, 1000, 1150, 1250, 1350])),
        []
    );
    let grows = inconclusive_reasons(&compiled(&[900, 1000, 1150, 1250, 1400]));
    let expected = InconclusiveReason::Sizes {
        least_bytes: 100,
        most_bytes: 150,
    };
    assert_eq!(grows, [expected]);
}

#[test]
fn too_few_steps_are_compared_with_none_and_it_is_said() {
    let said = |seen: &ProbeReport| {
        let doubts = crate::forecast::list_caveats(&[], seen, 1, None);
        doubts.contains(&crate::forecast::ForecastCaveat::NothingCompared)
    };
    let compiled = r#","compiled":true"#;
    for (rest, requested, expected) in [
        ("", &[900, 1000, 1100][..], false),
        ("", &[900, 1000], true),
        ("", &[900], true),
        (compiled, &[900, 1000, 1100, 1200], true),
        (compiled, &[900, 1000, 1100, 1200, 1300], false),
    ] {
        let seen = seen(rest, requested);
        assert_eq!(said(&seen), expected, "{rest} {requested:?}");
        let mut ended = seen;
        ended.ended = ObservationEnd::Exit;
        assert!(!said(&ended));
    }
}

#[test]
fn an_evaluation_that_was_not_reached_is_not_known() {
    let line = |bounded: bool| {
        format!(r#"{{"file":"/w/train.py","line":9,"bounded":{bounded},"code":"model.eval()"}}"#)
    };
    let of = |bounded| {
        inconclusive_reasons(&seen(
            &format!(r#","later":[{}]"#, line(bounded)),
            &[1, 2, 3],
        ))
    };
    assert_eq!(of(true), []);
    let found = of(false);
    let [InconclusiveReason::Later { lines }] = &found[..] else {
        panic!("{found:?}")
    };
    let at = SourceLine {
        file: "/w/train.py".to_owned(),
        line: 9,
    };
    assert_eq!(lines[0].at, at);
    // What ran to its end has nothing that comes later.
    let mut ended = seen(
        &format!(r#","later":[{}]"#, line(false)),
        &[900, 1000, 1150],
    );
    ended.ended = ObservationEnd::Exit;
    assert_eq!(inconclusive_reasons(&ended), []);
}

fn card(total_bytes: u64) -> GpuBudget {
    GpuBudget {
        name: "A".to_owned(),
        total_bytes,
        context_bytes: 1,
        context_reported: true,
        nccl_least_bytes: 0,
    }
}

/// Steps that end with so much allocated, and had so much at most until then.
fn seen_with_memory(rest: &str, ends: &[(u64, u64)]) -> ProbeReport {
    let step = |(end, peak): &(u64, u64)| {
        format!(
            r#"{{"optimizer":0,"begin-us":1,"end-us":2,"devices":[{{"allocated-bytes":{end},"allocated-peak-bytes":{peak}}}]}}"#
        )
    };
    let steps: Vec<String> = ends.iter().map(step).collect();
    let peak = ends.iter().map(|(_, peak)| *peak).max().unwrap_or(0);
    let text = format!(
        r#"{{"format":1,"torch":"2.15.0","cuda":"13.2","python":"3.12.1","ended":"steps","wanted-steps":3,
        "steps":[{}],"optimizers":1,"used-cuda":true,"error":null,"devices":[{{"name":"A","total-bytes":9,"outside-bytes":1,
        "stats":{{"allocated_bytes.all.peak":{peak},"reserved_bytes.all.peak":{peak}}}}}],"holds":[]{rest}}}"#,
        steps.join(",")
    );
    ProbeReport::parse(&text).unwrap()
}

fn growth(total_bytes: u64, rest: &str, ends: &[(u64, u64)]) -> Option<(u64, u64)> {
    let seen = seen_with_memory(rest, ends);
    let said = of_card(&card(total_bytes), &seen, None);
    growth_reason(&said, &seen).map(|one| match one {
        InconclusiveReason::Growth {
            step_bytes,
            steps_left,
        } => (step_bytes, steps_left),
        other => panic!("{other:?}"),
    })
}

#[test]
fn memory_that_grows_with_each_step_fills_the_card() {
    // A list that keeps what a step computed; then batches that are longer each time, of which nothing is kept.
    let kept = [(100, 200), (110, 210), (120, 220), (130, 230)];
    assert_eq!(growth(731, "", &kept), Some((10, 50)));
    let longer = [(100, 200), (100, 240), (100, 244), (100, 248)];
    assert_eq!(growth(649, "", &longer), Some((4, 100)));
    assert_eq!(growth(100, "", &longer), Some((4, 0)));
}

#[test]
fn what_only_swings_or_never_fills_the_card_does_not_grow() {
    // An optimizer's first step makes its state.
    assert_eq!(growth(900, "", &[(100, 200), (150, 250), (150, 250)]), None);
    assert_eq!(
        growth(
            900,
            "",
            &[(100, 200), (100, 200), (101, 201), (100, 201), (101, 201)]
        ),
        None
    );
    assert_eq!(growth(900, "", &[(100, 200), (110, 210)]), None);
    // Of two optimizers the one that steps first meets what the other one's first step made.
    assert_eq!(growth(900, "", &[(100, 200), (150, 250), (150, 260)]), None);
    // One number a step that is kept.
    let numbers = [(100, 200), (612, 712), (1124, 1224), (1636, 1736)];
    assert_eq!(growth(80_000_000_000, "", &numbers), None);
    assert_eq!(growth(2_000_000, "", &numbers), Some((512, 3902)));
    // Batches of several shapes are told by themselves; what was watched to its end has no later steps.
    let shapes =
        r#","batches":[{"batch-size":8,"batches":3,"shapes":[[[8,93]],[[8,140]],[[8,117]]]}]"#;
    assert_eq!(growth(2_000_000, shapes, &numbers), None);
    let mut ended = seen_with_memory("", &numbers);
    ended.ended = ObservationEnd::Exit;
    let said = of_card(&card(2_000_000), &ended, None);
    assert_eq!(growth_reason(&said, &ended), None);
}

#[test]
fn later_steps_are_said_to_be_taken_for_like_ones() {
    let said = |seen: &ProbeReport| {
        let doubts = crate::forecast::list_caveats(&[], seen, 1, None);
        doubts.contains(&crate::forecast::ForecastCaveat::LaterSteps { watched: 3 })
    };
    let mut one = seen("", &[900, 1000, 1100]);
    assert!(said(&one));
    one.ended = ObservationEnd::Exit;
    assert!(!said(&one));
}

#[test]
fn a_yes_is_taken_back_and_a_no_is_not() {
    let card = card(10);
    let later = InconclusiveReason::Later { lines: Vec::new() };
    let mut said = of_card(&card, &seen("", &[1]), None);
    said.apply_inconclusive_reasons(Vec::new());
    assert_eq!(said.verdict, FitOutcome::Fits);
    said.apply_inconclusive_reasons(vec![later.clone()]);
    assert_eq!(
        (said.verdict, said.not_judged.len()),
        (FitOutcome::NotKnown, 1)
    );
    said.verdict = FitOutcome::DoesNotFit;
    said.apply_inconclusive_reasons(vec![later]);
    assert_eq!(said.verdict, FitOutcome::DoesNotFit);
}
