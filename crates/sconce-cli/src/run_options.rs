//! What a run is to be: the spec's values, each overridden by its flag. Pure, but for looking
//! whether mount sources exist and what a passed variable holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_base::Env;
use sconce_schema::Runtime;
use sconce_schema::request::{ContainerUser, Mount, NetworkMode, PublishedPort, RunLimits};
use sconce_schema::spec::{GpuRequest, MountSpec, PortSpec, RunSpec, WORKSPACE};

use crate::args::RunFlags;
use crate::failure::{CliError, Result};
use crate::file_action::FileAction;

/// A run's wishes, before cards are chosen and files assembled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedRunOptions {
    pub(crate) command: Vec<String>,
    pub(crate) workdir: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) limits: RunLimits,
    /// Whether it is placed next to its cards.
    pub(crate) place: bool,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) network: NetworkMode,
    /// What sets its container up.
    pub(crate) runtime: Runtime,
    pub(crate) ports: Vec<PublishedPort>,
    pub(crate) user: ContainerUser,
    pub(crate) gpus: GpuRequest,
    /// Whether the spec or a flag says something of cards: all are given where nothing does.
    pub(crate) asks_for_gpus: bool,
    /// Readings a second.
    pub(crate) sample_hz: u32,
    /// What is accounted of it from inside, where something is.
    pub(crate) probe: Option<crate::accounting::AccountingOptions>,
}

/// What flags are laid over.
struct Base<'a> {
    run: &'a RunSpec,
    /// Relative mounts of `run` are relative to it.
    folder: &'a Path,
    /// Mounted at /workspace.
    workspace: Option<&'a Path>,
    /// Working directories are relative to it.
    workdir: &'a Path,
}

impl ResolvedRunOptions {
    /// Merges `spec` and `flags`. `folder` is the spec's; relative mounts of the spec are relative
    /// to it, those of flags to `here`. `command` replaces the spec's when it is not empty.
    pub(crate) fn merge(
        spec: &RunSpec,
        folder: &Path,
        flags: &RunFlags,
        here: &Path,
        command: &[String],
        env: &Env,
    ) -> Result<Self> {
        let command = if command.is_empty() {
            spec.command.as_slice()
        } else {
            command
        };
        if command.is_empty() {
            return Err(CliError::NoCommand.into());
        }
        let base = Base {
            run: spec,
            folder,
            workspace: Some(folder),
            workdir: Path::new(WORKSPACE),
        };
        base.under(flags, here, command, env)
    }

    /// As [`ResolvedRunOptions::merge`], for a run of services alone.
    pub(crate) fn of_services(
        spec: &RunSpec,
        folder: &Path,
        flags: &RunFlags,
        here: &Path,
        env: &Env,
    ) -> Result<Self> {
        let base = Base {
            run: spec,
            folder,
            workspace: Some(folder),
            workdir: Path::new(WORKSPACE),
        };
        base.under(flags, here, &[], env)
    }

    /// What `flags` say of the run of an image; nothing of this machine is mounted but what they
    /// name. The command is not known before the image is, and neither is what the working
    /// directory is relative to.
    pub(crate) fn of_flags(flags: &RunFlags, here: &Path, env: &Env) -> Result<Self> {
        let base = Base {
            run: &RunSpec::default(),
            folder: here,
            workspace: None,
            workdir: Path::new("/"),
        };
        base.under(flags, here, &[], env)
    }
}

impl Base<'_> {
    fn under(
        &self,
        flags: &RunFlags,
        here: &Path,
        command: &[String],
        env: &Env,
    ) -> Result<ResolvedRunOptions> {
        let spec = self.run;
        let ports: Vec<PortSpec> = spec.ports.iter().chain(&flags.ports).copied().collect();
        let network = flags.network.or(spec.network).unwrap_or(NetworkMode::Host);
        if network == NetworkMode::Host
            && let Some(port) = ports.first()
        {
            return Err(CliError::HostPort { port: port.host }.into());
        }
        let limits = RunLimits {
            cpus: flags.cpus.or(spec.cpus),
            memory: flags.memory.or(spec.memory),
            shm: flags.shm_size.or(spec.shm),
            pids: flags.pids.or(spec.pids),
            ..RunLimits::default()
        };
        let limits = flags.limits.merge_with_spec(spec, limits);
        tracing::debug!(flag = ?flags.runtime, spec = ?spec.runtime, "the runtime that is asked for");
        Ok(ResolvedRunOptions {
            command: command.to_vec(),
            workdir: flags
                .workdir
                .as_ref()
                .or(spec.workdir.as_ref())
                .map_or_else(|| self.workdir.to_owned(), |dir| self.workdir.join(dir)),
            env: merge_variables(&spec.env, &flags.env, |name| {
                env.var(name).map(str::to_owned)
            })?,
            sample_hz: flags.sample_hz.or(spec.sample_hz).unwrap_or(1),
            place: flags.limits.is_placed_near_gpus(spec, &limits),
            limits,
            mounts: mounts(self, &flags.volumes, here)?,
            network,
            runtime: flags.runtime.or(spec.runtime).unwrap_or_default(),
            ports: ports.iter().map(port).collect(),
            user: if flags.root {
                ContainerUser::Root
            } else {
                spec.user.unwrap_or(ContainerUser::Plain)
            },
            asks_for_gpus: flags.gpus.is_some() || spec.gpus.is_some(),
            gpus: match flags.virtual_gpu.is_empty() {
                true => flags.gpus.clone().or_else(|| spec.gpus.clone()),
                // Of the machine's own it gets none.
                false => Some(GpuRequest::Count(0)),
            }
            .unwrap_or(GpuRequest::All),
            probe: flags.account.merge_with_spec(spec),
        })
    }
}

