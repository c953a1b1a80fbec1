//! Containers that another program sets up: runc and crun by an OCI bundle, podman by its command
//! line.
//!
//! ```text
//!  run() ── clone ──▶ init: namespaces, cgroups, the image's trees and mounts, as ever
//!    │                  └ fork ──▶ runc, crun, podman: user, capabilities, seccomp, devices
//!    │                               └──▶ command
//!    └ the same supervisor: terminal, signals, ports, samples, the end
//! ```
//!
//! The engine runs *in* the run's namespaces and cgroups, and the command shares its process ids
//! with init, which stays process 1. So what Sconce limits, mounts and ends does not depend on who
//! starts the command, and an engine whose Sconce was killed ends with it: it has no place outside
//! where it could leave a container.

mod bundle;
mod podman;
mod traits;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::CapabilitySet;
use sconce_host::{Cgroups, Hierarchy};
use sconce_schema::Runtime;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::{ContainerEdits, ContainerUser, RunRequest};

use self::traits::{ConfigForm, EngineTraits, engine_traits};
use crate::error::{InvalidRequest, RunError};
use crate::init_config::{CgroupVisibility, Credentials, DelegatedRuntime, InitMount};

/// A program that sets containers up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEngine {
    runtime: Runtime,
    traits: EngineTraits,
    program: PathBuf,
    version: String,
}

/// Where engines look for their helpers: what root alone can change.
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

impl ContainerEngine {
    /// The engine `runtime` at `program`, which is asked for its version.
    ///
    /// # Errors
    /// [`RunError::EngineUnknown`] when it does not say one or is none, [`RunError::EngineTooOld`].
    pub fn from_program(runtime: Runtime, program: PathBuf) -> Result<Self, RunError> {
        let unknown = |source| RunError::EngineUnknown {
            program: program.clone(),
            source,
        };
        let traits = engine_traits(runtime).ok_or_else(|| unknown(None))?;
        let asked = Command::new(&program)
            .arg("--version")
            // podman reads settings of the home first, which may be another user's.
            .env_clear()
            .env("PATH", PATH.trim_start_matches("PATH="))
            .env("HOME", "/")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| unknown(Some(error)))?;
        let said = String::from_utf8_lossy(&asked.stdout);
        let (version, numbers) = version(runtime, &said).ok_or_else(|| unknown(None))?;
        if numbers < traits.oldest {
            return Err(RunError::EngineTooOld {
                runtime,
                found: version,
                oldest: traits.oldest,
            });
        }
        tracing::info!(%runtime, program = %program.display(), version, "the engine");
        Ok(Self {
            runtime,
            traits,
            program,
            version,
        })
    }

    /// Which one it is.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// Its version, as it says itself.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The version in `NAME version VERSION`, and its first two numbers.
fn version(runtime: Runtime, said: &str) -> Option<(String, (u32, u32))> {
    let line = said.lines().next()?;
    let version = line
        .strip_prefix(runtime.name())?
        .strip_prefix(" version ")?;
    let version = version.split_ascii_whitespace().next()?;
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next()?.parse().ok();
    let numbers = (number()?, number()?);
    (version.len() <= 64).then(|| (version.to_owned(), numbers))
}

/// What the engine of a run has to know.
pub(crate) struct EngineContext<'a> {
    pub(crate) engine: &'a ContainerEngine,
    pub(crate) request: &'a RunRequest,
    /// Program and arguments of the command.
    pub(crate) command: &'a [OsString],
    /// `NAME=value`, complete.
    pub(crate) env: &'a [OsString],
    pub(crate) credentials: Credentials,
    /// Whether the caller is the machine's root.
    pub(crate) root: bool,
    pub(crate) hostname: &'a str,
    pub(crate) shm_bytes: u64,
    pub(crate) mounts: &'a [InitMount],
    /// The run's folder, with the root in `root`.
    pub(crate) scratch: &'a Path,
    pub(crate) cgroups: Option<&'a Cgroups>,
    /// The run's own folder of v2, where it has one.
    pub(crate) v2: Option<&'a Path>,
}

