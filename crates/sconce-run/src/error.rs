//! What can keep a run from running.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use sconce_host::UsernsObstacle;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::{Bytes, Hint, Millicores, NumberSet, Runtime, exit};

use crate::protocol::InitFailure;

/// Why a command was not run. How a command that did run ended is never an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The request contradicts itself or cannot be meant.
    #[error("the run request is wrong: {0}")]
    Request(InvalidRequest),
    /// A limit cannot be enforced, and `strict` was asked.
    #[error("this machine cannot enforce {}", names(.0))]
    Unenforced(Vec<UnenforcedLimit>),
    /// A program replaced one of the kernel's devices of this machine, as a file that is written under
    /// the name /dev/null does. crun would then take every pipe for /dev/null, and its output would be lost.
    #[error("{} of this machine is not the device of that name: something has replaced it", path.display())]
    Device {
        /// Its name.
        path: PathBuf,
        /// What the device's number would be.
        major: u32,
        /// The second part of it.
        minor: u32,
    },
    /// A mount's source cannot be used.
    #[error("cannot mount {}", path.display())]
    MountSource {
        /// The source.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no place for a mount inside.
    #[error("cannot mount at {} inside", path.display())]
    MountTarget {
        /// The target.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A tree of the image cannot be used.
    #[error("cannot use the image's layer {}", path.display())]
    Layer {
        /// Its folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody listens on a port already.
    #[error("port {} is in use on {}", .0.port(), .0.ip())]
    PortInUse(SocketAddr),
    /// A port cannot be listened on.
    #[error("cannot listen on {address}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A plain user's container needs user namespaces.
    #[error("a container needs user namespaces when it is not started by root")]
    UserNamespaces(#[source] UsernsObstacle),
    /// The kernel's settings allow new namespaces, and yet it refused.
    #[error("the kernel refused the namespaces of a container")]
    Namespaces(#[source] io::Error),
    /// The state folder cannot be used.
    #[error("cannot use {}", path.display())]
    State {
        /// What failed.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A run of this name goes on already.
    #[error("a run named `{0}` goes on already")]
    Running(String),
    /// The kernel refused to lay the image's trees over each other.
    #[error("the kernel refused the overlay file system of {layers} layers in {}", scratch.display())]
    Overlay {
        /// How many.
        layers: usize,
        /// Where the writable layer is.
        scratch: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A step of the container's set-up failed.
    #[error("setting the container up failed: {doing}")]
    Setup {
        /// The step.
        doing: String,
        /// Why.
        source: io::Error,
    },
    /// The working directory is not there.
    #[error("the working directory {} cannot be entered inside", path.display())]
    Workdir {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such command.
    #[error("command not found: `{command}`{}", searched.as_ref().map(|path| format!(" (searched in {path})")).unwrap_or_default())]
    NotFound {
        /// The command.
        command: String,
        /// `PATH`, where the command is a bare name.
        searched: Option<String>,
    },
    /// The command is there and cannot be executed.
    #[error("cannot execute {}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program that is to set containers up does not work, or is something else.
    #[error("{} does not say its version", program.display())]
    EngineUnknown {
        /// The program.
        program: PathBuf,
        /// Why, where the kernel said.
        source: Option<io::Error>,
    },
    /// A version that was never tried.
    #[error("{runtime} {found} is too old: {}.{} or newer is needed", oldest.0, oldest.1)]
    EngineTooOld {
        /// Which.
        runtime: Runtime,
        /// Its version.
        found: String,
        /// The oldest that is known to work.
        oldest: (u32, u32),
    },
    /// The engine gave up before the command began.
    #[error("{name} could not start the container{}", said.as_ref().map(|said| format!(": {said}")).unwrap_or_default())]
    Engine {
        /// Which.
        name: String,
        /// Its own words, where it left any.
        said: Option<String>,
    },
    /// The daemon that the client talks to cannot see this machine's files.
    #[error("docker's daemon at {host} is not on this machine")]
    DockerElsewhere {
        /// Its address.
        host: String,
    },
    /// Nobody answers.
    #[error("docker's daemon at {host} does not answer{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    DockerSilent {
        /// Its address.
        host: String,
        /// The client's words.
        said: String,
    },
    /// The caller may not talk to the daemon.
    #[error("docker's daemon at {host} is closed to this user")]
    DockerClosed {
        /// Its address.
        host: String,
    },
    /// Its users are others than the machine's.
    #[error("docker's daemon at {host} has users of its own (rootless, or userns-remap)")]
    DockerUsers {
        /// Its address.
        host: String,
    },
    /// Somebody ended the client; the container was removed.
    #[error("docker's client ended before the command did")]
    DockerClient,
    /// The process that holds the container died without a word.
    #[error("the container's first process died ({0})")]
    Lost(String),
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// No command.
    #[error("it has no command")]
    NoCommand,
    /// The id is a folder's name and a host name.
    #[error("`{0}` is not an id (letters, digits, `.`, `_`, `-`; at most 63)")]
    Id(String),
    /// A zero byte, which the kernel cannot take.
    #[error("`{0}` contains a zero byte")]
    ZeroByte(String),
    /// Paths inside are absolute and go straight down.
    #[error("{} is not an absolute path without `..`", .0.display())]
    Path(PathBuf),
    /// `/`, `/proc`, `/sys` and `/dev` belong to the container itself.
    #[error("nothing can be mounted at {}", .0.display())]
    Target(PathBuf),
    /// The image has no trees.
    #[error("the image has no layers")]
    NoLayers,
    /// The kernel's limit.
    #[error("the image has {0} layers; the overlay file system takes at most {max}", max = crate::prepare::MAX_LAYERS)]
    TooManyLayers(usize),
    /// On the host's network there is nothing to publish.
    #[error("ports can be published only from a run with a network of its own")]
    Ports,
    /// A limit of nothing.
    #[error("`{0}` is nothing at all")]
    Nothing(&'static str),
    /// More CPU time than there are CPUs.
    #[error("{asked} CPUs were asked for, and there are {cpus} here")]
    Cpus {
        /// In cores.
        asked: Millicores,
        /// That the caller may use.
        cpus: u32,
    },
    /// More memory than the machine has.
    #[error("{asked} of memory were asked for, and this machine has {there}")]
    Memory {
        /// The limit.
        asked: Bytes,
        /// Main memory.
        there: Bytes,
    },
    /// CPUs that are not there, or closed to the caller.
    #[error("there is no CPU {missing} here: {there} can be used")]
    CpuSet {
        /// Those asked for that are not there.
        missing: Box<NumberSet>,
        /// Those that the caller may use.
        there: Box<NumberSet>,
    },
    /// Swap is limited together with memory.
    #[error("`memory-swap` is memory and swap together, and needs a limit of `memory`")]
    SwapAlone,
    /// Less for both than for one.
    #[error(
        "`memory-swap` is memory and swap together: {both} is less than the {memory} of memory alone"
    )]
    Swap {
        /// Memory and swap.
        both: Bytes,
        /// Memory.
        memory: Bytes,
    },
    /// A name that is no file's, or is taken by something else.
    #[error(
        "`{0}` cannot be a service's name (lower-case letters, digits, `-`, `_`; at most 32; not `run`)"
    )]
    ServiceName(String),
    /// Two of one name.
    #[error("there are two services `{0}`")]
    ServiceTwice(String),
    /// More than can be held.
    #[error("there are {0} services; 64 is the most")]
    TooManyServices(usize),
    /// Nothing to start.
    #[error("the service `{0}` has no command")]
    ServiceCommand(String),
    /// A check that can never succeed.
    #[error(
        "the health check of the service `{0}` needs a command, a port, or a port and a path from `/` on"
    )]
    ServiceCheck(String),
    /// It waits for nobody, or for itself.
    #[error("the service `{0}` waits for one that does not exist, or in a circle")]
    ServiceOrder(String),
    /// Another user inside takes the machine's root.
    #[error(
        "the service `{0}` has another user than the run, which only root can give it, in a container"
    )]
    ServiceUser(String),
    /// On the machine's own network a port is where it is.
    #[error(
        "the service `{name}` listens on port {container}, which cannot be published as {host} on the machine's own network"
    )]
    ServicePort {
        /// Of the service.
        name: String,
        /// Where it listens.
        container: u16,
        /// Where it was to be reached.
        host: u16,
    },
    /// What is Sconce's own to hold.
    #[error("{runtime} cannot hold {what}")]
    Engine {
        /// Which engine.
        runtime: Runtime,
        /// What was asked of it.
        what: &'static str,
    },
    /// Without a container nothing can be mounted.
    #[error("mounts need a container")]
    HostMounts,
    /// Without a container there is no network of its own.
    #[error("a run without a container has the machine's own network")]
    HostNetwork,
}

