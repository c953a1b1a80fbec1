//! From a request to a plan: everything that can be checked before anything is started is checked
//! here, and everything is decided.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Gid, Uid};
use rustix::thread::CapabilitySet;
use sconce_schema::event::Unenforced;
use sconce_schema::request::{ContainerEdits, Network, Root, RunRequest, User};
use sconce_schema::units::Bytes;

use crate::RunOptions;
use crate::capabilities;
use crate::error::{RunError, Wrong};
use crate::idmap::Exchange;
use crate::launch::Namespaces;
use crate::plan::{Container, Credentials, Mount, Plan};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

/// The overlay file system's own limit (`OVL_MAX_STACK`).
pub(crate) const MOST_LAYERS: usize = 500;

/// uid and gid of [`User::Plain`].
const PLAIN: u32 = 1000;

/// Whether the caller is the machine's root, and not root of a user namespace that others made.
pub(crate) fn is_machine_root() -> bool {
    rustix::process::geteuid().is_root()
        && capabilities::has(
            CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID,
        )
        && std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// What there is to do.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// Absent without a container.
    pub(crate) namespaces: Option<Namespaces>,
    /// User namespaces that the plan's mounts name.
    pub(crate) owners: Vec<OwnedFd>,
    /// Wishes that cannot be granted.
    pub(crate) unenforced: Vec<Unenforced>,
}

/// Checks the parts that need no disk.
///
/// # Errors
/// [`RunError::Request`].
pub(crate) fn check(request: &RunRequest) -> Result<(), RunError> {
    wrong(request).map_or(Ok(()), |wrong| Err(RunError::Request(wrong)))
}

fn wrong(request: &RunRequest) -> Option<Wrong> {
    let id_fits = (1..=63).contains(&request.id.len())
        && !request.id.starts_with(['.', '-'])
        && request
            .id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !id_fits {
        return Some(Wrong::Id(request.id.clone()));
    }
    if request.command.first().is_none_or(String::is_empty) {
        return Some(Wrong::NoCommand);
    }
    let texts = request
        .command
        .iter()
        .chain(request.env.iter().flat_map(|(k, v)| [k, v]));
    if let Some(text) = texts.into_iter().find(|text| text.contains('\0')) {
        return Some(Wrong::ZeroByte(text.replace('\0', "\\0")));
    }
    if !is_straight(&request.workdir) {
        return Some(Wrong::Path(request.workdir.clone()));
    }
    match &request.root {
        Root::Host if !request.mounts.is_empty() => return Some(Wrong::HostMounts),
        Root::Host if request.network == Network::None => return Some(Wrong::HostNetwork),
        Root::Image(image) if image.layers.is_empty() => return Some(Wrong::NoLayers),
        Root::Image(image) if image.layers.len() > MOST_LAYERS => {
            return Some(Wrong::TooManyLayers(image.layers.len()));
        }
        _ => {}
    }
    if request.network != Network::None && !request.ports.is_empty() {
        return Some(Wrong::Ports);
    }
    request.mounts.iter().find_map(|mount| {
        if !is_straight(&mount.target) {
            return Some(Wrong::Path(mount.target.clone()));
        }
        if !mount.source.is_absolute() {
            return Some(Wrong::Path(mount.source.clone()));
        }
        let taken = ["/", "/dev", "/sys"]
            .iter()
            .any(|own| mount.target == Path::new(own))
            || mount.target.starts_with("/proc");
        taken.then(|| Wrong::Target(mount.target.clone()))
    })
}