/// The hierarchy of v1 that holds devices, on a machine that has one.
fn v1_devices(cgroups: &Cgroups) -> Option<&Hierarchy> {
    cgroups.find_hierarchy("devices").filter(|all| !all.v2)
}

/// Whether an engine holds a run to its devices. On v2 Sconce's own filter does as well, for it is
/// asked beside those of the folders below; on v1 an engine has to make the folder itself.
pub(crate) fn holds_devices(cgroups: Option<&Cgroups>, root: bool) -> bool {
    root && cgroups.is_some_and(|cgroups| v1_devices(cgroups).is_some())
}

impl EngineContext<'_> {
    /// The user inside. An engine that is uid 0 of a user namespace of one user can give no other;
    /// crun can make another namespace in it, in which that user is uid 1000.
    fn user(&self) -> (u32, u32) {
        let alone = !self.root && !self.engine.traits.maps_users;
        match alone {
            true => (0, 0),
            false => (self.credentials.uid, self.credentials.gid),
        }
    }

    fn capabilities(&self) -> Vec<&'static str> {
        crate::capabilities::names(CapabilitySet::from_bits_retain(
            self.credentials.capabilities,
        ))
    }

    /// Where the container's own cgroup is, below the run's: its folder, and how the engine is told.
    /// crun does without where it need not hold devices.
    fn cgroup(&self) -> Option<(PathBuf, PathBuf)> {
        let cgroups = self.cgroups?;
        let (hierarchy, folder) = match (v1_devices(cgroups), self.v2) {
            (Some(devices), _) if self.root => {
                let parent = devices.own.as_ref()?.join(crate::cgroup::PARENT);
                (devices, parent.join(&self.request.id))
            }
            (None, Some(v2)) if !self.engine.traits.works_without_cgroup => {
                (cgroups.v2_hierarchy()?, v2.join(crate::cgroup::ENGINE))
            }
            _ => return None,
        };
        let told = Path::new("/").join(folder.strip_prefix(&hierarchy.mount).ok()?);
        Some((folder, told))
    }

    /// What of the cgroup file systems the engine sees: where v1 has them, no more than it needs to
    /// hold devices, so that everything else of the run stays in the run's own cgroups. (crun also
    /// refuses to work where v1 and v2 are mounted side by side.)
    fn shown(&self) -> CgroupVisibility {
        match (self.cgroups.and_then(v1_devices), self.root) {
            (Some(devices), true) => CgroupVisibility::One(devices.mount.clone()),
            // In a user namespace no cgroup of v1 can be made anyway.
            (Some(_), false) if self.engine.traits.works_without_cgroup => {
                CgroupVisibility::Nothing
            }
            _ => CgroupVisibility::Everything,
        }
    }
}

/// What kinds of runs engines cannot hold.
///
/// # Errors
/// [`RunError::Request`].
pub(crate) fn validate_request(
    engine: &ContainerEngine,
    request: &RunRequest,
    kept: bool,
) -> Result<(), RunError> {
    let mut targets = request.mounts.iter().map(|mount| &mount.target);
    let taken = targets.find(|target| is_covered(target));
    let cannot = [
        ("services", !request.services.is_empty()),
        ("a writable layer that is kept", kept),
        ("a run without a container", {
            request.root == sconce_schema::request::RunRoot::Host
        }),
    ];
    let wrong = match (cannot.iter().find(|(_, asked)| *asked), taken) {
        (Some((what, _)), _) => InvalidRequest::Engine {
            runtime: engine.runtime,
            what,
        },
        (None, Some(target)) => InvalidRequest::Target(target.clone()),
        (None, None) => return Ok(()),
    };
    Err(RunError::Request(wrong))
}