fn names(list: &[UnenforcedLimit]) -> String {
    let each: Vec<_> = list
        .iter()
        .map(|u| format!("{}: {}", u.what, u.why))
        .collect();
    each.join("; ")
}

impl RunError {
    pub(crate) fn at_step(doing: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Setup {
            doing: doing.to_owned(),
            source,
        }
    }

    /// From what was reported from inside.
    pub(crate) fn from_init_failure(failure: InitFailure) -> Self {
        let error = io::Error::from_raw_os_error;
        match failure {
            InitFailure::Step { doing, errno } => Self::Setup {
                doing,
                source: error(errno),
            },
            InitFailure::Overlay {
                layers,
                scratch,
                errno,
            } => Self::Overlay {
                layers,
                scratch,
                source: error(errno),
            },
            InitFailure::Source { path, errno } => Self::MountSource {
                path,
                source: error(errno),
            },
            InitFailure::Target { path, errno } => Self::MountTarget {
                path,
                source: error(errno),
            },
            InitFailure::Layer { path, errno } => Self::Layer {
                path,
                source: error(errno),
            },
            InitFailure::Workdir { path, errno } => Self::Workdir {
                path,
                source: error(errno),
            },
            InitFailure::Engine { name, said } => Self::Engine { name, said },
            InitFailure::Device { path, major, minor } => Self::Device { path, major, minor },
            InitFailure::NotFound { command, searched } => Self::NotFound { command, searched },
            InitFailure::NotExecutable { path, errno } => Self::NotExecutable {
                path,
                source: error(errno),
            },
        }
    }
}