fn is_straight(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

/// Decides everything.
///
/// # Errors
/// [`RunError::MountSource`], [`RunError::Request`], [`RunError::State`].
pub(crate) fn prepare(
    request: &RunRequest,
    options: &RunOptions<'_>,
    scratch: &Path,
    root: bool,
) -> Result<Prepared, RunError> {
    let mut plan = Plan {
        container: None,
        command: request.command.iter().map(OsString::from).collect(),
        env: environment(request, options),
        workdir: request.workdir.clone(),
        terminal: request.terminal,
        sockets: None,
    };
    let Root::Image(image) = &request.root else {
        return Ok(Prepared {
            plan,
            namespaces: None,
            owners: Vec::new(),
            unenforced: Vec::new(),
        });
    };
    let (id, kept) = match request.user {
        User::Plain => (PLAIN, CapabilitySet::empty()),
        User::Root => (0, capabilities::ROOT_INSIDE),
    };
    let mut owners = Owners {
        inside: (id, id),
        exchange: root,
        made: Vec::new(),
        unenforced: Vec::new(),
    };
    let mut mounts = Vec::new();
    for mount in &request.mounts {
        let read_only = if mount.read_only { RDONLY } else { 0 };
        mounts.push(Mount {
            owners: owners.of(mount)?,
            source: mount.source.clone(),
            target: mount.target.clone(),
            attributes: NOSUID | NODEV | read_only,
        });
    }
    for edits in &request.edits {
        edit_mounts(edits, &mut mounts)?;
    }
    let own_network = request.network == Network::None;
    let inside = match options.keep {
        Some(_) => crate::KEPT_NAME,
        None => &request.id,
    };
    plan.container = Some(Container {
        hostname: inside.to_owned(),
        layers: image
            .layers
            .iter()
            .map(|layer| layer.path.clone())
            .collect(),
        scratch: scratch.to_owned(),
        kept: options.keep.is_some(),
        shm_bytes: shared_memory(request, options),
        own_network,
        mounts,
        links: request
            .edits
            .iter()
            .flat_map(|edits| &edits.links)
            .map(|(target, path)| (target.clone(), PathBuf::from(path)))
            .collect(),
        credentials: Credentials {
            uid: id,
            gid: id,
            change: root,
            capabilities: kept.bits(),
        },
        owners: owners.made.iter().map(|(_, fd)| fd.as_raw_fd()).collect(),
    });
    writable_layer(scratch, request, inside, (id, root))
        .map_err(|(path, source)| RunError::State { path, source })?;
    Ok(Prepared {
        plan,
        namespaces: Some(Namespaces {
            user: (!root).then_some((id, id)),
            network: own_network,
        }),
        owners: owners.made.into_iter().map(|(_, fd)| fd).collect(),
        unenforced: owners.unenforced,
    })
}

/// `NAME=value`: for a run without a container the caller's with the request's over it.
fn environment(request: &RunRequest, options: &RunOptions<'_>) -> Vec<OsString> {
    let join = |name: &std::ffi::OsStr, value: &std::ffi::OsStr| {
        let mut text = name.to_owned();
        text.push("=");
        text.push(value);
        text
    };
    let edits = request.edits.iter().flat_map(|edits| &edits.env);
    let edited = |name: &std::ffi::OsStr| {
        edits
            .clone()
            .any(|edit| edit.split_once('=').is_some_and(|(edit, _)| name == edit))
    };
    let callers = match request.root {
        Root::Host => options.environment,
        Root::Image(_) => &[],
    };
    let callers = callers
        .iter()
        .filter(|(name, _)| {
            name.to_str()
                .is_none_or(|name| !request.env.contains_key(name))
        })
        .filter(|(name, _)| !edited(name))
        .map(|(name, value)| join(name, value));
    let own = request
        .env
        .iter()
        .filter(|(name, _)| !edited(name.as_ref()))
        .map(|(name, value)| join(name.as_ref(), value.as_ref()));
    callers
        .chain(own)
        .chain(edits.clone().map(OsString::from))
        .collect()
}

/// The size of /dev/shm: as asked, or half of the memory that the run may use. (The 64 MiB of
/// other engines kill DataLoader workers; what is in /dev/shm counts against the memory limit
/// anyway.)
fn shared_memory(request: &RunRequest, options: &RunOptions<'_>) -> u64 {
    let machine = options.host.memory;
    let usable = match (request.limits.memory, machine) {
        (Some(limit), Some(machine)) => Some(limit.min(machine)),
        (limit, machine) => limit.or(machine),
    };
    let Bytes(size) = request.limits.shm.unwrap_or_else(|| match usable {
        Some(Bytes(bytes)) => Bytes(bytes / 2),
        None => Bytes::gib(1),
    });
    // 0 would mean "no limit" to the kernel.
    size.max(4096)
}

/// User namespaces that make a folder's owner the run's user.
struct Owners {
    inside: (u32, u32),
    /// Whether owners can and must be exchanged: only by the machine's root.
    exchange: bool,
    made: Vec<((u32, u32), OwnedFd)>,
    unenforced: Vec<Unenforced>,
}

impl Owners {
    /// The index of the one for a mount, where it needs one and the kernel grants it.
    fn of(&mut self, mount: &sconce_schema::request::Mount) -> Result<Option<usize>, RunError> {
        let metadata = std::fs::metadata(&mount.source).map_err(|error| RunError::MountSource {
            path: mount.source.clone(),
            source: error,
        })?;
        let exchange = Exchange {
            outside: (metadata.uid(), metadata.gid()),
            inside: self.inside,
        };
        if !self.exchange || exchange.is_nothing() {
            return Ok(None);
        }
        let known = self
            .made
            .iter()
            .position(|(owner, _)| *owner == exchange.outside);
        if known.is_some() {
            return Ok(known);
        }
        match exchange.user_namespace() {
            Ok(made) => {
                self.made.push((exchange.outside, made));
                Ok(Some(self.made.len() - 1))
            }
            Err(error) => {
                self.unenforced.push(owner_stays(mount, &error));
                Ok(None)
            }
        }
    }
}

/// Says that a mount shows its owners as they are, because the kernel grants no user namespace.
fn owner_stays(mount: &sconce_schema::request::Mount, error: &io::Error) -> Unenforced {
    let max_is_zero = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EUSERS));
    let because = if max_is_zero {
        "sysctl user.max_user_namespaces is 0 or used up".to_owned()
    } else {
        error.to_string()
    };
    Unenforced {
        what: format!("owner of {}", mount.target.display()),
        why: format!(
            "the kernel grants no user namespace ({because}), without which the files of {} cannot \
             be shown as the run's user's, so that what is private to their owner is closed to the \
             run",
            mount.source.display()
        ),
        hint: max_is_zero.then(|| "run `sysctl user.max_user_namespaces=15000`".to_owned()),
    }
}

