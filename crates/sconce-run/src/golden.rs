//! What a run's processes say to each other and to `sconce ps`, `stop` and `exec`, byte for byte, in
//! `tests/golden`. An older and a newer Sconce meet on the control socket; init is the same program,
//! which an update may have replaced on the disk meanwhile.
//!
//! Held elsewhere: lines and names of logs in `logs.rs`, times in them too; names of cgroups in a
//! run's lock in `scratch.rs`; Docker's
//! command line in `docker/line_tests.rs`, podman's in `engine/podman.rs`, `config.json` for runc and crun
//! in `engine/bundle.rs`.

use std::ffi::OsString;
use std::time::Duration;

use sconce_schema::Bytes;
use sconce_schema::event::{ExitStatus, ServiceState, UnenforcedLimit};
use sconce_schema::request::{NetworkMode, NumaPlacement, PublishedPort};
use sconce_schema::service::{HealthCheck, HealthTest, RestartPolicy};
use sconce_schema::units::LockedMemory;
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

use crate::ResourceUsage;
use crate::control::{self, ControlRequest, ControlResponse, RunStatus, ServiceStatus};
use crate::init_config::{
    CgroupVisibility, ContainerConfig, Credentials, DelegatedRuntime, InitConfig, InitMount,
    InitService, RestartBackoff,
};
use crate::protocol::{
    ExecTask, InitFailure, InitReport, ProcessKey, ServiceChange, SupervisorRequest,
};
use crate::rlimits::{CpuPlacement, ProcessLimits};

const PLAN: HeldBy = Golden("plan.jsonl");
const REPORTS: HeldBy = Golden("init-reports.jsonl");
const ORDERS: HeldBy = Golden("init-orders.jsonl");
const QUESTIONS: HeldBy = Golden("control-requests.jsonl");
const CONTROL_ANSWERS: HeldBy = Golden("control-answers.jsonl");

