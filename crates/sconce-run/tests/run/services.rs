//! Services of real runs: watched, started again, stopped, spoken to; and what goes wrong with them.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{io::Read as _, io::Write as _, net};

use rustix::process::{Pid, Signal, kill_process};
use sconce_run::control::{self, ControlRequest, ControlResponse, ServiceStatus};
use sconce_schema::RunRequest;
use sconce_schema::event::{ExitStatus, ServiceState};
use sconce_schema::request::{ContainerUser, NetworkMode, PublishedPort};
use sconce_schema::service::{HealthCheck, HealthTest, RestartPolicy, RunService};
use serde_json::Value;

use crate::bench::{
    Bench, Done, NOBODY_IN_PARTICULAR, Who, benches, eventually, helpers, helpers_of,
};

fn service(name: &str, script: &str) -> RunService {
    let words = ["sh", "-c", script].map(str::to_owned);
    RunService {
        restart: RestartPolicy::Never,
        grace_s: 1,
        ..RunService::new(name, words.to_vec())
    }
}

/// A run of services alone, in a container and without one.
fn both(bench: &Bench, services: &[RunService]) -> [RunRequest; 2] {
    [bench.script(""), bench.on_host("")].map(|request| RunRequest {
        command: Vec::new(),
        services: services.to_vec(),
        ..request
    })
}

/// A run that goes on; ended when this is dropped.
struct Started<'a> {
    bench: &'a Bench,
    request: RunRequest,
    folder: PathBuf,
    child: Option<Child>,
}

impl<'a> Started<'a> {
    fn new(bench: &'a Bench, request: &RunRequest) -> Self {
        Self::with(bench, request, &[])
    }

    fn with(bench: &'a Bench, request: &RunRequest, more: &[String]) -> Self {
        Self::by(bench.command(request, false), bench, request, more)
    }

    fn by(mut command: Command, bench: &'a Bench, request: &RunRequest, more: &[String]) -> Self {
        let folder = bench
            .folder
            .path()
            .join("events")
            .join(format!("{}.run", request.id));
        // Of an earlier run of this name.
        let _ = std::fs::remove_dir_all(&folder);
        command.arg(format!("--control={}", folder.display()));
        command.arg("--log-command").args(more);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            bench,
            request: request.clone(),
            folder,
            child: Some(command.spawn().unwrap()),
        }
    }

    fn ask(&self, ask: &ControlRequest) -> ControlResponse {
        control::send_request(&self.folder, ask).unwrap()
    }

    fn services(&self) -> Vec<ServiceStatus> {
        match control::send_request(&self.folder, &ControlRequest::State) {
            Ok(ControlResponse::State(state)) => state.services,
            _ => Vec::new(),
        }
    }

    fn until(&self, name: &str, state: ServiceState) {
        let what = format!("{name} is {state:?}");
        eventually(&what, || {
            self.services()
                .iter()
                .any(|s| s.name == name && s.state == state)
        });
    }

    fn log(&self, name: &str) -> String {
        let file = sconce_run::logs::log_path(&self.folder, name, 0);
        std::fs::read_to_string(file).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    fn finish(mut self) -> Done {
        let child = self.child.take().unwrap();
        self.bench.finish(&self.request, child)
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The states that a service had, in order.
fn states(done: &Done, name: &str) -> Vec<String> {
    let services = done.events.iter().filter_map(|event| event.get("service"));
    let own = services.filter(|service| service["name"] == name);
    own.map(|service| service["state"].as_str().unwrap().to_owned())
        .collect()
}

fn last<'a>(done: &'a Done, name: &str) -> &'a Value {
    let mut services = done.events.iter().filter_map(|event| event.get("service"));
    services.rfind(|s| s["name"] == name).unwrap()
}

