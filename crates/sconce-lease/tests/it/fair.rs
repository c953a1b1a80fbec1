//! Whoever waits gets theirs.

use sconce_lease::{
    AcquireRequest, GpuSelection, LeaseEvent, LeaseRequest, LeaseResponse, LeaseState,
    LeaseSystem as _, Policy, decide_request,
};

use crate::tools::{Dice, MINUTE, Played, user};

fn take(cards: u32, minutes: u64) -> LeaseRequest {
    LeaseRequest::Take(AcquireRequest {
        wanted: GpuSelection::Any {
            cards,
            memory: None,
        },
        for_ms: Some(minutes * MINUTE),
        while_alive: false,
        wait: true,
    })
}

/// A user of no priority wants all cards, while others with priority ask for single ones without
/// end. All leases are of `MAX_LEASE_MINUTES` minutes at most, so the wait is at most the patience, what
/// runs then, and the requests that came earlier one after the other.
#[test]
fn nobody_waits_for_ever() {
    const MAX_LEASE_MINUTES: u64 = 10;
    const PATIENCE: u64 = 60;
    let text = format!(
        "patience = \"{PATIENCE}m\"\n[default]\nlongest = \"{MAX_LEASE_MINUTES}m\"\n\
         [users.user2]\npriority = 9\n[users.user3]\npriority = 9\n"
    );
    let policy = Policy::parse(&text).unwrap();
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let world = Played::new(4);
        let mut state = LeaseState::default();
        let mut ask = |uid, ask: &LeaseRequest| {
            let seen = world.see(&state).unwrap();
            let decision = decide_request(&mut state, &policy, &seen, &user(uid), None, ask);
            let granted = decision.events.iter().filter_map(|event| match event {
                LeaseEvent::Granted { id, .. } => Some(*id),
                _ => None,
            });
            (granted.collect::<Vec<_>>(), decision.answer)
        };
        for _ in 0..4 {
            let _ = ask(2, &take(1, MAX_LEASE_MINUTES));
        }
        let before = dice.below(6);
        for _ in 0..before {
            let _ = ask(
                3,
                &take(1 + dice.below(4) as u32, 1 + dice.below(MAX_LEASE_MINUTES)),
            );
        }
        let (_, answer) = ask(1, &take(4, MAX_LEASE_MINUTES));
        let LeaseResponse::Queued(place) = answer else {
            panic!("seed {seed}: {answer:?}");
        };
        let bound = PATIENCE + MAX_LEASE_MINUTES + before * MAX_LEASE_MINUTES;
        let mut waited = 0;
        loop {
            assert!(waited <= bound, "seed {seed}: {waited} minutes");
            if waited % 2 == 0 {
                let uid = 2 + dice.below(2) as u32;
                let _ = ask(
                    uid,
                    &take(1 + dice.below(2) as u32, 1 + dice.below(MAX_LEASE_MINUTES)),
                );
            }
            world.pass(MINUTE);
            waited += 1;
            if ask(1, &LeaseRequest::Look).0.contains(&place.id) {
                break;
            }
        }
    }
}

#[test]
fn who_used_less_comes_first_and_short_ones_fill_the_gaps() {
    let policy = Policy::default();
    let world = Played::new(2);
    let mut state = LeaseState::default();
    let mut ask = |uid, ask: &LeaseRequest| {
        let seen = world.see(&state).unwrap();
        decide_request(&mut state, &policy, &seen, &user(uid), None, ask).answer
    };
    let granted = |answer: &LeaseResponse| matches!(answer, LeaseResponse::Granted(_));
    assert!(granted(&ask(1, &take(1, 60))));
    world.pass(MINUTE);
    // User 1 has used something, and asks first for both.
    let first = ask(1, &take(2, 10));
    let second = ask(2, &take(2, 10));
    let start = |answer: &LeaseResponse| match answer {
        LeaseResponse::Queued(shown) => (shown.place, shown.start_s.unwrap()),
        other => panic!("{other:?}"),
    };
    let ends = world.clock.lock().unwrap().wall_ms / 1000 + 59 * 60;
    assert_eq!(start(&first), (1, ends));
    assert_eq!(start(&second), (1, ends), "used less");
    // A short one fits before them, a long one would delay them.
    assert!(!granted(&ask(3, &take(1, 60))));
    assert!(granted(&ask(3, &take(1, 59))));
    let LeaseResponse::Overview(shown) = ask(9, &LeaseRequest::Look) else {
        panic!()
    };
    let order: Vec<_> = shown.queue.iter().map(|w| (w.uid, w.start_s)).collect();
    assert_eq!(order[0], (2, Some(ends)));
    assert_eq!(order[1], (3, Some(ends + 600)));
    assert_eq!(order[2], (1, Some(ends + 4200)));
}
