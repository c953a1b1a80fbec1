//! How a command ends, and how one that cannot begin is named.

use crate::bench::benches;

#[test]
fn the_commands_own_code_comes_out() {
    for bench in benches() {
        for code in [0, 1, 42, 125, 255] {
            assert_eq!(bench.run(&bench.script(&format!("exit {code}"))).code, code);
            assert_eq!(
                bench.run(&bench.on_host(&format!("exit {code}"))).code,
                code
            );
        }
        bench.assert_clean();
    }
}

#[test]
fn a_signal_is_128_and_its_number() {
    for bench in benches() {
        for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
            let done = bench.run(&bench.script(&format!("kill -{signal} $$")));
            assert_eq!(done.code, code, "{}", done.err);
            let exit = &done.event("ended").unwrap()["exit"];
            assert_eq!(exit["signal"], code - 128);
        }
    }
}

#[test]
fn streams_pass_through() {
    use std::io::Write;
    for bench in benches() {
        for request in [
            bench.script("cat; echo wrong >&2"),
            bench.on_host("cat; echo wrong >&2"),
        ] {
            let mut child = bench.start(&request);
            child
                .stdin
                .take()
                .unwrap()
                .write_all(b"in and out\n")
                .unwrap();
            let done = bench.finish(&request, child);
            assert_eq!(
                (done.out.as_str(), done.err.as_str()),
                ("in and out\n", "wrong\n")
            );
        }
    }
}

#[test]
fn a_command_that_does_not_exist_is_named_with_the_path() {
    for bench in benches() {
        let done = bench.run(&bench.request(&["pyhton", "train.py"]));
        assert_eq!(done.code, 127);
        assert!(
            done.err.contains("`pyhton` (searched in /bin)"),
            "{}",
            done.err
        );
        let done = bench.run(&bench.request(&["/opt/venv/bin/python"]));
        assert_eq!(done.code, 127);
        assert!(
            done.err
                .contains("command not found: `/opt/venv/bin/python`"),
            "{}",
            done.err
        );
        bench.assert_clean();
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    for bench in benches() {
        std::fs::write(bench.work().join("data"), "no program").unwrap();
        std::fs::write(bench.work().join("orphan"), "#!/no/such/interpreter\n").unwrap();
        for name in ["orphan", "noise"] {
            std::fs::write(
                bench.work().join(name),
                match name {
                    "orphan" => "#!/no/such/interpreter\n",
                    _ => "\u{1}\u{2}",
                },
            )
            .unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(bench.work().join(name), executable).unwrap();
        }
        for (name, hint) in [
            ("data", "execute permission"),
            ("orphan", "interpreter that it names"),
            ("noise", "first line"),
        ] {
            let mut request = bench.request(&[&format!("/project/{name}")]);
            request.mounts.push(bench.work_mount(false));
            let done = bench.run(&request);
            assert_eq!(done.code, 126, "{}", done.err);
            assert!(done.err.contains(hint), "{name}: {}", done.err);
        }
    }
}

#[test]
fn wrong_requests_fail_before_anything_starts() {
    let Some(bench) = benches().pop() else { return };
    let wrong = |change: fn(&mut sconce_schema::RunRequest), says: &str| {
        let mut request = bench.request(&["true"]);
        change(&mut request);
        let name = request.id.clone();
        request.id = name.replace("../", "");
        let done = bench.run(&request);
        assert_eq!(done.code, 125, "{says}");
        assert!(done.err.contains(says), "{}", done.err);
        assert_eq!(done.events.len(), 0);
    };
    wrong(|r| r.command.clear(), "no command");
    wrong(|r| r.command.push("a\0b".to_owned()), "zero byte");
    wrong(|r| r.workdir = "/a/../b".into(), "/a/../b");
    wrong(
        |r| r.workdir = "/nowhere".into(),
        "working directory /nowhere",
    );
    wrong(|r| r.id = " ".to_owned(), "not an id");
    bench.assert_clean();
}

#[test]
fn the_environment_is_exactly_what_was_asked() {
    for bench in benches() {
        let mut request = bench.request(&["env"]);
        request
            .env
            .insert("GREETING".to_owned(), "süß = good".to_owned());
        let edits = sconce_schema::request::ContainerEdits {
            env: vec!["HOME=/tmp".to_owned()],
            ..Default::default()
        };
        request.edits.push(edits);
        let out = bench.run(&request).out;
        let mut lines: Vec<_> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["GREETING=süß = good", "HOME=/tmp", "PATH=/bin"]);
        let mut request = bench.on_host("echo $ADDED $PATH");
        request.env.insert("ADDED".to_owned(), "yes".to_owned());
        let out = bench.run(&request).out;
        assert!(out.starts_with("yes /"), "{out}");
    }
}
