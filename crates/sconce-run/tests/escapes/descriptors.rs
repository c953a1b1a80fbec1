//! What is open, and where it leads: CVE-2024-21626, CVE-2019-5736, TIOCSTI.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, unlockpt};

use crate::bench::{Bench, benches};
use crate::tools::{USERS, busybox, layer, run_as, with_probe};

/// CVE-2024-21626: a working directory, or a program's path, that is a descriptor which the runtime has
/// still open leads into the machine's own file system.
#[test]
fn no_descriptor_is_a_way_out() {
    for bench in benches() {
        for user in USERS {
            for number in (0..14).chain([98]) {
                let fd = format!("/proc/self/fd/{number}");
                let mut request = bench.script("echo ran; ls -a .. ../.. ../../..");
                request.user = user;
                request.workdir = fd.clone().into();
                let done = bench.run(&request);
                assert_eq!(
                    (done.code, done.out.as_str()),
                    (125, ""),
                    "{:?} {fd}",
                    bench.who
                );
                assert!(done.err.contains("working directory"), "{}", done.err);
            }
        }
        // Only init itself could follow these; the image has no other program of that name.
        for number in 3..16 {
            for way in [
                "bin/busybox",
                "../../../../../bin/busybox",
                "../../../../../bin/true",
            ] {
                let program = format!("/proc/self/fd/{number}/{way}");
                let done = bench.run(&bench.request(&[&program, "echo", "ran"]));
                assert_ne!(done.code, 0, "{program}");
                assert_eq!(done.out, "", "{program}");
            }
        }
    }
}

/// The same by a link in the image.
#[test]
fn a_link_to_a_descriptor_is_no_working_directory() {
    for bench in benches() {
        let mut request = bench.script("echo ran");
        let top = layer(&bench, &mut request, "links");
        for number in 3..12 {
            symlink(
                format!("/proc/self/fd/{number}"),
                top.join(format!("fd{number}")),
            )
            .unwrap();
            request.workdir = format!("/fd{number}").into();
            request.id = format!("{}-{number}", request.id);
            let done = bench.run(&request);
            assert_eq!(
                (done.code, done.out.as_str()),
                (125, ""),
                "{number}: {}",
                done.err
            );
        }
        symlink("/proc/self/root/bin", top.join("magic")).unwrap();
        symlink("bin", top.join("plain")).unwrap();
        for (link, code) in [("/magic", 125), ("/plain", 0)] {
            let mut request = bench.script("test -e busybox");
            layer(&bench, &mut request, "links");
            request.workdir = link.into();
            assert_eq!(bench.run(&request).code, code, "{link}");
        }
    }
}

/// What the caller of Sconce has open stays the caller's.
#[test]
fn descriptors_of_the_caller_stay_outside() {
    for bench in benches() {
        let seen = "ls /proc/self/fd; ls /proc/self/fd/9/ 2>&1";
        let leaky =
            r#"exec 9</ 8<"$3"; ls /proc/self/fd/9/etc >/dev/null && echo open >&2; exec "$@""#;
        let done = bench.run_from(&bench.script(seen), false, leaky);
        assert!(
            done.err.starts_with("open\n"),
            "the caller has it: {}",
            done.err
        );
        // Three streams, and the folder that ls itself reads.
        assert!(done.out.starts_with("0\n1\n2\n3\n"), "{}", done.out);
        assert!(
            !done.out.contains("\n9\n") && done.out.contains("No such file"),
            "{}",
            done.out
        );
        let mut request = bench.script("echo ran");
        request.workdir = "/proc/self/fd/9".into();
        let done = bench.run_from(&request, false, leaky);
        assert_eq!((done.code, done.out.as_str()), (125, ""), "{}", done.err);
    }
}