fn port(port: &PortSpec) -> PublishedPort {
    PublishedPort {
        host_ip: port.host_ip,
        host: port.host,
        container: port.container,
    }
}

/// The spec's folder at /workspace, then the spec's mounts, then the flags'.
fn mounts(base: &Base<'_>, flags: &[MountSpec], here: &Path) -> Result<Vec<Mount>> {
    let workspace = base.workspace.map(|folder| Mount {
        source: folder.to_owned(),
        target: PathBuf::from(WORKSPACE),
        read_only: false,
    });
    let spec = base.run.mounts.iter().map(|m| (m, base.folder));
    let asked = spec.chain(flags.iter().map(|m| (m, here)));
    let workspace = workspace.into_iter().map(Ok);
    workspace
        .chain(asked.map(|(mount, base)| {
            let path = base.join(&mount.source);
            let source = path.canonicalize().map_err(|error| {
                let path = path.clone();
                match error.kind() {
                    std::io::ErrorKind::NotFound => CliError::NoMountSource { path },
                    _ => CliError::File {
                        action: FileAction::Mount,
                        path,
                        source: error,
                    },
                }
            })?;
            Ok(Mount {
                source,
                target: PathBuf::from(&mount.target),
                read_only: mount.read_only,
            })
        }))
        .collect()
}

/// The spec's variables, then the flags': `NAME=VALUE`, or `NAME` for the value that `lookup` has.
pub(crate) fn merge_variables(
    spec: &BTreeMap<String, String>,
    flags: &[String],
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>> {
    let mut env = spec.clone();
    for flag in flags {
        let name = flag.split('=').next().unwrap_or_default();
        if !is_variable(name) {
            let name = name.to_owned();
            return Err(CliError::BadVariable { name }.into());
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = lookup(flag).ok_or(CliError::NoVariable { name: flag.clone() })?;
                (flag.as_str(), value)
            }
        };
        env.insert(name.to_owned(), value);
    }
    Ok(env)
}