impl Hint for RunError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Device { path, major, minor } => {
                let path = path.display();
                return Some(format!(
                    "as root: `rm -f {path} && mknod -m 666 {path} c {major} {minor}`"
                ));
            }
            Self::Unenforced(list) => return list.iter().find_map(|u| u.hint.clone()),
            Self::UserNamespaces(barrier) => return barrier.hint(),
            Self::Namespaces(_) => {
                "something filters system calls here, as container engines do: start Sconce outside \
                 of that container, or use `--host`"
            }
            Self::MountSource { .. } => "the source of a mount must exist; Sconce does not make it",
            Self::MountTarget { .. } => {
                "the target must lie inside, and be a folder for a folder and a file for a file"
            }
            Self::Request(InvalidRequest::ServicePort { .. }) => {
                "give it one number, or the run a network of its own: `network = \"own\"`"
            }
            Self::Request(InvalidRequest::Engine { .. }) => {
                "leave `runtime` out: Sconce itself holds such a run"
            }
            Self::EngineUnknown { .. } | Self::EngineTooOld { .. } => {
                "install a newer one, or leave `runtime` out: Sconce needs no other program"
            }
            Self::DockerElsewhere { .. } => {
                "the run's folders would be that machine's: unset DOCKER_HOST or say `docker context \
                 use default`, and have Sconce run where the daemon is"
            }
            Self::DockerSilent { .. } => {
                "start it (`sudo systemctl start docker`), or leave `runtime` out: Sconce needs no daemon"
            }
            Self::DockerClosed { .. } => {
                "the group of that socket may use it, and is as good as root; Sconce without `runtime` \
                 needs no such right"
            }
            Self::DockerUsers { .. } => {
                "the run's user would own none of its files: leave `runtime` out, or use podman"
            }
            Self::Engine { name, .. } if name == "docker" => {
                "what docker says is all that is known; `docker info` says how its daemon is"
            }
            Self::Engine { .. } => {
                "without `runtime` Sconce sets the container up itself; if that works, the engine \
                 cannot work on this machine as it is"
            }
            Self::PortInUse(_) => "choose another port on the host, or end what listens there",
            Self::Port { address, .. } if address.port() < 1024 => {
                "ports below 1024 need root; choose a higher one"
            }
            Self::Overlay { source, .. } if source.raw_os_error() == Some(libc::ENODEV) => {
                "this kernel has no overlay file system: load it (`sudo modprobe overlay`), or use \
                 `--host`"
            }
            Self::Overlay { .. } => {
                "the kernel's own log (`dmesg`) says what it does not like; trees on ext4, xfs, \
                 btrfs or tmpfs can be laid over each other, and `--host` runs without"
            }
            Self::Setup { source, .. } if source.raw_os_error() == Some(libc::ENOSYS) => {
                "a container needs Linux 5.12 or newer; `--host` runs without one"
            }
            Self::Setup { doing, .. } if doing == crate::init::MOUNT_PROC => {
                "parts of /proc are covered here, as in most containers: start Sconce outside of \
                 the container, or use `--host`"
            }
            Self::NotExecutable { source, .. } => match source.raw_os_error() {
                Some(libc::ENOEXEC) => "a script needs a first line such as `#!/bin/sh`",
                Some(libc::ENOENT) => "the file is there; the interpreter that it names is not",
                _ => "the file needs the execute permission, and must not be a folder",
            },
            Self::Request(
                InvalidRequest::Cpus { .. }
                | InvalidRequest::Memory { .. }
                | InvalidRequest::CpuSet { .. },
            ) => "ask for less: a flag overrides what the spec says",
            Self::Running(_) => "wait until it ends, or give this one another name",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Unenforced(_) => exit::UNENFORCED,
            // As cards that are not there: the spec or a flag asks for what cannot be.
            Self::Request(
                InvalidRequest::Nothing(_)
                | InvalidRequest::Cpus { .. }
                | InvalidRequest::Memory { .. }
                | InvalidRequest::CpuSet { .. }
                | InvalidRequest::SwapAlone
                | InvalidRequest::Swap { .. },
            ) => exit::BAD_INPUT,
            Self::NotFound { .. } => exit::NOT_FOUND,
            Self::NotExecutable { .. } => exit::NOT_EXECUTABLE,
            Self::Request(
                InvalidRequest::NoCommand
                | InvalidRequest::Id(_)
                | InvalidRequest::ZeroByte(_)
                | InvalidRequest::Path(_)
                | InvalidRequest::Target(_)
                | InvalidRequest::NoLayers
                | InvalidRequest::TooManyLayers(_)
                | InvalidRequest::Ports
                | InvalidRequest::ServiceName(_)
                | InvalidRequest::ServiceTwice(_)
                | InvalidRequest::TooManyServices(_)
                | InvalidRequest::ServiceCommand(_)
                | InvalidRequest::ServiceCheck(_)
                | InvalidRequest::ServiceOrder(_)
                | InvalidRequest::ServiceUser(_)
                | InvalidRequest::ServicePort { .. }
                | InvalidRequest::Engine { .. }
                | InvalidRequest::HostMounts
                | InvalidRequest::HostNetwork,
            )
            | Self::Device { .. }
            | Self::MountSource { .. }
            | Self::MountTarget { .. }
            | Self::Layer { .. }
            | Self::PortInUse(_)
            | Self::Port { .. }
            | Self::UserNamespaces(_)
            | Self::Namespaces(_)
            | Self::State { .. }
            | Self::Running(_)
            | Self::Overlay { .. }
            | Self::Setup { .. }
            | Self::Workdir { .. }
            | Self::EngineUnknown { .. }
            | Self::EngineTooOld { .. }
            | Self::Engine { .. }
            | Self::DockerElsewhere { .. }
            | Self::DockerSilent { .. }
            | Self::DockerClosed { .. }
            | Self::DockerUsers { .. }
            | Self::DockerClient
            | Self::Lost(_) => exit::RUN,
        }
    }
}
