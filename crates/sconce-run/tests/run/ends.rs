//! A run ends with its command, whatever that leaves behind and whoever reads what it writes, by
//! every runtime.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, unlockpt};
use sconce_schema::{RunRequest, Runtime};

use super::death::{cgroups_of, sleeping};
use super::runtimes::each;
use crate::bench::{Bench, Done, eventually};

/// Waits for the end of a run that may not end; kills it then.
fn finish(bench: &Bench, request: &RunRequest, mut child: Child) -> Done {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{:?} {:?}: still runs", bench.runtime, request.command);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    bench.finish(request, child)
}

fn assert_nothing_is_left(bench: &Bench, request: &RunRequest, mark: &str) {
    let context = || format!("{:?} {:?}", bench.runtime, request.command);
    assert_eq!(sleeping(mark), 0, "{}", context());
    assert!(cgroups_of(&request.id).is_empty(), "{}", context());
    bench.assert_clean();
}

/// An argument of `sleep` that no other test has.
fn mark(bench: &Bench) -> String {
    format!("3{:06}{}", std::process::id(), bench.runtime as u8)
}

#[test]
fn processes_in_the_background_do_not_keep_a_run() {
    each(|bench| {
        let mark = mark(bench);
        let stubborn = "trap \"\" TERM HUP INT; while :; do sleep MARK; done";
        for script in [
            "sleep MARK & exit 3".to_owned(),
            "sleep MARK >/dev/null 2>&1 </dev/null & exit 3".to_owned(),
            "(setsid sleep MARK &); exit 3".to_owned(),
            format!("(setsid sh -c '{stubborn}' &); sleep 0.3; exit 3"),
            "for i in 1 2 3 4 5; do (setsid sh -c 'sleep MARK & sleep MARK' &); done; exit 3"
                .to_owned(),
            "sleep MARK & kill -9 $$".to_owned(),
        ] {
            let request = bench.script(&script.replace("MARK", &mark));
            let done = finish(bench, &request, bench.start(&request));
            let code = if script.contains("kill") { 137 } else { 3 };
            assert_eq!(
                done.code, code,
                "{:?} {script}: {}",
                bench.runtime, done.err
            );
            assert_nothing_is_left(bench, &request, &mark);
        }
    });
}

#[test]
fn a_watcher_ends_a_run_that_nobody_asked_to_end() {
    each(|bench| {
        let mark = mark(bench);
        let plain = "touch /project/ready; exec sleep MARK";
        let stubborn = "trap \"\" TERM; touch /project/ready; while :; do sleep MARK; done";
        let ready = bench.work().join("ready");
        for (script, code) in [(plain, 143), (stubborn, 137)] {
            let mut request = bench.script(&script.replace("MARK", &mark));
            request.mounts.push(bench.work_mount(false));
            let mut command = bench.command(&request, false);
            command.arg(format!("--end-when={}", ready.display()));
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let child = command.spawn().unwrap();
            let done = finish(bench, &request, child);
            assert_eq!(
                done.code, code,
                "{:?} {script}: {}",
                bench.runtime, done.err
            );
            let used = bench.told(&request, "asked-to-end");
            assert_eq!(used, Some(false.into()), "{:?}", bench.runtime);
            std::fs::remove_file(&ready).unwrap();
            assert_nothing_is_left(bench, &request, &mark);
        }
    });
}

#[test]
fn signals_end_a_run_with_processes_in_the_background() {
    each(|bench| {
        let mark = mark(bench);
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let request = bench.script(&format!(
                "(trap '' TERM HUP INT; setsid sleep {mark} &); echo ready; exec sleep {mark}"
            ));
            let mut child = bench.start(&request);
            let mut line = [0_u8; 6];
            child
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut line)
                .unwrap();
            kill_process(Pid::from_child(&child), signal).unwrap();
            let done = finish(bench, &request, child);
            assert_eq!(
                done.code, code,
                "{:?} {signal:?}: {}",
                bench.runtime, done.err
            );
            assert_nothing_is_left(bench, &request, &mark);
        }
    });
}

