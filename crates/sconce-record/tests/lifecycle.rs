//! Records on a real file system: written, killed, listed, found, let go.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sconce_record::{
    FILE, RecordError, RecordWriter, RunState, list_runs, open_record, prune_runs, resolve_run,
};
use sconce_schema::Hint;
use sconce_schema::event::{
    Containment, ExitStatus, HostSummary, RecordEvent, RunEnded, RunStarted, Sample,
};
use sconce_schema::request::RunLimits;

fn started(id: &str, unix_ms: u64) -> RunStarted {
    RunStarted {
        format: sconce_schema::event::FORMAT,
        id: id.to_owned(),
        name: Some("digits".to_owned()),
        unix_ms,
        command: vec!["python".to_owned(), "train.py".to_owned()],
        folder: PathBuf::from("/home/ada/digits"),
        mode: Containment::Container,
        sconce_pid: std::process::id(),
        limits: RunLimits::default(),
        near: None,
        network: None,
        way_out: None,
        runtime: None,
        containment: None,
        node_network: None,
        versions: None,
        plan: None,
        host: HostSummary::default(),
        gpus: Vec::new(),
    }
}

fn sample(cpu_us: u64) -> RecordEvent {
    RecordEvent::Sample(Box::new(Sample {
        cpu_us: Some(cpu_us),
        ..Sample::default()
    }))
}

fn ended() -> RecordEvent {
    RecordEvent::Ended(RunEnded {
        exit: ExitStatus::Code(3),
        last: Box::default(),
        out_of_memory: None,
        largest_process: None,
        lost: None,
    })
}

/// A run that has ended.
fn finished(dir: &Path, id: &str, unix_ms: u64) {
    let mut writer =
        RecordWriter::create(dir, &started(id, unix_ms)).expect("the folder is writable");
    writer
        .write_event(1_000_000, &sample(900_000))
        .expect("there is room");
    writer
        .write_event(2_000_000, &ended())
        .expect("there is room");
}

#[test]
fn a_record_is_private_and_whole_at_every_moment() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("state/runs");
    let mut writer = RecordWriter::create(&dir, &started("digits-1", 1)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("digits-1")), 0o700);
    assert_eq!(mode(writer.path()), 0o600);
    assert_eq!(writer.path(), dir.join("digits-1").join(FILE));

    for n in 1..=3 {
        let before = open_record(writer.path()).unwrap();
        assert!(before.running);
        assert_eq!(before.count() as u64, n - 1);
        writer.write_event(n, &sample(n)).unwrap();
    }
    assert_eq!(list_runs(&dir).unwrap().runs[0].state, RunState::Running);
    writer.write_event(4, &ended()).unwrap();
    assert_eq!(list_runs(&dir).unwrap().runs[0].state, RunState::Ended);
    assert_eq!(writer.lost_event_count(), 0);
    drop(writer);

    let record = open_record(&dir.join("digits-1")).unwrap();
    assert!(!record.running);
    assert_eq!(record.started, started("digits-1", 1));
    assert_eq!(record.last().unwrap().unwrap().event, ended());
}

#[test]
fn an_id_is_taken_once_and_must_be_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let _first = RecordWriter::create(dir.path(), &started("a", 1)).unwrap();
    let again = RecordWriter::create(dir.path(), &started("a", 2)).unwrap_err();
    assert!(matches!(again, RecordError::Taken { .. }), "{again}");
    // The first one's record is as it was.
    assert_eq!(
        open_record(&dir.path().join("a")).unwrap().started.unix_ms,
        1
    );
    for id in ["", ".", "..", "../b", "/b", ".b", "b\u{1b}[2J"] {
        let error = RecordWriter::create(dir.path(), &started(id, 1)).unwrap_err();
        assert!(matches!(error, RecordError::BadId { .. }), "{id:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Not a test: the program that the next test kills.
#[test]
#[ignore = "started by `a_kill_leaves_an_interrupted_run`"]
fn writes_until_killed() {
    let Some(dir) = std::env::var_os("SCONCE_TEST_RUNS") else {
        return;
    };
    let mut writer = RecordWriter::create(Path::new(&dir), &started("killed", 5)).unwrap();
    let mut out = std::io::stdout();
    for n in 1.. {
        writer.write_event(n, &sample(n)).unwrap();
        if n == 100 {
            writeln!(out, "\nwritten").unwrap();
        }
    }
}

#[test]
fn a_kill_leaves_an_interrupted_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["writes_until_killed", "--exact", "--ignored", "--nocapture"])
        .env("SCONCE_TEST_RUNS", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "written"));
    assert_eq!(
        list_runs(dir.path()).unwrap().runs[0].state,
        RunState::Running
    );
    child.kill().unwrap();
    child.wait().unwrap();

    let run = list_runs(dir.path()).unwrap().runs.remove(0);
    assert_eq!(run.state, RunState::Interrupted);
    // Every line that was written is whole: one write a line.
    let read: Vec<_> = open_record(&run.path)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(read.len() >= 100);
    assert_eq!(run.last.as_ref(), read.last());
}

#[test]
fn the_newest_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    for (id, unix_ms) in [
        ("a-20260101-0000-0001", 30),
        ("b", 20),
        ("c", 40),
        ("d", 10),
    ] {
        finished(dir.path(), id, unix_ms);
    }
    fs::create_dir(dir.path().join("half-made")).unwrap();
    fs::create_dir(dir.path().join("broken")).unwrap();
    fs::write(dir.path().join("broken").join(FILE), "hello\n").unwrap();
    fs::write(dir.path().join("a file"), "hello\n").unwrap();

    let listing = list_runs(dir.path()).unwrap();
    let ids: Vec<&str> = (listing.runs.iter().map(|run| run.started.id.as_str())).collect();
    assert_eq!(ids, ["c", "a-20260101-0000-0001", "b", "d"]);
    assert_eq!(listing.unreadable.len(), 1);
    assert!(
        listing.unreadable[0]
            .to_string()
            .contains("broken/events.jsonl")
    );
    assert!(list_runs(&dir.path().join("none")).unwrap().runs.is_empty());
}

