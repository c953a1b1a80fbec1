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

use super::idle::UnleasedProcess;
use super::log::{decision_line, first_line, replay_lines};
use super::types::{
    AbandonedRequest, AcquireRequest, GpuSelection, Lease, LeaseEnd, LeaseEvent, LeaseGpu,
    LeaseRequest, LeaseResponse, LeaseSummary, LeaseUser, Overview, ProcessRef, QueueEntry,
    QueuedRequest,
};
use super::{ClockReading, LeaseRefusal, LeaseState, WaitReason};

const LOG: HeldBy = Golden("log.txt");
const REQUESTS: HeldBy = Golden("requests.jsonl");
const ANSWERS: HeldBy = Golden("answers.jsonl");

const TYPES: &[(&str, HeldBy)] = &[
    ("clock::ClockReading", LOG),
    ("error::LeaseRefusal", ANSWERS),
    ("idle::UnleasedProcess", Golden("outsider.json")),
    ("log::First", LOG),
    ("service::RequestEnvelope", REQUESTS),
    ("state::LeaseState", LOG),
    ("state::UserUsage", LOG),
    ("types::LeaseUser", LOG),
    ("types::ProcessRef", LOG),
    ("types::LeaseGpu", LOG),
    ("types::GpuSelection", REQUESTS),
    ("types::AcquireRequest", REQUESTS),
    ("types::LeaseRequest", REQUESTS),
    ("types::LeaseResponse", ANSWERS),
    ("types::Lease", LOG),
    ("types::QueuedRequest", LOG),
    ("types::LeaseEnd", LOG),
    ("types::LeaseEvent", LOG),
    ("types::Overview", ANSWERS),
    ("types::AbandonedRequest", ANSWERS),
    ("types::LeaseSummary", ANSWERS),
    ("types::QueueEntry", ANSWERS),
    ("wait_reason::WaitReason", ANSWERS),
];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn clock() -> ClockReading {
    ClockReading {
        wall_ms: 1_763_894_537_000,
        boot: "b".to_owned(),
        boot_ms: 5_000,
    }
}

fn person() -> LeaseUser {
    LeaseUser {
        uid: 1000,
        name: "ada".to_owned(),
        groups: vec!["ml".to_owned()],
    }
}

fn process() -> ProcessRef {
    ProcessRef {
        pid: 17,
        start_ticks: 99,
        boot: "b".to_owned(),
    }
}

fn card() -> LeaseGpu {
    LeaseGpu {
        key: "0000:01:00.0".to_owned(),
        index: 0,
        name: Some("NVIDIA H100".to_owned()),
        memory: Some(Bytes(80 << 30)),
    }
}

fn take(wanted: GpuSelection) -> AcquireRequest {
    AcquireRequest {
        wanted,
        for_ms: Some(3_600_000),
        while_alive: true,
        wait: true,
    }
}

