//! A root file system of busybox, and who runs it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sconce_schema::environment_layers::{EnvironmentLayers, LayerTree};
use sconce_schema::request::{Mount, NetworkMode, RunRoot};
use sconce_schema::{RunRequest, Runtime};
use serde_json::Value;

/// A user of no account, so that the tests need none.
pub(crate) const NOBODY_IN_PARTICULAR: u32 = 12_345;

/// Who starts Sconce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    Plain,
}

/// A folder with everything that a run needs, readable by everyone.
pub(crate) struct Bench {
    pub(crate) who: Who,
    pub(crate) folder: tempfile::TempDir,
    program: PathBuf,
    /// What sets the containers up.
    pub(crate) runtime: Runtime,
    runs: AtomicU32,
}

/// What a run showed.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) events: Vec<Value>,
}

impl Done {
    /// The first event of a kind.
    pub(crate) fn event(&self, name: &str) -> Option<&Value> {
        self.events.iter().find_map(|event| event.get(name))
    }
}

/// Variable under which root's tests begin no runs as a plain user.
const ROOT_ALONE: &str = "SCONCE_TESTS_ROOT_ALONE";

fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A bench for each user that this machine lets us be, by each of the runtimes that these tests are
/// about; says which are left out.
///
/// Under root with [`ROOT_ALONE`] for root alone: the emulated machine is slow, and runs the same tests
/// as a user beside it.
pub(crate) fn benches() -> Vec<Bench> {
    let wanted: &[Who] = match am_root() && std::env::var_os(ROOT_ALONE).is_some() {
        true => &[Who::Root],
        false => &[Who::Root, Who::Plain],
    };
    let each = wanted.iter().flat_map(|who| {
        let runtimes = crate::RUNTIMES.iter().filter(|runtime| is_here(**runtime));
        runtimes.filter_map(|runtime| bench_by(*who, *runtime))
    });
    each.collect()
}

/// Whether a runtime is installed; says where it is not.
pub(crate) fn is_here(runtime: Runtime) -> bool {
    runtime == Runtime::Sconce || sconce_testkit::has_programs(&[runtime.name()])
}

/// A bench for root, if that is what we are.
pub(crate) fn root_bench() -> Option<Bench> {
    bench(Who::Root)
}

/// A bench for one user.
pub(crate) fn bench(who: Who) -> Option<Bench> {
    bench_by(who, Runtime::Sconce)
}

fn bench_by(who: Who, runtime: Runtime) -> Option<Bench> {
    if who == Who::Root && !am_root() {
        sconce_testkit::report_skip("not-root", "the tests are not run by root");
        return None;
    }
    let Some(busybox) = busybox() else {
        sconce_testkit::report_skip("busybox-static", "no static busybox on this machine");
        return None;
    };
    let folder = tempfile::Builder::new()
        .prefix("sconce-run-")
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let bin = folder.path().join("base/bin");
    for name in ["base/bin", "base/etc", "base/var", "empty", "events"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    std::fs::copy(&busybox, bin.join("busybox")).unwrap();
    let listed = Command::new(&busybox).arg("--list").output().unwrap();
    for name in String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter(|n| *n != "busybox")
    {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    std::fs::write(
        folder.path().join("base/etc/passwd"),
        "root:x:0:0::/root:/bin/sh\n",
    )
    .unwrap();
    let program = folder.path().join("contained");
    std::fs::copy(env!("CARGO_BIN_EXE_contained"), &program).unwrap();
    let state = folder.path().join("state");
    for path in [&state, &folder.path().join("work")] {
        std::fs::create_dir(path).unwrap();
    }
    if am_root() && who == Who::Plain {
        for name in ["state", "work", "events"] {
            let path = folder.path().join(name);
            chown(path, Some(NOBODY_IN_PARTICULAR), Some(NOBODY_IN_PARTICULAR)).unwrap();
        }
    }
    let bench = Bench {
        who,
        folder,
        program,
        runtime,
        runs: AtomicU32::new(0),
    };
    let tried = bench.run(&bench.request(&["true"]));
    let cannot = [
        "user namespaces",
        "overlay file system",
        "parts of /proc are covered",
    ];
    if tried.code == 125 && cannot.iter().any(|why| tried.err.contains(why)) {
        sconce_testkit::report_skip("containers", format_args!("as {who:?}: {}", tried.err));
        return None;
    }
    assert_eq!(tried.code, 0, "{who:?} {runtime}: {}", tried.err);
    Some(bench)
}

/// One that needs no library.
fn busybox() -> Option<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| {
            // The interpreter of a dynamic program is named in it.
            std::fs::read(path).is_ok_and(|bytes| !bytes.windows(10).any(|w| w == b"/ld-linux-"))
        })
}

