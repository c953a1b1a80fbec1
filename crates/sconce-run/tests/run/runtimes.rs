//! The same runs by every runtime that is here: a new one is one name in `Runtime::ALL`.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, Signal, kill_process};
use sconce_schema::Runtime;
use sconce_schema::request::{
    ContainerEdits, ContainerUser, DeviceNode, Mount, NetworkMode, RunLimits,
};
use sconce_schema::units::{Bytes, LockedMemory};

use crate::bench::{Bench, Who, benches, eventually, is_here, root_bench};

/// A bench for each user and runtime; says what is left out.
pub(crate) fn each(test: impl Fn(&Bench)) {
    for mut bench in benches() {
        for runtime in Runtime::ALL {
            // Docker's daemon would have to be started, and holds a run in its own ways:
            // scripts/test.d/docker.
            if runtime == Runtime::Docker || !is_here(runtime) {
                continue;
            }
            bench.runtime = runtime;
            test(&bench);
            bench.assert_clean();
        }
    }
}

/// Engines but crun are uid 0 in the namespace of a plain user, and can give no other.
fn uid(bench: &Bench) -> &'static str {
    match (bench.who, bench.runtime) {
        (Who::Plain, Runtime::Runc | Runtime::Podman) => "0",
        _ => "1000",
    }
}

#[test]
fn the_commands_end_is_the_runs() {
    each(|bench| {
        for (script, code) in [
            ("true", 0),
            ("exit 7", 7),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
        ] {
            let done = bench.run(&bench.script(script));
            assert_eq!(
                done.code, code,
                "{:?} {script}: {}",
                bench.runtime, done.err
            );
        }
        let done = bench.run(&bench.script("echo out; echo err >&2"));
        assert_eq!((done.out.as_str(), done.err.as_str()), ("out\n", "err\n"));
    });
}

/// As where somebody prepared a folder for chroot. podman then leaves its cgroup in that of the run.
#[test]
fn cgroups_that_are_mounted_twice_are_left_clean() {
    if root_bench().is_none() {
        return;
    }
    let second = tempfile::tempdir().unwrap();
    #[expect(unsafe_code, reason = "the mounts of this test alone")]
    // SAFETY: of the mounts alone, of this thread and those that it starts.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).unwrap();
    rustix::mount::mount_bind_recursive("/sys/fs/cgroup", second.path()).unwrap();
    each(|bench| assert_eq!(bench.run(&bench.script("true")).code, 0));
}

#[test]
fn a_command_that_cannot_be_is_told_alike() {
    each(|bench| {
        std::fs::write(bench.work().join("plain"), "text").unwrap();
        let script = bench.work().join("script");
        std::fs::write(&script, "#!/no/such/shell\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        for (command, code, says) in [
            (
                "no-such",
                127,
                "command not found: `no-such` (searched in /bin)",
            ),
            ("/no/such", 127, "command not found: `/no/such`"),
            ("/project/plain", 126, "cannot execute /project/plain"),
            ("/project/script", 126, "cannot execute /project/script"),
            ("/bin", 126, "cannot execute /bin"),
        ] {
            let mut request = bench.request(&[command]);
            request.mounts.push(bench.work_mount(true));
            let done = bench.run(&request);
            assert_eq!(
                done.code, code,
                "{:?} {command}: {}",
                bench.runtime, done.err
            );
            assert!(done.err.contains(says), "{:?}: {}", bench.runtime, done.err);
        }
        let mut request = bench.request(&["true"]);
        request.workdir = "/no/such".into();
        let done = bench.run(&request);
        assert_eq!(done.code, 125);
        assert!(
            done.err.contains("working directory /no/such"),
            "{}",
            done.err
        );
    });
}

#[test]
fn privileges_are_gone() {
    each(|bench| {
        let done = bench.run(&bench.script("id -u; umask; cat /proc/self/status"));
        let mut lines = done.out.lines();
        assert_eq!(
            lines.next(),
            Some(uid(bench)),
            "{:?} {}",
            bench.runtime,
            done.err
        );
        assert_eq!(lines.next(), Some("0022"));
        let field = |name: &str| {
            let line = done.out.lines().find(|line| line.starts_with(name));
            line.unwrap()
                .split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{:?} {set}", bench.runtime);
        }
        let closed = (field("NoNewPrivs"), field("Seccomp:"));
        assert_eq!((closed.0.as_str(), closed.1.as_str()), ("1", "2"));
        let said = done.event("unenforced").map(|said| said[0]["what"].clone());
        let expected = (uid(bench) == "0").then(|| serde_json::json!("user"));
        assert_eq!(said, expected, "what cannot be held is said");
    });
}

