//! Bytecode that projects of one store share, made by an interpreter that is made up: no network.
//! Where the machine lets nothing be contained, nothing is tested, and that is said.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sconce_schema::lock::{Deb, Wheel};
use sconce_schema::spec::Spec;
use sconce_schema::{Lock, Sha256};
use sha2::Digest as _;

const SPEC: &str = "[python]\npackages = [\"six\"]\n";
const COMPILED: &str = "/opt/venv/lib/python3.13/site-packages/__pycache__/six.cpython-313.pyc";

/// Made-up packages, and the projects and homes that use them.
struct Bench {
    folder: tempfile::TempDir,
    packages: Vec<(String, String, PathBuf)>,
}

impl Bench {
    /// `None` where this machine lacks something.
    fn new() -> Option<Self> {
        let folder = tempfile::Builder::new()
            .prefix("sconce-bytecode-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let Some(busybox) = busybox() else {
            sconce_testkit::report_skip("busybox-static", "no static busybox on this machine");
            return None;
        };
        let made = Command::new(sconce_testkit::find_program("python3")?)
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/it/bytecode/packages.py"
            ))
            .args([folder.path(), &busybox])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let text = String::from_utf8(made.stdout).unwrap();
        let line = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut word = || words.next().unwrap();
            (word(), word(), PathBuf::from(word()))
        };
        let packages = text.lines().map(line).collect();
        let bench = Self { folder, packages };
        bench.project("tried", |file| !file.contains("hostile"));
        let tried = ["run", "tried", "--", "busybox", "true"];
        let tried = bench.command("tried", &tried).output().unwrap();
        if !tried.status.success() {
            let said = String::from_utf8_lossy(&tried.stderr);
            sconce_testkit::report_skip("containers", said);
            return None;
        }
        Some(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A project whose lock has the wheels, and the Debian packages of `taken`, by their files' names;
    /// of two with one name, the last.
    fn project(&self, name: &str, taken: impl Fn(&str) -> bool) {
        let file = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let url = |path: &Path| format!("file://{}", path.display());
        let mut lock = Lock::parse(&format!(
            "version = 2\ninputs = \"{}\"\n[target]\nrelease = \"debian/trixie\"\n\
             architecture = \"amd64\"\npython = \"3.13\"\n[versions]\npython = \"3.13.5-2\"\n\
             glibc = \"2.41-12\"\n",
            Sha256(sha2::Sha256::digest(Spec::parse(SPEC).unwrap().lock_inputs()).into())
        ))
        .unwrap();
        for (kind, package, path) in &self.packages {
            let bytes = fs::read(path).unwrap();
            let sha256 = Sha256(sha2::Sha256::digest(&bytes).into());
            if kind == "wheel" {
                lock.wheels.push(Wheel {
                    name: package.clone(),
                    version: "1".to_owned(),
                    file: file(path),
                    url: url(path),
                    size: Some(bytes.len() as u64),
                    sha256,
                    build: None,
                });
            } else if taken(&file(path)) {
                lock.debs.retain(|deb| deb.name != *package);
                lock.debs.push(Deb {
                    name: package.clone(),
                    version: "1".to_owned(),
                    source: None,
                    source_version: None,
                    architecture: "amd64".to_owned(),
                    url: url(path),
                    size: bytes.len() as u64,
                    sha256,
                });
            }
        }
        lock.debs.sort_by(|a, b| a.name.cmp(&b.name));
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("sconce.toml"), SPEC).unwrap();
        fs::write(folder.join("sconce.lock"), lock.to_text()).unwrap();
    }

    /// In the home `home`, which has a store of its own.
    fn command(&self, home: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sconce"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.path("homes").join(home))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What a first run of a project starts beside itself.
    fn work_beside_run(&self, home: &str, project: &str) -> Command {
        let spec = self.path(project).join("sconce.toml").into_os_string();
        let store = self.store(home).into_os_string();
        let task = serde_json::json!({ "work-beside-run": { "spec": spec, "store": store } });
        let file = self.path("task.json");
        fs::write(&file, format!("{task}\n")).unwrap();
        let mut command = self.command(home, &[]);
        command
            .arg0("sconce-worker")
            .stdin(fs::File::open(&file).unwrap());
        command
    }

    /// Its standard output; it has to succeed.
    fn said(&self, home: &str, arguments: &[&str]) -> String {
        let done = self.command(home, arguments).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {text}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn store(&self, home: &str) -> PathBuf {
        self.path("homes").join(home).join(".local/share/sconce")
    }

    /// Removes what is there of a kind of the home's items.
    fn forget(&self, home: &str, kind: &str) {
        fs::remove_dir_all(self.store(home).join("items").join(kind)).unwrap();
    }

    /// Whether the home's only item of a kind is in use, so that nobody may remove it.
    fn is_held(&self, home: &str, kind: &str) -> bool {
        let of_kind = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&format!("{kind}~"))
        };
        let locks = fs::read_dir(self.store(home).join("locks")).unwrap();
        let mut locks = locks.map(|lock| lock.unwrap().path()).filter(of_kind);
        let lock = fs::OpenOptions::new()
            .write(true)
            .open(locks.next().unwrap());
        lock.unwrap().try_lock().is_err()
    }

    /// Every file below a kind of the home's items, but for those that say when they were written.
    fn items(&self, home: &str, kind: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list(&self.store(home).join("items").join(kind), &mut files);
        files.retain(|path| !path.ends_with("boot") && !path.ends_with("synced"));
        files
    }
}

