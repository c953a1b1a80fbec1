//! A run as flags of `docker create`, and what there are no flags for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sconce_schema::Runtime;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::{ContainerUser, EditMount, Mount, NetworkMode, RunRequest, RunRoot};
use sconce_schema::units::LockedMemory;

use super::Can;
use crate::capabilities;
use crate::error::{InvalidRequest, RunError};

/// The smallest weight that Docker takes.
const MIN_WEIGHT: u32 = 10;

/// uid and gid of [`ContainerUser::Plain`].
const PLAIN: u32 = 1000;

/// What the line is made of beside the request.
pub(super) struct CreateArgs<'a> {
    pub(super) request: &'a RunRequest,
    pub(super) image: &'a str,
    pub(super) can: Can,
    pub(super) shm_bytes: u64,
    /// Files that the client reads: the variables, and the filter of system calls.
    pub(super) variables: &'a Path,
    pub(super) filter: &'a Path,
}

/// The container's name.
pub(super) fn container_name(request: &RunRequest) -> String {
    format!("sconce-{}", request.id)
}

fn uid(request: &RunRequest) -> u32 {
    match request.user {
        ContainerUser::Plain => PLAIN,
        ContainerUser::Root => 0,
    }
}

/// What kinds of runs cannot be handed over.
///
/// # Errors
/// [`RunError::Request`].
pub(super) fn validate_request(request: &RunRequest, kept: bool) -> Result<(), RunError> {
    let ports = request.network == NetworkMode::None && !request.ports.is_empty();
    let cannot = [
        ("services", !request.services.is_empty()),
        ("a writable layer that is kept", kept),
        ("a run without a container", request.root == RunRoot::Host),
        ("ports of a run without a network", ports),
    ];
    match cannot.iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(wrong(what)),
        None => Ok(()),
    }
}

fn wrong(what: &'static str) -> RunError {
    RunError::Request(InvalidRequest::Engine {
        runtime: Runtime::Docker,
        what,
    })
}

/// The arguments, from `create` on.
///
/// # Errors
/// [`RunError::Request`] for what Docker cannot be told.
pub(super) fn build_create_args(asked: &CreateArgs<'_>) -> Result<Vec<OsString>, RunError> {
    let request = asked.request;
    let mut line = Line(Vec::new());
    line.words("create --interactive --pull never --log-driver none --no-healthcheck");
    if asked.can.init {
        line.words("--init");
    }
    if request.terminal {
        line.words("--tty");
    }
    line.pair("--name", container_name(request));
    line.pair("--label", format!("sconce.run={}", request.id));
    line.pair("--hostname", &request.id);
    line.pair("--user", format!("{0}:{0}", uid(request)));
    line.pair("--workdir", &request.workdir);
    line.pair("--env-file", asked.variables);
    line.words("--cap-drop ALL --security-opt no-new-privileges");
    if request.user == ContainerUser::Root {
        for name in capabilities::names(capabilities::ROOT_INSIDE) {
            line.pair("--cap-add", name);
        }
    }
    let mut filter = OsString::from("seccomp=");
    filter.push(asked.filter);
    line.pair("--security-opt", filter);
    limits(asked, &mut line);
    let network = match request.network {
        NetworkMode::Host => "host",
        NetworkMode::None => "none",
        NetworkMode::Own => "bridge",
    };
    line.pair("--network", network);
    for port in &request.ports {
        let at = std::net::SocketAddr::new(port.host_ip, port.host);
        line.pair("--publish", format!("{at}:{}", port.container));
    }
    for mount in &request.mounts {
        line.pair(
            "--mount",
            bind(&mount.source, &mount.target, mount.read_only)?,
        );
    }
    cards(request, &mut line)?;
    // In place of the image's, of which the command has what it needs already.
    let program = request
        .command
        .first()
        .ok_or(RunError::Request(InvalidRequest::NoCommand))?;
    line.pair("--entrypoint", program);
    line.0.push("--".into());
    line.0.push(asked.image.into());
    line.0
        .extend(request.command.iter().skip(1).map(OsString::from));
    Ok(line.0)
}

