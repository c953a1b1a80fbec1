//! Images that others made, run: by umoci and skopeo where this machine has them, as root and as a
//! plain user. What this machine cannot show is said and left out.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user of no account, so that the tests need none.
const NOBODY_IN_PARTICULAR: u32 = 12_345;

/// A folder with images, and a home for each user that this machine lets us be.
struct Bench {
    folder: tempfile::TempDir,
    users: Vec<Option<u32>>,
}

/// What a run showed.
#[derive(Debug)]
struct Done {
    code: i32,
    out: String,
    err: String,
}

impl Bench {
    /// `None` where this machine lacks something.
    fn new() -> Option<Self> {
        if !sconce_testkit::has_programs(&["umoci", "skopeo"]) {
            return None;
        }
        let Some(busybox) = busybox() else {
            sconce_testkit::report_skip("busybox-static", "no static busybox on this machine");
            return None;
        };
        let folder = tempfile::Builder::new()
            .prefix("sconce-images-")
            .permissions(PermissionsExt::from_mode(0o755))
            .tempdir()
            .unwrap();
        let root = rustix::process::geteuid().is_root();
        let users = match root {
            true => vec![None, Some(NOBODY_IN_PARTICULAR)],
            false => {
                sconce_testkit::report_skip("not-root", "the tests are not run by root");
                vec![None]
            }
        };
        let bench = Self { folder, users };
        for user in &bench.users {
            let home = bench.home(*user);
            fs::create_dir(&home).unwrap();
            if let Some(id) = user {
                chown(&home, Some(*id), Some(*id)).unwrap();
            }
        }
        fs::copy(env!("CARGO_BIN_EXE_sconce"), bench.path("sconce")).unwrap();
        bench.make(&busybox);
        Some(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self, user: Option<u32>) -> PathBuf {
        self.path(if user.is_some() { "plain" } else { "own" })
    }

    /// Runs a tool of the machine.
    fn tool(&self, words: &str) {
        let mut words = words.split(' ');
        let done = Command::new(words.next().unwrap())
            .args(words)
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{text}");
    }

    /// Two layers: busybox and some files, and one that takes of them and adds to them.
    fn make(&self, busybox: &Path) {
        self.tool("umoci init --layout lay");
        self.tool("umoci new --image lay:base");
        self.tool("umoci unpack --rootless --image lay:base one");
        let root = self.path("one/rootfs");
        for name in ["bin", "etc", "app", "opaque", "gone"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::copy(busybox, root.join("bin/busybox")).unwrap();
        for name in ["sh", "cat", "ls", "id", "env", "stat", "test"] {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        for (name, text) in [
            (
                "etc/passwd",
                "root:x:0:0::/root:/bin/sh\napp:x:999:999::/home/app:/bin/sh\n",
            ),
            ("etc/group", "root:x:0:\n"),
            ("etc/old", "old"),
            ("opaque/below", "below"),
            ("gone/a", "a"),
            ("app/secret", "secret"),
        ] {
            fs::write(root.join(name), text).unwrap();
        }
        fs::set_permissions(root.join("bin/cat"), PermissionsExt::from_mode(0o4755)).unwrap();
        self.tool("umoci repack --image lay:base one");
        self.tool("umoci unpack --rootless --image lay:base two");
        let root = self.path("two/rootfs");
        fs::remove_file(root.join("etc/old")).unwrap();
        for folder in ["opaque", "gone"] {
            fs::remove_dir_all(root.join(folder)).unwrap();
        }
        fs::create_dir(root.join("opaque")).unwrap();
        fs::write(root.join("opaque/above"), "above").unwrap();
        fs::write(root.join("etc/new"), "new").unwrap();
        self.tool("umoci repack --image lay:next two");
        self.tool(
            "umoci config --image lay:next --config.entrypoint /bin/sh --config.entrypoint -c \
             --config.cmd id --config.env A=b --config.env NVIDIA_VISIBLE_DEVICES=all \
             --config.workingdir /app --config.user app --config.exposedports 80/tcp",
        );
        self.tool("skopeo --insecure-policy copy -q oci:lay:next oci-archive:next.tar:next");
        self.tool(
            "skopeo --insecure-policy copy -q oci:lay:next docker-archive:saved.tar:team/next:1",
        );
        self.tool("skopeo --insecure-policy copy -q oci:lay:next oci:single:next");
        // These tools write for their own user alone.
        self.tool("chmod -R a+rX lay single next.tar saved.tar");
    }

    /// Runs `sconce`; `None` where this machine cannot hold a run of that user.
    fn sconce(&self, user: Option<u32>, arguments: &[&str]) -> Option<Done> {
        let home = self.home(user);
        let mut command = Command::new(self.path("sconce"));
        command
            .args(arguments)
            .current_dir(&home)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &home)
            .stdin(Stdio::null());
        if let Some(id) = user {
            // Also gives up every other group.
            command.uid(id).gid(id);
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let done = Done {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        let cannot = [
            "user namespaces",
            "overlay file system",
            "parts of /proc are covered",
        ];
        if done.code == 125 && cannot.iter().any(|why| done.err.contains(why)) {
            sconce_testkit::report_skip("containers", format_args!("as {user:?}: {}", done.err));
            return None;
        }
        Some(done)
    }
}

/// One that needs no library.
fn busybox() -> Option<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| {
            // The interpreter of a dynamic program is named in it.
            fs::read(path).is_ok_and(|bytes| !bytes.windows(10).any(|w| w == b"/ld-linux-"))
        })
}

#[test]
fn an_image_is_run_from_wherever_it_is() {
    let Some(bench) = Bench::new() else { return };
    let script = "cat /etc/new; test ! -e /etc/old && ls /opaque; test ! -e /gone && echo gone; \
                  ls -a /app; pwd; echo $A ${NVIDIA_VISIBLE_DEVICES-unset}";
    let wanted = "newabove\ngone\n.\n..\nsecret\n/app\nb unset\n";
    let there = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    for &user in &bench.users {
        for image in [
            format!("oci:{}:next", there("lay")),
            there("single"),
            there("next.tar"),
            there("saved.tar"),
            format!("docker-archive:{}:next:1", there("saved.tar")),
        ] {
            let Some(done) = bench.sconce(user, &["-q", "run", &image, "--", script]) else {
                break;
            };
            assert_eq!(
                (done.code, done.out.as_str()),
                (0, wanted),
                "{user:?} {image}: {}",
                done.err
            );
        }
    }
}

#[test]
fn a_local_image_is_run_by_digest_and_by_name() {
    let Some(bench) = Bench::new() else { return };
    let index = fs::read_to_string(bench.path("single/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    for &user in &bench.users {
        let run = |image: &str| bench.sconce(user, &["-q", "run", image, "--", "cat /etc/new"]);
        let unknown = bench
            .sconce(user, &["-q", "run", digest, "--", "exit 0"])
            .unwrap();
        assert_eq!(unknown.code, 3, "{unknown:?}");
        let single = bench.path("single");
        let Some(done) = run(single.to_str().unwrap()) else {
            continue;
        };
        assert_eq!(done.out, "new", "{done:?}");
        // It is known by its digest from now on, without the file that it came from.
        assert_eq!(run(digest).unwrap().out, "new");
        let images = bench.home(user).join(".local/share/sconce/images");
        assert!(!images.exists(), "it took no name");
        fs::create_dir(&images).unwrap();
        fs::write(images.join("team~base:1.0"), digest).unwrap();
        assert_eq!(run("team/base:1.0").unwrap().out, "new");
    }
}

#[test]
fn the_command_is_who_sconce_says() {
    let Some(bench) = Bench::new() else { return };
    let image = format!("oci:{}:next", bench.path("lay").display());
    for &user in &bench.users {
        let script = "id -u; id -un; id -G; echo $HOME; echo mine > ~/file && cat ~/file; \
                      grep -E 'NoNewPrivs|CapEff' /proc/self/status; stat -c %a /bin/busybox";
        let words = ["run", &image, "--", script];
        let Some(done) = bench.sconce(user, &words) else {
            continue;
        };
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!(lines.len(), 8, "{done:?}");
        assert_eq!(
            lines[..5],
            ["1000", "sconce", "1000", "/home/app", "mine"],
            "{}",
            done.err
        );
        assert_eq!(lines[5..7], ["CapEff:\t0000000000000000", "NoNewPrivs:\t1"]);
        // Set-user-id is gone.
        assert_eq!(lines[7], "755");
        assert!(
            done.err
                .contains("the image's user is app; the command runs as uid 1000")
        );
        assert!(done.err.contains("environment   next"), "{}", done.err);

        let root = [
            "-q",
            "run",
            &image,
            "--root",
            "--",
            "id -u; echo $HOME; cat /app/secret",
        ];
        let done = bench.sconce(user, &root).unwrap();
        assert_eq!(done.out, "0\n/root\nsecret");
        // Without a command, the image's own; its entrypoint stays.
        let done = bench
            .sconce(user, &["-q", "run", &image, "-e", "A=c", "-w", "/etc"])
            .unwrap();
        assert!(done.out.starts_with("uid=1000(sconce)"), "{done:?}");
        let done = bench
            .sconce(user, &["-q", "run", &image, "--", "exit 7"])
            .unwrap();
        assert_eq!(done.code, 7);
        // Nothing of the caller's is inside unless it is named.
        let home = bench.home(user);
        fs::create_dir(home.join("work")).unwrap();
        fs::write(home.join("work/here"), "here").unwrap();
        let look = ["-q", "run", &image, "--", "ls /workspace"];
        let done = bench.sconce(user, &look).unwrap();
        assert!(done.err.contains("No such file"), "{done:?}");
        let mount = [
            "-q",
            "run",
            &image,
            "-v",
            "work:/workspace",
            "--",
            "cat /workspace/here",
        ];
        assert_eq!(bench.sconce(user, &mount).unwrap().out, "here");
        let ports = ["run", &image, "--network", "none", "--", "exit 0"];
        let done = bench.sconce(user, &ports).unwrap();
        assert!(done.err.contains("80/tcp"), "{}", done.err);
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    let Some(bench) = Bench::new() else { return };
    let lay = bench.path("lay");
    let lay = lay.to_str().unwrap();
    let run = |arguments: &[&str]| bench.sconce(None, arguments).unwrap();
    let done = run(&["run", lay]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(
        done.err.contains("several images: base, next"),
        "{}",
        done.err
    );
    let done = run(&["run", &format!("oci:{lay}:base")]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("the image has none"), "{}", done.err);
    let done = run(&["shell", "no-such:1.0"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(
        done.err.contains("no local image `no-such:1.0`"),
        "{}",
        done.err
    );
    let done = run(&["run", lay, "--mirror", "http://mirror.example.org/debian"]);
    assert_eq!(done.code, 2, "{done:?}");
    // One changed byte anywhere, and nothing runs.
    let saved = fs::read(bench.path("saved.tar")).unwrap();
    let middle = saved.len() / 2;
    let mut changed = saved;
    changed[middle] ^= 1;
    fs::write(bench.path("changed.tar"), changed).unwrap();
    let done = run(&["run", bench.path("changed.tar").to_str().unwrap()]);
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.out.is_empty());
}

/// A shell takes its commands from what it is given to read.
#[test]
fn a_shell_is_opened_without_the_entrypoint() {
    let Some(bench) = Bench::new() else { return };
    let image = format!("oci:{}:next", bench.path("lay").display());
    let Some(done) = bench.sconce(None, &["shell", &image]) else {
        return;
    };
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("command       /bin/sh\n"), "{}", done.err);
}

/// A home that is mounted has the store in it.
#[test]
fn a_mount_through_which_the_store_could_be_written_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let image = format!("oci:{}:next", bench.path("lay").display());
    for &user in &bench.users {
        let words = |mount| ["-q", "run", &image, "-v", mount, "--", "ls /there"];
        let Some(done) = bench.sconce(user, &words(".:/there")) else {
            continue;
        };
        assert_eq!((done.code, done.out.as_str()), (3, ""), "{}", done.err);
        assert!(done.err.contains("the store"), "{}", done.err);
        // What the hint says.
        assert!(done.err.contains(":ro"), "{}", done.err);
        let read_only = bench.sconce(user, &words(".:/there:ro")).unwrap();
        assert_eq!((read_only.code, read_only.err.as_str()), (0, ""));
    }
}

/// The folder of the project is the home itself.
#[test]
fn a_project_with_the_store_in_it_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let project = home.path().join("project");
    fs::create_dir(&project).unwrap();
    let refused = |folder: &Path, store: &str| {
        fs::write(folder.join("sconce.toml"), "").unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_sconce"))
            .args(["run", "--offline", "--store", store, "--", "true"])
            .current_dir(folder)
            .env_clear()
            .env("HOME", home.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), text)
    };
    let (code, said) = refused(home.path(), "/nowhere");
    assert!(
        code == Some(3) && said.contains("the records of runs"),
        "{said}"
    );
    let (code, said) = refused(&project, "data");
    assert!(code == Some(3) && said.contains("the store"), "{said}");
    assert!(said.contains("a folder of their own"), "{said}");
    let (_, said) = refused(&project, "../data");
    assert!(!said.contains("the store"), "{said}");
}

/// All files of a project in which the store lies: each image would have those before it.
#[test]
fn a_build_that_would_pack_the_store_is_refused() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("sconce.toml"), "[build]\nfiles = [\".\"]").unwrap();
    let build = |store: &str| {
        let done = Command::new(env!("CARGO_BIN_EXE_sconce"))
            .args(["build", "--offline", "--store", store])
            .current_dir(home.path())
            .env_clear()
            .env("HOME", "/nowhere")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), text)
    };
    let (code, said) = build("data");
    assert!(
        code == Some(3) && said.contains("`.` in [build] files has the store"),
        "{said}"
    );
    assert!(said.contains("--store FOLDER"), "{said}");
    assert!(!home.path().join("data").exists());
    let elsewhere = tempfile::tempdir().unwrap();
    let (_, said) = build(elsewhere.path().to_str().unwrap());
    assert!(!said.contains("has the store"), "{said}");
}