/// The files below a folder, also while others write there.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => list(&path, files),
            false => files.push(path),
        }
    }
}

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
fn no_project_loads_what_the_interpreter_of_another_compiled() {
    let Some(bench) = Bench::new() else { return };
    let honest = |file: &str| !file.contains("hostile") && file != "zz-other.deb";
    bench.project("honest", honest);
    // The library in the right version with other bytes; and one more package over an honest library.
    bench.project("library", |file| file != "zz-other.deb");
    bench.project("package", |file| !file.contains("hostile"));
    for hostile in ["library", "package"] {
        bench.said(hostile, &["build", hostile]);
        bench.said(hostile, &["build", "honest"]);
        let cat = |project| ["run", project, "--", "busybox", "cat", COMPILED];
        assert_eq!(bench.said(hostile, &cat("honest")), "honest", "{hostile}");
        // A package that the interpreter has nothing of changes nothing: its project shares the bytecode.
        let own = if hostile == "library" {
            "hostile"
        } else {
            "honest"
        };
        assert_eq!(bench.said(hostile, &cat(hostile)), own);
    }
    // Ten sources, by two interpreters and by one.
    let compiled = |home| {
        let files = bench.items(home, "bytecode");
        let of_six = |path: &&PathBuf| path.ends_with("six.cpython-313.pyc");
        files.iter().filter(of_six).count()
    };
    assert_eq!((compiled("library"), compiled("package")), (2, 1));
}

#[test]
fn builds_at_once_in_an_empty_store_all_succeed() {
    let Some(bench) = Bench::new() else { return };
    bench.project("honest", |file| !file.contains("hostile"));
    for round in 0..5 {
        let home = format!("round{round}");
        let build = |_| bench.command(&home, &["build", "honest"]).spawn().unwrap();
        let builds: Vec<Child> = (0..3).map(build).collect();
        for build in builds {
            let done = build.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "round {round}: {text}");
        }
        // Whole files alone, each once, and nothing unfinished.
        let files = bench.items(&home, "bytecode");
        assert!(
            files
                .iter()
                .all(|file| file.extension().is_some_and(|e| e == "pyc"))
        );
        assert_eq!(files.len(), 10, "{files:?}");
        let partial = fs::read_dir(bench.store(&home).join("partial")).unwrap();
        let left: Vec<PathBuf> = partial.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [] as [PathBuf; 0], "round {round}");
    }
}

/// A process that has to end before the test does.
struct Started(Child);

impl Started {
    fn new(mut command: Command) -> Self {
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Whether it ends well, and soon.
    fn succeeds(&mut self) -> bool {
        let ended = || self.0.try_wait().unwrap();
        soon(ended).is_some_and(|status| status.success())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `look` sees within eight minutes: chores get what nobody else on the machine wants.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let tries = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(20));
        look()
    });
    tries.take(24_000).flatten().next()
}

/// Puts a pipe in the place of a file, whose reader waits for what is never written. Everyone may
/// read it: a container's root is some other user outside.
fn stop_readers(path: &Path) {
    fs::rename(path, path.with_extension("kept")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
    // Whatever the umask is.
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// The pipe's other end, once somebody reads.
fn reader(path: &Path) -> Option<fs::File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut open = fs::OpenOptions::new();
    open.write(true).custom_flags(nonblocking);
    soon(|| open.open(path).ok())
}

#[test]
fn a_build_waits_for_no_interpreter_that_is_made_beside_a_run() {
    let Some(bench) = Bench::new() else { return };
    bench.project("honest", |file| !file.contains("hostile"));
    bench.said("home", &["build", "honest"]);
    bench.forget("home", "interpreter");
    bench.forget("home", "bytecode");
    // In the middle of unpacking the interpreter.
    let package = fs::read(bench.path("libpython3.13-stdlib.deb")).unwrap();
    let digest = Sha256(sha2::Sha256::digest(package).into());
    let blob = bench
        .store("home")
        .join(format!("items/blob/{digest}/content"));
    stop_readers(&blob);
    let chores = Started::new(bench.work_beside_run("home", "honest"));
    let _pipe = reader(&blob).expect("it unpacks the interpreter");
    let chores_id = rustix::process::Pid::from_child(&chores.0);
    rustix::process::kill_process(chores_id, rustix::process::Signal::STOP).unwrap();
    fs::rename(blob.with_extension("kept"), &blob).unwrap();
    let mut build = Started::new(bench.command("home", &["build", "honest"]));
    assert!(build.succeeds(), "it waits for a process that was stopped");
    assert_eq!(bench.items("home", "bytecode").len(), 10);
}

#[test]
fn what_is_compiled_stays_as_long_as_it_is() {
    let Some(bench) = Bench::new() else { return };
    bench.project("honest", |file| !file.contains("hostile"));
    bench.said("home", &["build", "honest"]);
    bench.forget("home", "bytecode");
    // What compiles never gets to an end. Chores may not even begin while the machine is busy, and hold
    // what they are to compile all the same.
    let says = bench.items("home", "interpreter");
    stop_readers(says.iter().find(|file| file.ends_with("says")).unwrap());
    for who in ["chores", "build"] {
        let compiles = Started::new(match who {
            "chores" => bench.work_beside_run("home", "honest"),
            _ => bench.command("home", &["build", "honest"]),
        });
        // Who only looks at a tree holds it for a moment: half a second is no moment.
        let mut looks = 0;
        let held = soon(|| {
            let held = ["wheel", "interpreter"].map(|kind| bench.is_held("home", kind));
            looks = if held == [true, true] { looks + 1 } else { 0 };
            (looks == 25).then_some(())
        });
        assert!(held.is_some(), "{who}: what it compiles may be removed");
        drop(compiles);
        let partial = bench.store("home").join("partial");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir(&partial).unwrap();
    }
}
