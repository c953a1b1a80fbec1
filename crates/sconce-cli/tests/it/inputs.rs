//! What is read of a path that leads to something else than a file with an end.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Nothing that is tried here takes longer; who waits for ever is ended then.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The exit code of a line for bash in a folder, and what it said; `None` where it did not end.
fn run(folder: &Path, line: &str) -> (Option<i32>, String) {
    let mut child = Command::new("bash")
        .args(["-c", &format!("exec {line}")])
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", folder)
        .env("sconce", env!("CARGO_BIN_EXE_sconce"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash is there");
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            None if begin.elapsed() > MAX_WAIT => {
                child.kill().expect("it is there");
                break child.wait().expect("a child");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
            Some(status) => break status,
        }
    };
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    (status.code(), said)
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

#[test]
fn nothing_waits_for_a_fifo_that_is_no_file() {
    let home = tempfile::tempdir().expect("a folder");
    let at = |name: &str| home.path().join(name);
    for folder in ["spec", "lock", "requirements"] {
        fs::create_dir(at(folder)).expect("room");
    }
    fifo(&at("F"));
    fifo(&at("spec/sconce.toml"));
    fs::write(at("lock/sconce.toml"), "").expect("room");
    fifo(&at("lock/sconce.lock"));
    let spec = "[python]\nrequirements = \"r.txt\"";
    fs::write(at("requirements/sconce.toml"), spec).expect("room");
    fifo(&at("requirements/r.txt"));
    for (line, code, says) in [
        ("check F", 3, "F is neither a spec nor a lock"),
        ("fit --gpu h100 F", 3, "F is no regular file"),
        ("check spec", 3, "sconce.toml is no regular file"),
        ("fit --gpu h100 spec", 3, "sconce.toml is no regular file"),
        ("lock spec", 3, "sconce.toml is no regular file"),
        ("check lock", 3, "it is a FIFO, not a regular file"),
        ("check lock/sconce.lock", 3, "it is a FIFO"),
        ("lock lock", 3, "it is a FIFO"),
        ("lock --check lock", 3, "it is a FIFO"),
        ("run ./lock -- true", 3, "it is a FIFO"),
        ("build --plan lock", 3, "it is a FIFO"),
        ("outdated lock", 3, "it is a FIFO"),
        ("sbom lock/sconce.lock", 3, "it is a FIFO"),
        ("check requirements", 3, "it is a FIFO"),
        ("fit --gpu h100 requirements", 3, "it is a FIFO"),
        ("audit --db F lock/sconce.lock", 3, "it is a FIFO"),
        ("cdi check F", 3, "it is a FIFO"),
        ("run docker-archive:F -- true", 3, "it is a FIFO"),
        ("explain /dev/zero", 3, "it is a device that has no end"),
        ("explain /dev/urandom", 3, "no end"),
        ("explain /dev/full", 3, "no end"),
        ("explain - </dev/zero", 3, "no end"),
        ("memory report /dev/zero", 3, "no end"),
        ("check --facts /dev/zero lock", 3, "no end"),
        ("explain /dev/null", 1, ""),
    ] {
        let (ended, said) = run(home.path(), &format!("\"$sconce\" {line}"));
        assert_eq!(ended, Some(code), "{line}: {said}");
        assert!(said.contains(says), "{line}: {said}");
        assert!(
            code != 3 || line.contains(" F") || said.contains("hint: "),
            "{line}: {said}"
        );
    }
}

#[test]
fn a_fifo_is_read_where_it_ends() {
    let home = tempfile::tempdir().expect("a folder");
    fifo(&home.path().join("F"));
    let error = "echo 'RuntimeError: CUDA error: out of memory'";
    for line in [
        format!("\"$sconce\" explain --elsewhere <({error})"),
        format!("\"$sconce\" explain --elsewhere F & {error} > F; wait $!"),
    ] {
        // The second is no single command.
        let line = format!("bash -c '{}'", line.replace('\'', "'\\''"));
        let (ended, said) = run(home.path(), &line);
        assert_eq!(ended, Some(0), "{line}: {said}");
    }
    // Nobody writes: it says so, and waits as `cat` does.
    let (ended, said) = run(home.path(), "timeout 3 \"$sconce\" explain --elsewhere F");
    assert_eq!(ended, Some(124), "{said}");
    assert!(
        said.contains("waiting for somebody to write to F"),
        "{said}"
    );
}

#[test]
fn an_empty_lock_is_written_over_by_lock_alone() {
    let home = tempfile::tempdir().expect("a folder");
    fs::write(home.path().join("sconce.toml"), "").expect("room");
    let lock = home.path().join("sconce.lock");
    fs::write(&lock, "").expect("room");
    let (ended, said) = run(home.path(), "\"$sconce\" lock --check");
    assert!(
        ended == Some(3) && said.contains("sconce.lock is empty"),
        "{said}"
    );
    assert!(
        said.contains("`sconce lock` writes a new one over it"),
        "{said}"
    );
    let (_, said) = run(
        home.path(),
        "\"$sconce\" lock --offline --mirror http://127.0.0.1:1",
    );
    assert!(!said.contains("sconce.lock is empty"), "{said}");
    fs::remove_file(&lock).expect("it is there");
    std::os::unix::fs::symlink("/dev/null", &lock).expect("room");
    for line in ["lock", "lock --check"] {
        let (ended, said) = run(home.path(), &format!("\"$sconce\" {line}"));
        assert!(
            ended == Some(3) && said.contains("it is a device"),
            "{said}"
        );
        assert!(said.contains("hint: "), "{said}");
    }
}