/// The last words of a command are what a failure is explained by. They arrive as they were written.
#[test]
fn what_a_command_says_last_is_known_and_arrives() {
    let last_output = |done: &Done| done.event("last-output").cloned().unwrap();
    each(|bench| {
        let request = bench.script("echo result; echo why >&2; exit 3");
        let done = finish(bench, &request, bench.start(&request));
        assert_eq!(
            (done.code, done.out.as_str(), done.err.as_str()),
            (3, "result\n", "why\n"),
            "{:?}",
            bench.runtime
        );
        assert_eq!(last_output(&done), "why\n", "{:?}", bench.runtime);

        // One file for both, as in `> log 2>&1`: the order stays.
        let script = "for i in 1 2 3 4; do echo out $i; echo err $i >&2; done; exit 4";
        let request = bench.script(script);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = bench.command(&request, false);
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let done = finish(bench, &request, child);
        assert_eq!(done.code, 4, "{:?}", bench.runtime);
        assert_eq!(last_output(&done), text, "{:?}", bench.runtime);
        let mut lines: Vec<&str> = text.lines().collect();
        // Engines that copy each stream themselves mix them.
        if !matches!(bench.runtime, Runtime::Sconce | Runtime::Crun) {
            lines.sort_by_key(|line| line.as_bytes()[4]);
        }
        let numbers: Vec<u8> = lines.iter().map(|line| line.as_bytes()[4]).collect();
        assert_eq!(numbers, *b"11223344", "{:?} {text}", bench.runtime);
        bench.assert_clean();
    });
}

/// As in `sconce run … | head -1`.
#[test]
fn a_reader_that_goes_away_ends_the_command_and_not_the_engine() {
    each(|bench| {
        for (script, code, says) in [
            ("exec yes", 141, ""),
            // Who does without the signal gets the error of the write.
            (
                "trap '' PIPE; yes 2>/dev/null; echo $? >&2; exit 5",
                5,
                "1\n",
            ),
        ] {
            let request = bench.script(script);
            let mut child = bench.start(&request);
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            let done = finish(bench, &request, child);
            assert_eq!(line, "y\n");
            assert_eq!(
                (done.code, done.err.as_str()),
                (code, says),
                "{:?} {:?} {script}",
                bench.who,
                bench.runtime
            );
            eventually("everything is gone", || cgroups_of(&request.id).is_empty());
        }
    });
}

/// The same as a person has it, whose terminal is where the keys and the errors are. podman hands no
/// terminal over, copies, and ends by itself.
#[test]
fn a_reader_that_goes_away_is_told_alike_in_a_terminal() {
    each(|bench| {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, slave).unwrap();
        let request = bench.script("exec yes");
        let mut child = bench
            .command(&request, false)
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::piped())
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let done = finish(bench, &request, child);
        assert_eq!(
            (line.as_str(), done.code),
            ("y\n", 141),
            "{:?}",
            bench.runtime
        );
        let mut said = vec![0; 4096];
        let count = rustix::io::read(&master, &mut said).unwrap_or(0);
        let said = String::from_utf8_lossy(&said[..count]);
        assert!(
            !said.contains("level=warning"),
            "{:?}: {said}",
            bench.runtime
        );
    });
}

/// A scheduler may end a job as soon as it has begun.
#[test]
fn a_command_handles_a_signal_in_its_first_moment() {
    each(|bench| {
        let script = "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.1; done";
        let request = bench.script(script);
        let mut child = bench.start(&request);
        let mut line = [0_u8; 3];
        let output = child.stdout.as_mut().unwrap();
        output.read_exact(&mut line).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let done = finish(bench, &request, child);
        assert_eq!(
            (done.code, done.out.as_str()),
            (9, "bye\n"),
            "{:?} {:?}: {}",
            bench.who,
            bench.runtime,
            done.err
        );
    });
}