/// Whether a shell can have a variable of this name (POSIX.1-2024, XBD 3.216, "Name"), or a program of
/// Java's, which take names with dots and dashes.
fn is_variable(name: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |byte| matches!(byte, b'_' | b'.' | b'-') || u8::is_ascii_alphanumeric(&byte);
    name.starts_with(begins) && name.bytes().all(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::{Bytes, Spec};

    fn merge(spec: &str, flags: &RunFlags, command: &[&str]) -> Result<ResolvedRunOptions> {
        let spec = Spec::parse(spec).unwrap();
        let command: Vec<String> = command.iter().map(ToString::to_string).collect();
        ResolvedRunOptions::merge(
            &spec.run,
            Path::new("/"),
            flags,
            Path::new("/"),
            &command,
            &Env::default(),
        )
    }

    #[test]
    fn flags_override_the_spec() {
        let spec = "[run]\ncommand = [\"a\"]\nmemory = \"4GiB\"\ncpus = 2.0\nruntime = \"crun\"";
        let flags = RunFlags {
            memory: Some(Bytes::from_mib(512)),
            runtime: Some(Runtime::Runc),
            ..RunFlags::default()
        };
        let wish = merge(spec, &flags, &["b", "c"]).unwrap();
        assert_eq!(wish.command, ["b", "c"]);
        assert_eq!(wish.limits.memory, Some(Bytes::from_mib(512)));
        assert_eq!(wish.limits.cpus.map(|c| c.0), Some(2000));
        assert_eq!(wish.runtime, Runtime::Runc);
        let without = merge(spec, &RunFlags::default(), &[]).unwrap();
        assert_eq!(without.runtime, Runtime::Crun);
        assert_eq!(merge(spec, &flags, &[]).unwrap().command, ["a"]);
        assert!(!without.asks_for_gpus);
        let asks = merge("[run]\ngpus = \"all\"", &flags, &["a"]).unwrap();
        assert!(asks.asks_for_gpus);
    }

    #[test]
    fn more_limits_and_where_it_is_placed() {
        let spec =
            "[run]\ncpuset = \"0-3\"\nnofile = 1024\nmemlock = \"unlimited\"\nio-weight = 50";
        let wish = merge(spec, &RunFlags::default(), &["a"]).unwrap();
        assert_eq!(wish.limits.cpuset, "0-3".parse().ok());
        assert_eq!(
            (wish.limits.io_weight, wish.limits.nofile),
            (Some(50), Some(1024))
        );
        assert!(!wish.place, "its CPUs are named");
        let mut flags = RunFlags::default();
        flags.limits.nofile = Some(9);
        flags.limits.numa = Some(sconce_schema::spec::NumaPolicy::Off);
        let wish = merge("[run]\nnofile = 1024", &flags, &["a"]).unwrap();
        assert_eq!((wish.limits.nofile, wish.place), (Some(9), false));
        assert!(merge("", &RunFlags::default(), &["a"]).unwrap().place);
        let own = merge(
            "[run]\nnetwork = \"own\"\nports = [\"8888\"]",
            &RunFlags::default(),
            &["a"],
        );
        assert_eq!(own.unwrap().network, NetworkMode::Own);
    }

    #[test]
    fn a_working_directory_is_below_the_workspace() {
        let workdir = |given: Option<&str>| {
            let flags = RunFlags {
                workdir: given.map(str::to_owned),
                ..RunFlags::default()
            };
            merge("", &flags, &["a"]).unwrap().workdir
        };
        assert_eq!(workdir(None), Path::new("/workspace"));
        assert_eq!(workdir(Some("src")), Path::new("/workspace/src"));
        assert_eq!(workdir(Some("/tmp")), Path::new("/tmp"));
    }

    #[test]
    fn a_run_without_a_command_is_refused() {
        let failure = merge("", &RunFlags::default(), &[]).unwrap_err();
        assert_eq!(failure.exit_code(), sconce_schema::exit::USAGE);
    }

    #[test]
    fn a_port_of_the_hosts_own_network_is_refused() {
        let published = |network| {
            let flags = RunFlags {
                ports: vec!["8888:80".parse().unwrap()],
                network,
                ..RunFlags::default()
            };
            merge("", &flags, &["a"])
        };
        let failure = published(None).unwrap_err();
        assert_eq!(failure.exit_code(), sconce_schema::exit::USAGE);
        let text = failure.render_text(&crate::style::OutputStyle { color: false });
        assert!(
            text.contains("8888") && text.contains("--network none"),
            "{text}"
        );
        assert_eq!(published(Some(NetworkMode::None)).unwrap().ports.len(), 1);
    }

    #[test]
    fn the_folder_is_the_workspace_and_missing_sources_are_named() {
        let wish = merge(
            "[run]\nmounts = [\"tmp:/data:ro\"]",
            &RunFlags::default(),
            &["a"],
        )
        .unwrap();
        let target = |i: usize| wish.mounts[i].target.to_str().unwrap();
        assert_eq!((target(0), target(1)), ("/workspace", "/data"));
        let failure = merge(
            "[run]\nmounts = [\"no-such:/d\"]",
            &RunFlags::default(),
            &["a"],
        )
        .unwrap_err();
        let text = failure.render_text(&crate::style::OutputStyle { color: false });
        assert!(text.contains("/no-such"), "{text}");
    }

    #[test]
    fn an_image_gets_no_folder_that_nobody_named() {
        let flags = RunFlags {
            volumes: vec!["tmp:/data:ro".parse().unwrap()],
            memory: Some(Bytes::from_mib(512)),
            ..RunFlags::default()
        };
        let wish = ResolvedRunOptions::of_flags(&flags, Path::new("/"), &Env::default()).unwrap();
        assert_eq!(wish.mounts.len(), 1);
        assert_eq!(wish.mounts[0].target, Path::new("/data"));
        assert_eq!((wish.limits.memory, wish.command.len()), (flags.memory, 0));
        assert_eq!(wish.user, ContainerUser::Plain);
    }

    #[test]
    fn a_bare_name_passes_the_callers_variable() {
        let flags = ["A=1=2".to_owned(), "B".to_owned()];
        let lookup = |name: &str| (name == "B").then(|| "b".to_owned());
        let env = merge_variables(&BTreeMap::new(), &flags, lookup).unwrap();
        assert_eq!((env["A"].as_str(), env["B"].as_str()), ("1=2", "b"));
        for wrong in ["C", "=x", "", "1A=2", "A B=1", ".a=1", "-B=1", "é=1"] {
            let flags = [wrong.to_owned()];
            assert!(
                merge_variables(&BTreeMap::new(), &flags, lookup).is_err(),
                "{wrong}"
            );
        }
    }
}