#[test]
fn services_are_started_in_order_logged_and_stopped_in_turn() {
    for bench in benches() {
        let mut database = service("database", "echo first; touch $HOLD; exec sleep 100");
        let hold = bench.work().join("hold");
        let mut web = service("web", "echo second; echo problem >&2; exec sleep 100");
        web.after = vec!["database".to_owned()];
        for mut request in both(&bench, &[web.clone(), database.clone()]) {
            let inside = match request.root {
                sconce_schema::request::RunRoot::Host => hold.clone(),
                _ => {
                    request.mounts = vec![bench.work_mount(false)];
                    "/project/hold".into()
                }
            };
            let _ = std::fs::remove_file(&hold);
            database.env = [("HOLD".to_owned(), inside.to_str().unwrap().to_owned())].into();
            let look = vec![
                "test".to_owned(),
                "-e".to_owned(),
                inside.to_str().unwrap().to_owned(),
            ];
            database.health = Some(HealthCheck::new(HealthTest::Command(look)));
            request.services[1] = database.clone();
            let run = Started::new(&bench, &request);
            run.until("web", ServiceState::Running);
            assert_eq!(run.services()[1].state, ServiceState::Healthy);
            eventually("both wrote", || {
                run.log("database").ends_with("Z first\n")
                    && run.log("web").ends_with("Z problem\n")
            });
            assert_eq!(run.log("web").lines().count(), 2);
            assert_eq!(
                run.ask(&ControlRequest::Stop { grace_s: None }),
                ControlResponse::Done
            );
            let done = run.finish();
            assert_eq!(done.code, 0, "{}", done.err);
            assert_eq!(states(&done, "web"), ["running", "stopping", "ended"]);
            assert_eq!(
                states(&done, "database"),
                ["starting", "healthy", "stopping", "ended"]
            );
            let order: Vec<&str> = (done.events.iter())
                .filter_map(|event| event.get("service"))
                .filter(|service| service["state"] == "ended")
                .map(|service| service["name"].as_str().unwrap())
                .collect();
            assert_eq!(order, ["web", "database"]);
            bench.assert_clean();
        }
    }
}

#[test]
fn one_that_dies_at_its_start_is_given_up_and_says_why() {
    for bench in benches() {
        let mut dies = service("dies", "echo no >&2; exit 3");
        dies.restart = RestartPolicy::Always;
        let missing = RunService {
            restart: RestartPolicy::Always,
            env: [("PATH".to_owned(), "/bin:/usr/bin".to_owned())].into(),
            ..RunService::new("missing", vec!["no-such-program".to_owned()])
        };
        for request in both(&bench, &[dies, missing]) {
            let run = Started::new(&bench, &request);
            let folder = run.folder.clone();
            let done = run.finish();
            assert_eq!(done.code, 1, "{}", done.err);
            let told = last(&done, "dies");
            assert_eq!(
                (&told["state"], &told["starts"]),
                (&"failed".into(), &5.into())
            );
            assert_eq!(told["exit"]["code"], 3);
            assert!(told["why"].as_str().unwrap().contains("5 times"), "{told}");
            let told = last(&done, "missing");
            assert_eq!(
                (&told["state"], &told["starts"]),
                (&"failed".into(), &1.into())
            );
            let why = told["why"].as_str().unwrap();
            assert!(why.contains("not found: `no-such-program`"), "{why}");
            let log = sconce_run::logs::log_path(&folder, "dies", 0);
            assert_eq!(std::fs::read_to_string(log).unwrap().lines().count(), 5);
            assert!(!folder.join("control").exists());
            bench.assert_clean();
        }
    }
}

#[test]
fn one_that_ignores_the_request_to_end_is_killed_with_what_it_started() {
    for bench in benches() {
        let deaf = service(
            "deaf",
            "trap '' TERM; sleep 100 & echo ready; while :; do sleep 1; done",
        );
        for by_signal in [true, false] {
            for request in both(&bench, std::slice::from_ref(&deaf)) {
                let run = Started::new(&bench, &request);
                eventually("it is ready", || run.log("deaf").contains("ready"));
                match by_signal {
                    true => run.signal(Signal::TERM),
                    false => {
                        let asked = run.ask(&ControlRequest::Stop { grace_s: Some(0) });
                        assert_eq!(asked, ControlResponse::Done);
                    }
                }
                let done = run.finish();
                assert_eq!(done.code, 0, "{}", done.err);
                assert_eq!(
                    states(&done, "deaf"),
                    ["running", "stopping", "stopping", "ended"]
                );
                assert_eq!(last(&done, "deaf")["exit"]["signal"], 9);
                bench.assert_clean();
            }
        }
    }
}

#[test]
fn services_live_as_long_as_the_command() {
    for bench in benches() {
        let web = service("web", "echo up; exec sleep 100");
        for request in [
            bench.script("sleep 0.3; echo done; exit 4"),
            bench.on_host("sleep 0.3; echo done; exit 4"),
        ] {
            let request = RunRequest {
                services: vec![web.clone()],
                ..request
            };
            let run = Started::new(&bench, &request);
            let folder = run.folder.clone();
            let done = run.finish();
            assert_eq!((done.code, done.out.as_str()), (4, ""), "{}", done.err);
            let log =
                std::fs::read_to_string(sconce_run::logs::log_path(&folder, "run", 0)).unwrap();
            assert!(log.ends_with("Z done\n"), "{log}");
            assert_eq!(last(&done, "web")["state"], "ended");
            bench.assert_clean();
        }
    }
}

