//! `sconce top` and its terminal.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

/// A window that is closed or a connection that is lost takes it along.
#[test]
fn it_ends_with_its_terminal() {
    let home = tempfile::tempdir().unwrap();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ioctl_tiocgptpeer(&master, flags).unwrap();
    let stream = || Stdio::from(terminal.try_clone().unwrap());
    // It leads a session whose terminal that is, as a login's shell would.
    let mut top = Command::new("setsid")
        .args(["--ctty", env!("CARGO_BIN_EXE_sconce"), "top"])
        .env("XDG_STATE_HOME", home.path())
        .env("TERM", "xterm")
        .stdin(stream())
        .stdout(stream())
        .stderr(stream())
        .spawn()
        .unwrap();
    // It has drawn something.
    let mut drawn = [0_u8; 4096];
    assert_ne!(rustix::io::read(&master, &mut drawn).unwrap(), 0);
    drop(terminal);
    drop(master);
    let until = Instant::now() + Duration::from_secs(20);
    let ended = loop {
        match top.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > until => {
                top.kill().unwrap();
                break top.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(ended.signal(), Some(1), "{ended:?}");
}
