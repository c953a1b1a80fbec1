//! What a run's processes say to each other and to `sconce ps`, `stop` and `exec`, byte for byte, in
//! `tests/golden`. An older and a newer Sconce meet on the control socket; init is the same program,
//! which an update may have replaced on the disk meanwhile.
//!
//! Held elsewhere: lines and names of logs in `logs.rs`, times in them too; names of cgroups in a
//! run's lock in `state.rs`; Docker's
//! command line in `docker/line_tests.rs`, podman's in `engine/podman.rs`, `config.json` for runc and crun
//! in `engine/bundle.rs`.

use std::ffi::OsString;
use std::time::Duration;

use sconce_schema::Bytes;
use sconce_schema::event::{Exit, ServiceState, Unenforced};
use sconce_schema::request::{Near, Network, Port};
use sconce_schema::service::{Check, Health, Restart};
use sconce_schema::units::LockedMemory;
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

use crate::Used;
use crate::control::{self, Answer, Ask, Standing, State};
use crate::own::{Own, Place};
use crate::plan::{Container, Credentials, Held, Mount, Plan, PlannedService, Restarts, Shown};
use crate::protocol::{Change, Command, Failure, Order, Report, Which};

const PLAN: HeldBy = Golden("plan.jsonl");
const REPORTS: HeldBy = Golden("init-reports.jsonl");
const ORDERS: HeldBy = Golden("init-orders.jsonl");
const QUESTIONS: HeldBy = Golden("control-requests.jsonl");
const CONTROL_ANSWERS: HeldBy = Golden("control-answers.jsonl");

const TYPES: &[(&str, HeldBy)] = &[
    ("control::Ask", QUESTIONS),
    ("control::Command", QUESTIONS),
    ("control::Answer", CONTROL_ANSWERS),
    ("control::State", CONTROL_ANSWERS),
    ("control::Standing", CONTROL_ANSWERS),
    ("lib::Used", REPORTS),
    ("own::Own", PLAN),
    ("own::Place", PLAN),
    ("plan::Plan", PLAN),
    ("plan::PlannedService", PLAN),
    ("plan::Restarts", PLAN),
    ("plan::Container", PLAN),
    ("plan::Held", PLAN),
    ("plan::Shown", PLAN),
    ("plan::Credentials", PLAN),
    ("plan::Mount", PLAN),
    ("protocol::Report", REPORTS),
    ("protocol::Order", ORDERS),
    ("protocol::Change", REPORTS),
    ("protocol::Which", REPORTS),
    ("protocol::Command", ORDERS),
    ("protocol::Failure", REPORTS),
];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(Into::into).into()
}

fn credentials() -> Credentials {
    Credentials {
        uid: 1000,
        gid: 1000,
        change: true,
        capabilities: 0xa800,
    }
}

fn service(restart: Restart, check: Check) -> PlannedService {
    PlannedService {
        name: "lab".to_owned(),
        command: words(["jupyter", "lab"]),
        env: words(["TOKEN=t"]),
        workdir: "/workspace".into(),
        credentials: Some(credentials()),
        restart,
        grace: Duration::from_millis(10_500),
        stop_signal: 15,
        health: Some(Health {
            restart: true,
            ..Health::new(check)
        }),
        after: vec!["db".to_owned()],
        output: Some(7),
    }
}

fn held(shown: Shown) -> Held {
    Held {
        name: "podman".to_owned(),
        command: words(["podman", "run"]),
        env: words(["PATH=/usr/bin"]),
        pid_file: "/state/a/engine.pid".into(),
        log: "/state/a/engine.log".into(),
        shown,
        cgroup: Some("/sys/fs/cgroup/sconce/a/engine".into()),
        short: Some(("/state/a/run".into(), "/run/s".into())),
        mounts_system: true,
    }
}

fn container(network: Network, shown: Shown) -> Container {
    Container {
        hostname: "a".to_owned(),
        layers: vec!["/store/one".into(), "/store/two".into()],
        scratch: "/state/a".into(),
        kept: true,
        shm_bytes: 1 << 20,
        network,
        home: Some("/home/sconce".to_owned()),
        shared: Some("/run/sconce".into()),
        mounts: vec![Mount {
            source: "/data".into(),
            target: "/workspace/data".into(),
            attributes: 1,
            owners: Some(0),
        }],
        links: vec![("/dev/core".to_owned(), "/proc/kcore".into())],
        credentials: credentials(),
        held: Some(held(shown)),
        owners: vec![5],
    }
}

fn plan(container: Option<Container>, services: Vec<PlannedService>) -> Plan {
    Plan {
        container,
        command: words(["python", "train.py"]),
        env: words(["A=1"]),
        workdir: "/workspace".into(),
        terminal: true,
        own: Own {
            files: Some(1_024),
            locked: Some(LockedMemory::Limited(Bytes(8 << 20))),
        },
        place: Place {
            named: Some("0-3,8".parse().unwrap()),
            near: Some(Near {
                nodes: "1".parse().unwrap(),
                cpus: Some("4-7".parse().unwrap()),
            }),
        },
        sockets: Some(3),
        output: Some(4),
        services,
        restarts: Restarts::default(),
        controlled: true,
    }
}