/// Whether an engine lays file systems of its own over a path.
pub(crate) fn is_covered(path: &Path) -> bool {
    ["/dev", "/proc", "/sys"]
        .iter()
        .any(|own| path.starts_with(own))
}

/// Writes down in the run's folder what the engine reads there, and gives how it is started and
/// what it cannot hold.
///
/// # Errors
/// [`RunError::State`], and [`RunError::Request`] for what the engine cannot be told.
pub(crate) fn prepare_engine(
    asked: &EngineContext<'_>,
) -> Result<(DelegatedRuntime, Vec<UnenforcedLimit>), RunError> {
    let traits = asked.engine.traits;
    let started = match traits.form {
        ConfigForm::PodmanArgs => podman::write_config(asked)?,
        ConfigForm::Bundle => bundle::write_config(asked)?,
    };
    let held = DelegatedRuntime {
        name: asked.engine.runtime.name().to_owned(),
        command: started.command,
        env: started.env,
        pid_file: pid_file(asked),
        is_parent: traits.is_parent,
        log: log(asked),
        shown: asked.shown(),
        cgroup: asked.cgroup().map(|(folder, _)| folder),
        short: traits
            .mounts_system
            .then(|| (asked.scratch.join(podman::RUN_FILES), podman::SHORT.into())),
        mounts_system: traits.mounts_system,
    };
    Ok((held, unenforced(asked)))
}

/// How an engine is started.
struct Start {
    command: Vec<OsString>,
    env: Vec<OsString>,
}

fn pid_file(asked: &EngineContext<'_>) -> PathBuf {
    asked.scratch.join("engine.pid")
}

fn log(asked: &EngineContext<'_>) -> PathBuf {
    asked.scratch.join("engine.log")
}

fn unenforced(asked: &EngineContext<'_>) -> Vec<UnenforcedLimit> {
    let name = asked.engine.runtime;
    let mut list = Vec::new();
    if asked.request.user == ContainerUser::Plain && asked.user() == (0, 0) {
        list.push(UnenforcedLimit {
            what: "user".to_owned(),
            why: format!(
                "{name} gives a plain user's run uid 0 inside, not 1000; it is the caller, with no \
                 capability, and what it writes is the caller's"
            ),
            hint: Some(
                "crun can give it uid 1000, and so does Sconce without `runtime`".to_owned(),
            ),
        });
    }
    list
}

/// Writes a file that nobody else can read: it may hold secrets of the run's environment.
fn write_private(path: &Path, text: &[u8]) -> Result<(), RunError> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| io::Write::write_all(&mut file, text))
        .map_err(|source| RunError::State {
            path: path.to_owned(),
            source,
        })
}

/// The devices that a run is given.
fn nodes(edits: &[ContainerEdits]) -> impl Iterator<Item = &sconce_schema::request::DeviceNode> {
    edits.iter().flat_map(|edits| &edits.device_nodes)
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_nonsense_is_not() {
        for (runtime, said, found) in [
            (
                Runtime::Runc,
                "runc version 1.1.5+ds1\ncommit: x",
                Some((1, 1)),
            ),
            (Runtime::Runc, "runc version 1.0.0~rc93\n", Some((1, 0))),
            (Runtime::Crun, "crun version 1.8.1\ncommit", Some((1, 8))),
            (Runtime::Podman, "podman version 4.3.1\n", Some((4, 3))),
            (Runtime::Podman, "podman version 5\n", None),
            (Runtime::Crun, "runc version 1.1.5", None),
            (Runtime::Runc, "", None),
            (
                Runtime::Runc,
                "runc version 99999999999999999999.1.5+ds1",
                None,
            ),
        ] {
            let read = version(runtime, said).map(|(_, numbers)| numbers);
            assert_eq!(read, found, "{said}");
        }
        let long = format!("runc version 1.1.{}", "5".repeat(100));
        assert_eq!(version(Runtime::Runc, &long), None);
    }
}
