//! Limits: enforced, or said not to be.

use sconce_schema::request::{NumaPlacement, RunLimits};
use sconce_schema::units::{Bytes, LockedMemory, Millicores};

use crate::bench::{Bench, Who, benches, root_bench};

/// A bench for each user whose limits this machine enforces.
fn enforcing() -> impl Iterator<Item = Bench> {
    benches().into_iter().filter(|bench| {
        let limits = RunLimits {
            cpus: Some(Millicores(1000)),
            memory: Some(Bytes::from_gib(1)),
            pids: Some(1000),
            ..RunLimits::default()
        };
        let done = bench.run(&limited(bench, "true", limits));
        let said = done.event("unenforced");
        assert!(said.is_none() || bench.who == Who::Plain, "{said:?}");
        if let Some(said) = said {
            let why = format!("as {:?}: {said}", bench.who);
            sconce_testkit::report_skip("delegated-cgroup", why);
        }
        said.is_none()
    })
}

fn limited(bench: &Bench, script: &str, limits: RunLimits) -> sconce_schema::RunRequest {
    sconce_schema::RunRequest {
        limits,
        ..bench.script(script)
    }
}

#[test]
fn a_kill_for_memory_is_named_with_the_limit() {
    for bench in enforcing() {
        let limits = RunLimits {
            memory: Some(Bytes::from_mib(32)),
            ..RunLimits::default()
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
    for bench in benches() {
        let limits = RunLimits {
            pids: Some(8),
            ..RunLimits::default()
        };
        let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait";
        let done = bench.run(&limited(&bench, script, limits));
        // By a cgroup, or by what each process carries: Linux 5.14 counts that by user namespace.
        assert_eq!(done.event("unenforced"), None, "as {:?}", bench.who);
        assert!(done.err.contains("can't fork"), "{} {}", done.out, done.err);
        let fits = "for i in 1 2 3 4 5 6 7; do sleep 0.1 & done; wait; echo all";
        let done = bench.run(&limited(&bench, fits, limits));
        assert_eq!(done.out, "all\n", "as {:?}: {}", bench.who, done.err);
        bench.assert_clean();
    }
}

#[test]
fn cpu_limits_stand_in_the_cgroup() {
    for bench in enforcing() {
        let limits = RunLimits {
            cpus: Some(Millicores(1500)),
            memory: Some(Bytes::from_mib(64)),
            pids: Some(100),
            ..RunLimits::default()
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
    use sconce_schema::request::{ContainerEdits, ContainerUser, DeviceNode};
    let Some(bench) = root_bench() else { return };
    if !std::path::Path::new("/dev/kmsg").exists() {
        sconce_testkit::report_skip("dev-kmsg", "this machine has no /dev/kmsg");
        return;
    }
    for (minor, says) in [(11, ""), (12, "Operation not permitted")] {
        let mut request = bench.script(": >> /dev/given && echo opened; echo x > /dev/null");
        request.user = ContainerUser::Root;
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
        let limits = RunLimits {
            memory: Some(Bytes::from_mib(64)),
            ..RunLimits::default()
        };
        let request = limited(&bench, "echo ran", limits);
        let done = bench.run(&request);
        let Some(said) = done.event("unenforced") else {
            let why = "this machine lets a plain user limit memory";
            sconce_testkit::report_skip("memory-is-delegated", why);
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

/// What the command sees of a limit that it carries itself: `kind` is busybox's letter.
fn ulimit(bench: &Bench, kind: &str, limits: RunLimits) -> [(String, bool); 2] {
    let script = format!("ulimit -H -{kind}; ulimit -S -{kind}");
    let contained = bench.run(&limited(bench, &script, limits));
    let on_host = bench.run(&sconce_schema::RunRequest {
        limits,
        ..bench.on_host(&script)
    });
    [contained, on_host].map(|done| {
        assert_eq!(done.code, 0, "{}", done.err);
        (done.out.clone(), done.event("unenforced").is_some())
    })
}

/// Whether root here has CAP_IPC_LOCK, the 14th (capabilities(7)).
fn may_lock() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() >> 14 & 1 == 1
}

#[test]
fn open_files_and_locked_memory_are_the_commands_own() {
    for bench in benches() {
        let files = RunLimits {
            nofile: Some(123),
            ..RunLimits::default()
        };
        for seen in ulimit(&bench, "n", files) {
            assert_eq!(seen, ("123\n123\n".to_owned(), false));
        }
        let locked = RunLimits {
            memlock: Some(LockedMemory::Limited(Bytes::from_kib(48))),
            ..RunLimits::default()
        };
        let [contained, on_host] = ulimit(&bench, "l", locked);
        assert_eq!(contained, ("48\n48\n".to_owned(), false));
        // Root of the machine is not held to it, which is said.
        assert_eq!(
            on_host,
            ("48\n48\n".to_owned(), bench.who == Who::Root && may_lock())
        );
        // Without limit, or as far as the caller may, which is said.
        let unlimited = RunLimits {
            memlock: Some(LockedMemory::Unlimited),
            ..RunLimits::default()
        };
        for (text, said) in ulimit(&bench, "l", unlimited) {
            assert_eq!(text != "unlimited\nunlimited\n", said, "{text}");
        }
        // More than anyone is given: the most there is, and that is said.
        let everything = RunLimits {
            nofile: Some(u64::MAX),
            ..RunLimits::default()
        };
        for (text, said) in ulimit(&bench, "n", everything) {
            assert!(
                said && text.lines().all(|line| line.parse::<u64>().unwrap() > 123),
                "{text}"
            );
        }
    }
}

#[test]
fn a_command_runs_on_the_cpus_that_were_named() {
    for bench in benches() {
        let limits = RunLimits {
            cpuset: "0".parse().ok(),
            ..RunLimits::default()
        };
        // It tries to get the others back, which a cgroup does not let it.
        let script = "grep Cpus_allowed_list /proc/self/status | cut -f2; \
                      taskset ffff grep Cpus_allowed_list /proc/self/status | cut -f2";
        for request in [
            limited(&bench, script, limits),
            sconce_schema::RunRequest {
                limits,
                ..bench.on_host(script)
            },
        ] {
            let done = bench.run(&request);
            let lines: Vec<_> = done.out.lines().collect();
            assert_eq!(lines.first(), Some(&"0"), "{} {}", done.out, done.err);
            match done.event("unenforced") {
                None => assert_eq!(lines.get(1), Some(&"0"), "{:?}: {}", bench.who, done.out),
                Some(said) => {
                    assert_eq!(
                        (bench.who, &said[0]["what"]),
                        (Who::Plain, &"cpuset".into())
                    );
                }
            }
        }
        bench.assert_clean();
    }
}

fn keeps_affinity() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

#[test]
fn a_run_starts_next_to_its_cards() {
    for bench in benches() {
        let near = Some(NumaPlacement {
            nodes: "0".parse().unwrap(),
            cpus: "0".parse().ok(),
        });
        let script = "grep Cpus_allowed_list /proc/self/status | cut -f2; \
                      grep -q prefer:0 /proc/self/numa_maps && echo preferred";
        for request in [bench.script(script), bench.on_host(script)] {
            let done = bench.run(&sconce_schema::RunRequest { near, ..request });
            assert_eq!(done.event("unenforced"), None);
            // Before Linux 6.2 every change of cpuset controllers, here by the tests beside this one, gives
            // all tasks below all CPUs again.
            if keeps_affinity() {
                assert_eq!(done.out.lines().next(), Some("0"), "{}", done.err);
            }
            if std::path::Path::new("/proc/self/numa_maps").exists() {
                assert!(done.out.ends_with("preferred\n"), "{}", done.out);
            }
        }
        // A node that is not there is said, and the command runs.
        let far = Some(NumaPlacement {
            nodes: "1000".parse().unwrap(),
            cpus: None,
        });
        let done = bench.run(&sconce_schema::RunRequest {
            near: far,
            ..bench.script("echo ran")
        });
        assert_eq!(done.out, "ran\n", "{}", done.err);
        assert_eq!(done.event("unenforced").unwrap()[0]["what"], "numa");
    }
}

/// Swap, weight and huge pages: held by a file of the cgroup, or said.
#[test]
fn each_other_limit_stands_in_the_cgroup_or_is_said() {
    for bench in enforcing() {
        let limits = RunLimits {
            memory: Some(Bytes::from_mib(64)),
            memory_swap: Some(Bytes::from_mib(96)),
            io_weight: Some(50),
            hugepages: Some(Bytes::from_mib(4)),
            ..RunLimits::default()
        };
        let request = limited(&bench, "sleep 60", limits);
        let mut child = bench.start(&request);
        let started = bench.wait_for(&request, "started");
        // blkio and hugetlb keep no account, and are not named.
        let id = &request.id;
        let mut folders = Vec::new();
        let named = started["cgroups"].as_str().unwrap();
        folders.extend(
            named
                .split('"')
                .filter(|part| part.starts_with('/'))
                .map(str::to_owned),
        );
        for v1 in ["blkio", "hugetlb", "unified"] {
            folders.push(format!("/sys/fs/cgroup/{v1}/sconce/{id}"));
        }
        let read = |names: &[&str]| {
            let files = folders
                .iter()
                .flat_map(|f| names.iter().map(move |n| format!("{f}/{n}")));
            let mut found = files.filter_map(|file| std::fs::read_to_string(file).ok());
            found
                .next()
                .map(|text| text.lines().next().unwrap_or_default().to_owned())
        };
        let events = bench.told(&request, "unenforced");
        let said = |what: &str| {
            let list = events.as_ref().and_then(|said| said.as_array());
            list.is_some_and(|list| list.iter().any(|one| one["what"] == what))
        };
        for (what, names, values) in [
            (
                "memory-swap",
                &["memory.swap.max", "memory.memsw.limit_in_bytes"][..],
                &[32_u64 << 20, 96 << 20][..],
            ),
            (
                "hugepages",
                &["hugetlb.2MB.max", "hugetlb.2MB.limit_in_bytes"],
                &[4 << 20],
            ),
        ] {
            let found = read(names).map(|text| text.parse::<u64>().unwrap());
            let holds = found.is_some_and(|found| values.contains(&found));
            assert!(holds != said(what), "{what}: {found:?}, {events:?}");
        }
        let weight = read(&["io.weight", "io.bfq.weight", "blkio.bfq.weight"]);
        let holds = weight.as_deref().is_some_and(|text| text.ends_with("50"));
        assert!(holds != said("io-weight"), "{weight:?} {events:?}");
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        let _ = child.wait().unwrap();
        bench.assert_clean();
        assert!(!std::path::Path::new(&format!("/sys/fs/cgroup/blkio/sconce/{id}")).exists());
    }
}

#[test]
fn limits_that_cannot_be_meant_are_refused() {
    for bench in benches() {
        let none = RunLimits::default();
        for (limits, says) in [
            (
                RunLimits {
                    memory: Some(Bytes(0)),
                    ..none
                },
                "`memory` is nothing",
            ),
            (
                RunLimits {
                    shm: Some(Bytes(0)),
                    ..none
                },
                "`shm` is nothing",
            ),
            (
                RunLimits {
                    nofile: Some(0),
                    ..none
                },
                "`nofile` is nothing",
            ),
            (
                RunLimits {
                    pids: Some(0),
                    ..none
                },
                "`pids` is nothing",
            ),
            (
                RunLimits {
                    cpus: Some(Millicores(60_000_000)),
                    ..none
                },
                "60000 CPUs were asked for",
            ),
            (
                RunLimits {
                    memory: Some(Bytes(1 << 60)),
                    ..none
                },
                "of memory were asked for",
            ),
            (
                RunLimits {
                    cpuset: "0,1023".parse().ok(),
                    ..none
                },
                "there is no CPU 1023 here",
            ),
            (
                RunLimits {
                    memory_swap: Some(Bytes::from_gib(1)),
                    ..none
                },
                "needs a limit of `memory`",
            ),
            (
                RunLimits {
                    memory: Some(Bytes::from_mib(64)),
                    memory_swap: Some(Bytes::from_mib(32)),
                    ..none
                },
                "32 MiB is less than the 64 MiB",
            ),
        ] {
            let done = bench.run(&limited(&bench, "echo ran", limits));
            assert_eq!((done.code, done.out.as_str()), (3, ""), "{says}");
            assert!(done.err.contains(says), "{}", done.err);
        }
    }
}
