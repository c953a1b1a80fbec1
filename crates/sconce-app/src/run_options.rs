//! What a run is to be: the spec's values, each overridden by its flag. Pure, but for looking
//! whether mount sources exist and what a passed variable holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_base::Env;
use sconce_memory::forecast::training_plan::TrainingPlans;
use sconce_schema::Runtime;
use sconce_schema::request::{ContainerUser, Mount, NetworkMode, PublishedPort, RunLimits};
use sconce_schema::spec::{GpuRequest, MountSpec, NumaPolicy, PortSpec, RunSpec, WORKSPACE};

use crate::accounting::{AccountingOptions, AccountingOverrides};
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::sources::PackageSources;

/// What the caller says of a run beside the spec: each value overrides the spec's.
#[derive(Debug, Clone, Default)]
pub struct RunOverrides {
    /// Which GPUs it gets.
    pub gpus: Option<GpuRequest>,
    /// Names of GPUs that are played, once for each.
    pub virtual_gpus: Vec<String>,
    /// What it may use.
    pub limits: RunLimits,
    /// Where the run is placed.
    pub numa: Option<NumaPolicy>,
    /// Samples a second.
    pub sample_hz: Option<u32>,
    /// Beside the spec's; relative sources are relative to the caller's directory.
    pub mounts: Vec<MountSpec>,
    /// `NAME=VALUE`, or `NAME` for the caller's value.
    pub env: Vec<String>,
    /// Where the command starts.
    pub workdir: Option<String>,
    /// Beside the spec's.
    pub ports: Vec<PortSpec>,
    /// What it sees of the network.
    pub network: Option<NetworkMode>,
    /// What sets its container up.
    pub runtime: Option<Runtime>,
    /// Whether the command is root inside.
    pub root: bool,
    /// Whether a limit that this machine cannot enforce is an error.
    pub strict: bool,
    /// What is accounted of it from inside.
    pub accounting: AccountingOverrides,
    /// How the program is changed from outside.
    pub plans: Option<TrainingPlans>,
    /// Ranks of a world whose first the command is.
    pub ranks: Option<u32>,
    /// Where packages come from.
    pub sources: PackageSources,
}

/// What is asked of a run, validated and merged, before GPUs are chosen and files assembled.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedRunOptions {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Where the command starts, inside.
    pub workdir: PathBuf,
    /// Variables, beside those of the image.
    pub env: BTreeMap<String, String>,
    /// What it may use.
    pub limits: RunLimits,
    /// Whether it is placed next to its cards.
    pub place: bool,
    /// What of this machine it sees.
    pub mounts: Vec<Mount>,
    /// What it sees of the network.
    pub network: NetworkMode,
    /// What sets its container up.
    pub runtime: Runtime,
    /// What is published of its network.
    pub ports: Vec<PublishedPort>,
    /// Who the command is inside.
    pub user: ContainerUser,
    /// Which GPUs it gets.
    pub gpus: GpuRequest,
    /// Whether the spec or a flag says something of cards: all are given where nothing does.
    pub asks_for_gpus: bool,
    /// Readings a second.
    pub sample_hz: u32,
    /// What is accounted of it from inside, where something is.
    pub probe: Option<AccountingOptions>,
}

/// What overrides are laid over.
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
    /// Merges `spec` and `overrides`. `folder` is the spec's; relative mounts of the spec are relative
    /// to it, those of overrides to `here`. `command` replaces the spec's when it is not empty.
    pub fn merge(
        spec: &RunSpec,
        folder: &Path,
        overrides: &RunOverrides,
        here: &Path,
        command: &[String],
        env: &Env,
    ) -> Result<Self> {
        // A command that is typed starts where it was typed, one of the spec where the spec lies.
        let mut workdir = PathBuf::from(WORKSPACE);
        let command = if command.is_empty() {
            spec.command.as_slice()
        } else {
            let below = here.strip_prefix(folder).ok();
            workdir.extend(below.filter(|below| !below.as_os_str().is_empty()));
            command
        };
        if command.is_empty() {
            return Err(AppError::NoCommand.into());
        }
        let base = Base {
            run: spec,
            folder,
            workspace: Some(folder),
            workdir: &workdir,
        };
        base.under(overrides, here, command, env)
    }

    /// As [`ResolvedRunOptions::merge`], for a run of services alone.
    pub fn of_services(
        spec: &RunSpec,
        folder: &Path,
        overrides: &RunOverrides,
        here: &Path,
        env: &Env,
    ) -> Result<Self> {
        let base = Base {
            run: spec,
            folder,
            workspace: Some(folder),
            workdir: Path::new(WORKSPACE),
        };
        base.under(overrides, here, &[], env)
    }

    /// What `overrides` say of the run of an image; nothing of this machine is mounted but what they
    /// name. The command is not known before the image is, and neither is what the working
    /// directory is relative to.
    pub fn of_flags(overrides: &RunOverrides, here: &Path, env: &Env) -> Result<Self> {
        let base = Base {
            run: &RunSpec::default(),
            folder: here,
            workspace: None,
            workdir: Path::new("/"),
        };
        base.under(overrides, here, &[], env)
    }
}

