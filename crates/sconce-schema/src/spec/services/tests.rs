use proptest::prelude::*;

use super::*;
use crate::Hint as _;
use crate::service::{HealthCheck, HealthTest};

const FULL: &str = r#"[services.jupyter]
port = 8899
folder = "notebooks"
password-hash = "argon2:$argon2id$v=19$m=10240,t=10,p=8$c2FsdA$aGFzaA"
cull-idle-minutes = 30

[services.ssh]
port = "0.0.0.0:2222:22"
keys = ["~/.ssh/id_ed25519.pub", "team.keys"]

[services.tensorboard]

[services.web]
command = ["python", "-m", "http.server", "8000"]
ports = ["8000:80", 8001]
workdir = "/data"
user = "plain"
after = ["jupyter", "worker"]
grace-s = 30
restart = "always"
stop-signal = "INT"

[services.web.health]
http = "/"
interval-s = 5
retries = 2
restart = true

[services.web.env]
LANG = "C.UTF-8"

[services.worker]
command = ["work"]

[services.worker.health]
command = ["test", "-e", "/tmp/ready"]
"#;

#[test]
fn services_are_read_and_written() {
    let spec = Spec::parse(FULL).unwrap();
    let services = &spec.services;
    let names: Vec<&str> = services.service_names().collect();
    assert_eq!(names, ["jupyter", "ssh", "tensorboard", "web", "worker"]);
    let jupyter = services.jupyter.as_ref().unwrap();
    assert_eq!(jupyter.port_or_default().to_string(), "127.0.0.1:8899:8899");
    assert_eq!(jupyter.cull_idle_minutes, Some(30));
    let ssh = services.ssh.as_ref().unwrap();
    assert_eq!(ssh.port_or_default().to_string(), "0.0.0.0:2222:22");
    let board = services.tensorboard.as_ref().unwrap();
    assert_eq!(
        (board.port_or_default(), board.logdir_or_default()),
        (on_loopback(6006), "runs")
    );
    let text = spec.to_text();
    assert_eq!(Spec::parse(&text), Ok(spec), "{text}");
    for part in FULL.split("\n\n") {
        for line in part.lines() {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

#[test]
fn a_program_becomes_a_service() {
    let spec = Spec::parse(FULL).unwrap();
    let web = spec.services.programs["web"].to_run_service("web");
    let mut expected = RunService::new(
        "web",
        ["python", "-m", "http.server", "8000"]
            .map(str::to_owned)
            .to_vec(),
    );
    expected.ports = vec![
        "8000:80".parse::<PortSpec>().unwrap().into(),
        on_loopback(8001).into(),
    ];
    expected.workdir = Some("/data".into());
    expected.user = Some(ContainerUser::Plain);
    expected.after = vec!["jupyter".to_owned(), "worker".to_owned()];
    expected.grace_s = 30;
    expected.restart = RestartPolicy::Always;
    expected.stop_signal = StopSignal::Int;
    expected.env.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    let mut health = HealthCheck::new(HealthTest::Http {
        port: 80,
        path: "/".to_owned(),
    });
    (health.interval_ms, health.retries, health.restart) = (5_000, 2, true);
    expected.health = Some(health);
    assert_eq!(web, expected);
    let worker = spec.services.programs["worker"].to_run_service("worker");
    let check = ["test", "-e", "/tmp/ready"].map(str::to_owned).to_vec();
    assert_eq!(
        worker.health,
        Some(HealthCheck::new(HealthTest::Command(check)))
    );
}

#[test]
fn the_lock_knows_which_services_there_are_and_not_how_they_are() {
    let inputs = |text: &str| Spec::parse(text).unwrap().lock_inputs();
    let none = inputs("");
    assert_eq!(none, inputs("[services.web]\ncommand = [\"a\"]"));
    let jupyter = inputs("[services.jupyter]");
    assert_ne!(none, jupyter);
    assert_eq!(jupyter, inputs("[services.jupyter]\nport = 8899"));
    assert_ne!(jupyter, inputs("[services.jupyter]\n[services.ssh]"));
    assert_ne!(inputs("[services.tensorboard]"), inputs("[services.ssh]"));
}

/// Each wrong text, its message and its hint.
#[test]
fn what_is_wrong_is_named() {
    let web = |lines: &str| format!("[services.web]\ncommand = [\"a\"]\n{lines}");
    let health = |lines: &str| web(&format!("[services.web.health]\n{lines}"));
    let cases = [
        (
            "services = 1".to_owned(),
            "line 1: invalid type: integer `1`, expected tables `[services.NAME]`",
            None,
        ),
        (
            "[services]\njupyter = true".to_owned(),
            "line 2: invalid type: boolean `true`, expected struct Jupyter",
            None,
        ),
        (
            "[services.jupyter]\nprt = 1".to_owned(),
            "line 2: there is no key `prt` here",
            Some("did you mean `port`?"),
        ),
        (
            "[services.jupyter]\ntoken = \"x\"".to_owned(),
            "line 2: there is no key `token` here",
            Some("known keys: port, folder, password-hash, cull-idle-minutes"),
        ),
        (
            "[services.ssh]\npassword = \"x\"".to_owned(),
            "line 2: there is no key `password` here",
            Some("known keys: port, keys"),
        ),
        (
            "[services.jupyter]\nport = 0".to_owned(),
            "line 2: invalid value: integer `0`, expected a port such as 8888, \"8899:8888\" or \"0.0.0.0:8888:8888\"",
            None,
        ),
        (
            "[services.ssh]\nport = 70000".to_owned(),
            "line 2: invalid value: integer `70000`, expected a port such as 8888, \"8899:8888\" or \"0.0.0.0:8888:8888\"",
            None,
        ),
        (
            "[services.ssh]\nport = \"x\"".to_owned(),
            "line 2: `x` is not a port such as 8888, 8888:80, 127.0.0.1:8888:80 or [::1]:8888:80",
            None,
        ),
        (
            "[services.jupyter]\ncull-idle-minutes = 0".to_owned(),
            "line 2: invalid value: integer `0`, expected at least 1",
            None,
        ),
        (
            "[services.jupyter]\nfolder = \"../x\"".to_owned(),
            "`services.jupyter.folder` cannot be `../x`",
            Some(FOLDER),
        ),
        (
            "[services.tensorboard]\nlogdir = \"--inspect\"".to_owned(),
            "`services.tensorboard.logdir` cannot be `--inspect`",
            Some(FOLDER),
        ),
        (
            "[services.jupyter]\npassword-hash = \"secret\"".to_owned(),
            "`services.jupyter.password-hash` cannot be `…`",
            Some("what `jupyter server password` writes, from `argon2:$argon2id$` on"),
        ),
        (
            "[services.ssh]\nkeys = [\"\"]".to_owned(),
            "`services.ssh.keys` cannot be ``",
            Some("each is a file of public keys, such as \"~/.ssh/id_ed25519.pub\""),
        ),
        (
            "[services.ssh]\n[services.jupyter]\nport = 2222".to_owned(),
            "`services.port` cannot be `2222`",
            Some("each service has a port of its own on the machine"),
        ),
        (
            "[services.jupyer]".to_owned(),
            "`services` cannot be `jupyer`",
            Some("give it a `command`; `jupyter`, `ssh` and `tensorboard` need none"),
        ),
        (
            "[services.\"a/b\"]\ncommand = [\"a\"]".to_owned(),
            "`services` cannot be `a/b`",
            Some("lower-case letters, digits, `-` and `_`, 32 at most, and not `run`"),
        ),
        (
            "[services.run]\ncommand = [\"a\"]".to_owned(),
            "`services` cannot be `run`",
            Some("lower-case letters, digits, `-` and `_`, 32 at most, and not `run`"),
        ),
        (
            web("restart = \"sometimes\""),
            "line 3: unknown variant `sometimes`, expected one of `always`, `on-failure`, `never`",
            None,
        ),
        (
            web("stop-signal = \"STOP\""),
            "line 3: `STOP` is not TERM, INT, QUIT, HUP, USR1, USR2 or KILL",
            None,
        ),
        (
            web("workdir = \"x\""),
            "`services.workdir` cannot be `x`",
            Some("an absolute path inside the container"),
        ),
        (
            web("after = [\"db\"]"),
            "`services.after` cannot be `db`",
            Some("it names services of this file"),
        ),
        (
            web("after = [\"web\"]"),
            "`services.after` cannot be `web`",
            Some("no service waits for itself, nor for one that waits for it"),
        ),
        (
            web("after = [\"b\"]\n[services.b]\ncommand = [\"b\"]\nafter = [\"web\"]"),
            "`services.after` cannot be `b`",
            Some("no service waits for itself, nor for one that waits for it"),
        ),
        (
            health(""),
            "`services.health` cannot be `nothing`",
            Some("give one of `http`, `tcp` and `command`"),
        ),
        (
            health("tcp = 1\nhttp = \"/\""),
            "`services.health` cannot be `several checks`",
            Some("give one of `http`, `tcp` and `command`"),
        ),
        (
            health("http = \"x y\"\nport = 1"),
            "`services.health.http` cannot be `x y`",
            Some("a path such as \"/health\""),
        ),
        (
            health("http = \"/\""),
            "`services.health.http` cannot be `/`",
            Some("say which `port` it asks: the service has no `ports`"),
        ),
        (
            health("tcp = 0"),
            "`services.health.port` cannot be `0`",
            Some("1 to 65535"),
        ),
        (
            health("tcp = 1\nport = 2"),
            "`services.health.port` cannot be `2`",
            Some("it goes with `http`; for a port alone write `tcp`"),
        ),
        (
            web("restart = \"never\"\n[services.web.health]\ntcp = 1\nrestart = true"),
            "`services.health.restart` cannot be `true`",
            Some("the service says `restart = \"never\"`: leave one of the two out"),
        ),
        (
            health("tcp = 1\ntimeout-s = 0"),
            "line 5: invalid value: integer `0`, expected at least 1",
            None,
        ),
        (
            health("tcp = 1\nretires = 1"),
            "line 5: there is no key `retires` here",
            Some("did you mean `retries`?"),
        ),
    ];
    for (text, message, hint) in cases {
        let error = Spec::parse(&text).expect_err(&text);
        assert_eq!(error.to_string(), message, "{text}");
        assert_eq!(error.hint().as_deref(), hint, "{text}");
    }
}

proptest! {
    #[test]
    fn no_broken_services_panic(cut in 0..FULL.len(), insert in "\\PC{0,3}") {
        let mut text = FULL.to_owned();
        if text.is_char_boundary(cut) {
            text.insert_str(cut, &insert);
        }
        if let Ok(spec) = Spec::parse(&text) {
            prop_assert_eq!(Spec::parse(&spec.to_text()), Ok(spec));
        }
    }
}