fn limits(asked: &CreateArgs<'_>, line: &mut Line) {
    let (limits, can) = (&asked.request.limits, asked.can);
    line.pair("--shm-size", format!("{}b", asked.shm_bytes));
    if let Some(cpus) = limits.cpus.filter(|_| can.cpus) {
        line.pair("--cpus", cpus.to_string());
    }
    if let Some(cpus) = limits.cpuset.filter(|_| can.cpuset) {
        line.pair("--cpuset-cpus", cpus.to_string());
    }
    if let Some(memory) = limits.memory.filter(|_| can.memory) {
        // Both together: without it, Docker adds as much swap again.
        let both = limits.memory_swap.unwrap_or(memory);
        line.pair("--memory", format!("{}b", memory.0));
        line.pair("--memory-swap", format!("{}b", both.0));
    }
    if let Some(pids) = limits.pids.filter(|_| can.pids) {
        line.pair("--pids-limit", pids.to_string());
    }
    if let Some(weight) = limits.io_weight {
        line.pair("--blkio-weight", weight.max(MIN_WEIGHT).to_string());
    }
    if let Some(files) = limits.nofile {
        line.pair("--ulimit", format!("nofile={files}:{files}"));
    }
    if let Some(locked) = limits.memlock {
        let bytes = match locked {
            LockedMemory::Limited(bytes) => bytes.0.to_string(),
            LockedMemory::Unlimited => "-1".to_owned(),
        };
        line.pair("--ulimit", format!("memlock={bytes}:{bytes}"));
    }
}

/// Device nodes and driver files, as other engines get them: the same cards whatever Docker knows of
/// NVIDIA.
fn cards(request: &RunRequest, line: &mut Line) -> Result<(), RunError> {
    for node in request.edits.iter().flat_map(|edits| &edits.device_nodes) {
        let host = match node.host_path.is_empty() {
            true => &node.path,
            false => &node.host_path,
        };
        if host.contains(':') || node.path.contains(':') {
            return Err(wrong("device nodes with a colon"));
        }
        line.pair("--device", format!("{host}:{}:rw", node.path));
    }
    for (source, target, read_only) in driver_files(request) {
        line.pair("--mount", bind(&source, &target, read_only)?);
    }
    Ok(())
}

/// Source, target and whether it is read only. A link is its file once more, as in a CDI file.
fn driver_files(request: &RunRequest) -> impl Iterator<Item = (PathBuf, PathBuf, bool)> + '_ {
    let all = || request.edits.iter().flat_map(|edits| &edits.mounts);
    let read_only = |mount: &EditMount| mount.options.iter().any(|option| option == "ro");
    let path = |text: &str| PathBuf::from(text);
    let links = request.edits.iter().flat_map(|edits| &edits.links);
    let links = links.filter_map(move |(target, link)| {
        let meant = Path::new(link).parent()?.join(target);
        let file = all().find(|mount| Path::new(&mount.container_path) == meant)?;
        Some((path(&file.host_path), path(link), read_only(file)))
    });
    let files = all().map(move |mount| {
        let (source, target) = (path(&mount.host_path), path(&mount.container_path));
        (source, target, read_only(mount))
    });
    files
        .chain(links)
        .filter(|(_, target, _)| !target.starts_with("/proc"))
}

/// A mount as Docker's client reads it: one line of comma-separated values.
fn bind(source: &Path, target: &Path, read_only: bool) -> Result<String, RunError> {
    let (Some(source), Some(target)) = (source.to_str(), target.to_str()) else {
        return Err(wrong("paths that are no UTF-8"));
    };
    let special = [',', '"', '\n', '\r'];
    if [source, target].iter().any(|path| path.contains(special)) {
        return Err(wrong(
            "paths with a comma, a quotation mark or a line break",
        ));
    }
    let end = if read_only { ",readonly" } else { "" };
    Ok(format!("type=bind,source={source},target={target}{end}"))
}

