//! Getting uv: the one on PATH when it is new enough, else the pinned one, brought by the
//! machine's pip and checked against the digest that stands here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sconce_schema::{Hint, Progress, Sha256, exit};
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use tracing::info;

use crate::documents::compute_sha256;
use sconce_formats::tags::CpuArchitecture;

/// The oldest uv that is used: from 0.7 on `uv pip compile` writes `pylock.toml`, takes the
/// platforms `manylinux_2_28` to `manylinux_2_40` and reads an older lock's versions.
pub const MIN_VERSION: UvVersion = UvVersion(0, 7, 0);
/// The uv that is brought when there is none.
pub const PINNED_VERSION: UvVersion = UvVersion(0, 13, 8);

/// Digests of the pinned wheels, for glibc: `uv-0.13.8-py3-none-manylinux_2_17_…`.
const PINNED_WHEELS: [(CpuArchitecture, &str); 2] = [
    (
        CpuArchitecture::X86_64,
        "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
    ),
    (
        CpuArchitecture::Aarch64,
        "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
    ),
];

/// A version of uv.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UvVersion(pub u32, pub u32, pub u32);

impl std::fmt::Display for UvVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Where uv can come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UvSource {
    /// The uv on PATH, or the one that the person named.
    pub path_uv: Option<PathBuf>,
    /// How this machine's pip is called: `["/usr/bin/python3", "-m", "pip"]`.
    pub pip: Option<Vec<OsString>>,
    /// Nothing may be fetched.
    pub offline: bool,
}

/// Why there is no uv.
#[derive(Debug, thiserror::Error)]
pub enum UvError {
    /// Neither a usable uv nor a pip.
    #[error("resolving Python packages needs uv {MIN_VERSION} or newer, and {}", found(found_uv.as_deref()))]
    Nowhere {
        /// The version of the uv that is there and too old.
        found_uv: Option<String>,
    },
    /// The pip could not be run.
    #[error("cannot run {program}")]
    Run {
        /// Program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// pip failed.
    #[error("pip could not {what} uv {PINNED_VERSION}:\n{stderr}")]
    Pip {
        /// `bring`, `unpack`.
        what: &'static str,
        /// What pip wrote, without credentials.
        stderr: String,
    },
    /// pip brought other bytes.
    #[error("pip brought a uv {PINNED_VERSION} whose SHA-256 is {found}, not {wanted}")]
    Digest {
        /// Of what came.
        found: Sha256,
        /// Of what should have come.
        wanted: Sha256,
    },
    /// It would have to be fetched.
    #[error("uv {PINNED_VERSION} is not in the store and fetching is off")]
    Offline,
    /// The store failed: all work on uv is done there.
    #[error("cannot keep uv in the store")]
    Store(#[from] StoreError),
}

fn found(uv: Option<&str>) -> String {
    match uv {
        Some(version) => format!("the one here is {version}, and there is no pip to bring another"),
        None => "there is neither uv nor pip on this machine".to_owned(),
    }
}

impl Hint for UvError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Nowhere { .. } => Some(
                "install uv (see its documentation) or pip (on Debian and Ubuntu: `apt-get install python3-pip`)".to_owned(),
            ),
            Self::Pip { .. } => Some("check that `pip download uv` works, or install uv yourself".to_owned()),
            Self::Digest { .. } => Some("the index serves a changed file; do not use it, or install uv yourself".to_owned()),
            Self::Offline => Some("run it once without `--offline`, or install uv".to_owned()),
            Self::Store(e) => e.hint(),
            Self::Run { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Nowhere { .. } | Self::Run { .. } => exit::BAD_INPUT,
            Self::Pip { .. } | Self::Offline => exit::FETCH,
            Self::Digest { .. } => exit::VERIFY,
            Self::Store(e) => e.exit_code(),
        }
    }
}