/// How many files and folders a run makes on the disk of the store and the records, counted by the numbers
/// that a file system in memory gives one after the other.
#[test]
fn a_run_makes_few_inodes() {
    const MAX_INODES: u64 = 15;
    let Some(bench) = Bench::new() else { return };
    let image = format!("oci:{}:next", bench.path("lay").display());
    for &user in &bench.users {
        let home = bench.home(user);
        let script = format!(
            "mount -t tmpfs none {0}; cd {0}; run() {{ {1} -q run {image} -- true; }}; run; \
             : > a; run; : > b; busybox stat -c %i a b",
            home.display(),
            bench.path("sconce").display(),
        );
        let mut command = Command::new("busybox");
        command.args(["unshare", "-m"]);
        if user.is_some() || !rustix::process::geteuid().is_root() {
            command.args(["-U", "-r"]);
        }
        command
            .args(["sh", "-e", "-c", &script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &home);
        if let Some(id) = user {
            command.uid(id).gid(id);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success()
            && (said.contains("unshare") || said.contains("user namespaces"))
        {
            sconce_testkit::report_skip("own-mounts", format_args!("as {user:?}: {said}"));
            continue;
        }
        let out = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<u64> = out.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(numbers.len(), 2, "{out} {said}");
        let inodes = numbers[1] - numbers[0] - 1;
        assert!(inodes <= MAX_INODES, "{user:?}: {inodes} inodes");
    }
}
