//! The wiring of each verb, as far as it goes without a package: the built program, in folders of
//! its own, with exit code, standard output and standard error.

mod init;

use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use tempfile::TempDir;

/// A home for one test, and a project in it.
struct Home(TempDir);

impl Home {
    fn new(spec: &str) -> Self {
        let home = Self(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(home.path().join("project")).expect("room");
        std::fs::write(home.path().join("project/sconce.toml"), spec).expect("room");
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `sconce` in the project, and gives its exit code and what it printed.
    fn sconce(&self, arguments: &[&str]) -> (i32, String, String) {
        let home = self.path();
        let output = Command::new(env!("CARGO_BIN_EXE_sconce"))
            .args(arguments)
            .current_dir(home.join("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home)
            .stdin(Stdio::null())
            .output()
            .expect("the program was built");
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("text");
            text.replace(home.to_str().expect("text"), "[home]")
        };
        (
            output.status.code().expect("an exit code"),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// The same as one text, for a snapshot.
    fn said(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.sconce(arguments);
        format!("exit code {code}\n-- standard output\n{out}-- standard error\n{err}")
    }
}

#[test]
fn lock_names_what_is_wrong_with_a_spec() {
    let home = Home::new("[python]\npackges = [\"torch\"]\n");
    assert_snapshot!(home.said(&["lock"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: ./sconce.toml: line 2: there is no key `packges` here
    hint: did you mean `packages`?
    ");
}

#[test]
fn lock_check_answers() {
    let home = Home::new("");
    assert_snapshot!(home.said(&["lock", "--check"]), @r"
    exit code 1
    -- standard output
    -- standard error
    there is no lock yet: run `sconce lock`
    ");
    let (code, out, _) = home.sconce(&["lock", "--check", "--json"]);
    assert_eq!(
        (code, out.as_str()),
        (1, "{\"current\":false,\"locked\":false}\n")
    );
}

/// What people type who know other programs.
#[test]
fn a_command_without_dashes_is_told_of_them() {
    let home = Home::new("");
    std::fs::write(home.path().join("project/train.py"), "import torch\n").expect("room");
    for words in [
        &["run", "python", "train.py"][..],
        &["run", ".", "python", "train.py", "--lr", "1"],
        &["fit", "python", "train.py"],
    ] {
        let (code, _, said) = home.sconce(words);
        assert!(said.contains("after `--`"), "{words:?}: {said}");
        assert!(code == 2 || code == 3, "{words:?}: {code}");
    }
    // A program may say what it needs; this one does not.
    let (code, _, said) = home.sconce(&["run", "train.py"]);
    assert!(said.contains("`sconce run -- python train.py`"), "{said}");
    assert_eq!(code, 3);
    for words in [&["run", "--no-such-flag"][..], &["lock", ".", "python"]] {
        let (_, _, said) = home.sconce(words);
        assert!(!said.contains("after `--`"), "{words:?}: {said}");
    }
}

#[test]
fn a_folder_without_a_spec_is_named() {
    let home = Home::new("");
    assert_snapshot!(home.said(&["run", ".."]), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: there is no spec at ../sconce.toml
    hint: SPEC is a sconce.toml or the folder that has one; the current folder where nothing is given. `sconce init` writes one
    "#);
    assert_snapshot!(home.said(&["shell", "nowhere"]), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: there is no spec at nowhere
    hint: SPEC is a sconce.toml or the folder that has one, which `sconce init` writes; a command of `sconce run` stands after `--`: sconce run -- nowhere
    "#);
}

#[test]
fn a_lock_that_is_broken_or_newer_is_left_alone() {
    let home = Home::new("");
    let lock = home.path().join("project/sconce.lock");
    for text in ["version = 99\n", "hello", ""] {
        std::fs::write(&lock, text).unwrap();
        let (code, out, err) = home.sconce(&["run", "--", "true"]);
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains("[home]/project/sconce.lock"), "{err}");
        assert_eq!(std::fs::read_to_string(&lock).unwrap(), text);
    }
}

#[test]
fn a_run_on_the_host_is_recorded_and_reported() {
    let home = Home::new("");
    let (code, out, err) =
        home.sconce(&["run", "--host", "-w", "..", "--", "sh", "-c", "pwd; exit 3"]);
    assert_eq!((code, out.as_str()), (3, "[home]\n"), "{err}");
    assert!(err.contains("exit code 3"), "{err}");

    let (code, out, _) = home.sconce(&["report", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["end"]["exit_code"]), (0, &3.into()));
    let (code, out, _) = home.sconce(&["runs"]);
    assert!(code == 0 && out.contains("sh -c"), "{out}");
    // A page to standard output is the page alone, and no file of that name.
    let (code, out, err) = home.sconce(&["report", "--html", "-"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("<!doctype html>") || out.starts_with("<!DOCTYPE html>"));
    assert!(
        out.trim_end().ends_with("</html>"),
        "{}",
        &out[out.len() - 100..]
    );
    assert!(!home.path().join("project/-").exists());

    let (code, out, err) = home.sconce(&["runs", "--prune", "0"]);
    assert_eq!((code, err.as_str()), (0, "records removed: 1\n"));
    assert_eq!(out, "No run has been recorded.\n");
    assert_snapshot!(home.said(&["report"]), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: no run has been recorded in [home]/.local/state/sconce/runs
    hint: `sconce run` records one
    "#);
}

/// What cannot be named or signed is known before anything is resolved, fetched or built.
#[test]
fn a_build_that_cannot_be_named_or_signed_does_not_begin() {
    let home = Home::new("");
    assert_snapshot!(home.said(&["build", "-t", "a:1", "-t", "Bad:1"]), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: `Bad:1` cannot name an image
    hint: NAME:TAG, the name of lower-case letters, digits and `._-/`, the tag of letters, digits and `._-`
    "#);
    assert_snapshot!(home.said(&["build", "-t", "no-tag"]), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: `no-tag` cannot name an image
    hint: NAME:TAG, the name of lower-case letters, digits and `._-/`, the tag of letters, digits and `._-`
    "#);
    let push = ["build", "--push", "localhost:5000/a:1", "--sign"];
    assert_snapshot!(home.said(&[&push[..], &["none.key"]].concat()), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: cannot read none.key: No such file or directory (os error 2)
    "#);
    std::fs::write(home.path().join("project/bad.key"), "no key").unwrap();
    assert_snapshot!(home.said(&[&push[..], &["bad.key"]].concat()), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: the key file cannot be read: it has no PEM block (`-----BEGIN …-----` to `-----END …-----`)
    hint: keys of `cosign generate-key-pair` can be used: an encrypted `cosign.key`, and `cosign.pub` with its public half
    "#);
    assert!(!home.path().join("project/sconce.lock").exists());
}

#[test]
fn who_asks_for_quiet_hears_nothing_of_what_was_not_pruned() {
    let home = Home::new("");
    let nothing = "nothing was unused for 30 days\n".to_owned();
    assert_eq!(home.sconce(&["prune"]), (0, nothing, String::new()));
    assert_eq!(
        home.sconce(&["prune", "-q"]),
        (0, String::new(), String::new())
    );
    let (code, out, _) = home.sconce(&["prune", "-q", "--json"]);
    assert!(code == 0 && out.contains("\"bytes\": 0"), "{out}");
}

#[test]
fn usage_sums_runs() {
    let home = Home::new("");
    let run = home.path().join(".local/state/sconce/runs/a");
    std::fs::create_dir_all(&run).unwrap();
    // Half an hour on one card, interrupted.
    let record = r#"{"t_us":0,"event":"started","format":2,"id":"a","name":"digits","unix-ms":1795221240000,"command":["x"],"folder":"/","mode":"container","sconce-pid":1,"limits":{},"host":{"hostname":"sun","kernel":"6","cpus":2,"memory":1024},"gpus":[{"index":0,"uuid":"GPU-0","name":"NVIDIA L4"}]}
{"t_us":1800000000,"event":"sample","cpu-us":3600000000,"memory":1073741824,"gpus":[{"index":0,"utilisation-percent":25}]}
"#;
    std::fs::write(run.join("events.jsonl"), record).unwrap();
    let prices = home.path().join("project/prices.toml");
    std::fs::write(&prices, "currency = \"EUR\"\n[gpu-hour]\n\"*L4\" = 0.6\n").unwrap();
    let words = ["usage", "--since", "all", "--prices", "prices.toml"];
    assert_snapshot!(home.said(&words), @r"
    exit code 0
    -- standard output
    PROJECT  RUNS  HOURS  GPU-H HELD  USED  IDLE  CPU-H  GIB-H  KWH  COST EUR
    digits      1   0.50        0.50  0.12  75 %   1.00   0.50    –      0.30
    runs that go on or were interrupted, counted up to their last line: 1
    cards whose energy was not measured, left out: 1
    -- standard error
    ");
    let csv = [&words[..], &["--by", "card", "--csv"]].concat();
    assert_snapshot!(home.said(&csv), @r"
    exit code 0
    -- standard output
    card,runs,open_runs,wall_hours,gpu_held_hours,gpu_used_hours,idle_share,cpu_hours,memory_gib_hours,energy_wh,cost,currency
    NVIDIA L4,1,1,0.5,0.5,0.125,0.75,1,0.5,,0.3,EUR
    -- standard error
    runs that go on or were interrupted, counted up to their last line: 1
    cards whose energy was not measured, left out: 1
    ");
    let (code, out, _) = home.sconce(&[&words[..], &["--json"]].concat());
    crate::json::assert_same("usage.json", &out);
    let usage: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &usage["all"]["gpu_held_hours"]), (0, &0.5.into()));
    // Another name of the folder counts once, and one that cannot be read keeps nobody from the others.
    let runs = home.path().join(".local/state/sconce/runs");
    std::os::unix::fs::symlink(&runs, home.path().join("project/again")).unwrap();
    let several = [
        "usage",
        "--since",
        "all",
        "--csv",
        "--runs",
        "prices.toml",
        "again",
    ];
    let own = runs.to_string_lossy().into_owned();
    let (code, out, err) = home.sconce(&[&several[..], &[own.as_str()]].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\ndigits,1,"), "{out}");
    assert!(
        err.starts_with("left out: cannot read prices.toml: "),
        "{err}"
    );
    let (code, _, err) = home.sconce(&["usage", "--runs", "prices.toml"]);
    assert!(
        code != 0 && err.contains("cannot read prices.toml"),
        "{err}"
    );
    std::fs::write(&prices, "currency = \"EUR\"\nkwh = -1.0\n").unwrap();
    assert_snapshot!(home.said(&words), @r"
    exit code 3
    -- standard output
    -- standard error
    error: prices.toml is no price file: `kwh` costs -1: a price is a number from 0 on
    ");
}

#[test]
fn two_runs_are_compared() {
    let home = Home::new("");
    for command in ["true", "false"] {
        home.sconce(&["run", "--host", "-q", "--", command]);
    }
    let (_, out, _) = home.sconce(&["runs", "--json"]);
    let runs: serde_json::Value = serde_json::from_str(&out).unwrap();
    let id = |command: &str| {
        let of = |run: &&serde_json::Value| run["command"][0] == command;
        let run = runs["runs"].as_array().unwrap().iter().find(of).unwrap();
        run["id"].as_str().unwrap().to_owned()
    };
    let (code, out, err) = home.sconce(&["compare", &id("true"), &id("false")]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("command: true → false"), "{out}");
    assert!(out.contains("no training was seen in either run"), "{out}");
    let (code, out, _) = home.sconce(&["compare", "--json", &id("true"), &id("false")]);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert_eq!(found["changed"][0]["after"], "false");
    assert!(found["step_time"].is_null() && found["packages"].is_null());
    let (code, _, err) = home.sconce(&["compare", "nothing", "last"]);
    assert!(code != 0 && err.contains("nothing"), "{err}");
}

#[test]
fn a_host_run_says_what_it_cannot_do() {
    let home = Home::new("");
    assert_snapshot!(home.said(&["run", "--host", "--shm-size", "1GiB", "--", "true"]), @r#"
    exit code 2
    -- standard output
    -- standard error
    error: the argument '--host' cannot be used with '--shm-size <SIZE>'

    Usage: sconce run --host [SPEC|PROGRAM.py|IMAGE] -- <COMMAND>...

    For more information, try '--help'.
    "#);
    assert_snapshot!(home.said(&["run", "--host", "-w", "nowhere", "--", "true"]), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: cannot enter [home]/project/nowhere: No such file or directory (os error 2)
    "#);
    assert_snapshot!(home.said(&["run", "--host", "-q", "--", "no-such-command"]), @r#"
    exit code 127
    -- standard output
    -- standard error
    error: command not found: `no-such-command` (searched in /usr/bin:/bin)
    "#);
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_the_start() {
    let home = Home::new("");
    let words = [
        "run",
        "--host",
        "--json",
        "no/report.json",
        "--",
        "touch",
        "started",
    ];
    assert_snapshot!(home.said(&words), @r#"
    exit code 7
    -- standard output
    -- standard error
    error: cannot write no/report.json: No such file or directory (os error 2)
    hint: make the folder first: mkdir -p no
    "#);
    assert!(!home.path().join("project/started").exists());

    let words = [
        "run",
        "--host",
        "-q",
        "--json",
        "report.json",
        "--",
        "touch",
        "started",
    ];
    assert_eq!(home.sconce(&words).0, 0);
    let report = std::fs::read(home.path().join("project/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["run"]["command"][1], "started");
}

#[test]
fn data_that_does_not_fit_is_an_error() {
    let home = Home::new("");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(["runs", "--json"])
        .env("HOME", home.path())
        .env_remove("XDG_STATE_HOME")
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("standard output"), "{said}");
}

#[test]
fn a_run_goes_on_without_its_record() {
    let home = Home::new("");
    // No folder can be made here.
    std::fs::write(home.path().join(".local"), "").unwrap();
    let store = home.path().join("store");
    let words = [
        "--store",
        store.to_str().unwrap(),
        "run",
        "--host",
        "--",
        "sh",
        "-c",
        "exit 4",
    ];
    assert_snapshot!(home.said(&words), @r#"
    exit code 4
    -- standard output
    -- standard error
    this run is not recorded: cannot create [home]/.local/state/sconce/runs: Not a directory (os error 20)
    "#);
}

#[test]
fn an_unknown_key_of_a_configuration_is_told_once() {
    let home = Home::new("");
    let config = home.path().join(".config/sconce");
    std::fs::create_dir_all(&config).unwrap();
    let write = |text: &str| std::fs::write(config.join("config.toml"), text).unwrap();
    write(
        "mirrors = \"http://mirror.example.org\"\n[[registry-mirrors]]\nof = \"a\"\nbase = \"https://b\"\nport = 1\n",
    );
    assert_snapshot!(home.said(&["run", "--host", "-q", "--", "true"]), @r"
    exit code 0
    -- standard output
    -- standard error
    ");
    let (code, _, err) = home.sconce(&["run", "--host", "--", "true"]);
    let told = "[home]/.config/sconce/config.toml: this Sconce does not know `mirrors`, `registry-mirrors.0.port`";
    assert_eq!((code, err.matches(told).count()), (0, 1), "{err}");
    write("mirror = 3\n");
    let (code, _, err) = home.sconce(&["runs"]);
    assert!(code == 3 && err.contains("invalid type: integer"), "{err}");
}

/// A lock of two packages, as `sconce lock` writes them, with digests of nothing.
fn small_lock() -> String {
    let digest = "c1fda9e7".repeat(8);
    format!(
        "version = 2\ninputs = \"{digest}\"\n[target]\nrelease = \"debian/trixie\"\n\
         architecture = \"amd64\"\npython = \"3.13\"\n[versions]\npython = \"3.13.5-2\"\n\
         glibc = \"2.41-12\"\ntorch = \"2.5.1+cu124\"\ncuda = \"12.4\"\n\
         [[wheel]]\nname = \"torch\"\nversion = \"2.5.1+cu124\"\nfile = \"torch.whl\"\n\
         url = \"https://a.example.org/torch.whl\"\nsha256 = \"{digest}\"\n\
         [[deb]]\nname = \"libssl3t64\"\nversion = \"3.5.1-1\"\nsource = \"openssl\"\n\
         architecture = \"amd64\"\nurl = \"https://a.example.org/s.deb\"\nsize = 1\n\
         sha256 = \"{digest}\"\n"
    )
}

#[test]
fn an_audit_says_what_a_database_has_against_a_lock() {
    let home = Home::new("");
    let file = |name: &str| home.path().join("project").join(name);
    std::fs::write(file("other.lock"), small_lock()).unwrap();
    let torch = r#"{"id":"GHSA-0000-made-up01","modified":"2000-01-01T00:00:00Z","aliases":["CVE-2099-0001"],"summary":"Made up","severity":[{"type":"CVSS_V3","score":"CVSS:3.1/AV:N"}],"affected":[{"package":{"ecosystem":"PyPI","name":"torch"},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},{"fixed":"2.6.0"}]}]}]}"#;
    let openssl = r#"{"id":"DSA-9999-1","modified":"","upstream":["CVE-2099-0100"],"affected":[{"package":{"ecosystem":"Debian:13","name":"openssl"},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"}]}]}]}"#;
    std::fs::write(file("db.json"), format!("[{torch},{openssl}]")).unwrap();
    std::fs::write(file("python.jsonl"), torch).unwrap();

    let (code, out, err) = home.sconce(&["audit", "other.lock", "--db", "db.json"]);
    assert_eq!(code, 1, "{err}");
    assert_snapshot!(out, @r"
    PACKAGE  VERSION      ID                   FIXED IN
    torch    2.5.1+cu124  GHSA-0000-made-up01  2.6.0
    openssl  3.5.1-1      DSA-9999-1           –

    GHSA-0000-made-up01 torch
      Made up
      also CVE-2099-0001
      CVSS_V3 CVSS:3.1/AV:N

    DSA-9999-1 openssl (libssl3t64)
      about CVE-2099-0100
    ");
    let expected = "2 vulnerabilities, 1 with a fix, in 2 packages\n\
                    db.json: 2 entries, the newest of 2000-01-01 (";
    assert!(err.starts_with(expected), "{err}");

    let words = [
        "audit",
        "other.lock",
        "--db",
        "python.jsonl",
        "--ignore",
        "CVE-2099-0001",
    ];
    let (code, out, err) = home.sconce(&words);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.starts_with("nothing found, 1 ignored\n"), "{err}");
    let warning = "1 package from Debian not judged: no database given is about them\n";
    assert!(err.ends_with(warning), "{err}");

    let words = [
        "audit",
        "other.lock",
        "--db",
        "db.json",
        "--ignore-unfixed",
        "--json",
    ];
    let (code, out, _) = home.sconce(&words);
    crate::json::assert_same("audit.json", &out);
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &answer["findings"][0]["fixed"]),
        (1, &"2.6.0".into())
    );
    assert_eq!(answer["databases"][0]["newest"], "2000-01-01T00:00:00");
    assert_eq!(answer["findings"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_audit_needs_a_lock_and_a_database() {
    let home = Home::new("");
    assert_snapshot!(home.said(&["audit", "--db", "db.json"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: there is no lock at [home]/project/sconce.lock
    hint: `sconce lock` makes one
    ");
    std::fs::write(home.path().join("project/sconce.lock"), small_lock()).unwrap();
    let (code, _, err) = home.sconce(&["audit", "-q", "--db", "db.json"]);
    assert_eq!(code, 3);
    assert!(
        err.starts_with("error: cannot read db.json: No such file"),
        "{err}"
    );
    std::fs::write(home.path().join("project/db.json"), "{\"id\": 1}").unwrap();
    let (code, _, err) = home.sconce(&["audit", "-q", "--db", "db.json"]);
    assert_eq!(code, 3);
    let expected =
        "error: db.json is not an OSV database: entry 1 is not an OSV entry: invalid type";
    assert!(err.starts_with(expected), "{err}");
    let (_, out, _) = home.sconce(&["lock", "--check", "--json"]);
    crate::json::assert_same("lock-check.json", &out);
    assert!(
        out.contains("\"tag\":\"2.5.1-cuda12.4-py3.13-trixie\""),
        "{out}"
    );
}

#[test]
fn outdated_needs_a_lock_and_says_why_it_cannot_look() {
    let home = Home::new("[system]\nmirror = \"http://127.0.0.1:9/debian\"\n");
    assert_snapshot!(home.said(&["outdated"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: there is no lock at [home]/project/sconce.lock
    hint: `sconce lock` makes one
    ");
    let lock = home.path().join("project/sconce.lock");
    std::fs::write(&lock, small_lock()).unwrap();
    let (code, out, err) = home.sconce(&["outdated", "--offline"]);
    assert_eq!((code, out.as_str()), (5, ""), "{err}");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), small_lock());
}

#[test]
fn a_lock_is_not_made_where_that_may_not_be() {
    let home = Home::new("[system]\nmirror = \"http://127.0.0.1:9/debian\"\n");
    for verb in ["run", "build"] {
        let command: &[&str] = if verb == "run" { &["--", "true"] } else { &[] };
        for (flag, says) in [
            ("--locked", "`--locked` makes none"),
            ("--frozen", "`--frozen` makes none"),
        ] {
            let (code, _, err) = home.sconce(&[&[verb, flag], command].concat());
            assert!(code == 3 && err.contains(says), "{err}");
        }
    }
    let lock = home.path().join("project/sconce.lock");
    std::fs::write(&lock, small_lock()).unwrap();
    assert_snapshot!(home.said(&["build", "--locked"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: the spec has changed since [home]/project/sconce.lock was made, and `--locked` makes no other
    hint: make it anew with `sconce lock`; `--frozen` takes it as it is
    ");
    // It is taken; its packages are nowhere.
    let (code, _, err) = home.sconce(&["build", "--frozen", "--offline"]);
    assert!(code == 5 && err.contains("torch.whl"), "{err}");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), small_lock());
    let (code, _, err) = home.sconce(&["run", "--locked", "--frozen"]);
    assert!(code == 2 && err.contains("cannot be used with"), "{err}");
}

#[test]
fn build_writes_a_squashfs_file_or_an_image() {
    let home = Home::new("[python]\npackages = [\"torch\"]\n");
    assert_snapshot!(home.said(&["build", "--squashfs", "a.sqsh", "--oci", "b"]), @r"
    exit code 2
    -- standard output
    -- standard error
    error: the argument '--squashfs <FILE>' cannot be used with '--oci <PATH>'

    Usage: sconce build --squashfs <FILE> [SPEC]

    For more information, try '--help'.
    ");
}

#[test]
fn a_record_is_exported_whole_or_not_at_all() {
    let home = Home::new("");
    assert_eq!(home.sconce(&["run", "--host", "--", "true"]).0, 0);
    for format in ["csv", "parquet", "json", "perfetto", "tensorboard"] {
        let (code, out, err) = home.sconce(&["export", "last", "--to", format, format]);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert!(err.starts_with(&format!("written: {format}")), "{err}");
    }
    let event_file = std::fs::read_dir(home.path().join("project/tensorboard"))
        .unwrap()
        .next();
    let name = event_file
        .unwrap()
        .unwrap()
        .file_name()
        .into_string()
        .unwrap();
    assert!(name.starts_with("events.out.tfevents."), "{name}");
    let (code, out, err) = home.sconce(&["export", "last", "--to", "csv", "--table", "steps", "-"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let names = "t_us,unix_ms,pid,rank,cell,step,wall_us,data_us,rss_bytes,allocated_bytes,reserved_bytes,blocks";
    assert_eq!(out, format!("{names}\r\n"));
    assert_snapshot!(home.said(&["export", "last", "--to", "json", "--table", "steps", "-"]), @r"
    exit code 2
    -- standard output
    -- standard error
    error: json has no tables to choose from
    hint: leave --table out: everything is exported
    ");
    let (code, _, err) = home.sconce(&["export", "last", "--to", "csv", "nowhere/file"]);
    assert_eq!(code, 7, "{err}");
    let (code, _, err) = home.sconce(&["export", "last", "--to", "csv", "tensorboard"]);
    assert_eq!(code, 7, "{err}");
    let left = std::fs::read_dir(home.path().join("project")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with('.')),
        "{left:?}"
    );
}

#[test]
fn top_needs_a_terminal() {
    let home = Home::new("");
    assert_snapshot!(home.said(&["top"]), @r"
    exit code 2
    -- standard output
    -- standard error
    error: sconce top needs a terminal
    hint: `sconce report` prints what a run is doing
    ");
}