/// The variables as the client reads them from a file, a line each: in its arguments every user of the
/// machine could read them, and in its own environment they would be its own too (`LD_PRELOAD`).
///
/// # Errors
/// [`RunError::Request`] for those that such a file cannot hold.
pub(super) fn render_env_file(env: &[OsString]) -> Result<Vec<u8>, RunError> {
    let mut text = Vec::new();
    for variable in env {
        let bytes = variable.as_bytes();
        if bytes.contains(&b'\n') || bytes.ends_with(b"\r") {
            return Err(wrong("a variable of more than one line"));
        }
        let first = bytes.first().copied().unwrap_or(b'#');
        if first == b'#' || first == b'=' || std::str::from_utf8(bytes).is_err() {
            return Err(wrong("a variable that is no plain text"));
        }
        let name = bytes.split(|b| *b == b'=').next().unwrap_or_default();
        if name.iter().any(u8::is_ascii_whitespace) {
            return Err(wrong("a variable with a space in its name"));
        }
        text.extend_from_slice(bytes);
        text.push(b'\n');
    }
    Ok(text)
}

/// What of a request Docker has no flag for, or its daemon says it cannot do here.
pub(super) fn unenforced_limits(request: &RunRequest, can: Can) -> Vec<UnenforcedLimit> {
    let limits = &request.limits;
    let mut list = Vec::new();
    let mut say = |what: &str, why: String| {
        list.push(UnenforcedLimit {
            what: what.to_owned(),
            why,
            hint: None,
        });
    };
    for (what, asked, can) in [
        ("cpus", limits.cpus.is_some(), can.cpus),
        ("cpuset", limits.cpuset.is_some(), can.cpuset),
        ("memory", limits.memory.is_some(), can.memory),
        ("pids", limits.pids.is_some(), can.pids),
    ] {
        if asked && !can {
            say(
                what,
                "docker's daemon says that it cannot limit them on this machine".to_owned(),
            );
        }
    }
    if limits.hugepages.is_some() {
        say("hugepages", "docker has no flag for them".to_owned());
    }
    if limits.io_weight.is_some_and(|weight| weight < MIN_WEIGHT) {
        say(
            "io-weight",
            format!("docker takes no weight below {MIN_WEIGHT}, which it is now"),
        );
    }
    if request.near.is_some() {
        let why = "docker places no run next to its cards: memory and CPUs are as they come";
        say("numa", why.to_owned());
    }
    if !can.init {
        let why = "docker has no docker-init here: the command is process 1, which a signal it does \
                   not handle does not end, and which has to reap orphans";
        say("process 1", why.to_owned());
    }
    let covered = request.edits.iter().flat_map(|edits| &edits.mounts);
    for mount in covered.filter(|mount| mount.container_path.starts_with("/proc")) {
        let why = "docker mounts nothing below /proc, which shows the machine's own there";
        say(&mount.container_path, why.to_owned());
    }
    list.extend(
        request
            .mounts
            .iter()
            .filter_map(|mount| owner(request, mount)),
    );
    list
}

/// Docker shows files with the owners that they have. What another user owns, the run has as anyone
/// has it.
fn owner(request: &RunRequest, mount: &Mount) -> Option<UnenforcedLimit> {
    let inside = uid(request);
    let outside = std::fs::metadata(&mount.source).ok()?.uid();
    // What Sconce itself brings in is open to any user.
    let own = mount.target.starts_with("/run/sconce");
    (outside != inside && !own).then(|| UnenforcedLimit {
        what: format!("owner of {}", mount.target.display()),
        why: match inside {
            0 => format!(
                "docker shows the files of uid {outside} as they are, and what the run writes is the \
                 machine's root's"
            ),
            _ => format!(
                "docker shows the files of uid {outside} as they are, and the run is uid {inside}: it \
                 has them as any other user has"
            ),
        },
        hint: Some("Sconce without `runtime` shows them as the run's own".to_owned()),
    })
}

/// A command line that grows.
struct Line(Vec<OsString>);

impl Line {
    fn words(&mut self, words: &str) {
        self.0
            .extend(words.split_ascii_whitespace().map(OsString::from));
    }

    /// In one word, so that no value is taken for a flag.
    fn pair(&mut self, flag: &str, value: impl AsRef<std::ffi::OsStr>) {
        let mut word = OsString::from(flag);
        word.push("=");
        word.push(value);
        self.0.push(word);
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
pub(super) mod tests;