#[test]
fn plan_of_init_is_as_before() {
    let http = Check::Http {
        port: 8_888,
        path: "/api".to_owned(),
    };
    let services = vec![
        service(Restart::Always, Check::Command(vec!["true".to_owned()])),
        service(Restart::OnFailure, Check::Tcp(5_432)),
        service(Restart::Never, http),
        PlannedService::default(),
    ];
    let inside = |network, shown| Some(container(network, shown));
    let one = Shown::One("/sys/fs/cgroup/sconce".into());
    let least = |own| Plan {
        container: None,
        command: vec![OsString::from("true")],
        env: Vec::new(),
        workdir: "/".into(),
        terminal: false,
        own,
        place: Place::default(),
        sockets: None,
        output: None,
        services: Vec::new(),
        restarts: Restarts::default(),
        controlled: false,
    };
    goldens().assert_lines(
        "plan.jsonl",
        &[
            plan(inside(Network::Host, Shown::Everything), services),
            plan(inside(Network::None, one), Vec::new()),
            plan(inside(Network::Own, Shown::Nothing), Vec::new()),
            least(Own::default()),
            least(Own {
                files: None,
                locked: Some(LockedMemory::Unlimited),
            }),
        ],
    );
}

fn failures() -> Vec<Failure> {
    let path = || "/a".into();
    vec![
        Failure::Step {
            doing: "mount".to_owned(),
            errno: 1,
        },
        Failure::Overlay {
            layers: 2,
            scratch: path(),
            errno: 22,
        },
        Failure::Source {
            path: path(),
            errno: 2,
        },
        Failure::Target {
            path: path(),
            errno: 2,
        },
        Failure::Layer {
            path: path(),
            errno: 2,
        },
        Failure::Workdir {
            path: path(),
            errno: 2,
        },
        Failure::NotFound {
            command: "ls".to_owned(),
            searched: Some("/bin".to_owned()),
        },
        Failure::NotExecutable {
            path: path(),
            errno: 8,
        },
        Failure::Device {
            path: path(),
            major: 1,
            minor: 3,
        },
        Failure::Engine {
            name: "crun".to_owned(),
            said: Some("no".to_owned()),
        },
    ]
}

#[test]
fn reports_of_init_are_as_before() {
    let change = Change {
        service: 1,
        state: ServiceState::Restarting,
        pid: Some(17),
        starts: 2,
        exit: Some(Exit::Code(1)),
        why: Some("its check fails".to_owned()),
        again_ms: Some(2_000),
    };
    let used = Used {
        user_us: 1,
        system_us: 2,
        max_rss: Bytes(4_096),
    };
    let mut reports = vec![
        Report::Prepared(vec![Unenforced {
            what: "memory".to_owned(),
            why: "no cgroup".to_owned(),
            hint: Some("be root".to_owned()),
        }]),
        Report::Executing,
        Report::Executed,
        Report::Serving,
        Report::Service(change),
        Report::CommandStarted(3),
        Report::CommandEnded(3, Exit::Signal(9)),
        Report::Exited(Exit::Code(0), Some(used)),
        Report::Exited(Exit::Signal(15), None),
    ];
    reports.extend(failures().into_iter().map(Report::Failed));
    let of = failures().remove(0);
    reports.push(Report::CannotStart(Which::Service(1), of.clone()));
    reports.push(Report::CannotStart(Which::Command(3), of));
    goldens().assert_lines("init-reports.jsonl", &reports);
}

#[test]
fn orders_to_init_are_as_before() {
    let command = Command {
        number: 3,
        command: words(["sh", "-c", "true"]),
        env: words(["A=1"]),
        workdir: Some("/workspace".into()),
        terminal: true,
    };
    let orders = [
        Order::Go {
            tasks: 2,
            folder: true,
        },
        Order::Signal(2),
        Order::Stop {
            grace: Some(Duration::from_millis(1_500)),
        },
        Order::Stop { grace: None },
        Order::Restart(1),
        Order::Command(Box::new(command)),
        Order::SignalCommand(3, 15),
        Order::Kill,
    ];
    goldens().assert_lines("init-orders.jsonl", &orders);
}

#[test]
fn requests_to_a_run_are_as_before() {
    let command = control::Command {
        command: vec!["sh".to_owned()],
        env: vec!["A=1".to_owned()],
        workdir: Some("/workspace".into()),
        terminal: true,
    };
    let requests = [
        Ask::State,
        Ask::Stop { grace_s: Some(3) },
        Ask::Stop { grace_s: None },
        Ask::Restart {
            service: Some("lab".to_owned()),
        },
        Ask::Restart { service: None },
        Ask::Command(command),
        Ask::Signal(28),
    ];
    goldens().assert_lines("control-requests.jsonl", &requests);
}

#[test]
fn answers_of_a_run_are_as_before() {
    let port = Port {
        host_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        host: 8_080,
        container: 80,
    };
    let state = State {
        id: "a".to_owned(),
        command: true,
        stopping: true,
        services: vec![Standing {
            name: "lab".to_owned(),
            state: ServiceState::Healthy,
            state_ms: Some(5),
            starts: 1,
            exit: Some(Exit::Signal(9)),
            why: Some("again".to_owned()),
            ports: vec![port],
            links: vec!["http://127.0.0.1:8888/lab".to_owned()],
        }],
        ports: vec![port],
    };
    let answers = [
        Answer::State(state),
        Answer::Done,
        Answer::Refused("no".to_owned()),
        Answer::Started,
        Answer::CannotStart("no".to_owned(), Some("do".to_owned()), 127),
        Answer::Ended(Exit::Code(3)),
    ];
    goldens().assert_lines("control-answers.jsonl", &answers);
}
