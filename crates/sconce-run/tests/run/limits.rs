//! Limits: enforced, or said not to be.

use sconce_schema::request::Limits;
use sconce_schema::units::{Bytes, Millicores};

use crate::bench::{Bench, Who, benches, root_bench};

/// A bench for each user whose limits this machine enforces.
fn enforcing() -> impl Iterator<Item = Bench> {
    benches().into_iter().filter(|bench| {
        let limits = Limits {
            cpus: Some(Millicores(1000)),
            memory: Some(Bytes::gib(1)),
            pids: Some(1000),
            shm: None,
        };
        let done = bench.run(&limited(bench, "true", limits));
        let said = done.event("unenforced");
        assert!(said.is_none() || bench.who == Who::Plain, "{said:?}");
        if let Some(said) = said {
            eprintln!("skipped as {:?}: {said}", bench.who);
        }
        said.is_none()
    })
}

fn limited(bench: &Bench, script: &str, limits: Limits) -> sconce_schema::RunRequest {
    sconce_schema::RunRequest {
        limits,
        ..bench.script(script)
    }
}

#[test]
fn a_kill_for_memory_is_named_with_the_limit() {
    for bench in enforcing() {
        let limits = Limits {
            memory: Some(Bytes::mib(32)),
            ..Limits::default()
        };
        // The kernel is told whom to take; else it may take the shell as well.
        let eat = "echo 1000 > /proc/self/oom_score_adj; head -c 100m /dev/zero | tail -c 90m > /dev/null";
        // The command itself dies; or it survives one of its children.
        for (script, code) in [
            (eat.to_owned(), None),
            (format!("({eat}); echo survived"), Some(0)),
        ] {
            for request in [
                limited(&bench, &script, limits),
                sconce_schema::RunRequest {
                    limits,
                    ..bench.on_host(&script)
                },
            ] {
                let done = bench.run(&request);
                if let Some(code) = code {
                    assert_eq!(
                        (done.code, done.out.as_str()),
                        (code, "survived\n"),
                        "{}",
                        done.err
                    );
                }
                assert_eq!(done.event("unenforced"), None);
                let killed = &done.event("ended").unwrap()["out-of-memory"];
                assert_eq!(killed["limit"], 32 << 20, "{:?}", done.events);
                assert!(killed["kills"].as_u64().unwrap() >= 1);
            }
        }
        let done = bench.run(&limited(&bench, "true", limits));
        assert!(done.event("ended").unwrap()["out-of-memory"].is_null());
    }
}

#[test]
fn forks_stop_at_the_limit() {
    for bench in enforcing() {
        let limits = Limits {
            pids: Some(8),
            ..Limits::default()
        };
        let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait";
        let done = bench.run(&limited(&bench, script, limits));
        assert!(done.err.contains("can't fork"), "{} {}", done.out, done.err);
        bench.assert_clean();
    }
}

#[test]
fn cpu_limits_stand_in_the_cgroup() {
    for bench in enforcing() {
        let limits = Limits {
            cpus: Some(Millicores(1500)),
            memory: Some(Bytes::mib(64)),
            pids: Some(100),
            shm: None,
        };
        let request = limited(&bench, "cat /proc/self/cgroup; sleep 60", limits);
        let mut child = bench.start(&request);
        let started = bench.wait_for(&request, "started");
        let cgroups = started["cgroups"].as_str().unwrap().to_owned();
        let folders: Vec<_> = cgroups
            .split('"')
            .filter(|part| part.starts_with('/'))
            .collect();
        assert!(!folders.is_empty(), "{cgroups}");
        let read = |name: &str| {
            folders
                .iter()
                .find_map(|folder| std::fs::read_to_string(format!("{folder}/{name}")).ok())
        };
        let (quota, memory) = match read("cpu.max") {
            Some(v2) => (v2, read("memory.max").unwrap()),
            None => {
                let quota = read("cpu.cfs_quota_us").unwrap();
                let period = read("cpu.cfs_period_us").unwrap();
                (
                    format!("{} {period}", quota.trim()),
                    read("memory.limit_in_bytes").unwrap(),
                )
            }
        };
        assert_eq!(quota, "150000 100000\n");
        assert_eq!(memory, format!("{}\n", 64 << 20));
        assert_eq!(read("pids.max").unwrap(), "100\n");
        let pid = started["pid"].as_u64().unwrap().to_string();
        for folder in &folders {
            let members = std::fs::read_to_string(format!("{folder}/cgroup.procs")).unwrap();
            assert!(
                members.lines().any(|line| line == pid),
                "{folder}: {members}"
            );
        }
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        let _ = child.wait().unwrap();
        for folder in folders {
            assert!(!std::path::Path::new(folder).exists(), "{folder}");
        }
    }
}

