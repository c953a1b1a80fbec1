//! A home with a record, a snapshot of a card's memory, and the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECONDS: &str = "60";

/// What a call showed.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) err: String,
    pub(crate) out: String,
}

/// A home and working folder.
pub(crate) struct Home(tempfile::TempDir);

/// Whether the test may play others; what it leaves out is said.
pub(crate) fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        sconce_testkit::report_skip("not-root", format_args!("{what} needs root"));
    }
    root
}

impl Home {
    /// With one run on record.
    pub(crate) fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../sconce-memory/tests/fixtures");
        let snapshot = fixtures.join("torch-2.15-oom.pickle");
        fs::copy(snapshot, home.path("snapshot.pickle")).unwrap();
        fs::copy(
            fixtures.join("torch-2.15-leak.pickle"),
            home.path("other.pickle"),
        )
        .unwrap();
        let words = ["run", "--host", "-q", "--", "true"];
        let done = home.sconce(&words.map(str::to_owned));
        assert_eq!(done.code, 0, "{done:?}");
        home
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn sconce(&self, words: &[String]) -> Done {
        self.sconce_to(words, Stdio::piped())
    }

    /// With that as standard output.
    pub(crate) fn sconce_to(&self, words: &[String], out: Stdio) -> Done {
        self.done(env!("CARGO_BIN_EXE_sconce"), words, out)
    }

    /// A shell's script, in which `$sconce` is the program.
    pub(crate) fn shell(&self, script: &str) -> Done {
        self.done(
            "sh",
            &["-euc".to_owned(), script.to_owned()],
            Stdio::piped(),
        )
    }

    /// The same, where what it mounts is its own.
    pub(crate) fn in_own_mounts(&self, script: &str) -> Done {
        let words = ["--mount", "--propagation", "private", "sh", "-euc", script];
        self.done("unshare", &words.map(str::to_owned), Stdio::piped())
    }

    /// Gives a program the home and the variables that all calls have.
    pub(crate) fn prepare(&self, mut program: Command) -> Command {
        program
            .current_dir(self.folder())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.folder())
            .env("sconce", env!("CARGO_BIN_EXE_sconce"))
            .env("SCONCE_PASSWORD", "a password of the tests")
            .env("COSIGN_PASSWORD", "a password of the tests")
            .stdin(Stdio::null());
        program
    }

    fn done(&self, program: &str, words: &[String], out: Stdio) -> Done {
        let done = self
            .prepare(Command::new("timeout"))
            .arg(SECONDS)
            .arg(program)
            .args(words)
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        Done {
            code: done.status.code().unwrap(),
            err: String::from_utf8_lossy(&done.stderr).into_owned(),
            out: String::from_utf8_lossy(&done.stdout).into_owned(),
        }
    }
}