#[test]
fn root_inside_keeps_the_same_capabilities() {
    each(|bench| {
        let mut request = bench.script("id -u; grep -E 'Cap(Eff|Bnd|Inh|Amb)' /proc/self/status");
        request.user = ContainerUser::Root;
        let done = bench.run(&request);
        let words: Vec<_> = done.out.split_ascii_whitespace().collect();
        let (none, kept) = ("0000000000000000", "00000000800404fb");
        let expected = [
            "0", "CapInh:", none, "CapEff:", kept, "CapBnd:", kept, "CapAmb:", none,
        ];
        assert_eq!(words, expected, "{:?} {}", bench.runtime, done.err);
    });
}

#[test]
fn the_kernel_and_the_machine_are_out_of_reach() {
    let tried = [
        ("echo 1 > /proc/sys/kernel/panic", "Read-only file system"),
        ("mknod /tmp/null c 1 3", "Operation not permitted"),
        ("unshare -r true", "Operation not permitted"),
        ("mount -t tmpfs none /tmp", "ermi"),
        ("mkdir /sys/kernel/x", "Read-only file system"),
        (": >> /proc/1/exe", "Permission denied"),
        ("cat /proc/1/environ", "Permission denied"),
        ("ls /proc/1/root/", "Permission denied"),
        ("hostname other", "not permitted"),
        ("dmesg", "not permitted"),
        ("head -c 1 /proc/kcore | wc -c", "^0$"),
        ("ls /sys/firmware | wc -l", "^0$"),
        ("kill -9 1; sleep 0.1; echo alive", "alive"),
    ];
    let tries = tried.map(|(script, says)| {
        format!("({script}) 2>&1 | grep -q '{says}' || echo \"not refused: {script}\"")
    });
    let script = format!("{}; echo end", tries.join("; "));
    each(|bench| {
        for user in [ContainerUser::Plain, ContainerUser::Root] {
            let mut request = bench.script(&script);
            request.user = user;
            let done = bench.run(&request);
            assert_eq!(
                done.out, "end\n",
                "{:?} {:?} {user:?}",
                bench.who, bench.runtime
            );
        }
    });
}

/// The engine is a process that the command sees; it is no way to the machine's files.
#[test]
fn no_process_that_is_seen_leads_out() {
    each(|bench| {
        let mark = bench.folder.path().join("mark");
        std::fs::write(&mark, "outside").unwrap();
        let script = format!(
            "for p in /proc/[0-9]*; do cat $p/root{0} $p/cwd{0} $p/cwd/../..{0} $p/environ; done \
             2>/dev/null; echo done",
            mark.display()
        );
        for user in [ContainerUser::Plain, ContainerUser::Root] {
            let mut request = bench.script(&script);
            request.user = user;
            let done = bench.run(&request);
            assert!(done.out.ends_with("done\n"), "{}", done.out);
            assert!(
                !done.out.contains("outside"),
                "{:?}: {}",
                bench.runtime,
                done.out
            );
            assert!(
                !done.out.contains("_CONTAINERS_"),
                "{:?}: {}",
                bench.runtime,
                done.out
            );
        }
    });
}

#[test]
fn mounts_are_as_asked_and_files_belong_to_the_caller() {
    each(|bench| {
        let file = bench.work().join(bench.runtime.name());
        let mut request = bench.script(&format!(
            "echo new > /project/{}; echo x > /closed/y; cat /closed/{0}; echo t > /tmp/t && cat /tmp/t; \
             echo h > ~/h && cat ~/h",
            bench.runtime.name()
        ));
        request.mounts.push(bench.work_mount(false));
        request.mounts.push(Mount {
            target: "/closed".into(),
            ..bench.work_mount(true)
        });
        let done = bench.run(&request);
        assert_eq!(done.out, "new\nt\nh\n", "{:?} {}", bench.runtime, done.err);
        assert!(done.err.contains("Read-only file system"), "{}", done.err);
        let (made, folder) = (file.metadata().unwrap(), bench.work().metadata().unwrap());
        assert_eq!((made.uid(), made.gid()), (folder.uid(), folder.gid()));
        let mut request = bench.request(&["true"]);
        request.mounts.push(Mount {
            target: "/dev/shm/x".into(),
            ..bench.work_mount(true)
        });
        if bench.runtime != Runtime::Sconce {
            let done = bench.run(&request);
            assert_eq!(done.code, 125);
            assert!(
                done.err.contains("nothing can be mounted at /dev/shm/x"),
                "{}",
                done.err
            );
        }
    });
}