/// The node is there either way; that it was said to be another device keeps it closed.
#[test]
fn only_the_devices_that_were_given_can_be_opened() {
    use sconce_schema::request::{ContainerEdits, DeviceNode, User};
    let Some(bench) = root_bench() else { return };
    if !std::path::Path::new("/dev/kmsg").exists() {
        eprintln!("skipped: this machine has no /dev/kmsg");
        return;
    }
    for (minor, says) in [(11, ""), (12, "Operation not permitted")] {
        let mut request = bench.script(": >> /dev/given && echo opened; echo x > /dev/null");
        request.user = User::Root;
        request.edits.push(ContainerEdits {
            device_nodes: vec![DeviceNode {
                path: "/dev/given".to_owned(),
                host_path: "/dev/kmsg".to_owned(),
                r#type: "c".to_owned(),
                major: 1,
                minor,
            }],
            ..ContainerEdits::default()
        });
        let done = bench.run(&request);
        assert_eq!(done.event("unenforced"), None);
        assert!(done.err.contains(says), "{minor}: {}", done.err);
        let opened = if says.is_empty() { "opened\n" } else { "" };
        assert_eq!(done.out, opened, "{minor}: {}", done.err);
        assert!(!done.err.contains("/dev/null"), "{}", done.err);
    }
}

#[test]
fn what_cannot_be_enforced_is_said_before_the_start_or_is_an_error() {
    for bench in benches()
        .into_iter()
        .filter(|bench| bench.who == Who::Plain)
    {
        let limits = Limits {
            memory: Some(Bytes::mib(64)),
            ..Limits::default()
        };
        let request = limited(&bench, "echo ran", limits);
        let done = bench.run(&request);
        let Some(said) = done.event("unenforced") else {
            eprintln!("skipped: this machine lets a plain user limit memory");
            return;
        };
        assert_eq!((done.code, done.out.as_str()), (0, "ran\n"));
        assert_eq!(said[0]["what"], "memory");
        assert!(said[0]["hint"].as_str().unwrap().contains("run as root"));
        assert!(done.events[0].get("unenforced").is_some(), "it comes first");
        let done = bench.run_strictly(&request);
        assert_eq!((done.code, done.out.as_str()), (8, ""));
        assert!(done.err.contains("cannot enforce memory"), "{}", done.err);
        bench.assert_clean();
    }
}

/// Whatever the machine: with a cgroup or without, and with no time for a reading. The command, a
/// child that it waits for, and one that it leaves behind all count.
#[test]
fn what_a_short_run_used_is_known() {
    let spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    for bench in benches() {
        let scripts = [
            "true".to_owned(),
            spin.to_owned(),
            format!("sh -c '{spin}'"),
            format!("(({spin}; : > /tmp/$$) & ); while ! test -e /tmp/$$; do sleep 0.01; done"),
        ];
        for request in [
            |b: &Bench, s: &str| b.script(s),
            |b: &Bench, s: &str| b.on_host(s),
        ] {
            let cpu_us = |script: &str| {
                let done = bench.run(&request(&bench, script));
                assert_eq!(done.code, 0, "{}", done.err);
                let used = done.event("used").unwrap().clone();
                assert!(used["max_rss"].as_u64().unwrap() > 100 << 10, "{used}");
                used["user_us"].as_u64().unwrap() + used["system_us"].as_u64().unwrap()
            };
            let [nothing, spun @ ..] = scripts.each_ref().map(|script| cpu_us(script));
            for spun in spun {
                assert!(spun > nothing + 5_000, "{spun} {nothing} {:?}", bench.who);
            }
        }
    }
}

#[test]
fn the_largest_process_is_known() {
    for bench in benches() {
        // dd keeps one block in memory.
        let done = bench.run(&bench.script("dd if=/dev/zero of=/dev/null bs=40M count=1 2>&1"));
        let used = done.event("used").unwrap();
        let max_rss = used["max_rss"].as_u64().unwrap();
        assert!((40 << 20..80 << 20).contains(&max_rss), "{used}");
    }
}

#[test]
fn samples_see_the_run() {
    for bench in benches() {
        for request in [bench.script("sleep 0.5"), bench.on_host("sleep 0.5")] {
            let done = bench.run(&request);
            let sample = done.event("sample").unwrap();
            assert!(sample["processes"].as_u64().unwrap() >= 1, "{sample}");
        }
    }
}