fn wanted() -> [GpuSelection; 2] {
    let any = GpuSelection::Any {
        cards: 2,
        memory: Some(Bytes(1 << 30)),
    };
    [any, GpuSelection::These(vec![card().key])]
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

fn waiting(id: u64, wanted: GpuSelection) -> QueuedRequest {
    QueuedRequest {
        id,
        person: person(),
        take: take(wanted),
        asked_ms: 4_000,
        process: Some(process()),
    }
}

fn given_up() -> AbandonedRequest {
    AbandonedRequest {
        id: 4,
        by: "root".to_owned(),
    }
}

const ENDS: [LeaseEnd; 5] = [
    LeaseEnd::Returned,
    LeaseEnd::Over,
    LeaseEnd::ProcessEnded,
    LeaseEnd::Reboot,
    LeaseEnd::Idle,
];

fn state() -> LeaseState {
    let used = super::state::UserUsage {
        decayed: 7,
        at_ms: 8,
        blocks: BTreeMap::from([(0, 9)]),
    };
    let [any, these] = wanted();
    LeaseState {
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

fn events() -> Vec<LeaseEvent> {
    let [any, _] = wanted();
    let mut events = vec![
        LeaseEvent::Time {
            now_ms: 6_000,
            clock: clock(),
        },
        LeaseEvent::Cards(vec![card()]),
        LeaseEvent::Queued(waiting(9, any.clone())),
        LeaseEvent::Queued(waiting(10, any)),
        LeaseEvent::Left {
            id: 9,
            by: Some("root".to_owned()),
        },
        LeaseEvent::Left { id: 2, by: None },
        LeaseEvent::Granted {
            id: 10,
            cards: vec![card().key],
            until_ms: Some(9_000),
        },
        LeaseEvent::Extended {
            id: 1,
            until_ms: 10_000,
        },
        LeaseEvent::Idle {
            id: 1,
            since_ms: Some(6_000),
        },
        LeaseEvent::Idle {
            id: 1,
            since_ms: None,
        },
        LeaseEvent::Warned {
            id: 1,
            at_ms: 6_500,
        },
    ];
    let ended = ENDS.iter().enumerate().map(|(n, why)| LeaseEvent::Ended {
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
    let text = goldens().read_text("log.txt");
    let mut found = None;
    assert_eq!(replay_lines(text.as_bytes(), &mut found), Ok(text.len()));
    let mut expected = state();
    events().iter().for_each(|event| expected.apply(event));
    assert_eq!(found, Some(expected));
}

/// Every request that there is.
pub(crate) fn asks() -> Vec<LeaseRequest> {
    let mut asks: Vec<_> = wanted()
        .map(|wanted| LeaseRequest::Take(take(wanted)))
        .into();
    asks.extend([
        LeaseRequest::Extend { id: 1, by_ms: 60 },
        LeaseRequest::Return { id: 1 },
        LeaseRequest::Look,
    ]);
    asks
}

/// What is written to the socket for a request.
fn sent(ask: &LeaseRequest, listener: &UnixListener, socket: &Path) -> String {
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| super::service::send_request(socket, ask));
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        stream.get_mut().write_all(b"{\"returned\":1}\n").unwrap();
        assert_eq!(asking.join().unwrap().unwrap(), LeaseResponse::Returned(1));
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

fn reasons() -> Vec<WaitReason> {
    let user = || "ada".to_owned();
    vec![
        WaitReason::Limit {
            user: user(),
            held: 1,
            asked: 2,
            limit: 3,
        },
        WaitReason::Hours {
            user: user(),
            limit_s: 3_600,
        },
        WaitReason::Missing {
            there: 1,
            wanted: 2,
        },
        WaitReason::Held {
            free: 0,
            there: 1,
            wanted: 2,
        },
        WaitReason::Maintenance {
            begun: true,
            why: Some("new disks".to_owned()),
        },
        WaitReason::Before { user: user() },
    ]
}

fn refusals() -> Vec<LeaseRefusal> {
    let user = || "ada".to_owned();
    vec![
        LeaseRefusal::NoCards,
        LeaseRefusal::TooFew {
            wanted: 2,
            there: 1,
            memory: Some(Bytes(1 << 30)),
        },
        LeaseRefusal::NoSuchCard("7".to_owned()),
        LeaseRefusal::TooMany {
            wanted: 2,
            user: user(),
            limit: 1,
        },
        LeaseRefusal::TooLong {
            wanted_s: 2,
            limit_s: 1,
        },
        LeaseRefusal::WeekOver {
            user: user(),
            needs_s: 3,
            left_s: 2,
            limit_s: 1,
        },
        LeaseRefusal::Busy {
            start_s: Some(1),
            why: reasons().pop(),
        },
        LeaseRefusal::Maintenance {
            left_s: 1,
            why: Some("new disks".to_owned()),
        },
        LeaseRefusal::GivenUp { by: Some(user()) },
        LeaseRefusal::Awaited { user: user() },
        LeaseRefusal::NoLease { id: 1 },
        LeaseRefusal::NotYours {
            id: 1,
            user: user(),
        },
        LeaseRefusal::NoEnd { id: 1 },
        LeaseRefusal::Stranger { uid: 1001 },
        LeaseRefusal::QueueFull {
            user: user(),
            waiting: 2,
            limit: 2,
        },
        LeaseRefusal::NoProcess,
        LeaseRefusal::Crowded,
        LeaseRefusal::Unreadable("no JSON".to_owned()),
        LeaseRefusal::Service("the disk is full".to_owned()),
    ]
}

fn waiting_shown(why: Option<WaitReason>) -> QueueEntry {
    QueueEntry {
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
    let shown = LeaseSummary {
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
    let queued = |why| LeaseResponse::Queued(waiting_shown(Some(why)));
    let mut answers: Vec<_> = reasons().into_iter().map(queued).collect();
    answers.extend([
        LeaseResponse::Granted(lease()),
        LeaseResponse::Extended(lease()),
        LeaseResponse::Returned(1),
        LeaseResponse::Overview(overview()),
    ]);
    answers.extend(refusals().into_iter().map(LeaseResponse::Refused));
    goldens().assert_lines("answers.jsonl", &answers);
}

#[test]
fn outsider_is_as_before() {
    let outsider = UnleasedProcess {
        card: 0,
        pid: 17,
        uid: 1001,
        command: "python".to_owned(),
        memory: Bytes(1 << 30),
        lease: Some(1),
    };
    goldens().assert_lines("outsider.json", &[outsider]);
}
