//! Runs in the background, as a person has them: the built program, without a container, in folders
//! of its own.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A home with a project; what still goes on in it is ended when this is dropped.
struct Home(TempDir);

impl Home {
    fn new(spec: &str) -> Self {
        let home = Self(tempfile::tempdir().expect("a folder"));
        let project = home.0.path().join("project");
        std::fs::create_dir(&project).expect("room");
        std::fs::write(project.join("sconce.toml"), spec).expect("room");
        home
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sconce"));
        command
            .args(arguments)
            .current_dir(self.0.path().join("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Exit code, standard output, standard error. That this returns shows that a run in the
    /// background holds neither of the two.
    fn sconce(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(arguments).output().expect("it was built");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (
            output.status.code().unwrap_or(-1),
            text(output.stdout),
            text(output.stderr),
        )
    }

    fn ps(&self, arguments: &[&str]) -> Vec<Value> {
        let all: Vec<&str> = ["ps", "--json"].iter().chain(arguments).copied().collect();
        let (code, out, err) = self.sconce(&all);
        assert_eq!(code, 0, "{err}");
        let value: Value = serde_json::from_str(&out).expect("JSON");
        value["runs"].as_array().expect("a list").clone()
    }

    fn runs(&self) -> PathBuf {
        self.0.path().join(".local/state/sconce/runs")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for run in self.ps(&[]) {
            let id = run["id"].as_str().unwrap_or_default();
            let _ = self.sconce(&["stop", id, "--grace", "0"]);
        }
    }
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const SPEC: &str = r#"
name = "home"
[services.web]
command = ["sh", "-c", "echo hello from web; exec sleep 100"]
[services.second]
command = ["sh", "-c", "echo problem >&2; exec sleep 100"]
after = ["web"]
"#;

#[test]
fn services_go_on_in_the_background_until_they_are_stopped() {
    let home = Home::new(SPEC);
    let (code, out, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("SERVICE") && out.contains("web"), "{out}");
    let runs = home.ps(&[]);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["environment"], "home");
    let id = runs[0]["id"].as_str().unwrap().to_owned();
    let states = runs[0]["services"].as_array().unwrap();
    assert!(
        states.iter().all(|service| service["state"] == "running"),
        "{states:?}"
    );

    eventually("both wrote", || {
        let (_, out, _) = home.sconce(&["logs", "home"]);
        out.contains("web | hello from web\n") && out.contains("second | problem\n")
    });
    let (code, out, _) = home.sconce(&["logs", &id, "web", "--since", "1h"]);
    assert_eq!((code, out.as_str()), (0, "hello from web\n"));
    let (code, _, err) = home.sconce(&["logs", &id, "third"]);
    assert!(code == 3 && err.contains("second, web"), "{err}");

    let (code, out, err) = home.sconce(&["exec", "home", "--", "sh", "-c", "echo in; exit 5"]);
    assert_eq!((code, out.as_str()), (5, "in\n"), "{err}");
    let (code, _, err) = home.sconce(&["exec", "--", "no-such-program"]);
    assert!(code == 127 && err.contains("no-such-program"), "{err}");

    let (code, _, err) = home.sconce(&["restart", "home", "web"]);
    assert_eq!(code, 0, "{err}");
    eventually("web was started twice", || {
        let service = &home.ps(&[])[0]["services"];
        let web = service
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == "web");
        web.unwrap()["starts"] == 2 && web.unwrap()["state"] == "running"
    });

    let (code, _, err) = home.sconce(&["stop", "home"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(home.ps(&[]).len(), 0);
    let ended = home.ps(&["--all"]);
    assert_eq!(
        (&ended[0]["running"], &ended[0]["exit_code"]),
        (&false.into(), &0.into())
    );
    let (code, out, _) = home.sconce(&["logs", &id, "second"]);
    assert_eq!((code, out.as_str()), (0, "problem\n"));
    let (code, _, err) = home.sconce(&["stop", "home"]);
    assert!(code == 3 && err.contains("sconce ps --all"), "{err}");
    let record = std::fs::read_to_string(home.runs().join(&id).join("events.jsonl")).unwrap();
    assert!(
        record.contains(r#""event":"service","name":"web","state":"running""#),
        "{record}"
    );
    let (_, out, _) = home.sconce(&["report", &id, "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let services = report["services"].as_array().unwrap();
    let web = services.iter().find(|one| one["name"] == "web").unwrap();
    assert_eq!(
        (&web["state"], &web["starts"]),
        (&"ended".into(), &2.into())
    );
}

#[test]
fn what_runs_already_is_said_and_not_started_a_second_time() {
    let home = Home::new(SPEC);
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = home.sconce(&["up", "--host"]);
    let id = home.ps(&[])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("web") && out.contains("running"), "{out}");
    assert!(
        err.contains(&format!("{id} runs these services already, since 2")),
        "{err}"
    );
    assert!(err.contains("sconce up --another"), "{err}");
    assert_eq!(home.ps(&[]).len(), 1);
    let (code, _, err) = home.sconce(&["up", "--host", "--another"]);
    assert_eq!((code, home.ps(&[]).len()), (0, 2), "{err}");
    // A run of another folder is another one.
    let spec = home.0.path().join("project/sconce.toml");
    let other = home.0.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut elsewhere = home.command(&["up", "--host", spec.to_str().unwrap()]);
    assert!(elsewhere.current_dir(other).status().unwrap().success());
    assert_eq!(home.ps(&[]).len(), 3);
}

#[test]
fn lines_of_services_and_what_to_open_are_shown_in_the_foreground() {
    let home = Home::new(SPEC);
    let mut up = home.command(&["up", "--host", "--foreground"]);
    let mut up = up
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let mut two: Vec<String> = lines.by_ref().take(2).map(Result::unwrap).collect();
    two.sort();
    assert_eq!(two, ["second | problem", "web | hello from web"]);
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(0));
    assert_eq!(lines.count(), 0);
}

#[test]
fn what_a_service_wrote_before_it_failed_is_shown() {
    let script = "for n in $(seq 20); do echo line $n; done; echo no such table >&2; exit 3";
    let spec = format!(
        "[services.db]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nrestart = \"never\"\n\
         [services.web]\ncommand = [\"sleep\", \"100\"]\n"
    );
    let home = Home::new(&spec);
    let (code, out, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 1, "{err}");
    assert!(out.contains("failed"), "{out}");
    assert!(err.contains("db | no such table\n"), "{err}");
    assert!(
        err.contains("db | line 12\n") && !err.contains("db | line 11\n"),
        "{err}"
    );
    assert!(
        !err.contains("web |") && err.contains("sconce logs"),
        "{err}"
    );
}

/// Its check fails as soon as there is a file, which it takes away when it is started.
const HANGS: &str = r#"
[services.web]
command = ["sh", "-c", "rm -f hung; echo begun; exec sleep 100"]
[services.web.health]
command = ["sh", "-c", "! test -e hung"]
interval-s = 1
retries = 2
start-period-s = 0
restart = true
"#;

#[test]
fn a_service_that_hangs_comes_back() {
    let home = Home::new(HANGS);
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 0, "{err}");
    std::fs::write(home.0.path().join("project/hung"), "").unwrap();
    eventually("it is healthy again, in another process", || {
        let web = &home.ps(&[])[0]["services"][0];
        web["starts"] == 2 && web["state"] == "healthy"
    });
    let (_, out, _) = home.sconce(&["logs"]);
    assert_eq!(out, "begun\nbegun\n");
}

#[test]
fn a_service_that_cannot_begin_is_said() {
    let home = Home::new("[services.gone]\ncommand = [\"no-such-program\"]\n");
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 1, "{err}");
    let home = Home::new("");
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert!(code == 3 && err.contains("no services"), "{err}");
}

#[test]
fn a_taken_port_is_said_in_the_callers_terminal() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let spec = format!("[services.web]\ncommand = [\"sleep\", \"100\"]\nports = [\"{port}\"]\n");
    let home = Home::new(&spec);
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert!(code == 125 && err.contains(&port.to_string()), "{err}");
    assert_eq!(home.ps(&["--all"]).len(), 0);
}

#[test]
fn a_command_in_the_background_is_waited_for_and_its_code_passed_on() {
    let home = Home::new("");
    let script = "echo begun; read line; echo got $line; sleep 0.3; exit 6";
    let arguments = ["run", "--host", "--detach", "--", "sh", "-c", script];
    let (code, out, err) = home.sconce(&arguments);
    assert_eq!(code, 0, "{err}");
    let id = out.trim();
    let (code, out, err) = home.sconce(&["logs", "-f", id]);
    assert_eq!((code, out.as_str()), (0, "begun\ngot\n"), "{err}");
    let (code, _, err) = home.sconce(&["wait", id]);
    assert_eq!(code, 6, "{err}");
    let (code, out, _) = home.sconce(&["report", id, "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["end"]["exit_code"]), (0, &6.into()));
}

#[test]
fn a_killed_supervisor_is_told_from_a_reboot() {
    let home = Home::new(SPEC);
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 0, "{err}");
    let id = home.ps(&[])[0]["id"].as_str().unwrap().to_owned();
    let file = home.runs().join(&id).join("events.jsonl");
    let record = std::fs::read_to_string(&file).unwrap();
    let started: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    let pid = i32::try_from(started["sconce-pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let (code, _, err) = home.sconce(&["wait", &id]);
    assert!(code == 137 && err.contains("killed"), "{err}");
    let boot = started["host"]["boot-id"].as_str().unwrap();
    let record = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, record.replace(boot, "another-boot")).unwrap();
    let runs = home.ps(&["--all"]);
    let state = runs[0]["state"].as_str().unwrap();
    assert!(
        state.starts_with("ended with the machine (restarted 2"),
        "{state}"
    );
}
