//! `sconce cdi`: what the program says, and what real engines make of what it writes.
//!
//! A machine with cards is played in a mount namespace of its own (`cdi/machine.sh`), which needs root.
//! In it podman is started; its cards are the nodes of /dev/null and the like.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What a run of the program, or of a script, showed.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

fn done(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

fn sconce(home: &Path, words: &[&str]) -> Done {
    done(
        Command::new(env!("CARGO_BIN_EXE_sconce"))
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home),
    )
}

fn has_driver() -> bool {
    Path::new("/proc/driver/nvidia").exists()
}

const FILE: &str = r#"{ "cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [
    { "name": "x", "containerEdits": { "deviceNodes": [{ "path": "/dev/null" }] } }] }"#;

#[test]
fn a_file_is_right_or_wrong() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.json");
    let check = |text: &str, words: &[&str]| {
        fs::write(&path, text).unwrap();
        let mut all = vec!["cdi", "check", path.to_str().unwrap()];
        all.extend(words);
        sconce(home.path(), &all)
    };
    let right = check(FILE, &[]);
    assert_eq!(right.code, Some(0), "{right:?}");
    assert!(
        right.out.ends_with("a.json: right, 1 devices of a.com/b\n"),
        "{right:?}"
    );
    let json = check(&FILE.replace("null", "none"), &["--json"]).out;
    let json = json.replace(home.path().to_str().unwrap(), "[home]");
    crate::json::assert_same("cdi-check.json", &json);
    for (from, to, said) in [
        ("/dev/null", "/dev/none", "/dev/none is not there"),
        (
            "\"path\"",
            "\"major\": 9, \"minor\": 9, \"path\"",
            "/dev/null is 1:3 here, and it says 9:9",
        ),
        ("0.5.0", "7.0.0", "no released version"),
        ("\"x\"", "\"x y\"", "`x y` is no name of a device"),
        ("\"x\"", "\"x\\u001b]0;t\\u0007\"", "is no name of a device"),
        ("{", "", "cannot be read"),
    ] {
        let wrong = check(&FILE.replace(from, to), &[]);
        assert_eq!(wrong.code, Some(1), "{wrong:?}");
        assert!(wrong.out.contains(said), "{said}: {wrong:?}");
        assert!(!wrong.out.contains('\x1b'), "{wrong:?}");
        let json = check(&FILE.replace(from, to), &["--json"]);
        let value: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(json.code, Some(1));
        assert!(
            value["files"][0]["troubles"][0]["kind"].is_string(),
            "{value}"
        );
    }
    let none = sconce(home.path(), &["cdi", "check", "/nowhere/a.json"]);
    assert_eq!(none.code, Some(3), "{none:?}");
}