/// CVE-2019-5736: an image that has the runtime execute itself, by name, by link and as the interpreter
/// of a script. The file that it finds cannot be changed through it.
#[test]
fn the_program_of_an_image_cannot_be_sconce() {
    for bench in benches() {
        for user in USERS {
            let program = bench.folder.path().join("contained");
            let before = std::fs::read(&program).unwrap();
            let mut base = bench.script("true");
            let top = layer(&bench, &mut base, "entrypoint");
            if !top.join("script").exists() {
                symlink("/proc/self/exe", top.join("link")).unwrap();
                std::fs::write(top.join("script"), "#!/proc/self/exe\n").unwrap();
                std::fs::set_permissions(top.join("script"), PermissionsExt::from_mode(0o755))
                    .unwrap();
            }
            for command in ["/proc/self/exe", "/link", "/script"] {
                // The image brings the libraries, and so the code that runs.
                let mut request = bench.request(&[command]);
                request.user = user;
                layer(&bench, &mut request, "entrypoint");
                with_probe(&bench, &mut request);
                let done = bench.run(&request);
                assert_ne!(done.code, 0, "{command}");
            }
            assert_eq!(std::fs::read(&program).unwrap(), before);
        }
        // A program's own file can be changed through that link, where nothing keeps it from that.
        let mut request =
            bench.script("cp /bin/probe /tmp/mine; /tmp/mine overwrite-self; probe overwrite-self");
        with_probe(&bench, &mut request);
        let done = bench.run(&request);
        assert!(
            done.out.starts_with("done\n"),
            "{:?} {} {}",
            bench.who,
            done.out,
            done.err
        );
    }
}

/// While it runs, a container's process 1 is Sconce: nothing of it can be had for writing, not even when
/// it has ended and nobody executes the file any more.
#[test]
fn the_file_of_process_1_cannot_be_opened() {
    for bench in benches() {
        for user in USERS {
            let mut request = bench.script(
                "for way in '<' '>>' '<>'; do (eval \"exec 3$way /proc/1/exe\") && echo open; done 2>&1; \
                 ls -l /proc/1/exe /proc/1/cwd /proc/1/root 2>&1; ls /proc/1/fd /proc/1/map_files 2>&1; \
                 cat /proc/1/maps /proc/1/environ 2>&1; chmod 777 /proc/1/exe 2>&1",
            );
            request.user = user;
            let done = bench.run(&request);
            assert!(
                !done.out.contains("open\n") && !done.out.contains("->"),
                "{}",
                done.out
            );
            assert!(
                done.out.matches("ermission denied").count() >= 1,
                "{}",
                done.out
            );
        }
    }
}

/// A terminal whose session is a shell's, as when a person types `sconce run`: the run has it as its
/// standard input, and must not type into it.
#[test]
fn nothing_is_typed_into_the_callers_terminal() {
    let old = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    for bench in benches() {
        for user in USERS {
            let mut request =
                bench.script("probe type-in; setsid -c probe type-in; setsid probe type-in");
            request.user = user;
            with_probe(&bench, &mut request);
            let inner = bench.command(&request, false);
            let mut words = vec![inner.get_program().to_owned()];
            words.extend(inner.get_args().map(ToOwned::to_owned));
            let said = in_a_terminal(&bench, &words);
            assert!(said.lines().count() >= 1, "it tried");
            assert!(!said.contains("done"), "{:?} {user:?} {said}", bench.who);
        }
        if old.trim() == "0" {
            let why = format!("as {:?}: this kernel has no TIOCSTI for anybody", bench.who);
            sconce_testkit::report_skip("tiocsti", why);
            continue;
        }
        let probe = bench.folder.path().join("probe-outside");
        std::fs::copy(env!("CARGO_BIN_EXE_probe"), &probe).unwrap();
        let words = [probe.into_os_string(), "type-in".into()];
        assert_eq!(in_a_terminal(&bench, &words), "done", "outside it works");
    }
}

/// The output of a command whose input is a terminal that is its session's.
fn in_a_terminal(bench: &Bench, words: &[std::ffi::OsString]) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave =
        rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let mut command = busybox(bench);
    command
        .args(["setsid", "-c", "sh", "-c", "\"$@\"; true", "sh"])
        .args(words)
        .stdin(Stdio::from(slave));
    let said = run_as(bench, &mut command);
    drop(master);
    said
}
