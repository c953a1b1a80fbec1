//! The program under test, in a home of its own and on machines that stand-ins play.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A home for one test, and an empty project in it.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

/// What a run of the program showed.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        Self {
            folder,
            variables: Vec::new(),
        }
    }

    /// One whose NVIDIA libraries are stand-ins that play a machine, [`None`] where this machine has
    /// a driver of its own.
    pub(crate) fn playing(machine: &str) -> Option<Self> {
        if has_driver() {
            sconce_testkit::report_skip("own-driver", "this machine has a driver of its own");
            return None;
        }
        let stand_ins = stand_ins();
        let libraries = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
        let built = Command::new(stand_ins.join("build.sh"))
            .arg(&libraries)
            .status()
            .unwrap();
        assert!(built.success(), "{built}");
        let machine = stand_ins.join("machines").join(machine);
        assert!(machine.is_file(), "{}", machine.display());
        let mut home = Self::new();
        home.set("LD_LIBRARY_PATH", libraries.to_str().unwrap());
        home.set("SCONCE_STAND_IN_MACHINE", machine.to_str().unwrap());
        Some(home)
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// Writes a file into the project, with the folders above it.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project().join(path)).unwrap()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sconce"));
        command
            .args(words)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn sconce(&self, words: &[&str]) -> Done {
        self.done(self.command(words).spawn().unwrap())
    }

    /// With something on standard input.
    pub(crate) fn fed(&self, words: &[&str], input: &[u8]) -> Done {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        self.done(child)
    }

    pub(crate) fn done(&self, child: Child) -> Done {
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("text");
            text.replace(self.folder.path().to_str().unwrap(), "[home]")
        };
        Done {
            code: output.status.code().expect("an exit code"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// All of it as one text, for a snapshot.
    pub(crate) fn said(&self, words: &[&str]) -> String {
        self.sconce(words).text()
    }
}

impl Done {
    pub(crate) fn text(&self) -> String {
        let Self { code, out, err } = self;
        format!("exit code {code}\n-- standard output\n{out}-- standard error\n{err}")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Where the stand-ins and the machines that they play are.
fn stand_ins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sconce-host/tests/stand-ins")
}

/// Whether this machine has a driver, NVIDIA's or another, which then is what `doctor` sees.
pub(crate) fn has_driver() -> bool {
    let signs = ["/proc/driver/nvidia", "/dev/dxg", "/sys/module/nouveau"];
    signs.iter().any(|sign| Path::new(sign).exists())
}

/// An environment of empty packages: torch 2.15, and a torchvision that is not of it.
pub(crate) fn with_site(home: &Home) {
    for name in ["torch-2.15.0", "torchvision-0.15.2", "numpy-2.5.5"] {
        let folder = format!("venv/lib/python3.13/site-packages/{name}.dist-info");
        home.write(&format!("{folder}/METADATA"), "");
    }
    let version = "__version__ = '2.15.0+cu132'\ncuda: str = '13.2'\n";
    home.write(
        "venv/lib/python3.13/site-packages/torch/version.py",
        version,
    );
    // It is called like a library, and nothing loads it.
    home.write("venv/lib/python3.13/site-packages/torch/lib/libx.so.1", "");
}

/// Codes of findings that come from cards, the driver and CUDA; the rest is about the machine that
/// the test runs on.
pub(crate) fn codes(said: &Value) -> Vec<&str> {
    const OF_THIS_MACHINE: [&str; 9] = [
        "shm-too-small",
        "too-many-open-files",
        "locked-memory",
        "worker-killed",
        "cgroup-not-delegated",
        "user-namespaces-barred",
        "disk-full",
        "docker-no-gpu-runtime",
        "nccl-p2p",
    ];
    let codes = said["findings"].as_array().unwrap().iter();
    codes
        .map(|found| found["code"].as_str().unwrap())
        .filter(|code| !OF_THIS_MACHINE.contains(code))
        .collect()
}