impl Base<'_> {
    fn under(
        &self,
        overrides: &RunOverrides,
        here: &Path,
        command: &[String],
        env: &Env,
    ) -> Result<ResolvedRunOptions> {
        let spec = self.run;
        let ports: Vec<PortSpec> = spec.ports.iter().chain(&overrides.ports).copied().collect();
        let network = overrides
            .network
            .or(spec.network)
            .unwrap_or(NetworkMode::Host);
        if network == NetworkMode::Host
            && let Some(port) = ports.first()
        {
            return Err(AppError::HostPort { port: port.host }.into());
        }
        let limits = overrides.limits.or(spec.limits());
        let numa = overrides.numa.or(spec.numa).unwrap_or(NumaPolicy::Auto);
        tracing::debug!(flag = ?overrides.runtime, spec = ?spec.runtime, "the runtime that is asked for");
        Ok(ResolvedRunOptions {
            command: command.to_vec(),
            workdir: overrides
                .workdir
                .as_ref()
                .or(spec.workdir.as_ref())
                .map_or_else(|| self.workdir.to_owned(), |dir| self.workdir.join(dir)),
            env: merge_variables(&spec.env, &overrides.env, |name| {
                env.var(name).map(str::to_owned)
            })?,
            sample_hz: overrides.sample_hz.or(spec.sample_hz).unwrap_or(1),
            // Not where its CPUs are named.
            place: numa == NumaPolicy::Auto && limits.cpuset.is_none(),
            limits,
            mounts: mounts(self, &overrides.mounts, here)?,
            network,
            runtime: overrides.runtime.or(spec.runtime).unwrap_or_default(),
            ports: ports.iter().map(port).collect(),
            user: if overrides.root {
                ContainerUser::Root
            } else {
                spec.user.unwrap_or(ContainerUser::Plain)
            },
            asks_for_gpus: overrides.gpus.is_some() || spec.gpus.is_some(),
            gpus: match overrides.virtual_gpus.is_empty() {
                true => overrides.gpus.clone().or_else(|| spec.gpus.clone()),
                // Of the machine's own it gets none.
                false => Some(GpuRequest::Count(0)),
            }
            .unwrap_or(GpuRequest::All),
            probe: overrides.accounting.merge_with_spec(spec),
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

/// The spec's folder at /workspace, then the spec's mounts, then the overrides'.
fn mounts(base: &Base<'_>, added: &[MountSpec], here: &Path) -> Result<Vec<Mount>> {
    let workspace = base.workspace.map(|folder| Mount {
        source: folder.to_owned(),
        target: PathBuf::from(WORKSPACE),
        read_only: false,
    });
    let spec = base.run.mounts.iter().map(|m| (m, base.folder));
    let asked = spec.chain(added.iter().map(|m| (m, here)));
    let workspace = workspace.into_iter().map(Ok);
    workspace
        .chain(asked.map(|(mount, base)| {
            let path = base.join(&mount.source);
            let source = path.canonicalize().map_err(|error| {
                let path = path.clone();
                match error.kind() {
                    std::io::ErrorKind::NotFound => AppError::NoMountSource { path },
                    _ => AppError::File {
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

/// The spec's variables, then the overrides': `NAME=VALUE`, or `NAME` for the value that `lookup` has.
pub fn merge_variables(
    spec: &BTreeMap<String, String>,
    flags: &[String],
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>> {
    let mut env = spec.clone();
    for flag in flags {
        let name = flag.split('=').next().unwrap_or_default();
        if !is_variable(name) {
            let name = name.to_owned();
            return Err(AppError::BadVariable { name }.into());
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = lookup(flag).ok_or(AppError::NoVariable { name: flag.clone() })?;
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

    fn merge(spec: &str, overrides: &RunOverrides, command: &[&str]) -> Result<ResolvedRunOptions> {
        let spec = Spec::parse(spec).unwrap();
        let command: Vec<String> = command.iter().map(ToString::to_string).collect();
        ResolvedRunOptions::merge(
            &spec.run,
            Path::new("/"),
            overrides,
            Path::new("/"),
            &command,
            &Env::default(),
        )
    }

    #[test]
    fn a_command_starts_where_it_was_typed() {
        let start = |command: &[&str], here: &str| {
            let spec = Spec::parse("[run]\ncommand = [\"a\"]").unwrap();
            let command: Vec<String> = command.iter().map(ToString::to_string).collect();
            let (folder, here) = (Path::new("/tmp"), Path::new(here));
            let flags = RunOverrides::default();
            ResolvedRunOptions::merge(&spec.run, folder, &flags, here, &command, &Env::default())
                .unwrap()
                .workdir
                .into_os_string()
        };
        assert_eq!(start(&["b"], "/tmp/deep/er"), "/workspace/deep/er");
        assert_eq!(start(&["b"], "/tmp"), "/workspace");
        assert_eq!(start(&["b"], "/elsewhere"), "/workspace");
        assert_eq!(start(&[], "/tmp/deep"), "/workspace");
    }

    #[test]
    fn flags_override_the_spec() {
        let spec = "[run]\ncommand = [\"a\"]\nmemory = \"4GiB\"\ncpus = 2.0\nruntime = \"crun\"";
        let flags = RunOverrides {
            limits: RunLimits {
                memory: Some(Bytes::from_mib(512)),
                ..RunLimits::default()
            },
            runtime: Some(Runtime::Runc),
            ..RunOverrides::default()
        };
        let options = merge(spec, &flags, &["b", "c"]).unwrap();
        assert_eq!(options.command, ["b", "c"]);
        assert_eq!(options.limits.memory, Some(Bytes::from_mib(512)));
        assert_eq!(options.limits.cpus.map(|c| c.0), Some(2000));
        assert_eq!(options.runtime, Runtime::Runc);
        let without = merge(spec, &RunOverrides::default(), &[]).unwrap();
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
        let options = merge(spec, &RunOverrides::default(), &["a"]).unwrap();
        assert_eq!(options.limits.cpuset, "0-3".parse().ok());
        assert_eq!(
            (options.limits.io_weight, options.limits.nofile),
            (Some(50), Some(1024))
        );
        assert!(!options.place, "its CPUs are named");
        let mut flags = RunOverrides::default();
        flags.limits.nofile = Some(9);
        flags.numa = Some(sconce_schema::spec::NumaPolicy::Off);
        let options = merge("[run]\nnofile = 1024", &flags, &["a"]).unwrap();
        assert_eq!((options.limits.nofile, options.place), (Some(9), false));
        assert!(merge("", &RunOverrides::default(), &["a"]).unwrap().place);
        let own = merge(
            "[run]\nnetwork = \"own\"\nports = [\"8888\"]",
            &RunOverrides::default(),
            &["a"],
        );
        assert_eq!(own.unwrap().network, NetworkMode::Own);
    }

    #[test]
    fn a_working_directory_is_below_the_workspace() {
        let workdir = |given: Option<&str>| {
            let flags = RunOverrides {
                workdir: given.map(str::to_owned),
                ..RunOverrides::default()
            };
            merge("", &flags, &["a"]).unwrap().workdir
        };
        assert_eq!(workdir(None), Path::new("/workspace"));
        assert_eq!(workdir(Some("src")), Path::new("/workspace/src"));
        assert_eq!(workdir(Some("/tmp")), Path::new("/tmp"));
    }

    #[test]
    fn a_run_without_a_command_is_refused() {
        let failure = merge("", &RunOverrides::default(), &[]).unwrap_err();
        assert_eq!(failure.exit_code(), sconce_schema::exit::USAGE);
    }

    #[test]
    fn a_port_of_the_hosts_own_network_is_refused() {
        let published = |network| {
            let flags = RunOverrides {
                ports: vec!["8888:80".parse().unwrap()],
                network,
                ..RunOverrides::default()
            };
            merge("", &flags, &["a"])
        };
        let failure = published(None).unwrap_err();
        assert_eq!(failure.exit_code(), sconce_schema::exit::USAGE);
        let text = failure.to_plain_text();
        assert!(
            text.contains("8888") && text.contains("--network none"),
            "{text}"
        );
        assert_eq!(published(Some(NetworkMode::None)).unwrap().ports.len(), 1);
    }

    #[test]
    fn the_folder_is_the_workspace_and_missing_sources_are_named() {
        let options = merge(
            "[run]\nmounts = [\"tmp:/data:ro\"]",
            &RunOverrides::default(),
            &["a"],
        )
        .unwrap();
        let target = |i: usize| options.mounts[i].target.to_str().unwrap();
        assert_eq!((target(0), target(1)), ("/workspace", "/data"));
        let failure = merge(
            "[run]\nmounts = [\"no-such:/d\"]",
            &RunOverrides::default(),
            &["a"],
        )
        .unwrap_err();
        let text = failure.to_plain_text();
        assert!(text.contains("/no-such"), "{text}");
    }

    #[test]
    fn an_image_gets_no_folder_that_nobody_named() {
        let flags = RunOverrides {
            mounts: vec!["tmp:/data:ro".parse().unwrap()],
            limits: RunLimits {
                memory: Some(Bytes::from_mib(512)),
                ..RunLimits::default()
            },
            ..RunOverrides::default()
        };
        let options =
            ResolvedRunOptions::of_flags(&flags, Path::new("/"), &Env::default()).unwrap();
        assert_eq!(options.mounts.len(), 1);
        assert_eq!(options.mounts[0].target, Path::new("/data"));
        assert_eq!(
            (options.limits.memory, options.command.len()),
            (flags.limits.memory, 0)
        );
        assert_eq!(options.user, ContainerUser::Plain);
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