/// Device nodes and driver files, in the order of the edits.
fn edit_mounts(edits: &ContainerEdits, mounts: &mut Vec<Mount>) -> Result<(), RunError> {
    let nodes = edits.device_nodes.iter().map(|node| {
        let host = if node.host_path.is_empty() {
            &node.path
        } else {
            &node.host_path
        };
        (host, &node.path, NOSUID | NOEXEC)
    });
    let files = edits.mounts.iter().map(|mount| {
        let attributes = mount
            .options
            .iter()
            .fold(NOSUID | NODEV, |attributes, option| {
                attributes
                    | match option.as_str() {
                        "ro" => RDONLY,
                        "noexec" => NOEXEC,
                        _ => 0,
                    }
            });
        (&mount.host_path, &mount.container_path, attributes)
    });
    for (source, target, attributes) in nodes.chain(files) {
        let mount = Mount {
            source: PathBuf::from(source),
            target: PathBuf::from(target),
            attributes,
            owners: None,
        };
        std::fs::metadata(&mount.source).map_err(|error| RunError::MountSource {
            path: mount.source.clone(),
            source: error,
        })?;
        if !is_straight(&mount.target) {
            return Err(RunError::Request(Wrong::Path(mount.target)));
        }
        mounts.push(mount);
    }
    Ok(())
}

/// Makes `upper`, `work` and `root`, and in `upper` what every container has: places for the
/// system's file systems, /tmp, the files that name this machine, and the user's home.
fn writable_layer(
    scratch: &Path,
    request: &RunRequest,
    name: &str,
    (id, root): (u32, bool),
) -> Result<(), (PathBuf, io::Error)> {
    let folder = |path: &Path, mode: u32| {
        let made = std::fs::DirBuilder::new().mode(mode).create(path);
        // Whatever the caller's file mode mask is.
        made.and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)))
            .map_err(|error| (path.to_owned(), error))
    };
    let upper = scratch.join("upper");
    for (name, mode) in [("root", 0o700), ("work", 0o700), ("upper", 0o755)] {
        folder(&scratch.join(name), mode)?;
    }
    for name in ["proc", "sys", "dev", "etc"] {
        folder(&upper.join(name), 0o755)?;
    }
    folder(&upper.join("tmp"), 0o1777)?;
    for (file, text) in crate::names::files(request, name) {
        let path = upper.join("etc").join(file);
        std::fs::write(&path, text)
            .and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)))
            .map_err(|error| (path, error))?;
    }
    let Some(home) = home(request) else {
        return Ok(());
    };
    folder(&upper.join("home"), 0o755)?;
    let home = upper.join("home").join(home);
    folder(&home, 0o755)?;
    if root {
        let owner = (Some(Uid::from_raw(id)), Some(Gid::from_raw(id)));
        rustix::fs::chown(&home, owner.0, owner.1).map_err(|error| (home, error.into()))?;
    }
    Ok(())
}

/// The name of the user's folder, where `HOME` is one in /home.
fn home(request: &RunRequest) -> Option<&str> {
    let name = request.env.get("HOME")?.strip_prefix("/home/")?;
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    plain.then_some(name)
}
