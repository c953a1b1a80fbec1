//! The reason that is told is the true one.

use sconce_lease::{
    AcquireRequest, GpuSelection, LeaseRefusal, LeaseRequest, LeaseResponse, LeaseState,
    LeaseSystem as _, Overview, Policy, QueueEntry, QueuedRequest, decide_request,
};

use crate::tools::{MINUTE, Played, user};

struct Lab {
    world: Played,
    state: LeaseState,
    policy: Policy,
}

impl Lab {
    fn new(cards: u32, policy: &str) -> Self {
        Self {
            world: Played::new(cards),
            state: LeaseState::default(),
            policy: Policy::parse(policy).unwrap(),
        }
    }

    fn ask(&mut self, uid: u32, ask: &LeaseRequest) -> LeaseResponse {
        let seen = self.world.see(&self.state).unwrap();
        let process = self.world.process(1000 + uid);
        decide_request(
            &mut self.state,
            &self.policy,
            &seen,
            &user(uid),
            process.as_ref(),
            ask,
        )
        .answer
    }

    fn take(&mut self, uid: u32, cards: u32, minutes: u64, wait: bool) -> LeaseResponse {
        self.take_for(uid, cards, Some(minutes * MINUTE), wait)
    }

    fn take_for(&mut self, uid: u32, cards: u32, for_ms: Option<u64>, wait: bool) -> LeaseResponse {
        let ask = LeaseRequest::Take(AcquireRequest {
            wanted: GpuSelection::Any {
                cards,
                memory: None,
            },
            for_ms,
            while_alive: false,
            wait,
        });
        self.ask(uid, &ask)
    }

    fn look(&mut self) -> Overview {
        match self.ask(9, &LeaseRequest::Look) {
            LeaseResponse::Overview(seen) => seen,
            answer => panic!("{answer:?}"),
        }
    }

    /// What is said to who does not wait; the same stands in the queue for who does.
    fn reason(&mut self, uid: u32, cards: u32, minutes: u64) -> String {
        let LeaseResponse::Refused(refusal) = self.take(uid, cards, minutes, false) else {
            panic!("it was given");
        };
        let answer = self.take(uid, cards, minutes, true);
        let LeaseResponse::Queued(QueueEntry { id, why, .. }) = answer else {
            panic!("{answer:?}");
        };
        let why = why.map(|why| why.to_string());
        assert_eq!(why.as_deref(), Some(&*refusal.to_string()));
        let LeaseResponse::Overview(seen) = self.ask(9, &LeaseRequest::Look) else {
            panic!("no overview");
        };
        let shown = seen.queue.iter().find(|waiting| waiting.id == id).unwrap();
        assert_eq!(shown.why.as_ref().map(ToString::to_string), why);
        assert!(matches!(
            self.ask(uid, &LeaseRequest::Return { id }),
            LeaseResponse::Returned(_)
        ));
        refusal.to_string()
    }
}

#[test]
fn who_holds_what_the_policy_gives_is_told_so_while_cards_are_free() {
    let mut lab = Lab::new(8, "[default]\ncards = 2\n");
    assert!(matches!(
        lab.take(1, 2, 60, false),
        LeaseResponse::Granted(_)
    ));
    assert_eq!(
        lab.reason(1, 1, 30),
        "user1 holds 2 of the 2 that user1 may hold at once"
    );
    // With every card held it is still her limit that lasts.
    for uid in 2..5 {
        assert!(matches!(
            lab.take(uid, 2, 10, false),
            LeaseResponse::Granted(_)
        ));
    }
    assert_eq!(
        lab.reason(1, 1, 30),
        "user1 holds 2 of the 2 that user1 may hold at once"
    );
    assert_eq!(
        lab.reason(5, 2, 30),
        "0 of 8 that would do are free, 2 are wanted"
    );
    // What she waits for counts as well.
    assert!(matches!(lab.take(5, 2, 30, true), LeaseResponse::Queued(_)));
    lab.world.pass(MINUTE);
    assert_eq!(
        lab.reason(5, 1, 60),
        "user5 holds 0 and waits for 2 of 2 that are allowed"
    );
}

#[test]
fn cards_that_are_held_kept_or_gone_are_told_apart() {
    let mut lab = Lab::new(2, "[users.user2]\npriority = 9\n");
    assert!(matches!(
        lab.take(1, 1, 60, false),
        LeaseResponse::Granted(_)
    ));
    assert_eq!(
        lab.reason(3, 2, 30),
        "1 of 2 that would do is free, 2 are wanted"
    );
    assert!(matches!(lab.take(2, 2, 60, true), LeaseResponse::Queued(_)));
    assert_eq!(
        lab.reason(3, 1, 90),
        "free cards are kept for user2, who is before"
    );
    assert!(
        matches!(lab.take(3, 1, 60, false), LeaseResponse::Granted(_)),
        "it is over before"
    );
    lab.world.cards.lock().unwrap().pop();
    let LeaseResponse::Overview(seen) = lab.ask(9, &LeaseRequest::Look) else {
        panic!("no overview");
    };
    let why = seen.queue[0].why.as_ref().map(ToString::to_string);
    assert_eq!(
        why.as_deref(),
        Some("1 that would do is there, and 2 are wanted")
    );
    assert_eq!(seen.queue[0].start_s, None);
}

