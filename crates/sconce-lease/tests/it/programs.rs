//! Random programs, played by the leases and by the model: 2,000 of them, or as many as the
//! variable `LEASE_PROGRAMS` says (10,000 take two minutes); `LEASE_SEED` plays one again.

use std::collections::BTreeMap;

use sconce_lease::{
    AcquireRequest, ClockReading, GpuSelection, LeaseEvent, LeaseRefusal, LeaseRequest,
    LeaseResponse, LeaseState, LeaseSystem as _, Policy, build_overview, decide_request,
};
use sconce_schema::Bytes;

use crate::model::{Held, Model, Rule, Wish};
use crate::tools::{Dice, MINUTE, Played, cards, user};

const CARDS: u32 = 4;

struct Both {
    state: LeaseState,
    policy: Policy,
    world: Played,
    model: Model,
    events: Vec<LeaseEvent>,
    seed: u64,
}

/// A policy's text; its rules by user, patience and closed minutes for the model.
type PolicyTable = (String, BTreeMap<u32, Rule>, u64, Option<(u64, u64)>);

fn rules(kind: u64) -> PolicyTable {
    let rule = |cards, longest, priority| Rule {
        cards,
        longest,
        priority,
    };
    let head = "half-life = \"60m\"\n";
    match kind {
        0 => (
            format!("{head}patience = \"1d\"\n"),
            BTreeMap::new(),
            1440,
            None,
        ),
        1 => (
            format!(
                "{head}patience = \"20m\"\n[default]\ncards = 3\nlongest = \"9m\"\n\
                 [users.user2]\npriority = 3\n[users.user3]\ncards = 1\n"
            ),
            BTreeMap::from([
                (1, rule(Some(3), Some(9), 0)),
                (2, rule(Some(3), Some(9), 3)),
                (3, rule(Some(1), Some(9), 0)),
                (4, rule(Some(3), Some(9), 0)),
            ]),
            20,
            None,
        ),
        _ => (
            // The played machine begins at 2026-11-22T06:40:00Z.
            format!(
                "{head}patience = \"10m\"\n[default]\nlongest = \"12m\"\n\
                 [[maintenance]]\nfrom = 2026-11-22T07:05:00Z\nuntil = 2026-11-22T07:15:00Z\n"
            ),
            (1..=4).map(|uid| (uid, rule(None, Some(12), 0))).collect(),
            10,
            Some((25, 35)),
        ),
    }
}

impl Both {
    fn new(seed: u64) -> Self {
        let (text, rules, patience, closed) = rules(seed % 3);
        Self {
            state: LeaseState::default(),
            policy: Policy::parse(&text).unwrap(),
            world: Played::new(CARDS),
            model: Model {
                there: vec![true; CARDS as usize],
                rules,
                patience,
                closed,
                ..Model::default()
            },
            events: Vec::new(),
            seed,
        }
    }

    fn ask(&mut self, uid: u32, pid: u32, ask: &LeaseRequest) -> LeaseResponse {
        let seen = self.world.see(&self.state).unwrap();
        let process = self.world.process(pid);
        let (state, policy) = (&mut self.state, &self.policy);
        let decision = decide_request(state, policy, &seen, &user(uid), process.as_ref(), ask);
        self.events.extend(decision.events);
        decision.answer
    }

    /// What the real one counts as used is checked by itself; the model's order then takes it, so
    /// that the last bit of a sum decides nothing.
    fn settle_model(&mut self) {
        let dead = self.world.dead.lock().unwrap().clone();
        self.model
            .settle(&dead, &|uid| self.state.use_of(uid, &self.policy));
    }

    fn agree(&self, step: u64) {
        let place = format!("seed {} step {step}", self.seed);
        let key = |at: &usize| cards(CARDS)[*at].key.clone();
        let mut real: Vec<Held> = Vec::new();
        for lease in &self.state.leases {
            let at = |key: &String| cards(CARDS).iter().position(|c| c.key == *key).unwrap();
            assert_eq!(lease.since_ms % MINUTE, 0);
            real.push(Held {
                id: lease.id,
                uid: lease.person.uid,
                cards: lease.cards.iter().map(at).collect(),
                since: lease.since_ms / MINUTE,
                until: lease.until_ms.map(|until| until / MINUTE),
                pid: lease.process.as_ref().map(|process| process.pid),
            });
        }
        assert_eq!(real, self.model.held, "{place}: what is held");
        for (at, held) in real.iter().enumerate() {
            for other in &real[..at] {
                let twice = held.cards.iter().any(|card| other.cards.contains(card));
                assert!(!twice, "{place}: a card twice, {}", key(&held.cards[0]));
            }
        }
        let used = |uid| self.state.use_of(uid, &self.policy);
        for uid in 1..=4 {
            let (real, model) = (used(uid) as f64 / MINUTE as f64, self.model.used(uid));
            assert!((real - model).abs() < 0.01, "{place}: use {real} {model}");
        }
        let order = self.model.order(&used);
        let plan = self.model.plan(&order);
        let shown = build_overview(&self.state, &self.policy);
        let real: Vec<_> = shown.queue.iter().map(|w| (w.id, w.start_s)).collect();
        let start = |start: u64| shown.now_s + (start - self.model.now) * 60;
        let model: Vec<_> = plan
            .iter()
            .map(|(id, found)| (*id, found.as_ref().map(|found| start(found.0))))
            .collect();
        assert_eq!(real, model, "{place}: who waits, and until when");
        // The log tells the same.
        let mut again = LeaseState::default();
        self.events.iter().for_each(|event| again.apply(event));
        assert_eq!(again.leases, self.state.leases, "{place}");
        assert_eq!(again.waiting, self.state.waiting, "{place}");
        assert_eq!(again.used, self.state.used, "{place}");
    }