#[test]
fn the_image_stays_as_it_was() {
    each(|bench| {
        let mut request =
            bench.script("rm /bin/vi; echo > /etc/passwd; hostname; cat /etc/hostname");
        request.user = ContainerUser::Root;
        let done = bench.run(&request);
        assert_eq!(
            done.out.trim_end(),
            format!("{0}\n{0}", request.id),
            "{}",
            done.err
        );
        assert!(bench.folder.path().join("base/bin/vi").is_symlink());
        let passwd = std::fs::read_to_string(bench.folder.path().join("base/etc/passwd")).unwrap();
        assert!(passwd.starts_with("root:"));
    });
}

#[test]
fn cards_are_there_and_other_devices_are_not() {
    each(|bench| {
        let mut request = bench.script(
            "head -c 3 /dev/nvidia0 | wc -c; ls /dev | tr '\\n' ' '; echo x > /dev/null; cat < /dev/tty",
        );
        request.edits.push(ContainerEdits {
            env: vec!["NVIDIA_VISIBLE_DEVICES=0".to_owned()],
            device_nodes: vec![DeviceNode {
                path: "/dev/nvidia0".to_owned(),
                host_path: "/dev/zero".to_owned(),
                r#type: "c".to_owned(),
                major: 1,
                minor: 5,
            }],
            ..ContainerEdits::default()
        });
        let done = bench.run(&request);
        assert!(
            done.out.starts_with("3\n"),
            "{:?} {}",
            bench.runtime,
            done.err
        );
        let more = ["console", "core", "mqueue"];
        let seen: Vec<_> = done.out.split_ascii_whitespace().skip(1).collect();
        let expected = [
            "fd", "full", "null", "nvidia0", "ptmx", "pts", "random", "shm", "stderr", "stdin",
            "stdout", "tty", "urandom", "zero",
        ];
        let seen: Vec<_> = seen
            .into_iter()
            .filter(|name| !more.contains(name))
            .collect();
        assert_eq!(seen, expected, "{:?}", bench.runtime);
    });
}

#[test]
fn networks_are_the_hosts_or_the_runs_own() {
    each(|bench| {
        let script = "cat /proc/net/dev | tail -n +3 | wc -l; cat /etc/resolv.conf";
        let host = bench.run(&bench.script(script));
        let own = std::fs::read_to_string("/proc/net/dev").unwrap();
        let count = own.lines().count() - 2;
        assert!(
            host.out.starts_with(&format!("{count}\n")),
            "{} {}",
            host.out,
            host.err
        );
        let mut request = bench.script(script);
        request.network = NetworkMode::None;
        let done = bench.run(&request);
        assert_eq!(done.out, "1\n", "{:?} {}", bench.runtime, done.err);
    });
}

#[test]
fn limits_hold_or_are_said() {
    each(|bench| {
        let mut request = bench.script(
            "ulimit -n; ulimit -l; df -k /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2; \
             cat /proc/self/status | grep Cpus_allowed_list",
        );
        request.limits = RunLimits {
            shm: Some(Bytes::from_mib(8)),
            nofile: Some(777),
            memlock: Some(LockedMemory::Limited(Bytes(64 << 10))),
            cpuset: Some("0".parse().unwrap()),
            ..RunLimits::default()
        };
        let done = bench.run(&request);
        let lines: Vec<_> = done.out.lines().collect();
        let expected = ["777", "64", "8192", "Cpus_allowed_list:\t0"];
        assert_eq!(lines, expected, "{:?} {}", bench.runtime, done.err);

        let mut request = bench.script(
            "echo 1000 > /proc/self/oom_score_adj; head -c 200m /dev/zero > /dev/shm/x; \
             for i in $(seq 99); do sleep 1 & done",
        );
        request.limits = RunLimits {
            memory: Some(Bytes::from_mib(128)),
            shm: Some(Bytes::from_mib(400)),
            pids: Some(80),
            ..RunLimits::default()
        };
        let done = bench.run(&request);
        let said = done.event("unenforced").map(ToString::to_string);
        let said = |what: &str| {
            said.as_ref()
                .is_some_and(|all| all.contains(&format!("\"{what}\"")))
        };
        let killed = &done.event("ended").unwrap()["out-of-memory"];
        // Held, or said, and never neither.
        assert_eq!(
            killed["limit"] == 128 << 20,
            !said("memory"),
            "{:?}",
            done.events
        );
        if bench.who == Who::Root {
            assert!(
                !said("memory"),
                "root holds it on every machine: {:?}",
                done.events
            );
        }
    });
}

