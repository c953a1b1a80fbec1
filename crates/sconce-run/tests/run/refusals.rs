//! What the kernel refuses on some machines, refused here for real.

use sconce_schema::request::ContainerUser;

use crate::bench::{NOBODY_IN_PARTICULAR, Who, benches, root_bench};

/// Puts the state folder on an overlay file system, which cannot be an upper layer itself.
const STATE_ON_OVERLAY: &str = r#"
    mkdir "$3/lower" "$3/upper" "$3/work"
    mount -t overlay -o "lowerdir=$3/lower,upperdir=$3/upper,workdir=$3/work" overlay "$3"
    exec "$@"
"#;

#[test]
fn a_state_folder_that_cannot_hold_a_writable_layer() {
    for bench in benches() {
        let mut request = bench.script(
            "echo a > /tmp/a; echo b > ~/b; mkdir -p /project/sub; echo c > /project/sub/c; \
             cat /tmp/a ~/b /etc/hostname; stat -c '%a %u' / /tmp ~; df -P / | tail -1",
        );
        request.mounts.push(bench.work_mount(false));
        let done = bench.run_from(&request, false, STATE_ON_OVERLAY);
        assert_eq!(done.code, 0, "{:?} {}", bench.who, done.err);
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!(lines[..3], ["a", "b", request.id.as_str()]);
        let root = if bench.who == Who::Root {
            "755 0"
        } else {
            "755 1000"
        };
        assert_eq!(lines[3], root);
        assert!(lines[4].starts_with("1777 "), "{}", lines[4]);
        assert_eq!(lines[5], "755 1000");
        assert_eq!(
            std::fs::read_to_string(bench.work().join("sub/c")).unwrap(),
            "c\n"
        );
        let said = &done.events[0]["unenforced"];
        assert_eq!(said[0]["what"], "writable root on disk", "{said}");
        assert!(said[0]["why"].as_str().unwrap().contains("in memory"));
    }
}

#[test]
fn strictly_that_is_an_error() {
    for bench in benches() {
        let request = bench.script("echo ran");
        let done = bench.run_from(&request, true, STATE_ON_OVERLAY);
        assert_eq!((done.code, done.out.as_str()), (8, ""), "{}", done.err);
        assert!(done.err.contains("writable root on disk"), "{}", done.err);
        assert!(
            done.err.contains("hint: put the state folder"),
            "{}",
            done.err
        );
    }
}

/// Root inside changes the image exactly as far as it can with the writable layer on disk.
#[test]
fn an_image_can_be_changed_in_memory() {
    for bench in benches() {
        let script = "rm /bin/vi; test -e /bin/vi || echo mine > /etc/passwd; cat /etc/passwd; \
             mv /etc/passwd /var/p && cat /var/p";
        let request = |user| {
            let mut request = bench.script(script);
            request.user = user;
            request
        };
        let on_disk = bench.run(&request(ContainerUser::Root));
        let in_memory = bench.run_from(&request(ContainerUser::Root), false, STATE_ON_OVERLAY);
        assert_eq!(
            in_memory.out, on_disk.out,
            "{:?} {}",
            bench.who, in_memory.err
        );
        assert_eq!(in_memory.err, on_disk.err);
        assert!(in_memory.event("unenforced").is_some());
        // As a plain user with an image of another user's, nothing can be changed either way.
        if bench.who == Who::Root {
            assert_eq!(in_memory.out, "mine\nmine\n", "{}", in_memory.err);
        }
        assert!(bench.folder.path().join("base/bin/vi").is_symlink());
    }
}

/// The setting belongs to a user namespace and holds for those below it, so that one of the test's
/// own shows what a whole machine with it does.
#[test]
fn without_user_namespaces_the_setting_is_named() {
    for bench in benches()
        .into_iter()
        .filter(|bench| bench.who == Who::Plain)
    {
        let forbid = r#"echo 0 > /proc/sys/user/max_user_namespaces; exec "$@""#;
        let done = bench.run_from(&bench.script("echo ran"), false, forbid);
        assert_eq!((done.code, done.out.as_str()), (125, ""), "{}", done.err);
        for says in [
            "needs user namespaces",
            "because: user namespaces are switched off (sysctl user.max_user_namespaces is 0)",
            "hint: run `sudo sysctl user.max_user_namespaces=15000`, or run as root",
        ] {
            assert!(done.err.contains(says), "{}", done.err);
        }
        bench.assert_clean();
        // The command alone needs none.
        let done = bench.run_from(&bench.on_host("echo ran"), false, forbid);
        assert_eq!((done.code, done.out.as_str()), (0, "ran\n"), "{}", done.err);
    }
}

/// As the machine's root no user namespace is needed but for the owners of mounts. A namespace that
/// has every id stands for a machine on which the setting is 0.
#[test]
fn root_runs_without_user_namespaces_and_says_what_is_missing() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let Some(bench) = root_bench() else { return };
    let owner = Some(NOBODY_IN_PARTICULAR);
    std::os::unix::fs::chown(bench.work(), owner, owner).unwrap();
    let mut request = bench.script("stat -c %u /project");
    request.mounts.push(bench.work_mount(false));
    let inner = bench.command(&request, false);
    // Only a program started when the ids are there has root's capabilities.
    let forbid = r#"echo 0 > /proc/sys/user/max_user_namespaces; exec "$@""#;
    let script = r#"echo made; read _; exec sh -e -c "$FORBID" sh "$@""#;
    let mut child = Command::new(bench.folder.path().join("base/bin/busybox"))
        .env("FORBID", forbid)
        .args(["unshare", "-m", "-U", "sh", "-e", "-c", script, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{}/{map}", child.id()), "0 0 4294967295").unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let done = bench.finish(&request, child);
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(line, format!("{NOBODY_IN_PARTICULAR}\n"));
    let said = done.events[0]["unenforced"].as_array().unwrap();
    let owner = said
        .iter()
        .find(|u| u["what"] == "owner of /project")
        .unwrap();
    assert!(
        owner["why"]
            .as_str()
            .unwrap()
            .contains("user.max_user_namespaces is 0")
    );
    assert!(
        owner["hint"]
            .as_str()
            .unwrap()
            .contains("user.max_user_namespaces=15000")
    );
}

/// As a program does that writes a file under that name as root. crun takes the number of what is at
/// /dev/null for that of every pipe then (0), and the command's output was lost without a word.
#[test]
fn a_machine_whose_devices_were_replaced_is_said() {
    for bench in crate::bench::benches() {
        let file = bench.folder.path().join("file");
        std::fs::write(&file, "{}").unwrap();
        for name in ["null", "urandom"] {
            let script = format!("mount --bind {} /dev/{name}; exec \"$@\"", file.display());
            let done = bench.run_from(&bench.script("echo output"), false, &script);
            assert_eq!((done.code, done.out.as_str()), (125, ""), "{}", done.err);
            let said = format!("/dev/{name} of this machine is not the device");
            assert!(done.err.contains(&said), "{}", done.err);
            assert!(done.err.contains("mknod -m 666"), "{}", done.err);
        }
    }
    // Some machines have urandom's node for random.
    for bench in crate::bench::benches() {
        let script = "mount --bind /dev/urandom /dev/random; exec \"$@\"";
        let done = bench.run_from(&bench.script("echo output"), false, script);
        assert_eq!(
            (done.code, done.out.as_str()),
            (0, "output\n"),
            "{}",
            done.err
        );
    }
}
