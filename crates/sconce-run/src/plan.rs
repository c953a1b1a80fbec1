//! What init is told to do: a request in which nothing is left to decide. It travels as JSON in an
//! anonymous file that init inherits.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that init needs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Absent without a container.
    pub(crate) container: Option<Container>,
    /// Program and arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// `NAME=value`, complete.
    pub(crate) env: Vec<OsString>,
    pub(crate) workdir: PathBuf,
    /// Whether the command gets a terminal of its own.
    pub(crate) terminal: bool,
    /// Where sockets of the container's network are asked for, one for each message.
    pub(crate) sockets: Option<RawFd>,
}

/// The container around the command.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) hostname: String,
    /// Trees of the image, lowest first.
    pub(crate) layers: Vec<PathBuf>,
    /// Folder with `upper`, `work` and `root`.
    pub(crate) scratch: PathBuf,
    /// Whether `upper` is kept after the run.
    pub(crate) kept: bool,
    pub(crate) shm_bytes: u64,
    pub(crate) own_network: bool,
    pub(crate) mounts: Vec<Mount>,
    /// (target, path of the link).
    pub(crate) links: Vec<(String, PathBuf)>,
    pub(crate) credentials: Credentials,
    /// User namespaces that map owners of mounted files, as init inherits them.
    pub(crate) owners: Vec<RawFd>,
}

/// Who the command becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// Inside.
    pub(crate) uid: u32,
    /// Inside.
    pub(crate) gid: u32,
    /// Whether init is the machine's root and must change to them; in a user namespace it has
    /// them already.
    pub(crate) change: bool,
    /// Capabilities kept, as bits.
    pub(crate) capabilities: u64,
}

/// One bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// On the host.
    pub(crate) source: PathBuf,
    /// Inside.
    pub(crate) target: PathBuf,
    /// Attributes of mount_setattr(2).
    pub(crate) attributes: u64,
    /// Which of [`Container::owners`] maps the owners of the files, if they are to be mapped.
    pub(crate) owners: Option<usize>,
}