#[test]
fn signals_reach_the_command() {
    each(|bench| {
        let script =
            "trap 'echo caught; exit 7' TERM INT USR1; echo ready; while :; do sleep 0.01; done";
        for (script, signal, code) in [
            (script, Signal::TERM, 7),
            (script, Signal::INT, 7),
            (script, Signal::USR1, 7),
            ("echo ready; exec sleep 100", Signal::TERM, 143),
        ] {
            let request = bench.script(script);
            let mut child = bench.start(&request);
            let mut line = [0_u8; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            if bench.runtime == Runtime::Podman {
                // What comes before it has seen its container run, it passes on to nobody.
                std::thread::sleep(std::time::Duration::from_secs(2));
            }
            kill_process(Pid::from_child(&child), signal).unwrap();
            let done = bench.finish(&request, child);
            assert_eq!(
                done.code, code,
                "{:?} {signal:?}: {}",
                bench.runtime, done.err
            );
        }
    });
}

#[test]
fn a_terminal_is_a_terminal() {
    each(|bench| super::terminal::keys_output_and_size(bench, false));
}

#[test]
fn input_comes_in_and_long_output_is_complete() {
    each(|bench| {
        let request = bench.script("wc -c; seq 1 20000");
        let mut child = bench.start(&request);
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, &vec![b'x'; 100_000]).unwrap();
        drop(input);
        let done = bench.finish(&request, child);
        assert!(done.out.starts_with("100000\n1\n"), "{:?}", bench.runtime);
        assert!(done.out.ends_with("\n20000\n"), "{:?}", bench.runtime);
    });
}

/// runc and crun would give the caller's files to the command's user.
#[test]
fn the_callers_streams_stay_the_callers() {
    each(|bench| {
        let path = bench.work().join("out");
        let file = std::fs::File::create(&path).unwrap();
        let before = path.metadata().unwrap();
        let request = bench.script("echo there");
        let mut command = bench.command(&request, false);
        // Not /dev/null, which would be the machine's.
        command.stdin(std::fs::File::open(&path).unwrap());
        command.stderr(file.try_clone().unwrap()).stdout(file);
        assert_eq!(command.status().unwrap().code(), Some(0));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "there\n");
        let after = path.metadata().unwrap();
        assert_eq!(
            (after.uid(), after.gid()),
            (before.uid(), before.gid()),
            "{:?}",
            bench.runtime
        );
    });
}

/// However Sconce ends, nothing of the run stays: no process, no container, no cgroup.
#[test]
fn kill_9_of_sconce_ends_the_run_and_the_next_one_cleans_up() {
    each(|bench| {
        let mark = format!("2{:06}{}", std::process::id(), bench.runtime as u8);
        let request = bench.script(&format!(
            "(setsid sleep {mark} &); echo ready; sleep {mark}"
        ));
        let mut child = bench.start(&request);
        let mut line = [0_u8; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        eventually("every process is gone", || {
            super::death::sleeping(&mark) == 0
        });
        assert!(bench.state().join(&request.id).exists());
        eventually("everything is swept", || {
            assert_eq!(bench.run(&bench.request(&["true"])).code, 0);
            std::fs::read_dir(bench.state()).unwrap().count() == 0
        });
        let left = super::death::cgroups_of(&request.id);
        assert_eq!(
            left,
            Vec::<std::path::PathBuf>::new(),
            "{:?}",
            bench.runtime
        );
    });
}

#[test]
fn what_an_engine_cannot_hold_is_an_error_when_asked_strictly() {
    each(|bench| {
        let done = bench.run_strictly(&bench.request(&["true"]));
        let expected = if uid(bench) == "0" { 8 } else { 0 };
        assert_eq!(done.code, expected, "{:?}: {}", bench.runtime, done.err);
    });
}
