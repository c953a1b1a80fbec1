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

    let (_, out, _) = home.sconce(&["ps", "--json"]);
    let mut all: Value = serde_json::from_str(&out).unwrap();
    // Of the machine that this runs on.
    all["runs"][0]["cards"] = Value::Null;
    crate::json::assert_shape("ps.txt", &all);

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
fn a_service_that_ends_soon_after_its_start_is_not_called_running() {
    let script = "test -e again && exec sleep 100; touch again; sleep 0.3; exit 3";
    let spec = format!(
        "[services.slow]\ncommand = [\"sh\", \"-c\", \"sleep 0.5; exit 3\"]\nrestart = \"never\"\n\
         [services.again]\ncommand = [\"sh\", \"-c\", \"{script}\"]\n\
         [services.sick]\ncommand = [\"sleep\", \"100\"]\n\
         [services.sick.health]\ncommand = [\"false\"]\nretries = 1\nstart-period-s = 0\n\
         [services.gone]\ncommand = [\"no-such-program\"]\n"
    );
    let home = Home::new(&spec);
    let (code, out, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("running (1 restart)"), "{out}");
    let hint = "not well: gone (failed), sick (unhealthy), slow (failed). `sconce stop";
    assert!(err.contains(hint), "{err}");
    assert!(err.contains("slow: failed (exit code 3)"), "{err}");
    let (_, out, _) = home.sconce(&["ps"]);
    for row in [
        "again  ",
        "gone   ",
        "sick   ",
        "slow   ",
        "running (1 restart)",
    ] {
        assert!(out.contains(row), "{out}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_said_before_it_is_left_alone() {
    let home = Home::new("");
    let arguments = ["run", "--host", "--detach", "--", "no-such-program"];
    let (code, out, err) = home.sconce(&arguments);
    assert_eq!((code, out.as_str()), (127, ""), "{err}");
    assert!(err.contains("no-such-program"), "{err}");
    let ended = home.ps(&["--all"]);
    assert_eq!(
        (&ended[0]["running"], &ended[0]["exit_code"]),
        (&false.into(), &127.into())
    );
    // One that ends at once did begin.
    let (code, out, err) = home.sconce(&["run", "--host", "--detach", "--", "false"]);
    assert!(code == 0 && out.starts_with("false-"), "{out}{err}");
    assert_eq!(home.sconce(&["wait", out.trim()]).0, 1);
}

#[test]
fn a_run_in_a_terminal_is_meant_by_its_name_alone() {
    let home = Home::new("");
    let mut run = home.command(&["run", "--host", "--", "sleep", "100"]);
    let mut run = run.stderr(Stdio::null()).spawn().unwrap();
    eventually("it is spoken to", || {
        let id = home.ps(&[]).first().map(|run| run["id"].clone());
        id.is_some_and(|id| {
            let id = id.as_str().unwrap_or_default();
            home.sconce(&["exec", id, "--", "true"]).0 == 0
        })
    });
    let id = home.ps(&[])[0]["id"].as_str().unwrap().to_owned();
    for arguments in [&["stop"][..], &["wait"], &["logs"], &["exec", "--", "true"]] {
        let (code, _, err) = home.sconce(arguments);
        assert!(code == 3 && err.contains(&id), "{arguments:?}: {err}");
    }
    let (code, _, err) = home.sconce(&["logs", &id]);
    assert!(code == 3 && err.contains("was not kept"), "{err}");
    // One in the background is the only one that is meant.
    let (_, out, _) = home.sconce(&["run", "--host", "--detach", "--", "sleep", "100"]);
    let (code, _, err) = home.sconce(&["stop"]);
    assert!(code == 0 && err.contains(out.trim()), "{err}");
    assert!(run.try_wait().unwrap().is_none());
    let (code, _, err) = home.sconce(&["stop", &id]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(run.wait().unwrap().code(), Some(143));
}

#[test]
fn variables_of_another_command_are_passed_on_or_refused() {
    let home = Home::new("");
    let arguments = ["run", "--host", "--detach", "--", "sleep", "100"];
    assert_eq!(home.sconce(&arguments).0, 0);
    let with = |variable: &str| {
        let mut exec = home.command(&["exec", "-e", variable, "--", "env"]);
        let output = exec.env("SET", "passed on").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout) + &text(output.stderr),
        )
    };
    for (variable, line) in [("SET", "SET=passed on\n"), ("A=b=c", "A=b=c\n")] {
        let (code, text) = with(variable);
        assert!(code == Some(0) && text.contains(line), "{text}");
    }
    for wrong in ["UNSET", "1A=2", "=x"] {
        assert_eq!(with(wrong).0, Some(2), "{wrong}");
    }
}

#[test]
fn lines_have_their_names_where_one_of_two_wrote() {
    let spec = "[services.says]\ncommand = [\"echo\", \"hello\"]\n\
                [services.silent]\ncommand = [\"true\"]\n";
    let home = Home::new(spec);
    let (code, _, err) = home.sconce(&["up", "--host"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = home.sconce(&["logs"]);
    assert_eq!((code, out.as_str()), (0, "says | hello\n"), "{err}");
    let id = home.ps(&["--all"])[0]["id"].as_str().unwrap().to_owned();
    let (code, out, err) = home.sconce(&["logs", &id, "silent"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("nothing was written"), "{err}");
}

#[test]
fn what_is_not_there_has_one_exit_code() {
    let home = Home::new(SPEC);
    assert_eq!(home.sconce(&["up", "--host"]).0, 0);
    for verb in ["restart", "logs"] {
        let (code, _, err) = home.sconce(&[verb, "home", "third"]);
        assert!(code == 3 && err.contains("web"), "{verb}: {err}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, _, err) = home.sconce(&["serve", "--port", &port]);
    assert!(code == 125 && err.contains(&port), "{err}");
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

/// `script` makes a terminal and a session in it; without it the terminal is gone, as after a logout or a
/// connection that broke, and the kernel hangs up on everyone who belongs to it.
#[test]
fn a_run_in_the_background_outlives_its_terminal_and_the_session_in_it() {
    let home = Home::new("");
    let write = "while :; do echo tick; sleep 0.05; done";
    let sconce = env!("CARGO_BIN_EXE_sconce");
    let login = format!(
        "echo $$ > shell; {sconce} run --host --detach -- sh -c '{write}' > id; exec sleep 1000"
    );
    let inner = home.command(&[]);
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &login, "/dev/null"])
        .current_dir(home.0.path().join("project"))
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("Debian's bsdutils are there");
    let read = |name: &str| {
        let text = std::fs::read_to_string(home.0.path().join("project").join(name));
        text.unwrap_or_default().trim().to_owned()
    };
    eventually("the run has begun", || !read("id").is_empty());
    let shell = read("shell");
    let record = std::fs::read_to_string(home.runs().join(read("id")).join("events.jsonl"));
    let record = record.unwrap();
    let started: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    let supervisor = started["sconce-pid"].to_string();

    // state, parent, process group, session, terminal (proc_pid_stat(5))
    let stat = |pid: &str| -> Option<Vec<String>> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields = text.rsplit_once(") ")?.1.split(' ').map(str::to_owned);
        Some(fields.take(5).collect())
    };
    assert_eq!(stat(&shell).unwrap()[3], shell);
    let of = stat(&supervisor).unwrap();
    assert_eq!(
        (of[3].as_str(), of[4].as_str()),
        (supervisor.as_str(), "0"),
        "a session of its own, and no terminal"
    );

    terminal.kill().unwrap();
    terminal.wait().unwrap();
    eventually("the session is over", || {
        stat(&shell).is_none_or(|of| of[0] == "Z")
    });
    let lines = || home.sconce(&["logs"]).1.lines().count();
    let before = lines();
    eventually("it goes on and writes", || lines() > before + 5);
    assert_eq!(home.ps(&[]).len(), 1);
    assert_ne!(stat(&supervisor).unwrap()[1], shell);
    let (code, _, err) = home.sconce(&["stop"]);
    assert_eq!(code, 0, "{err}");
}

/// A run whose state is on a disk of 1 MiB, which is filled; then there is room again, or it ends so.
const FULL: &str = r#"
state=$HOME/.local/state
mkdir -p "$state"
mount -t tmpfs -o size=1m none "$state"
# The little that is left is what a record asks for at the least, and some of its lines.
head -c 850k /dev/zero >"$state/much"
text='until there is a file named stop, many lines as long as this one are written, and counted by their numbers'
id=$("$SCONCE" run --quiet --host --sample-hz 10 --detach -- sh -c '
  n=0; until test -e stop; do n=$((n + 1)); echo line $n "$0"; sleep 0.01; done; echo last; exit 4' "$text")
log=$state/sconce/runs/$id/logs/run.log
until grep -q 'line 20 ' "$log"; do sleep 0.05; done
cat /dev/zero >"$state/filler" 2>/dev/null || true
sleep 3
if [ "$1" = again ]; then
  rm "$state/filler"
  until grep -q 'missing here' "$log"; do sleep 0.05; done
fi
touch stop
code=0
"$SCONCE" wait "$id" || code=$?
echo "code $code"
"$SCONCE" report "$id" --json
"$SCONCE" report "$id" >report
"$SCONCE" ps --all >ps
cp "$log" log
"#;

fn on_a_full_disk(ends: &str) -> (Value, String, String, String) {
    let home = Home::new("");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let inner = home.command(&[]);
    let output = command
        .args(["--mount", "--propagation=private", "sh", "-e", "-c"])
        .args([FULL, "sh", ends])
        .current_dir(home.0.path().join("project"))
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("SCONCE", env!("CARGO_BIN_EXE_sconce"))
        .stdin(Stdio::null())
        .output()
        .expect("util-linux is there");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    let report = out.strip_prefix("code 4\n");
    let report = report.unwrap_or_else(|| panic!("the command's own exit code: {out}{err}"));
    let read = |name: &str| {
        std::fs::read_to_string(home.0.path().join("project").join(name)).expect("it was written")
    };
    (
        serde_json::from_str(report).expect("JSON"),
        read("report"),
        read("ps"),
        read("log"),
    )
}

#[test]
fn a_full_disk_costs_lines_and_says_so_and_never_the_run() {
    for ends in ["again", "full"] {
        let (report, shown, ps, log) = on_a_full_disk(ends);
        assert_eq!(report["end"]["exit_code"], 4, "{ends}");
        assert!(ps.contains("exit code 4"), "{ends}: {ps}");
        let lost = |what: &str| report["lost"][what].as_u64().unwrap_or_default();
        assert!(lost("lines") > 0 && lost("log_bytes") > 0, "{report}");
        let missing = format!("the disk did not take {} line", lost("lines"));
        assert!(shown.contains(&missing), "{ends}: {shown}");
        // Each line is whole, and stands by itself.
        assert!(log.ends_with('\n'), "{ends}: {log}");
        for line in log.lines() {
            let (time, text) = line.split_once(' ').unwrap();
            assert!(time.len() == 24 && time.ends_with('Z'), "{ends}: {line}");
            let known = ["line ", "last", "[sconce: "];
            assert!(known.iter().any(|word| text.starts_with(word)), "{line}");
        }
        if ends == "again" {
            let after = log
                .split_once("bytes are missing here: No space left")
                .unwrap();
            assert!(
                after.1.contains(" line ") && after.1.ends_with(" last\n"),
                "{log}"
            );
        }
    }
}