    fn take(&mut self, dice: &mut Dice, pid: u32) {
        let uid = 1 + dice.below(4) as u32;
        let count = dice.below(u64::from(CARDS) + 2) as u32;
        let large = dice.below(4) == 0;
        let while_alive = dice.below(2) == 0;
        let open = while_alive && dice.below(3) == 0;
        let minutes = (!open).then(|| 1 + dice.below(11));
        let wait = dice.below(5) > 0;
        let memory = large.then_some(Bytes::from_gib(60));
        let answer = self.ask(
            uid,
            pid,
            &LeaseRequest::Take(AcquireRequest {
                wanted: GpuSelection::Any {
                    cards: count,
                    memory,
                },
                for_ms: minutes.map(|minutes| minutes * MINUTE),
                while_alive,
                wait,
            }),
        );
        self.settle_model();
        let rule = self.model.rules.get(&uid).copied().unwrap_or_default();
        let able = (0..CARDS as usize)
            .filter(|&card| self.model.there[card] && (!large || card < CARDS as usize / 2));
        let possible = count > 0
            && count as usize <= able.count()
            && rule.cards.is_none_or(|most| count <= most)
            && minutes.is_none_or(|wish| rule.longest.is_none_or(|most| wish <= most));
        if !possible {
            let refused = matches!(
                answer,
                LeaseResponse::Refused(
                    LeaseRefusal::NoCards
                        | LeaseRefusal::TooFew { .. }
                        | LeaseRefusal::TooMany { .. }
                        | LeaseRefusal::TooLong { .. }
                )
            );
            assert!(refused, "seed {}: {answer:?}", self.seed);
            return;
        }
        let id = self.model.next;
        let before = self.model.clone();
        self.model.next += 1;
        self.model.queue.push(Wish {
            id,
            uid,
            count,
            large,
            minutes,
            asked: self.model.now,
            pid,
            while_alive,
        });
        self.model.give(&|uid| self.state.use_of(uid, &self.policy));
        let granted = self.model.held.iter().any(|held| held.id == id);
        match &answer {
            LeaseResponse::Granted(lease) => {
                assert!(granted && lease.id == id, "seed {}", self.seed)
            }
            LeaseResponse::Queued(shown) => assert!(!granted && wait && shown.id == id),
            LeaseResponse::Refused(LeaseRefusal::Busy { .. }) => {
                assert!(!granted && !wait, "seed {}", self.seed);
                self.model = before;
            }
            other => panic!("seed {}: {other:?}", self.seed),
        }
    }

    fn give_back(&mut self, dice: &mut Dice) {
        let uid = dice.below(5) as u32;
        let id = dice.below(self.model.next + 1);
        let answer = self.ask(uid, 1, &LeaseRequest::Return { id });
        self.settle_model();
        let mine = |owner: u32| uid == 0 || uid == owner;
        let held = self.model.held.iter().position(|held| held.id == id);
        let wish = self.model.queue.iter().position(|wish| wish.id == id);
        let owner = held.map(|at| self.model.held[at].uid);
        let owner = owner.or(wish.map(|at| self.model.queue[at].uid));
        match answer {
            LeaseResponse::Returned(_) => assert!(owner.is_some_and(mine)),
            LeaseResponse::Refused(LeaseRefusal::NoLease { .. }) => return assert_eq!(owner, None),
            LeaseResponse::Refused(LeaseRefusal::NotYours { .. }) => {
                return assert!(owner.is_some_and(|owner| !mine(owner)));
            }
            other => panic!("seed {}: {other:?}", self.seed),
        }
        if let Some(at) = held {
            let held = self.model.held.remove(at);
            let past = (held.uid, held.cards.len(), held.since, self.model.now);
            self.model.past.push(past);
        } else if let Some(at) = wish {
            self.model.queue.remove(at);
        }
        self.model.give(&|uid| self.state.use_of(uid, &self.policy));
    }