#[test]
fn a_restart_brings_a_new_process_and_ends_what_the_old_one_left() {
    for bench in benches() {
        let web = service("web", "sleep 100 & echo $$; exec sleep 100");
        for request in both(&bench, std::slice::from_ref(&web)) {
            let run = Started::new(&bench, &request);
            eventually("it wrote", || run.log("web").lines().count() == 1);
            let refused = run.ask(&ControlRequest::Restart {
                service: Some("nobody".to_owned()),
            });
            assert!(matches!(refused, ControlResponse::Refused(why) if why.contains("it has web")));
            assert_eq!(
                run.ask(&ControlRequest::Restart { service: None }),
                ControlResponse::Done
            );
            eventually("it was started twice", || {
                run.services()[0].starts == 2 && run.log("web").lines().count() == 2
            });
            run.ask(&ControlRequest::Stop { grace_s: None });
            let done = run.finish();
            assert_eq!(done.code, 0, "{}", done.err);
            bench.assert_clean();
        }
    }
}

#[test]
fn a_taken_port_is_said_before_anything_is_started() {
    for bench in benches() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let number = taken.local_addr().unwrap().port();
        let mut web = service("web", "exec sleep 100");
        web.ports = vec![PublishedPort {
            host_ip: "127.0.0.1".parse().unwrap(),
            host: number,
            container: number,
        }];
        for request in both(&bench, std::slice::from_ref(&web)) {
            let done = Started::new(&bench, &request).finish();
            assert_eq!(done.code, 125);
            assert!(done.err.contains(&number.to_string()), "{}", done.err);
            assert!(done.err.contains("end what listens there"), "{}", done.err);
        }
        web.ports[0].container = 1;
        let [request, _] = both(&bench, &[web]);
        let done = Started::new(&bench, &request).finish();
        assert!(done.err.contains("cannot be published"), "{}", done.err);
        bench.assert_clean();
    }
}