#[test]
fn maintenance_is_no_limit_of_a_lease() {
    // The played clock begins at 2026-11-22T06:40:00Z.
    let policy = "[default]\nlongest = \"24h\"\n[[maintenance]]\nfrom = 2026-11-22T08:40:00Z\n\
                  until = 2026-11-22T09:40:00Z\nwhy = \"new driver\"\n";
    let mut lab = Lab::new(2, policy);
    assert_eq!(
        lab.reason(1, 1, 180),
        "it would reach into maintenance: new driver"
    );
    let LeaseResponse::Granted(lease) = lab.take(1, 1, 60, false) else {
        panic!("it is over before");
    };
    let extend = LeaseRequest::Extend {
        id: lease.id,
        by_ms: 120 * MINUTE,
    };
    let LeaseResponse::Refused(refusal) = lab.ask(1, &extend) else {
        panic!("it was extended");
    };
    assert_eq!(
        refusal.to_string(),
        "maintenance begins 1 h after its end: new driver"
    );
    lab.world.pass(130 * MINUTE);
    assert_eq!(lab.reason(1, 1, 10), "maintenance goes on: new driver");
}

#[test]
fn hours_and_lengths_are_named_with_their_units_once() {
    let mut lab = Lab::new(8, "[default]\nhours-a-week = 3\nlongest = \"2h\"\n");
    let LeaseResponse::Refused(refusal) = lab.take(1, 2, 120, true) else {
        panic!("it was given");
    };
    assert_eq!(
        refusal.to_string(),
        "user1 has 3 of 3 GPU-hours of the last seven days left, and this needs 4"
    );
    let LeaseResponse::Refused(refusal) = lab.take(1, 1, 180, true) else {
        panic!("it was given");
    };
    assert_eq!(
        refusal.to_string(),
        "the longest lease is 2 h and 3 h was asked for"
    );
    let mut none = Lab::new(1, "[default]\nqueue = 0\n");
    assert!(matches!(
        none.take(1, 1, 60, false),
        LeaseResponse::Granted(_)
    ));
    let answer = none.take(2, 1, 60, true);
    let LeaseResponse::Refused(refusal) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(refusal.to_string(), "no request of user2 may wait");
}

/// Two requests without a length get cards in the same moment: the first one takes all hours that are left. The second
/// does not begin a lease of no time, and keeps no card from others.
#[test]
fn what_has_no_length_waits_while_there_are_no_hours() {
    let mut lab = Lab::new(2, "[users.user1]\nhours-a-week = 3\n");
    assert!(matches!(
        lab.take(2, 2, 60, false),
        LeaseResponse::Granted(_)
    ));
    for _ in 0..2 {
        let answer = lab.take_for(1, 1, None, true);
        assert!(matches!(answer, LeaseResponse::Queued(_)), "{answer:?}");
    }
    assert!(matches!(lab.take(3, 1, 30, true), LeaseResponse::Queued(_)));
    lab.world.pass(60 * MINUTE);
    let seen = lab.look();
    let leases: Vec<_> = (seen.leases.iter())
        .map(|lease| (lease.uid, lease.until_s.map(|until| until - lease.since_s)))
        .collect();
    assert_eq!(leases, [(1, Some(3 * 3600)), (3, Some(30 * 60))]);
    let [waiting] = &seen.queue[..] else {
        panic!("{:?}", seen.queue);
    };
    assert_eq!((waiting.uid, waiting.start_s), (1, None));
    assert_eq!(
        waiting.why.as_ref().map(ToString::to_string).as_deref(),
        Some("user1 has none of 3 GPU-hours of the last seven days left")
    );
    // With cards free too it is the hours; a week later they are there again.
    lab.world.pass(4 * 60 * MINUTE);
    let seen = lab.look();
    assert_eq!((seen.leases.len(), seen.queue.len()), (0, 1));
    lab.world.pass(8 * 24 * 60 * MINUTE);
    let seen = lab.look();
    assert_eq!((seen.leases.len(), seen.queue.len()), (1, 0));
}

#[test]
fn who_gave_a_place_up_is_told() {
    let mut lab = Lab::new(1, "");
    assert!(matches!(
        lab.take(1, 1, 60, false),
        LeaseResponse::Granted(_)
    ));
    for _ in 0..70 {
        let LeaseResponse::Queued(QueueEntry { id, .. }) = lab.take(2, 1, 60, true) else {
            panic!("it does not wait");
        };
        lab.ask(0, &LeaseRequest::Return { id });
        let LeaseResponse::Overview(seen) = lab.ask(2, &LeaseRequest::Look) else {
            panic!("no overview");
        };
        let last = seen.given_up.last().map(|gone| (gone.id, gone.by.as_str()));
        assert_eq!(last, Some((id, "user0")));
        assert!(seen.given_up.len() <= 64, "it does not grow for ever");
    }
    // Who died gave nothing up.
    let LeaseResponse::Queued(QueueEntry { id, .. }) = lab.take(2, 1, 60, true) else {
        panic!("it does not wait");
    };
    let is_it = |waiting: &QueuedRequest| waiting.id == id;
    assert!(lab.state.waiting.iter().any(is_it));
    lab.world.kill(1002);
    let LeaseResponse::Overview(seen) = lab.ask(9, &LeaseRequest::Look) else {
        panic!("no overview");
    };
    assert!(seen.queue.is_empty() && seen.given_up.iter().all(|gone| gone.id != id));
    assert_eq!(
        LeaseRefusal::GivenUp {
            by: Some("root".to_owned())
        }
        .to_string(),
        "your place in the queue was given up by root"
    );
}
