//! `-v` and `SCONCE_LOG`: what is said on standard error, and what never is.

use std::process::{Command, Stdio};

use insta::assert_snapshot;
use tempfile::TempDir;

/// A home with an empty project, and what `SCONCE_LOG` says there.
struct Home {
    folder: TempDir,
    log: Option<&'static str>,
}

impl Home {
    fn new(log: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("sconce.toml"), "").expect("room");
        Self { folder, log }
    }

    /// The exit code, standard output and standard error of `sconce` there.
    fn sconce(&self, arguments: &str) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_sconce"))
            .args(arguments.split(' '))
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .envs(self.log.map(|log| ("SCONCE_LOG", log)))
            .stdin(Stdio::null())
            .output()
            .expect("the program was built");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let code = output.status.code().expect("an exit code");
        (code, text(output.stdout), text(output.stderr))
    }
}

const RUN: &str = "run -q --host -- echo data";

/// The levels and targets of a log, line by line; everything else on standard error is an error here.
fn parse_log(log: &str) -> Vec<(&str, &str)> {
    let target = |line| {
        let mut words = str::split_ascii_whitespace(line);
        let seconds = words.next()?.parse::<f64>();
        seconds.ok().filter(|seconds| *seconds < 600.0)?;
        Some((words.next()?, words.next()?.strip_suffix(':')?))
    };
    log.lines()
        .map(|line| target(line).unwrap_or_else(|| panic!("not a line of the log: {line}")))
        .collect()
}

#[test]
fn without_being_asked_nothing_is_logged() {
    for log in [None, Some(""), Some("off")] {
        let said = Home::new(log).sconce(RUN);
        assert_eq!(said, (0, "data\n".to_owned(), String::new()), "{log:?}");
    }
}

#[test]
fn verbose_tells_decisions_beside_the_data() {
    for (arguments, lowest) in [
        (format!("-v {RUN}"), "INFO"),
        (RUN.replace("-q", "-q --verbose"), "INFO"),
        (format!("-vv {RUN}"), "DEBUG"),
    ] {
        let (code, out, err) = Home::new(None).sconce(&arguments);
        assert_eq!((code, out.as_str()), (0, "data\n"), "{err}");
        let lines = parse_log(&err);
        assert!(lines.contains(&("INFO", "sconce_run::supervise")), "{err}");
        let debugs = lines.iter().any(|(level, _)| *level == "DEBUG");
        assert_eq!(debugs, lowest == "DEBUG", "{err}");
    }
}

#[test]
fn the_variable_gives_each_part_its_level_and_the_flag_wins() {
    let home = Home::new(Some("off,sconce_host=debug"));
    let (code, out, err) = home.sconce(RUN);
    assert_eq!((code, out.as_str()), (0, "data\n"), "{err}");
    let lines = parse_log(&err);
    let of_host = |(_, target): &(&str, &str)| target.starts_with("sconce_host::");
    assert!(!lines.is_empty() && lines.iter().all(of_host), "{err}");

    let (_, _, err) = home.sconce(&format!("-v {RUN}"));
    assert!(!parse_log(&err).iter().any(of_host), "{err}");
}

#[test]
fn a_variable_that_cannot_be_followed_is_an_error() {
    let (code, out, err) = Home::new(Some("debgu")).sconce(RUN);
    assert_eq!((code, out.as_str()), (3, ""));
    assert_snapshot!(err, @r"
    error: SCONCE_LOG: `debgu` is no level
    hint: levels are error, warn, info, debug, trace and off; `sconce_store=trace,info` gives one part a level of its own
    ");
}

/// Of addresses the log shows what is no secret. Nothing is fetched: the addresses are logged before.
#[test]
fn secrets_of_addresses_are_not_logged() {
    let (_, _, err) = Home::new(None).sconce(
        "-vvv lock --offline --index https://me:hunter2@index.example.org/simple?token=hunter2 \
         --extra-index https://hunter2@extra.example.org/simple \
         --mirror http://me:hunter2@mirror.example.org/debian?hunter2",
    );
    for shown in [
        "https://index.example.org/simple?token=(masked)",
        "https://extra.example.org/simple",
        "main=http://mirror.example.org/debian ",
    ] {
        assert!(err.contains(shown), "{shown} in:\n{err}");
    }
    assert!(!err.contains("hunter2"), "{err}");
}
