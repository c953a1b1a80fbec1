use super::*;
use crate::forecast::seen::SourceLine;
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

#[test]
fn a_yes_is_taken_back_and_a_no_is_not() {
    let card = GpuBudget {
        name: "A".to_owned(),
        total_bytes: 10,
        context_bytes: 1,
        context_reported: true,
        nccl_least_bytes: 0,
    };
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
