//! Signals, and what is left when somebody dies.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::bench::{Bench, Who, benches, eventually};

fn pid(started: &Value, name: &str) -> Pid {
    Pid::from_raw(started[name].as_i64().unwrap() as i32).unwrap()
}

fn is_gone(pid: Pid) -> bool {
    // A zombie whose parent is elsewhere is gone as well.
    test_kill_process(pid).is_err()
        || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .is_ok_and(|stat| stat.contains(") Z "))
}

fn sconce(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

#[test]
fn signals_reach_the_command() {
    for bench in benches() {
        let script =
            "trap 'echo caught; exit 7' TERM INT USR1; echo ready; while :; do sleep 0.01; done";
        for request in [bench.script(script), bench.on_host(script)] {
            for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
                let mut child = bench.start(&request);
                let mut out = child.stdout.take().unwrap();
                let mut line = [0_u8; 6];
                std::io::Read::read_exact(&mut out, &mut line).unwrap();
                kill_process(sconce(&child), signal).unwrap();
                let mut rest = String::new();
                std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
                assert_eq!(rest, "caught\n");
                assert_eq!(child.wait().unwrap().code(), Some(7));
            }
        }
    }
}

#[test]
fn a_second_request_to_end_after_the_grace_ends_everything() {
    for bench in benches() {
        let script = "trap '' TERM INT; (trap '' TERM; sleep 100) & echo ready; wait; sleep 100";
        for request in [bench.script(script), bench.on_host(script)] {
            let mut child = bench.start(&request);
            let mut line = [0_u8; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            kill_process(sconce(&child), Signal::TERM).unwrap();
            // The bench's grace is 0.3 s.
            std::thread::sleep(std::time::Duration::from_millis(400));
            assert!(
                child.try_wait().unwrap().is_none(),
                "the first is the command's to take"
            );
            // On a slow machine the first may have been taken up late, and a second one be within its
            // grace: then the next is not.
            for _ in 0..50 {
                kill_process(sconce(&child), Signal::TERM).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(400));
                if child.try_wait().unwrap().is_some() {
                    break;
                }
            }
            let done = bench.finish(&request, child);
            assert_eq!(done.code, 137, "{}", done.err);
        }
    }
}

#[test]
fn children_are_gone_when_the_command_ends() {
    for bench in benches() {
        let mark = format!("1{:07}", std::process::id());
        let script = format!(
            "(setsid sleep {mark} &) ; (setsid sh -c 'sleep {mark} & sleep {mark}' &); sleep 0.1"
        );
        for request in [bench.script(&script), bench.on_host(&script)] {
            assert_eq!(bench.run(&request).code, 0);
            assert_eq!(sleeping(&mark), 0);
        }
        bench.assert_clean();
    }
}

/// Processes with `mark` as an argument.
pub(crate) fn sleeping(mark: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| line.split(|b| *b == 0).any(|arg| arg == mark.as_bytes()))
        .count()
}

/// Folders of a run in any cgroup file system, found by its name.
pub(crate) fn cgroups_of(id: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(id) {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
    }
    found
}

fn killed(bench: &Bench, request: &sconce_schema::RunRequest) -> Value {
    let mut child = bench.start(request);
    let started = bench.wait_for(request, "started");
    kill_process(sconce(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    started
}

#[test]
fn kill_9_of_sconce_ends_the_run_and_the_next_one_cleans_up() {
    for bench in benches() {
        let script = "(setsid sleep 100 &); sleep 100";
        for request in [bench.script(script), bench.on_host(script)] {
            let started = killed(&bench, &request);
            eventually("command and init are gone", || {
                is_gone(pid(&started, "pid")) && is_gone(pid(&started, "init"))
            });
            assert!(bench.state().join(&request.id).exists());
            let cgroups = started["cgroups"].as_str().unwrap().to_owned();
            assert_eq!(bench.run(&bench.request(&["true"])).code, 0);
            bench.assert_clean();
            for folder in cgroups.split('"').filter(|part| part.starts_with('/')) {
                assert!(!std::path::Path::new(folder).exists(), "{folder}");
            }
        }
    }
}

/// Killed at any moment of its set-up.
#[test]
fn kill_9_at_any_time_leaves_nothing_that_stays() {
    for bench in benches() {
        for micros in (0..12_000).step_by(700) {
            let request = bench.script("sleep 100");
            let mut child = bench.start(&request);
            std::thread::sleep(std::time::Duration::from_micros(micros));
            let _ = kill_process(sconce(&child), Signal::KILL);
            child.wait().unwrap();
        }
        eventually("everything is swept", || {
            assert_eq!(bench.run(&bench.request(&["true"])).code, 0);
            std::fs::read_dir(bench.state()).unwrap().count() == 0
        });
        let name = bench
            .folder
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        for own in std::fs::read_to_string("/proc/self/cgroup")
            .unwrap()
            .lines()
        {
            let parts: Vec<_> = own.splitn(3, ':').collect();
            let folder = format!("/sys/fs/cgroup/{}{}/sconce", parts[1], parts[2]);
            let left = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let ours = left.filter(|e| e.file_name().to_string_lossy().starts_with(&name));
            assert_eq!(ours.count(), 0, "{folder}");
        }
    }
}

#[test]
fn two_runs_of_one_name_are_refused() {
    let Some(bench) = benches().pop() else { return };
    let first = bench.script("sleep 100");
    let mut child = bench.start(&first);
    bench.wait_for(&first, "started");
    let mut second = bench.script("true");
    second.id.clone_from(&first.id);
    let file = bench.folder.path().join("second.json");
    std::fs::write(&file, serde_json::to_vec(&second).unwrap()).unwrap();
    let done = bench.run(&second);
    assert_eq!(done.code, 125);
    assert!(done.err.contains("goes on already"), "{}", done.err);
    kill_process(sconce(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    bench.assert_clean();
}

/// The store of the killed run is gone, and with it the note of its cgroups.
#[test]
fn cgroups_of_a_killed_run_go_with_the_next_run_of_any_store() {
    for bench in benches() {
        let lives = bench.request(&["sleep", "100"]);
        let mut other = bench.start(&lives);
        let living = bench.wait_for(&lives, "started");
        let request = bench.request(&["sleep", "100"]);
        let started = killed(&bench, &request);
        eventually("all are gone", || is_gone(pid(&started, "pid")));
        eventually("the first process is gone", || {
            is_gone(pid(&started, "init"))
        });
        if cgroups_of(&request.id).is_empty() {
            assert_eq!(bench.who, Who::Plain, "root can make cgroups");
            sconce_testkit::report_skip("delegated-cgroup", "as a plain user: no cgroup");
        }
        let lock = bench.state().join(format!("{}.lock", request.id));
        std::fs::remove_file(lock).unwrap();
        // Out of the way: an overlay's own folders there may be nobody's to remove.
        let gone = bench.folder.path().join("gone");
        std::fs::rename(bench.state().join(&request.id), gone).unwrap();
        let before = cgroups_of(&lives.id);
        // A helper of the killed run may take a moment longer, and then a later run removes them.
        eventually("its cgroups are gone", || {
            assert_eq!(bench.run(&bench.request(&["true"])).code, 0);
            cgroups_of(&request.id).is_empty()
        });
        // What lives keeps its own.
        assert_eq!(cgroups_of(&lives.id), before);
        assert!(!is_gone(pid(&living, "pid")));
        kill_process(sconce(&other), Signal::KILL).unwrap();
        other.wait().unwrap();
    }
}
