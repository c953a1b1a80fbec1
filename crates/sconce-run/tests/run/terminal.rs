//! A terminal of the command's own.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use sconce_schema::Runtime;

use crate::bench::{Bench, benches, eventually};

/// Sconce in a terminal of the test's: what a person would see, and the settings afterwards.
#[test]
fn keys_output_and_size_pass_and_the_callers_terminal_is_given_back() {
    for bench in benches() {
        for on_host in [false, true] {
            keys_output_and_size(&bench, on_host);
        }
    }
}

/// The same for one run.
pub(crate) fn keys_output_and_size(bench: &Bench, on_host: bool) {
    let script = "stty size; tty; read line; echo got $line; exec cat";
    let script = match bench.runtime {
        // It passes the size on when the command has begun.
        Runtime::Podman => format!("sleep 1; {script}"),
        _ => script.to_owned(),
    };
    let mut request = if on_host {
        bench.on_host(&script)
    } else {
        bench.script(&script)
    };
    request.terminal = true;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave =
        rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let size = Winsize {
        ws_row: 33,
        ws_col: 77,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).unwrap();
    let stream = || Stdio::from(slave.try_clone().unwrap());
    let mut child = bench
        .command(&request, false)
        .stdin(stream())
        .stdout(stream())
        .stderr(stream())
        .spawn()
        .unwrap();
    let raw = || {
        !tcgetattr(&slave)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    };
    eventually("the caller's terminal is raw", raw);
    let mut master = std::fs::File::from(master);
    master.write_all(b"hello\r").unwrap();
    let mut seen = String::new();
    let mut buffer = [0_u8; 1024];
    while !seen.contains("got hello") {
        // This test has the other end open too: nothing ever ends here by itself.
        let mut ready = [PollFd::new(&master, PollFlags::IN)];
        let within = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_ne!(poll(&mut ready, Some(&within)).unwrap(), 0, "{seen}");
        let count = master.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(seen.contains("33 77"), "{seen}");
    assert!(seen.contains("/dev/pts/"), "{seen}");
    // The interrupt key is a byte for the command's terminal, which ends cat with it.
    master.write_all(b"\x03").unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{seen}");
    assert!(!raw(), "the terminal is as it was");
}

#[test]
fn output_is_complete_without_a_callers_terminal() {
    for bench in benches() {
        let mut request = bench.script("test -t 0 && test -t 1 && seq 1 20000");
        request.terminal = true;
        let done = bench.run(&request);
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(done.out.lines().count(), 20_000);
        assert!(done.out.ends_with("20000\r\n"));
    }
}
