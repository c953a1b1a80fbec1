//! The log of the leases and what is said over the service's socket, byte for byte: a log outlives
//! the Sconce that wrote it, and a service may be older or newer than who asks it.
//!
//! Held elsewhere: the policy, which is read alone, in `policy_tests.rs`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;

use sconce_schema::Bytes;
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

use super::idle::Outsider;
use super::log::{decision_line, first_line, read};
use super::types::{
    Answer, Ask, CardFacts, End, Event, GivenUp, Lease, Overview, Person, Process, Shown, Take,
    Waiting, WaitingShown, Wanted,
};
use super::{Clock, Refusal, State, Why};

const LOG: HeldBy = Golden("log.txt");
const REQUESTS: HeldBy = Golden("requests.jsonl");
const ANSWERS: HeldBy = Golden("answers.jsonl");

const TYPES: &[(&str, HeldBy)] = &[
    ("clock::Clock", LOG),
    ("error::Refusal", ANSWERS),
    ("idle::Outsider", Golden("outsider.json")),
    ("log::First", LOG),
    ("service::Asked", REQUESTS),
    ("state::State", LOG),
    ("state::Use", LOG),
    ("types::Person", LOG),
    ("types::Process", LOG),
    ("types::CardFacts", LOG),
    ("types::Wanted", REQUESTS),
    ("types::Take", REQUESTS),
    ("types::Ask", REQUESTS),
    ("types::Answer", ANSWERS),
    ("types::Lease", LOG),
    ("types::Waiting", LOG),
    ("types::End", LOG),
    ("types::Event", LOG),
    ("types::Overview", ANSWERS),
    ("types::GivenUp", ANSWERS),
    ("types::Shown", ANSWERS),
    ("types::WaitingShown", ANSWERS),
    ("why::Why", ANSWERS),
];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn clock() -> Clock {
    Clock {
        wall_ms: 1_763_894_537_000,
        boot: "b".to_owned(),
        boot_ms: 5_000,
    }
}

fn person() -> Person {
    Person {
        uid: 1000,
        name: "ada".to_owned(),
        groups: vec!["ml".to_owned()],
    }
}

fn process() -> Process {
    Process {
        pid: 17,
        start_ticks: 99,
        boot: "b".to_owned(),
    }
}

fn card() -> CardFacts {
    CardFacts {
        key: "0000:01:00.0".to_owned(),
        index: 0,
        name: Some("NVIDIA H100".to_owned()),
        memory: Some(Bytes(80 << 30)),
    }
}

fn take(wanted: Wanted) -> Take {
    Take {
        wanted,
        for_ms: Some(3_600_000),
        while_alive: true,
        wait: true,
    }
}

fn wanted() -> [Wanted; 2] {
    let any = Wanted::Any {
        cards: 2,
        memory: Some(Bytes(1 << 30)),
    };
    [any, Wanted::These(vec![card().key])]
}

fn lease() -> Lease {
    Lease {
        id: 1,
        person: person(),
        cards: vec![card().key],
        since_ms: 1_000,
        until_ms: Some(9_000),
        process: Some(process()),
        idle_since_ms: Some(2_000),
        warned_ms: Some(3_000),
    }
}

fn waiting(id: u64, wanted: Wanted) -> Waiting {
    Waiting {
        id,
        person: person(),
        take: take(wanted),
        asked_ms: 4_000,
        process: Some(process()),
    }
}

fn given_up() -> GivenUp {
    GivenUp {
        id: 4,
        by: "root".to_owned(),
    }
}

const ENDS: [End; 5] = [
    End::Returned,
    End::Over,
    End::ProcessEnded,
    End::Reboot,
    End::Idle,
];

fn state() -> State {
    let used = super::state::Use {
        decayed: 7,
        at_ms: 8,
        blocks: BTreeMap::from([(0, 9)]),
    };
    let [any, these] = wanted();
    State {
        now_ms: 5_000,
        clock: Some(clock()),
        lost_clock_ms: Some(6),
        next: 9,
        cards: vec![card()],
        leases: vec![lease()],
        waiting: vec![waiting(2, any), waiting(3, these)],
        used: BTreeMap::from([(1000, used)]),
        last: ENDS.map(|end| (lease(), 10, end)).into(),
        given_up: vec![given_up()],
    }
}

fn events() -> Vec<Event> {
    let [any, _] = wanted();
    let mut events = vec![
        Event::Time {
            now_ms: 6_000,
            clock: clock(),
        },
        Event::Cards(vec![card()]),
        Event::Queued(waiting(9, any.clone())),
        Event::Queued(waiting(10, any)),
        Event::Left {
            id: 9,
            by: Some("root".to_owned()),
        },
        Event::Left { id: 2, by: None },
        Event::Granted {
            id: 10,
            cards: vec![card().key],
            until_ms: Some(9_000),
        },
        Event::Extended {
            id: 1,
            until_ms: 10_000,
        },
        Event::Idle {
            id: 1,
            since_ms: Some(6_000),
        },
        Event::Idle {
            id: 1,
            since_ms: None,
        },
        Event::Warned {
            id: 1,
            at_ms: 6_500,
        },
    ];
    let ended = ENDS.iter().enumerate().map(|(n, why)| Event::Ended {
        id: n as u64,
        at_ms: 7_000,
        why: *why,
        half_life_ms: 604_800_000,
    });
    events.extend(ended);
    events
}