#[test]
fn nothing_is_written_without_a_card() {
    if has_driver() {
        sconce_testkit::report_skip("own-driver", "this machine has a driver of its own");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.json");
    let done = sconce(
        home.path(),
        &["cdi", "write", "--output", path.to_str().unwrap()],
    );
    assert_eq!(done.code, Some(125), "{done:?}");
    assert!(
        done.err.contains("no NVIDIA driver") && done.err.contains("hint: "),
        "{done:?}"
    );
    assert!(!path.exists());
    for words in [
        ["cdi", "write", "--kind", "gpu"],
        ["cdi", "write", "--output", "-x"],
    ] {
        assert_eq!(sconce(home.path(), &words).code, Some(2), "{words:?}");
    }
}

/// A folder for a played machine, `None` where none can be played here.
fn playing() -> Option<(tempfile::TempDir, PathBuf)> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || has_driver() {
        let name = if is_root { "own-driver" } else { "not-root" };
        sconce_testkit::report_skip(name, "playing cards needs root, and a machine without them");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let libraries = folder.path().join("libraries");
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sconce-host/tests/stand-ins");
    let built = Command::new(stand_ins.join("build.sh"))
        .arg(&libraries)
        .status();
    assert!(built.unwrap().success());
    // Another user goes through it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    let program = folder.path().join("sconce");
    fs::copy(env!("CARGO_BIN_EXE_sconce"), &program).unwrap();
    Some((folder, program))
}

/// Runs a script on the played machine; `sconce` is the program.
fn on_the_machine(folder: &Path, script: &str) -> Done {
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cdi/machine.sh");
    let whole = format!(
        "set -eu\nwork=$1 libraries=$1/libraries\nexport PATH=$1:/usr/sbin:/usr/bin:/sbin:/bin\n\
         . {}\n{script}",
        machine.display()
    );
    let mut command = Command::new("timeout");
    command
        .args([
            "120",
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &whole,
            "sh",
        ])
        .arg(folder)
        .env_clear()
        .env("HOME", folder);
    done(&mut command)
}

#[test]
fn a_machine_is_described_and_the_file_goes_stale_with_it() {
    let Some((folder, _)) = playing() else { return };
    let done = on_the_machine(
        folder.path(),
        "umask 077
         sconce cdi write
         stat -c %a /etc/cdi/sconce.json
         sconce cdi list
         sconce cdi check && echo fresh
         sconce cdi write --output /etc/cdi/other.yaml || echo refused $?
         sconce cdi write --kind sconce.local/gpu --output /etc/cdi/other.yaml
         sconce cdi check && echo still fresh
         cp /etc/cdi/sconce.json /etc/cdi/copy.json
         sconce cdi check >/dev/null || echo conflict $?
         rm /etc/cdi/copy.json
         rm /dev/nvidia1 && mknod /dev/nvidia1 c 1 8
         sconce cdi check >/dev/null && echo numbers are looked up
         sed -i s/580.65.06/590.44.01/ /proc/driver/nvidia/version
         rm /dev/nvidia-uvm
         sconce cdi check || echo stale $?",
    );
    let said = &done.out;
    for line in [
        "644\n",
        "nvidia.com/gpu=0                                         /etc/cdi/sconce.json  taken",
        "nvidia.com/gpu=GPU-bbbbbbbb-0000-0000-0000-000000000000",
        "nvidia.com/gpu=all",
        "\nfresh\n",
        "\nrefused 3\n",
        "\nstill fresh\n",
        "\nconflict 1\n",
        "\nnumbers are looked up\n",
        "it was written for driver 580.65.06; the loaded one is 590.44.01",
        "/dev/nvidia-uvm is not there",
        "\nstale 1\n",
    ] {
        assert!(said.contains(line), "{line:?} in {said}\n{}", done.err);
    }
    for line in [
        "written: /etc/cdi/sconce.json",
        "hooks: none are needed",
        "/etc/cdi/sconce.json has the device nvidia.com/gpu=",
        "links in /dev/char: ",
    ] {
        assert!(done.err.contains(line), "{line:?} in {}", done.err);
    }
}

#[test]
fn a_file_goes_to_whatever_its_path_leads_to() {
    let Some((folder, _)) = playing() else { return };
    let done = on_the_machine(
        folder.path(),
        "mkfifo $work/fifo $work/fifo.json
         for name in fifo fifo.json; do
           head -c 1 $work/$name >$work/got & sconce cdi write --quiet --output $work/$name
           wait $!; echo \"$(cat $work/got) $(stat -c %F $work/$name)\"
         done
         { echo first; sconce cdi write --output -; echo last; } >$work/all
         head -n 2 $work/all; tail -n 2 $work/all
         echo {} >$work/a.json && chmod 640 $work/a.json && chown 54321 $work/a.json
         sconce cdi write --quiet --output $work/a.json && stat -c '%a %u' $work/a.json
         sconce cdi write --quiet --output $work/b.txt || echo ending $?; ls $work | grep b.txt || true",
    );
    assert_eq!(
        done.out, "{ fifo\n{ fifo\nfirst\n{\n}\nlast\n640 54321\nending 2\n",
        "{done:?}"
    );
}

#[test]
fn a_users_own_file_is_in_the_home() {
    let Some((folder, _)) = playing() else { return };
    let done = on_the_machine(
        folder.path(),
        "mkdir $work/home && chown 54321:54321 $work/home
         user() { HOME=$work/home setpriv --reuid 54321 --regid 54321 --clear-groups \"$@\"; }
         user sconce cdi write || echo refused $?
         user sconce cdi write --user
         stat -c '%a %u' $work/home/.config/cdi/sconce.json
         sconce cdi write --quiet
         user sconce cdi list --json",
    );
    assert!(done.out.starts_with("refused 7\n644 54321\n"), "{done:?}");
    assert!(done.err.contains("--user"), "{done:?}");
    let json = done.out.splitn(3, '\n').last().unwrap();
    let listed: Value = serde_json::from_str(json).unwrap();
    let states = listed["devices"].as_array().unwrap().iter();
    let mut states: Vec<_> = states.map(|one| one["state"].as_str().unwrap()).collect();
    states.dedup();
    assert_eq!(
        states,
        ["hidden", "taken"],
        "the user's own file wins: {listed}"
    );
}

#[test]
fn links_that_systemd_needs_are_named_with_the_command_that_makes_them() {
    let Some((folder, _)) = playing() else { return };
    let done = on_the_machine(
        folder.path(),
        "mount -t tmpfs none /run
         mkdir -p /run/systemd/system
         sconce cdi write 2>$work/said
         tail -n 1 $work/said
         sh -c \"$(tail -n 1 $work/said)\"
         sconce cdi write 2>&1 | tail -n 1",
    );
    let lines: Vec<&str> = done.out.lines().map(str::trim).collect();
    let [command, after] = lines[..] else {
        panic!("{done:?}");
    };
    assert!(
        command.contains("ln -sf ../nvidia0 /dev/char/1:3"),
        "{command}"
    );
    assert_eq!(after, "links in /dev/char: there");
}

/// A root file system of busybox.
const ROOT_FS: &str = r#"
mkdir -p $work/root/bin
cp "$(command -v busybox)" $work/root/bin/busybox
for name in sh ls wc; do ln -s busybox $work/root/bin/$name; done
"#;

/// `with CARD COMMAND...` starts a container with a card; `$inside` is what one tells of itself.
const PODMAN: &str = r#"
sconce cdi write --quiet --output /etc/cdi/sconce.yaml
inside='ls /dev; ls /usr/lib64 /usr/lib/*; wc -c /usr/lib64/libcuda.so.1; echo $NVIDIA_VISIBLE_DEVICES'
with() {
  card=$1; shift
  podman --root $work/storage --runroot $work/run --storage-driver vfs --cgroup-manager cgroupfs \
    --runtime runc --events-backend file run --rm --network host \
    --ulimit nofile=512:512 --ulimit nproc=512:512 \
    --device nvidia.com/gpu=$card --rootfs $work/root "$@"
}
for card in 1 GPU-aaaaaaaa-0000-0000-0000-000000000000 all; do
  echo "== $card"
  with $card sh -c "$inside"
done
with 7 true 2>&1 || echo refused
"#;

#[test]
fn podman_gives_a_container_the_card_that_was_asked_for() {
    let Some((folder, _)) = playing() else { return };
    if !sconce_testkit::has_programs(&["podman", "runc", "busybox"]) {
        return;
    }
    let done = on_the_machine(folder.path(), &format!("{ROOT_FS}{PODMAN}"));
    let part = |card: &str| {
        let start = format!("== {card}\n");
        let (_, rest) = done.out.split_once(&start).unwrap_or_default();
        rest.split("== ").next().unwrap_or_default().to_owned()
    };
    let sees = |part: &str| ["nvidia0", "nvidia1"].map(|name| part.contains(&format!("{name}\n")));
    // Index 1 has the minor number 0, and the card of that UUID has 1.
    let parts = ["1", "GPU-aaaaaaaa-0000-0000-0000-000000000000", "all"].map(part);
    let expected = [[true, false], [false, true], [true, true]];
    assert_eq!(
        parts.each_ref().map(|part| sees(part)),
        expected,
        "{done:?}"
    );
    let library = folder.path().join("libraries/libcuda.so.1");
    let size = library.metadata().unwrap().len();
    for part in &parts {
        for line in [
            "nvidiactl\n",
            "nvidia-uvm\n",
            "libcuda.so\n",
            "libcuda.so.580.65.06\n",
            &format!("{size} /usr/lib64/libcuda.so.1\n"),
            "void\n",
        ] {
            assert!(part.contains(line), "{line:?} in {part}\n{}", done.err);
        }
    }
    assert!(
        done.out.contains("unresolvable") && done.out.ends_with("refused\n"),
        "{done:?}"
    );
}