#[test]
fn runs_are_found_by_what_people_type() {
    let dir = tempfile::tempdir().unwrap();
    let ids = [
        "digits-20261121-0034-7f3a",
        "digits-20261122-0900-0001",
        "resnet-20261120-0100-abcd",
    ];
    for (n, id) in ids.iter().enumerate() {
        finished(dir.path(), id, n as u64);
    }
    let found = |which: &str| {
        resolve_run(dir.path(), which).map(|path| {
            let id = path.parent().unwrap().file_name().unwrap();
            id.to_str().unwrap().to_owned()
        })
    };
    assert_eq!(found("last").unwrap(), ids[2]);
    assert_eq!(found(ids[0]).unwrap(), ids[0]);
    assert_eq!(found("res").unwrap(), ids[2]);
    assert_eq!(found("digits-20261122").unwrap(), ids[1]);

    let many = found("digits").unwrap_err();
    assert_eq!(many.to_string(), "`digits` is the beginning of 2 runs");
    assert!(
        many.hint()
            .unwrap()
            .contains("`digits-20261122-0900-0001`, `digits-20261121")
    );
    let near = found("resnt").unwrap_err();
    assert_eq!(near.hint().unwrap(), format!("did you mean `{}`?", ids[2]));
    let far = found("../../../etc/passwd").unwrap_err();
    assert!(matches!(&far, RecordError::NotFound { nearest, .. } if nearest.is_empty()));
    assert!(far.hint().is_some());

    let none = resolve_run(&dir.path().join("none"), "last").unwrap_err();
    assert!(matches!(none, RecordError::NoRuns { .. }), "{none}");
}

#[test]
fn old_runs_go_and_running_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let _running = RecordWriter::create(dir.path(), &started("running", 0)).unwrap();
    for n in 1..=5 {
        finished(dir.path(), &format!("run-{n}"), n);
    }
    let broken = dir.path().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join(FILE), "hello\n").unwrap();
    let left = || -> Vec<String> {
        let runs = list_runs(dir.path()).unwrap().runs.into_iter();
        runs.map(|run| run.started.id).collect()
    };
    assert_eq!(prune_runs(dir.path(), 5).unwrap(), [""; 0]);
    assert_eq!(
        prune_runs(dir.path(), 2).unwrap(),
        ["run-3", "run-2", "run-1"]
    );
    assert_eq!(left(), ["run-5", "run-4", "running"]);
    assert_eq!(prune_runs(dir.path(), 0).unwrap(), ["run-5", "run-4"]);
    assert_eq!(left(), ["running"]);
    assert!(broken.exists());
    assert!(prune_runs(&dir.path().join("none"), 0).unwrap().is_empty());
}

#[test]
fn the_end_of_a_long_log_is_found() {
    let dir = tempfile::tempdir().unwrap();
    finished(dir.path(), "long", 1);
    let path = dir.path().join("long").join(FILE);
    let mut log = File::options().append(true).open(&path).unwrap();
    let long = "x".repeat(100_000);
    write!(log, "{long}\n{{\"t_us\":7,\"ev").unwrap();
    let run = list_runs(dir.path()).unwrap().runs.remove(0);
    assert_eq!(run.last.unwrap().event, ended());
    assert_eq!(run.state, RunState::Ended);
}

/// Root sums what lies in the folders of others.
#[test]
fn nothing_but_plain_files_is_opened() {
    let dir = tempfile::tempdir().expect("a folder");
    let runs = dir.path().join("runs");
    finished(&runs, "good-1", 1_000);
    finished(&dir.path().join("others"), "theirs-1", 1_000);
    let folder = |name: &str| {
        let folder = runs.join(name);
        fs::create_dir(&folder).expect("it is not there");
        folder.join(FILE)
    };
    let fifo = folder("fifo-1");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("coreutils").success());
    std::os::unix::fs::symlink("/dev/zero", folder("endless-1")).expect("a link");
    let theirs = dir.path().join("others/theirs-1");
    std::os::unix::fs::symlink(theirs.join(FILE), folder("link-1")).expect("a link");
    fs::create_dir(folder("folder-1")).expect("a folder");
    let _socket = std::os::unix::net::UnixListener::bind(folder("socket-1")).expect("a socket");
    // A folder that leads elsewhere is nobody's run here.
    std::os::unix::fs::symlink(&theirs, runs.join("elsewhere-1")).expect("a link");

    let listing = list_runs(&runs).expect("the folder reads");
    let ids: Vec<_> = (listing.runs.iter())
        .map(|run| run.started.id.as_str())
        .collect();
    assert_eq!(ids, ["good-1"]);
    let mut why: Vec<String> = (listing.unreadable.iter())
        .map(|error| {
            let cause = std::error::Error::source(error).expect("what the kernel said");
            let folder = error.to_string();
            let folder = folder.rsplit('/').nth(1).unwrap_or_default().to_owned();
            format!("{folder}: {cause}")
        })
        .collect();
    why.sort();
    let not_plain = "a folder, a pipe or a device, not a plain file";
    assert_eq!(
        why,
        [
            "endless-1: it is a link, not a plain file".to_owned(),
            format!("fifo-1: it is {not_plain}"),
            format!("folder-1: it is {not_plain}"),
            "link-1: it is a link, not a plain file".to_owned(),
            "socket-1: it is a socket, not a plain file".to_owned(),
        ]
    );
}