/// What a server on this port of the loopback sends back.
fn echoed(port: u16, text: &str) -> Option<String> {
    let mut stream = net::TcpStream::connect((net::Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.write_all(text.as_bytes()).ok()?;
    stream.shutdown(net::Shutdown::Write).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn services_of_a_network_of_their_own_are_reached_and_leave_nothing() {
    let cases = helpers().into_iter();
    for (helper, bench) in cases.flat_map(|helper| benches().into_iter().map(move |b| (helper, b)))
    {
        let free = net::TcpListener::bind((net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = free.local_addr().unwrap().port();
        drop(free);
        let mut web = service("web", "exec nc -ll -p 8888 -e cat");
        web.ports = vec![PublishedPort {
            host_ip: net::Ipv4Addr::LOCALHOST.into(),
            host,
            container: 8888,
        }];
        // Looked at from inside, where the port has another number.
        web.health = Some(HealthCheck::new(HealthTest::Tcp(8888)));
        let [mut request, _] = both(&bench, &[web]);
        request.network = NetworkMode::Own;
        let run = Started::by(bench.command_by(helper, &request), &bench, &request, &[]);
        run.until("web", ServiceState::Healthy);
        let pid = run.child.as_ref().unwrap().id();
        let had = helpers_of(pid);
        match bench.told(&request, "way-out") {
            Some(_) => assert_eq!(had.len(), 1, "{helper}"),
            None => {
                let why = format!("without a way out as {:?} with {helper}", bench.who);
                sconce_testkit::report_skip("way-out", why);
            }
        }
        eventually("an answer through the port", || {
            echoed(host, "there and back").as_deref() == Some("there and back")
        });
        assert_eq!(
            run.ask(&ControlRequest::Stop { grace_s: None }),
            ControlResponse::Done
        );
        let done = run.finish();
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(echoed(host, ""), None);
        let there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        assert_eq!(had.iter().find(|pid| there(pid)), None, "{helper} goes on");
        bench.assert_clean();
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let Some(bench) = benches().pop() else { return };
    let good = || service("web", "true");
    let with = |change: &dyn Fn(&mut RunService)| {
        let mut changed = good();
        change(&mut changed);
        vec![changed]
    };
    let other = match bench.who {
        Who::Root => None,
        Who::Plain => Some(with(&|s| s.user = Some(ContainerUser::Root))),
    };
    let wrong = [
        with(&|s| s.name = "../web".to_owned()),
        with(&|s| s.command.clear()),
        with(&|s| s.workdir = Some("here".into())),
        with(&|s| s.after = vec!["nobody".to_owned()]),
        with(&|s| s.command[2].push('\0')),
        with(&|s| s.health = Some(HealthCheck::new(HealthTest::Command(Vec::new())))),
        with(&|s| {
            let path = "/ HTTP/1.1\r\nX: y".to_owned();
            s.health = Some(HealthCheck::new(HealthTest::Http { port: 1, path }));
        }),
        vec![good(), good()],
        (0..65).map(|n| service(&format!("s{n}"), "true")).collect(),
    ];
    for services in wrong.into_iter().chain(other) {
        let [request, _] = both(&bench, &services);
        let done = bench.run(&request);
        assert_eq!(done.code, 125, "{services:?}");
    }
    bench.assert_clean();
}

#[test]
fn nobody_else_can_reach_a_run_or_read_what_it_wrote() {
    for bench in benches() {
        let mut web = service("web", "echo hello; exec sleep 100");
        web.links = vec!["http://127.0.0.1:1/?token=secret".to_owned()];
        let [request, _] = both(&bench, &[web]);
        let run = Started::new(&bench, &request);
        eventually("it wrote", || run.log("web").contains("hello"));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(&run.folder), 0o700);
        assert_eq!(mode(&run.folder.join("control")), 0o600);
        let log = sconce_run::logs::log_path(&run.folder, "web", 0);
        assert_eq!((mode(&log), mode(log.parent().unwrap())), (0o600, 0o700));
        if rustix::process::geteuid().is_root() {
            let mut look = Command::new(bench.folder.path().join("base/bin/busybox"));
            look.args(["cat"]).arg(&log).stderr(Stdio::null());
            look.uid(NOBODY_IN_PARTICULAR + 1)
                .gid(NOBODY_IN_PARTICULAR + 1);
            assert!(!look.status().unwrap().success());
        }
        run.ask(&ControlRequest::Stop { grace_s: None });
        let done = run.finish();
        assert!(!format!("{:?}", done.events).contains("secret"));
    }
}

#[test]
fn another_command_runs_in_the_sandbox_of_the_run() {
    for bench in benches() {
        let web = service("web", "exec sleep 100");
        for request in both(&bench, std::slice::from_ref(&web)) {
            let run = Started::new(&bench, &request);
            run.until("web", ServiceState::Running);
            let command = |words: &[&str]| control::ExecRequest {
                command: words.iter().map(|&word| word.to_owned()).collect(),
                env: vec!["PATH=/bin:/usr/bin".to_owned(), "GREETING=hi".to_owned()],
                workdir: Some("/tmp".into()),
                terminal: false,
            };
            let contained = !matches!(request.root, sconce_schema::request::RunRoot::Host);
            let script = match contained {
                true => {
                    "test $GREETING = hi && test $PWD = /tmp && test $(id -u) = 1000 && \
                         grep -q 'NoNewPrivs:\t1' /proc/self/status && \
                         grep -q 'CapEff:\t0000000000000000' /proc/self/status && exit 7"
                }
                false => "test $GREETING = hi && test $PWD = /tmp && exit 7",
            };
            let ended =
                control::exec_command(&run.folder, &command(&["sh", "-c", script])).unwrap();
            assert_eq!(ended, ControlResponse::Ended(ExitStatus::Code(7)));
            let ended = control::exec_command(&run.folder, &command(&["no-such-program"])).unwrap();
            assert!(
                matches!(ended, ControlResponse::CannotStart(why, _, 127) if why.contains("not found"))
            );
            run.ask(&ControlRequest::Stop { grace_s: None });
            let done = run.finish();
            assert_eq!(done.code, 0, "{}", done.err);
            bench.assert_clean();
        }
    }
}

#[test]
fn kill_9_of_sconce_ends_services_and_their_socket_answers_no_more() {
    for bench in benches() {
        for request in both(&bench, &[service("web", "exec sleep 100")]) {
            let run = Started::new(&bench, &request);
            run.until("web", ServiceState::Running);
            let folder = run.folder.clone();
            run.signal(Signal::KILL);
            run.finish();
            let gone = control::send_request(&folder, &ControlRequest::State);
            assert!(matches!(gone, Err(control::ControlError::Gone)), "{gone:?}");
            control::wait_for_end(&folder).unwrap();
            eventually("the next run cleans up", || {
                assert_eq!(bench.run(&bench.request(&["true"])).code, 0);
                std::fs::read_dir(bench.state()).unwrap().count() == 0
            });
        }
    }
}
