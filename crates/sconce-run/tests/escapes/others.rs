//! Other processes, other runs, other users.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use sconce_schema::request::NetworkMode;

use crate::bench::{Bench, NOBODY_IN_PARTICULAR, Who, benches};
use crate::tools::{USERS, busybox, probe_outside, with_probe};

/// A process beside the run, with the number that the run's user has outside.
fn neighbour(bench: &Bench) -> std::process::Child {
    let mut sleep = busybox(bench);
    sleep
        .args(["sleep", "60"])
        .env("NEIGHBOURS_TOKEN", "neighbours-secret");
    if rustix::process::geteuid().is_root() {
        let uid = match bench.who {
            Who::Root => 1000,
            Who::Plain => NOBODY_IN_PARTICULAR,
        };
        sleep.uid(uid).gid(uid);
    }
    sleep.spawn().unwrap()
}

#[test]
fn processes_outside_are_neither_seen_nor_ended() {
    for bench in benches() {
        for user in USERS {
            let mut neighbour = neighbour(&bench);
            let pid = neighbour.id();
            // What it kills may be the engine too, which is given time to pass the output on.
            let mut request = bench.script(&format!(
                "kill -9 {pid} 2>&1; cat /proc/{pid}/environ /proc/*/environ 2>/dev/null | grep -c neighbours; \
                 sleep 0.3; sleep 50 & (trap '' TERM; kill -9 -1) & wait"
            ));
            request.user = user;
            let done = bench.run(&request);
            assert!(
                done.out.contains("No such process") && done.out.ends_with("0\n"),
                "{}",
                done.out
            );
            assert!(neighbour.try_wait().unwrap().is_none(), "it lives");
            // It is there to be seen by whoever may.
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            assert!(environ.windows(17).any(|word| word == b"neighbours-secret"));
            neighbour.kill().unwrap();
            neighbour.wait().unwrap();
        }
    }
}

/// Abstract sockets belong to the network and not to the file system (CVE-2020-15257).
#[test]
fn abstract_sockets_of_the_machine() {
    for bench in benches() {
        let name = format!("sconce-test-{}-{:?}", std::process::id(), bench.who);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        assert_eq!(
            probe_outside(&bench, &["connect", &name]),
            "done",
            "outside it can be had"
        );
        for user in USERS {
            for network in [NetworkMode::Host, NetworkMode::None] {
                let mut request = bench.script(&format!(
                    "probe connect {name}; probe connect-own {name}-own"
                ));
                request.user = user;
                request.network = network;
                with_probe(&bench, &mut request);
                let done = bench.run(&request);
                let lines: Vec<_> = done.out.lines().collect();
                assert_eq!(lines.len(), 2, "{}", done.err);
                assert_eq!(lines[1], "done", "its own can be had");
                match network {
                    // ECONNREFUSED: there is none.
                    NetworkMode::None | NetworkMode::Own => assert_eq!(lines[0], "111"),
                    NetworkMode::Host if !has_scopes(&bench) => {
                        let why = format!("as {:?}: Linux 6.12 is needed for this wall", bench.who);
                        sconce_testkit::report_skip("linux-6.12", why);
                    }
                    NetworkMode::Host => assert_eq!(lines[0], "1", "{:?}", bench.who),
                }
            }
        }
    }
}

/// Whether Landlock can keep a run from abstract sockets here: from its sixth version on.
fn has_scopes(bench: &Bench) -> bool {
    probe_outside(bench, &["landlock"]).parse::<u32>().unwrap() >= 6
}

/// A run's writable layer, as other users of the machine and other runs find it.
#[test]
fn what_a_run_writes_is_not_for_others() {
    for bench in benches() {
        let mut request =
            bench.script("echo private > /tmp/note; chmod 666 /tmp/note; echo there; read _");
        request.terminal = false;
        let (outer, inner) = (
            bench.command(&request, false),
            bench.state().join(&request.id),
        );
        let mut masked = busybox(&bench);
        // The least careful of callers.
        masked
            .args(["sh", "-c", "umask 000; exec \"$@\"", "sh"])
            .arg(outer.get_program())
            .args(outer.get_args());
        if bench.who == Who::Plain && rustix::process::geteuid().is_root() {
            masked.uid(NOBODY_IN_PARTICULAR).gid(NOBODY_IN_PARTICULAR);
        }
        let mut child = masked
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line, "there\n");
        let note = inner.join("upper/tmp/note");
        if rustix::process::geteuid().is_root() {
            assert_eq!(
                std::fs::read_to_string(&note).unwrap(),
                "private\n",
                "root finds it"
            );
            let stranger = busybox(&bench)
                .arg("cat")
                .arg(&note)
                .uid(NOBODY_IN_PARTICULAR + 1)
                .gid(NOBODY_IN_PARTICULAR + 1)
                .output()
                .unwrap();
            assert!(!stranger.status.success() && stranger.stdout.is_empty());
        }
        assert_eq!(
            inner.metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );
        // Another run does not find it either: neither that folder nor its own.
        let look = format!(
            "ls {} 2>&1; find / -xdev -name '*.lock' -o -xdev -name note 2>/dev/null; ls /proc/*/root/tmp 2>/dev/null; \
             cut -d' ' -f5 /proc/self/mountinfo",
            bench.state().display()
        );
        for user in USERS {
            let mut request = bench.script(&look);
            request.user = user;
            let done = bench.run(&request);
            assert!(done.out.contains("No such file"), "{}", done.out);
            assert!(!done.out.contains("note"), "{}", done.out);
            // The mounts that it sees are below its own root.
            let places = done.out.lines().filter(|line| line.starts_with('/'));
            assert!(places.clone().count() > 5);
            let own = ["/proc", "/sys", "/dev"];
            assert!(
                places
                    .into_iter()
                    .all(|p| p == "/" || own.iter().any(|o| p.starts_with(o))),
                "{}",
                done.out
            );
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
