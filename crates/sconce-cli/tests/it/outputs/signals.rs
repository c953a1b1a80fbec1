//! What a signal leaves of an output that was not complete: nothing.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::home::Home;
use super::inputs::find_record;

/// Lines that make a record so long that its export is under way for a while.
const LINES: usize = 400_000;

/// For what comes at once on a machine that has time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a program for which no file system has files without a name: openat(2) with O_TMPFILE fails as it does on
/// many that FUSE brings. A filter of system calls says so (seccomp(2)), as no such file system can be counted on.
const WITHOUT_UNNAMED_FILES: &str = r#"
import ctypes, os, struct, sys
OPENAT = {"x86_64": 257, "aarch64": 56}[os.uname().machine]
O_TMPFILE, EOPNOTSUPP = 0o20000000, 95
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7fff0000
program = b"".join(struct.pack("HBBI", *step) for step in [
    (0x20, 0, 0, 0),                              # the number of the call
    (0x15, 0, 3, OPENAT),
    (0x20, 0, 0, 32),                             # its flags
    (0x45, 0, 1, O_TMPFILE),
    (0x06, 0, 0, SECCOMP_RET_ERRNO | EOPNOTSUPP),
    (0x06, 0, 0, SECCOMP_RET_ALLOW),
])
bytes_of_it = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
fprog = Filter(len(program) // 8, ctypes.addressof(bytes_of_it))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(fprog), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A home whose record takes a while to be written in another form.
fn home() -> Home {
    let home = Home::new();
    let record = find_record(home.folder()).unwrap();
    let text = fs::read_to_string(&record).unwrap();
    let last = text.lines().last().unwrap();
    let mut file = fs::File::options().append(true).open(&record).unwrap();
    file.write_all(format!("{last}\n").repeat(LINES).as_bytes())
        .unwrap();
    fs::create_dir(home.path("out")).unwrap();
    home
}

/// The program, where no file is without a name.
fn without_unnamed_files(home: &Home) -> Option<Command> {
    let mut program = home.prepare(Command::new(sconce_testkit::find_program("python3")?));
    program.args(["-c", WITHOUT_UNNAMED_FILES, env!("CARGO_BIN_EXE_sconce")]);
    Some(program)
}

fn export(mut program: Command, words: &[&str]) -> Child {
    program
        .args(["export", "last", "--to"])
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Sends the signal once something is there, and gives by which the program ended.
fn end_by(mut child: Child, signal: Signal, is_there: impl Fn() -> bool) -> Option<i32> {
    let began = Instant::now();
    while !is_there() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before");
        assert!(began.elapsed() < PATIENCE, "nothing came");
        sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait().unwrap().signal()
}

const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

#[test]
fn a_signal_leaves_no_name_beside_an_output() {
    let home = home();
    fs::write(home.path("out/there.json"), "kept").unwrap();
    for (file, signal) in ["out/new.json", "out/there.json"]
        .iter()
        .flat_map(|file| ENDING.map(|signal| (file, signal)))
    {
        let Some(program) = without_unnamed_files(&home) else {
            return;
        };
        let child = export(program, &["json", file]);
        let out = home.path("out");
        let is_there = || {
            let names = names(&out);
            names.iter().any(|name| name.starts_with(".sconce-"))
        };
        assert_eq!(
            end_by(child, signal, is_there),
            Some(signal.as_raw()),
            "{file}"
        );
        assert_eq!(names(&out), ["there.json"], "{file} {signal:?}");
        assert_eq!(fs::read(home.path("out/there.json")).unwrap(), b"kept");
    }
}

/// As of an image's layout in a folder (`build --oci`), which is made in the same way.
#[test]
fn a_signal_leaves_nothing_of_a_folder_that_was_made() {
    let home = home();
    for signal in ENDING {
        let program = home.prepare(Command::new(env!("CARGO_BIN_EXE_sconce")));
        let child = export(program, &["tensorboard", "out/new/board"]);
        let is_there = || home.path("out/new/board").exists();
        assert_eq!(end_by(child, signal, is_there), Some(signal.as_raw()));
        assert!(names(&home.path("out")).is_empty(), "{signal:?}");
    }
}

#[test]
fn a_signal_that_the_caller_ignores_stays_ignored() {
    let home = home();
    let mut program = home.prepare(Command::new("sh"));
    program.args(["-c", "trap '' HUP; exec \"$sconce\" \"$@\"", "sh"]);
    let child = export(program, &["tensorboard", "out/new"]);
    let is_there = || home.path("out/new").exists();
    assert_eq!(end_by(child, Signal::HUP, is_there), None);
    assert_eq!(names(&home.path("out/new")).len(), 1);
}