/// Finds uv, or brings it into the store. `environment` is the caller's whole environment, which
/// pip needs for its own settings.
pub fn find_or_fetch(
    source: &UvSource,
    store: &Store,
    environment: &BTreeMap<OsString, OsString>,
    progress: &dyn Progress,
) -> Result<PathBuf, UvError> {
    let mut found_uv = None;
    if let Some(uv) = &source.path_uv {
        match version_of(uv, environment) {
            Some(version) if version >= MIN_VERSION => {
                info!(program = %uv.display(), %version, "uv: the one on PATH");
                return Ok(uv.clone());
            }
            version => {
                let said = version.map_or_else(|| "unreadable".to_owned(), |v| v.to_string());
                progress.note(&format!(
                    "{} is not used: its version is {said}, at least {MIN_VERSION} is needed",
                    uv.display()
                ));
                found_uv = Some(said);
            }
        }
    }
    // uv runs here, whatever machine the lock is for.
    let pinned = CpuArchitecture::current_host().and_then(|machine| {
        let (_, digest) = PINNED_WHEELS.iter().find(|(m, _)| *m == machine)?;
        Some((machine, digest.parse::<Sha256>().ok()?))
    });
    let Some((machine, wanted)) = pinned else {
        return Err(UvError::Nowhere { found_uv });
    };
    let key = format!("{PINNED_VERSION}-{}-{wanted}", machine.name());
    if let Some(folder) = store.find_tree("uv", &key) {
        info!(version = %PINNED_VERSION, "uv: the one in the store");
        return Ok(folder.join("uv"));
    }
    if source.offline {
        return Err(UvError::Offline);
    }
    let pip = source
        .pip
        .as_deref()
        .filter(|pip| !pip.is_empty())
        .ok_or(UvError::Nowhere { found_uv })?;
    info!(version = %PINNED_VERSION, "uv: brought by pip");
    progress.stage("get uv", None);
    let name = format!("uv {PINNED_VERSION}");
    progress.advance(&name, 0);
    let making = TreeBuildOptions {
        name: &name,
        work: &format!("gets {name}"),
        progress,
        accept: &|_| true,
    };
    let folder = store
        .build_tree_with("uv", &key, making, |folder| {
            bring(pip, machine, wanted, environment, folder)
        })
        .map_err(|error| match error {
            TreeBuildError::Build(error) => error,
            TreeBuildError::Store(error) => UvError::Store(error),
        })?;
    progress.done(&name);
    Ok(folder.join("uv"))
}

fn version_of(uv: &Path, environment: &BTreeMap<OsString, OsString>) -> Option<UvVersion> {
    let output = Command::new(uv)
        .arg("--version")
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    parse_version(std::str::from_utf8(&output.stdout).ok()?)
}

/// `uv 0.13.8 (x86_64-unknown-linux-gnu)`
fn parse_version(said: &str) -> Option<UvVersion> {
    let version = said.strip_prefix("uv ")?.split_whitespace().next()?;
    let mut numbers = version.split('.').map(|part| {
        let end = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part[..end].parse::<u32>().ok()
    });
    Some(UvVersion(
        numbers.next()??,
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
    ))
}

/// Has pip fetch the wheel, checks it, has pip unpack it, and takes the program out of it.
fn bring(
    pip: &[OsString],
    machine: CpuArchitecture,
    wanted: Sha256,
    environment: &BTreeMap<OsString, OsString>,
    folder: &Path,
) -> Result<(), UvError> {
    // Beside the program, so that there is one disk that can be full.
    let scratch = tempfile::tempdir_in(folder).map_err(disk("create a folder in", folder))?;
    let at = |name: &str| scratch.path().join(name);
    let requirement = format!("uv=={PINNED_VERSION} --hash=sha256:{wanted}\n");
    fs::write(at("uv.txt"), requirement).map_err(disk("write", &at("uv.txt")))?;
    let run = |arguments: &[OsString]| {
        let ended = run_pip(pip, arguments, environment, scratch.path());
        ended.map_err(|source| UvError::Run {
            program: pip[0].to_string_lossy().into_owned(),
            source,
        })
    };

    let platform = format!("manylinux_2_17_{}", machine.name());
    let output = run(&[
        "download".into(),
        "--quiet".into(),
        "--disable-pip-version-check".into(),
        "--no-deps".into(),
        "--only-binary=:all:".into(),
        "--require-hashes".into(),
        "--platform".into(),
        platform.into(),
        "--dest".into(),
        at("wheel").into(),
        "--requirement".into(),
        at("uv.txt").into(),
    ])?;
    succeeded("bring", &output, folder)?;
    let wheel = only_file(&at("wheel")).ok_or_else(|| UvError::Pip {
        what: "bring",
        stderr: "it left no file".to_owned(),
    })?;
    // pip checked it too; but what is run was checked here.
    let found = compute_sha256(&fs::read(&wheel).map_err(disk("read", &wheel))?);
    if found != wanted {
        return Err(UvError::Digest { found, wanted });
    }

    let output = run(&[
        "install".into(),
        "--quiet".into(),
        "--disable-pip-version-check".into(),
        "--no-deps".into(),
        "--no-index".into(),
        "--no-compile".into(),
        "--target".into(),
        at("unpacked").into(),
        wheel.into(),
    ])?;
    succeeded("unpack", &output, folder)?;
    let program = at("unpacked").join("bin").join("uv");
    fs::rename(&program, folder.join("uv")).map_err(disk("rename", &program))?;
    scratch
        .close()
        .map_err(disk("remove what pip left in", folder))
}