#[test]
fn log_is_as_before_and_adds_up_to_the_same_state() {
    let mut written = first_line(&state(), 3);
    written.extend(decision_line(&events()));
    written.extend(decision_line(&[]));
    goldens().assert_same("log.txt", &written);
    let text = goldens().text("log.txt");
    let mut found = None;
    assert_eq!(read(text.as_bytes(), &mut found), Ok(text.len()));
    let mut expected = state();
    events().iter().for_each(|event| expected.apply(event));
    assert_eq!(found, Some(expected));
}

/// Every request that there is.
pub(crate) fn asks() -> Vec<Ask> {
    let mut asks: Vec<_> = wanted().map(|wanted| Ask::Take(take(wanted))).into();
    asks.extend([
        Ask::Extend { id: 1, by_ms: 60 },
        Ask::Return { id: 1 },
        Ask::Look,
    ]);
    asks
}

/// What is written to the socket for a request.
fn sent(ask: &Ask, listener: &UnixListener, socket: &Path) -> String {
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| super::service::ask(socket, ask));
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        stream.get_mut().write_all(b"{\"returned\":1}\n").unwrap();
        assert_eq!(asking.join().unwrap().unwrap(), Answer::Returned(1));
        line
    })
}

#[test]
fn requests_to_the_service_are_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let lines = asks()
        .iter()
        .map(|ask| sent(ask, &listener, &socket))
        .collect::<String>();
    goldens().assert_same("requests.jsonl", lines);
}

fn reasons() -> Vec<Why> {
    let user = || "ada".to_owned();
    vec![
        Why::Limit {
            user: user(),
            held: 1,
            asked: 2,
            limit: 3,
        },
        Why::Hours {
            user: user(),
            limit_s: 3_600,
        },
        Why::Missing {
            there: 1,
            wanted: 2,
        },
        Why::Held {
            free: 0,
            there: 1,
            wanted: 2,
        },
        Why::Maintenance {
            begun: true,
            why: Some("new disks".to_owned()),
        },
        Why::Before { user: user() },
    ]
}

fn refusals() -> Vec<Refusal> {
    let user = || "ada".to_owned();
    vec![
        Refusal::NoCards,
        Refusal::TooFew {
            wanted: 2,
            there: 1,
            memory: Some(Bytes(1 << 30)),
        },
        Refusal::NoSuchCard("7".to_owned()),
        Refusal::TooMany {
            wanted: 2,
            user: user(),
            limit: 1,
        },
        Refusal::TooLong {
            wanted_s: 2,
            limit_s: 1,
        },
        Refusal::WeekOver {
            user: user(),
            needs_s: 3,
            left_s: 2,
            limit_s: 1,
        },
        Refusal::Busy {
            start_s: Some(1),
            why: reasons().pop(),
        },
        Refusal::Maintenance {
            left_s: 1,
            why: Some("new disks".to_owned()),
        },
        Refusal::GivenUp { by: Some(user()) },
        Refusal::Awaited { user: user() },
        Refusal::NoLease { id: 1 },
        Refusal::NotYours {
            id: 1,
            user: user(),
        },
        Refusal::NoEnd { id: 1 },
        Refusal::Stranger { uid: 1001 },
        Refusal::QueueFull {
            user: user(),
            waiting: 2,
            limit: 2,
        },
        Refusal::NoProcess,
        Refusal::Crowded,
        Refusal::Unreadable("no JSON".to_owned()),
        Refusal::Service("the disk is full".to_owned()),
    ]
}

fn waiting_shown(why: Option<Why>) -> WaitingShown {
    WaitingShown {
        id: 2,
        uid: 1000,
        user: "ada".to_owned(),
        cards: 2,
        for_s: Some(3_600),
        place: 1,
        start_s: Some(1_763_894_600),
        asked_s: 1_763_894_537,
        why,
    }
}

fn overview() -> Overview {
    let shown = Shown {
        id: 1,
        uid: 1000,
        user: "ada".to_owned(),
        cards: vec![card().key],
        lost: vec!["0000:02:00.0".to_owned()],
        since_s: 1,
        until_s: Some(2),
        pid: Some(17),
        idle_s: Some(3),
        warned: true,
    };
    Overview {
        format: 1,
        now_s: 4,
        cards: vec![card()],
        leases: vec![shown],
        queue: vec![waiting_shown(None)],
        remarks: vec!["the clock went back".to_owned()],
        given_up: vec![given_up()],
    }
}

#[test]
fn answers_of_the_service_are_as_before() {
    let queued = |why| Answer::Queued(waiting_shown(Some(why)));
    let mut answers: Vec<_> = reasons().into_iter().map(queued).collect();
    answers.extend([
        Answer::Granted(lease()),
        Answer::Extended(lease()),
        Answer::Returned(1),
        Answer::Overview(overview()),
    ]);
    answers.extend(refusals().into_iter().map(Answer::Refused));
    goldens().assert_lines("answers.jsonl", &answers);
}

#[test]
fn outsider_is_as_before() {
    let outsider = Outsider {
        card: 0,
        pid: 17,
        uid: 1001,
        command: "python".to_owned(),
        memory: Bytes(1 << 30),
        lease: Some(1),
    };
    goldens().assert_lines("outsider.json", &[outsider]);
}