const TYPES: &[(&str, HeldBy)] = &[
    ("control::ControlRequest", QUESTIONS),
    ("control::ExecRequest", QUESTIONS),
    ("control::ControlResponse", CONTROL_ANSWERS),
    ("control::RunStatus", CONTROL_ANSWERS),
    ("control::ServiceStatus", CONTROL_ANSWERS),
    ("lib::ResourceUsage", REPORTS),
    ("rlimits::ProcessLimits", PLAN),
    ("rlimits::CpuPlacement", PLAN),
    ("init_config::InitConfig", PLAN),
    ("init_config::InitService", PLAN),
    ("init_config::RestartBackoff", PLAN),
    ("init_config::ContainerConfig", PLAN),
    ("init_config::DelegatedRuntime", PLAN),
    ("init_config::CgroupVisibility", PLAN),
    ("init_config::Credentials", PLAN),
    ("init_config::InitMount", PLAN),
    ("protocol::InitReport", REPORTS),
    ("protocol::SupervisorRequest", ORDERS),
    ("protocol::ServiceChange", REPORTS),
    ("protocol::ProcessKey", REPORTS),
    ("protocol::ExecTask", ORDERS),
    ("protocol::InitFailure", REPORTS),
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

fn service(restart: RestartPolicy, check: HealthTest) -> InitService {
    InitService {
        name: "lab".to_owned(),
        command: words(["jupyter", "lab"]),
        env: words(["TOKEN=t"]),
        workdir: "/workspace".into(),
        credentials: Some(credentials()),
        restart,
        grace: Duration::from_millis(10_500),
        stop_signal: 15,
        health: Some(HealthCheck {
            restart: true,
            ..HealthCheck::new(check)
        }),
        after: vec!["db".to_owned()],
        output: Some(7),
    }
}

fn held(shown: CgroupVisibility) -> DelegatedRuntime {
    DelegatedRuntime {
        name: "podman".to_owned(),
        command: words(["podman", "run"]),
        env: words(["PATH=/usr/bin"]),
        pid_file: "/state/a/engine.pid".into(),
        is_parent: true,
        log: "/state/a/engine.log".into(),
        shown,
        cgroup: Some("/sys/fs/cgroup/sconce/a/engine".into()),
        short: Some(("/state/a/run".into(), "/run/s".into())),
        mounts_system: true,
    }
}

fn container(network: NetworkMode, shown: CgroupVisibility) -> ContainerConfig {
    ContainerConfig {
        hostname: "a".to_owned(),
        layers: vec!["/store/one".into(), "/store/two".into()],
        scratch: "/state/a".into(),
        kept: true,
        shm_bytes: 1 << 20,
        network,
        address: Some([10, 0, 0, 7].into()),
        home: Some("/home/sconce".to_owned()),
        shared: Some("/run/sconce".into()),
        mounts: vec![InitMount {
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

fn plan(container: Option<ContainerConfig>, services: Vec<InitService>) -> InitConfig {
    InitConfig {
        container,
        command: words(["python", "train.py"]),
        env: words(["A=1"]),
        workdir: "/workspace".into(),
        terminal: true,
        own: ProcessLimits {
            files: Some(1_024),
            locked: Some(LockedMemory::Limited(Bytes(8 << 20))),
            processes: Some(512),
        },
        place: CpuPlacement {
            named: Some("0-3,8".parse().unwrap()),
            near: Some(NumaPlacement {
                nodes: "1".parse().unwrap(),
                cpus: Some("4-7".parse().unwrap()),
            }),
        },
        sockets: Some(3),
        output: Some(4),
        relayed: Some((6, true)),
        services,
        restarts: RestartBackoff::default(),
        controlled: true,
    }
}

#[test]
fn plan_of_init_is_as_before() {
    let http = HealthTest::Http {
        port: 8_888,
        path: "/api".to_owned(),
    };
    let services = vec![
        service(
            RestartPolicy::Always,
            HealthTest::Command(vec!["true".to_owned()]),
        ),
        service(RestartPolicy::OnFailure, HealthTest::Tcp(5_432)),
        service(RestartPolicy::Never, http),
        InitService::default(),
    ];
    let inside = |network, shown| Some(container(network, shown));
    let one = CgroupVisibility::One("/sys/fs/cgroup/sconce".into());
    let least = |own| InitConfig {
        container: None,
        command: vec![OsString::from("true")],
        env: Vec::new(),
        workdir: "/".into(),
        terminal: false,
        own,
        place: CpuPlacement::default(),
        sockets: None,
        output: None,
        relayed: None,
        services: Vec::new(),
        restarts: RestartBackoff::default(),
        controlled: false,
    };
    goldens().assert_lines(
        "plan.jsonl",
        &[
            plan(
                inside(NetworkMode::Host, CgroupVisibility::Everything),
                services,
            ),
            plan(inside(NetworkMode::None, one), Vec::new()),
            plan(
                inside(NetworkMode::Own, CgroupVisibility::Nothing),
                Vec::new(),
            ),
            least(ProcessLimits::default()),
            least(ProcessLimits {
                files: None,
                locked: Some(LockedMemory::Unlimited),
                processes: None,
            }),
        ],
    );
}

fn failures() -> Vec<InitFailure> {
    let path = || "/a".into();
    vec![
        InitFailure::Step {
            doing: "mount".to_owned(),
            errno: 1,
        },
        InitFailure::Overlay {
            layers: 2,
            scratch: path(),
            errno: 22,
        },
        InitFailure::Source {
            path: path(),
            errno: 2,
        },
        InitFailure::Target {
            path: path(),
            errno: 2,
        },
        InitFailure::Layer {
            path: path(),
            errno: 2,
        },
        InitFailure::Workdir {
            path: path(),
            errno: 2,
        },
        InitFailure::NotFound {
            command: "ls".to_owned(),
            searched: Some("/bin".to_owned()),
        },
        InitFailure::NotExecutable {
            path: path(),
            errno: 8,
        },
        InitFailure::Device {
            path: path(),
            major: 1,
            minor: 3,
        },
        InitFailure::Engine {
            name: "crun".to_owned(),
            said: Some("no".to_owned()),
        },
    ]
}

#[test]
fn reports_of_init_are_as_before() {
    let change = ServiceChange {
        service: 1,
        state: ServiceState::Restarting,
        pid: Some(17),
        starts: 2,
        exit: Some(ExitStatus::Code(1)),
        why: Some("its check fails".to_owned()),
        again_ms: Some(2_000),
    };
    let used = ResourceUsage {
        user_us: 1,
        system_us: 2,
        max_rss: Bytes(4_096),
    };
    let mut reports = vec![
        InitReport::Prepared(vec![UnenforcedLimit {
            what: "memory".to_owned(),
            why: "no cgroup".to_owned(),
            hint: Some("be root".to_owned()),
        }]),
        InitReport::Executing,
        InitReport::Executed,
        InitReport::Serving,
        InitReport::Service(change),
        InitReport::CommandStarted(3),
        InitReport::CommandEnded(3, ExitStatus::Signal(9)),
        InitReport::Exited(ExitStatus::Code(0), Some(used)),
        InitReport::Exited(ExitStatus::Signal(15), None),
    ];
    reports.extend(failures().into_iter().map(InitReport::Failed));
    let of = failures().remove(0);
    reports.push(InitReport::CannotStart(ProcessKey::Service(1), of.clone()));
    reports.push(InitReport::CannotStart(ProcessKey::Command(3), of));
    goldens().assert_lines("init-reports.jsonl", &reports);
}

#[test]
fn orders_to_init_are_as_before() {
    let command = ExecTask {
        number: 3,
        command: words(["sh", "-c", "true"]),
        env: words(["A=1"]),
        workdir: Some("/workspace".into()),
        terminal: true,
    };
    let orders = [
        SupervisorRequest::Go {
            tasks: 2,
            folder: true,
        },
        SupervisorRequest::Signal(2),
        SupervisorRequest::Stop {
            grace: Some(Duration::from_millis(1_500)),
        },
        SupervisorRequest::Stop { grace: None },
        SupervisorRequest::Restart(1),
        SupervisorRequest::Command(Box::new(command)),
        SupervisorRequest::SignalCommand(3, 15),
        SupervisorRequest::Kill,
    ];
    goldens().assert_lines("init-orders.jsonl", &orders);
}

#[test]
fn requests_to_a_run_are_as_before() {
    let command = control::ExecRequest {
        command: vec!["sh".to_owned()],
        env: vec!["A=1".to_owned()],
        workdir: Some("/workspace".into()),
        terminal: true,
    };
    let requests = [
        ControlRequest::State,
        ControlRequest::Stop { grace_s: Some(3) },
        ControlRequest::Stop { grace_s: None },
        ControlRequest::Restart {
            service: Some("lab".to_owned()),
        },
        ControlRequest::Restart { service: None },
        ControlRequest::Command(command),
        ControlRequest::Signal(28),
    ];
    goldens().assert_lines("control-requests.jsonl", &requests);
}

#[test]
fn answers_of_a_run_are_as_before() {
    let port = PublishedPort {
        host_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        host: 8_080,
        container: 80,
    };
    let state = RunStatus {
        id: "a".to_owned(),
        command: true,
        stopping: true,
        services: vec![ServiceStatus {
            name: "lab".to_owned(),
            state: ServiceState::Healthy,
            state_ms: Some(5),
            starts: 1,
            exit: Some(ExitStatus::Signal(9)),
            why: Some("again".to_owned()),
            ports: vec![port],
            links: vec!["http://127.0.0.1:8888/lab".to_owned()],
        }],
        ports: vec![port],
    };
    let answers = [
        ControlResponse::State(state),
        ControlResponse::Done,
        ControlResponse::Refused("no".to_owned()),
        ControlResponse::Started,
        ControlResponse::CannotStart("no".to_owned(), Some("do".to_owned()), 127),
        ControlResponse::Ended(ExitStatus::Code(3)),
    ];
    goldens().assert_lines("control-answers.jsonl", &answers);
}