impl Bench {
    /// A request that runs `command` from a two-layer image.
    pub(crate) fn request(&self, command: &[&str]) -> RunRequest {
        let layer = |name: &str| LayerTree {
            name: name.to_owned(),
            path: self.folder.path().join(name),
        };
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let unique = self.folder.path().file_name().unwrap().to_str().unwrap();
        let root = RunRoot::Image(EnvironmentLayers {
            layers: vec![layer("base"), layer("empty")],
            env: BTreeMap::new(),
        });
        let command = command.iter().map(|&word| word.to_owned()).collect();
        RunRequest {
            env: [("PATH", "/bin"), ("HOME", "/home/sconce")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            network: NetworkMode::Host,
            ..RunRequest::new(format!("{unique}-{number}"), root, command)
        }
    }

    /// `sh -c script`.
    pub(crate) fn script(&self, script: &str) -> RunRequest {
        self.request(&["sh", "-c", script])
    }

    /// The same without a container.
    pub(crate) fn on_host(&self, script: &str) -> RunRequest {
        RunRequest {
            root: RunRoot::Host,
            env: BTreeMap::new(),
            ..self.script(script)
        }
    }

    /// A folder of the host that belongs to who starts Sconce.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// `work` inside at /project.
    pub(crate) fn work_mount(&self, read_only: bool) -> Mount {
        Mount {
            source: self.work(),
            target: "/project".into(),
            read_only,
        }
    }

    /// As [`Bench::command`], started by a script that sees the machine otherwise: it runs in a
    /// mount namespace of its own, for a plain user as root of a user namespace, and ends with
    /// `exec "$@"`.
    pub(crate) fn command_from(&self, request: &RunRequest, strict: bool, script: &str) -> Command {
        let inner = self.command(request, strict);
        let mut outer = Command::new(self.folder.path().join("base/bin/busybox"));
        outer.args(["unshare", "-m"]);
        if self.who == Who::Plain {
            outer.args(["-U", "-r"]);
            if am_root() {
                outer.uid(NOBODY_IN_PARTICULAR).gid(NOBODY_IN_PARTICULAR);
            }
        }
        outer
            .args(["sh", "-e", "-c", script, "sh"])
            .arg(inner.get_program())
            .args(inner.get_args());
        outer
    }

    /// Runs to the end, started by a script.
    pub(crate) fn run_from(&self, request: &RunRequest, strict: bool, script: &str) -> Done {
        let output = self.command_from(request, strict, script).output().unwrap();
        self.done(request, &output)
    }

    /// Starts, with the streams given.
    pub(crate) fn command(&self, request: &RunRequest, strict: bool) -> Command {
        let file = self.folder.path().join(format!("{}.json", request.id));
        let mut text = serde_json::to_value(request).unwrap();
        for (edits, written) in request
            .edits
            .iter()
            .zip(text["edits"].as_array_mut().unwrap())
        {
            // A CDI file has no links, and so the type does not write them.
            written["links"] = serde_json::to_value(&edits.links).unwrap();
        }
        std::fs::write(&file, text.to_string()).unwrap();
        let mut command = Command::new(&self.program);
        if self.who == Who::Plain && am_root() {
            // Also gives up every other group.
            command.uid(NOBODY_IN_PARTICULAR).gid(NOBODY_IN_PARTICULAR);
        }
        command
            .arg(file)
            .arg(self.state())
            .arg(self.events(request));
        if strict {
            command.arg("--strict");
        }
        if self.runtime != Runtime::Sconce {
            command.arg(format!("--runtime={}", self.runtime));
        }
        command
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn events(&self, request: &RunRequest) -> PathBuf {
        self.folder.path().join("events").join(&request.id)
    }

    /// Starts with pipes.
    pub(crate) fn start(&self, request: &RunRequest) -> Child {
        let piped = Stdio::piped;
        let mut command = self.command(request, false);
        command.stdin(piped()).stdout(piped()).stderr(piped());
        loop {
            match command.spawn() {
                // A child that another test starts just now still has the copy open for writing.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return other.unwrap(),
            }
        }
    }

    /// Waits for the event `name` of a run that was started.
    pub(crate) fn wait_for(&self, request: &RunRequest, name: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found = read_events(&self.events(request))
                .into_iter()
                .find_map(|e| e.get(name).cloned());
            if let Some(found) = found {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "no event `{name}` of {request:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The event `name`, if the run has told it so far.
    pub(crate) fn told(&self, request: &RunRequest, name: &str) -> Option<Value> {
        let events = read_events(&self.events(request));
        events.into_iter().find_map(|e| e.get(name).cloned())
    }

    /// Runs to the end.
    pub(crate) fn run(&self, request: &RunRequest) -> Done {
        self.finish(request, self.start(request))
    }

    pub(crate) fn run_strictly(&self, request: &RunRequest) -> Done {
        let output = self.command(request, true).output().unwrap();
        self.done(request, &output)
    }

    pub(crate) fn finish(&self, request: &RunRequest, child: Child) -> Done {
        let output = child.wait_with_output().unwrap();
        self.done(request, &output)
    }

    pub(crate) fn done(&self, request: &RunRequest, output: &Output) -> Done {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Done {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
            events: read_events(&self.events(request)),
        }
    }

    /// Asserts that no run left anything in the state folder.
    pub(crate) fn assert_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(self.state())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

/// Whole lines only: the last may be half written.
fn read_events(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Waits until `done`, or fails.
pub(crate) fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What gives a network of its own a way out, as far as it is on this machine.
pub(crate) fn helpers() -> Vec<&'static str> {
    let there = |name: &&str| sconce_testkit::has_programs(&[name]);
    sconce_run::WAYS_OUT.into_iter().filter(there).collect()
}

/// Helpers that a process has started, by their process ids.
pub(crate) fn helpers_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let line = format!("PPid:\t{parent}");
        let ours = read("status").lines().any(|one| one == line);
        ours && sconce_run::WAYS_OUT
            .iter()
            .any(|name| read("cmdline").contains(name))
    })
    .collect()
}