    fn extend(&mut self, dice: &mut Dice) {
        let id = dice.below(self.model.next + 1);
        let by = 1 + dice.below(6);
        let answer = self.ask(
            0,
            1,
            &LeaseRequest::Extend {
                id,
                by_ms: by * MINUTE,
            },
        );
        self.settle_model();
        let at = self.model.held.iter().position(|held| held.id == id);
        let until = at.and_then(|at| self.model.held[at].until);
        let (Some(at), Some(until)) = (at, until) else {
            let none = matches!(
                answer,
                LeaseResponse::Refused(LeaseRefusal::NoLease { .. } | LeaseRefusal::NoEnd { .. })
            );
            return assert!(none, "seed {}: {answer:?}", self.seed);
        };
        let longest = self.model.rules.get(&self.model.held[at].uid);
        let longest = longest.and_then(|rule| rule.longest);
        let length = until + by - self.model.held[at].since;
        let closed = self.model.closed;
        let into = closed.is_some_and(|(from, _)| until <= from && from < until + by);
        let starts = |model: &Model| -> BTreeMap<u64, u64> {
            let order = model.order(&|uid| self.state.use_of(uid, &self.policy));
            let plan = model.plan(&order).into_iter();
            plan.map(|(id, found)| (id, found.map_or(u64::MAX, |found| found.0)))
                .collect()
        };
        let mut longer = self.model.clone();
        longer.held[at].until = Some(until + by);
        let (before, after) = (starts(&self.model), starts(&longer));
        let delays = before.iter().any(|(id, start)| after[id] > *start);
        let fine = longest.is_none_or(|longest| length <= longest) && !into && !delays;
        match answer {
            LeaseResponse::Extended(_) => assert!(fine, "seed {}", self.seed),
            LeaseResponse::Refused(_) => return assert!(!fine, "seed {}", self.seed),
            other => panic!("seed {}: {other:?}", self.seed),
        }
        self.model = longer;
    }

    fn step(&mut self, dice: &mut Dice, step: u64) {
        match dice.below(13) {
            0..5 => self.take(dice, 100 + step as u32),
            5 | 6 => self.give_back(dice),
            7 => self.extend(dice),
            8 => {
                self.world.kill(100 + dice.below(step + 1) as u32);
                self.look();
            }
            9 => {
                let card = dice.below(u64::from(CARDS)) as usize;
                self.model.there[card] ^= true;
                let there = cards(CARDS).into_iter().zip(&self.model.there);
                let there = there.filter(|(_, there)| **there).map(|(card, _)| card);
                *self.world.cards.lock().unwrap() = there.collect();
                self.look();
            }
            10 if dice.below(6) == 0 => self.reboot(dice),
            _ => {
                let minutes = 1 + dice.below(4);
                // Somebody sets the wall clock now and then; it changes nothing.
                self.world.pass(minutes * MINUTE);
                self.model.now += minutes;
                self.look();
            }
        }
    }

    fn look(&mut self) {
        let answer = self.ask(1, 1, &LeaseRequest::Look);
        assert!(matches!(answer, LeaseResponse::Overview(_)));
        self.settle_model();
    }

    fn reboot(&mut self, dice: &mut Dice) {
        let off = dice.below(5);
        let before = self.model.now;
        {
            let mut clock = self.world.clock.lock().unwrap();
            *clock = ClockReading {
                wall_ms: clock.wall_ms + off * MINUTE,
                boot: format!("{}+", clock.boot),
                boot_ms: 0,
            };
        }
        self.model.now += off;
        // No process survives, and none is charged for the time off.
        let now = self.model.now;
        let ends = |held: &Held| held.pid.is_some() && held.until.is_none_or(|until| until > now);
        let gone: Vec<Held> = self
            .model
            .held
            .iter()
            .filter(|held| ends(held))
            .cloned()
            .collect();
        self.model.held.retain(|held| !ends(held));
        for held in gone {
            let past = (held.uid, held.cards.len(), held.since, before);
            self.model.past.push(past);
        }
        self.model.queue.clear();
        self.look();
    }
}

#[test]
fn random_programs_go_as_the_model_says() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text: String| text.parse::<u64>().unwrap())
    };
    let (first, count) = (
        number("LEASE_SEED"),
        number("LEASE_PROGRAMS").unwrap_or(2_000),
    );
    let seeds = first.map_or(0..count, |seed| seed..seed + 1);
    let (mut granted, mut waited) = (0_u64, 0_u64);
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let mut both = Both::new(seed);
        // Time begins with the first reading of the clocks.
        both.look();
        for step in 0..24 {
            both.step(&mut dice, step);
            both.agree(step);
        }
        let is = |event: &&LeaseEvent| matches!(event, LeaseEvent::Granted { .. });
        granted += both.events.iter().filter(is).count() as u64;
        waited += both.state.waiting.len() as u64;
    }
    assert!(
        first.is_some() || (granted > 2 * count && 2 * waited > count),
        "{granted} {waited}"
    );
}
