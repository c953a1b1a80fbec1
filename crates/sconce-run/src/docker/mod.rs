//! A run that is handed over to Docker's daemon.
//!
//! ```text
//!  run() ── docker create ──▶ daemon
//!    ├ docker start ────────▶ daemon ──▶ command          streams and terminal are the client's
//!    ├ docker kill, inspect ▶ daemon                      signals, how it ended
//!    ├ /proc/PID/cgroup ────▶ samples of the container
//!    └ a shell that waits for Sconce's end: docker rm -f
//! ```
//!
//! The daemon stands outside of the run: the container is its child, in its cgroups and with its
//! mounts. So Sconce sets up nothing of it; Docker is told everything by flags, what it has no flag for is
//! said, and the supervisor watches as it does with any other [executor](crate::Executor).

mod cleanup;
mod client;
mod create_args;
mod execution;
mod inspect;

use std::path::PathBuf;

use sconce_base::Env;

use crate::error::RunError;

/// Docker's client and the daemon that answered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerClient {
    program: PathBuf,
    /// `unix://SOCKET`.
    host: String,
    /// The daemon's version.
    version: String,
    can: Can,
}

/// What the daemon says that it can do on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Can {
    /// It has the small process 1 of `--init`.
    init: bool,
    cpus: bool,
    cpuset: bool,
    memory: bool,
    pids: bool,
}

impl DockerClient {
    /// Asks the daemon that `program` talks to when it is started in `environment`.
    ///
    /// # Errors
    /// [`RunError::DockerElsewhere`], [`RunError::DockerSilent`], [`RunError::DockerClosed`],
    /// [`RunError::EngineTooOld`], [`RunError::EngineUnknown`], [`RunError::DockerUsers`].
    pub fn connect(program: PathBuf, environment: &Env) -> Result<Self, RunError> {
        client::connect(program, environment)
    }

    /// The daemon's version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the daemon has an image of this name.
    ///
    /// # Errors
    /// [`RunError::Engine`] where the client cannot be started.
    pub fn has_image(&self, image: &str) -> Result<bool, RunError> {
        client::has_image(self, image)
    }

    /// Begins `docker load`: what is written to its standard input is the archive.
    ///
    /// # Errors
    /// [`RunError::Engine`] where the client cannot be started.
    pub fn start_image_load(&self) -> Result<ImageLoad, RunError> {
        client::start_image_load(self)
    }
}

/// A container of a daemon: what runs a request that is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerContainer {
    /// The daemon.
    pub docker: DockerClient,
    /// The name by which it knows the image.
    pub image: String,
}

pub use client::ImageLoad;