fn disk(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> UvError {
    let path = path.to_owned();
    move |source| UvError::Store(StoreError::Disk { what, path, source })
}

pub(super) fn only_file(folder: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?;
    let first = entries.next()?.ok()?;
    entries.next().is_none().then(|| first.path())
}

/// Runs pip with `TMPDIR` in `scratch`.
pub(super) fn run_pip(
    pip: &[OsString],
    arguments: &[OsString],
    environment: &BTreeMap<OsString, OsString>,
    scratch: &Path,
) -> std::io::Result<Output> {
    Command::new(&pip[0])
        .args(&pip[1..])
        .args(arguments)
        .env_clear()
        .envs(environment)
        .env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .output()
}

/// `folder` is on the disk that pip was told to work on.
fn succeeded(what: &'static str, output: &Output, folder: &Path) -> Result<(), UvError> {
    if output.status.success() {
        return Ok(());
    }
    let stderr = sconce_base::text::redact_url_credentials(
        String::from_utf8_lossy(&output.stderr).trim_end(),
    );
    if super::says_disk_full(&stderr) {
        let full = std::io::ErrorKind::StorageFull.into();
        return Err(disk("write to", folder)(full));
    }
    Err(UvError::Pip { what, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::{NoProgress, WaitCause};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn find_with(folder: &Path, source: &UvSource) -> Result<PathBuf, UvError> {
        let store = Store::open(&folder.join("store")).unwrap();
        let environment = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        find_or_fetch(source, &store, &environment, &NoProgress)
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(
            parse_version("uv 0.13.8 (x86_64-unknown-linux-gnu)\n"),
            Some(PINNED_VERSION)
        );
        assert_eq!(parse_version("uv 0.7.0\n"), Some(MIN_VERSION));
        assert_eq!(parse_version("uv 1.0"), Some(UvVersion(1, 0, 0)));
        for said in ["", "uv", "uv x.y", "python 3.13.5", "uv 1"] {
            assert_eq!(parse_version(said), None, "{said}");
        }
        assert!(UvVersion(0, 10, 0) > UvVersion(0, 9, 9));
    }

    #[test]
    fn the_one_on_path_is_used_when_it_is_new_enough() {
        let folder = tempfile::tempdir().unwrap();
        let uv = script(folder.path(), "uv", "echo uv 0.13.1");
        let source = UvSource {
            path_uv: Some(uv.clone()),
            ..UvSource::default()
        };
        assert_eq!(find_with(folder.path(), &source).unwrap(), uv);
        script(folder.path(), "uv", "echo uv 0.6.17");
        let error = find_with(folder.path(), &source).unwrap_err();
        assert!(
            error.to_string().contains("the one here is 0.6.17"),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("pip"));
    }

    #[test]
    fn neither_uv_nor_pip() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_with(folder.path(), &UvSource::default()).unwrap_err();
        assert!(matches!(error, UvError::Nowhere { found_uv: None }));
    }

    #[test]
    fn other_bytes_are_refused_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // A pip that puts something into the folder after `--dest`.
        let pip = script(
            folder.path(),
            "pip",
            "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && mkdir -p \"$2\" && echo evil > \"$2/uv.whl\"; shift; done",
        );
        let source = UvSource {
            pip: Some(vec![pip.into()]),
            ..UvSource::default()
        };
        let error = find_with(folder.path(), &source).unwrap_err();
        assert!(matches!(error, UvError::Digest { .. }), "{error}");
        assert_eq!(error.exit_code(), exit::VERIFY);
        assert!(find_with(folder.path(), &UvSource::default()).is_err());
    }

    #[test]
    fn nothing_is_brought_offline() {
        let folder = tempfile::tempdir().unwrap();
        let source = UvSource {
            pip: Some(vec!["/bin/false".into()]),
            offline: true,
            ..UvSource::default()
        };
        let error = find_with(folder.path(), &source).unwrap_err();
        assert!(matches!(error, UvError::Offline), "{error}");
        assert_eq!(error.exit_code(), exit::FETCH);
    }

    /// Keeps what it is told of waits; the one that is waited for may then go on.
    struct Waits {
        said: Mutex<Vec<String>>,
        go_on: PathBuf,
    }

    impl Progress for Waits {
        fn stage(&self, _: &str, _: Option<u64>) {}
        fn advance(&self, _: &str, _: u64) {}
        fn done(&self, _: &str) {}
        fn note(&self, _: &str) {}
        fn waits(&self, _: &str, wait: Option<&WaitCause>) {
            let said = wait.map_or_else(String::new, WaitCause::to_string);
            self.said.lock().unwrap().push(said);
            fs::write(&self.go_on, "").unwrap();
        }
    }

    #[test]
    fn another_process_that_brings_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = format!(
            "touch {0}/begun; for i in $(seq 200); do [ -e {0}/go-on ] && exit 1; sleep 0.05; done; exit 1",
            folder.path().display()
        );
        let source = UvSource {
            pip: Some(vec![script(folder.path(), "pip", &text).into()]),
            ..UvSource::default()
        };
        let waits = Waits {
            said: Mutex::default(),
            go_on: at("go-on"),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| find_with(folder.path(), &source).unwrap_err());
            while !at("begun").exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let store = Store::open(&at("store")).unwrap();
            let environment = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
            find_or_fetch(&source, &store, &environment, &waits).unwrap_err();
        });
        let said = waits.said.into_inner().unwrap();
        let [wait, over] = said.as_slice() else {
            panic!("{said:?}");
        };
        assert!(
            wait.ends_with(&format!(", which gets uv {PINNED_VERSION}")),
            "{wait}"
        );
        assert_eq!(over, "");
    }

    #[test]
    fn a_full_disk_is_the_stores() {
        let folder = tempfile::tempdir().unwrap();
        // What pip 25 writes.
        let pip = script(
            folder.path(),
            "pip",
            "touch \"$TMPDIR/x\"; echo 'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device' >&2; exit 1",
        );
        let source = UvSource {
            pip: Some(vec![pip.into()]),
            ..UvSource::default()
        };
        let error = find_with(folder.path(), &source).unwrap_err();
        assert_eq!(error.exit_code(), exit::STORE);
        assert!(
            error.hint().unwrap().contains("the disk is full"),
            "{error}"
        );
        let UvError::Store(StoreError::Disk { path, .. }) = &error else {
            panic!("{error}")
        };
        assert!(path.starts_with(folder.path()), "{}", path.display());
        assert!(!path.exists(), "nothing is left of it");
    }

    #[test]
    fn what_pip_says_is_shown_without_credentials() {
        let folder = tempfile::tempdir().unwrap();
        let pip = script(
            folder.path(),
            "pip",
            "echo 'ERROR: https://me:secret@example.org/simple: 503' >&2; exit 1",
        );
        let source = UvSource {
            pip: Some(vec![pip.into()]),
            ..UvSource::default()
        };
        let error = find_with(folder.path(), &source).unwrap_err().to_string();
        assert!(
            error.contains("example.org/simple: 503") && !error.contains("secret"),
            "{error}"
        );
    }
}
