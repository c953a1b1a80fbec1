//! The parts that every run's request and record have.

use std::io::Read;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use sconce_host::Machine;
use sconce_schema::event::{FORMAT, HostSummary, Mode, Started};
use sconce_schema::request::{Mount, Root, RunRequest};
use sconce_store::Held;

use crate::failure::{CliError, Result};

/// The parts of a run's beginning that every kind of run has.
pub(super) fn started(request: &RunRequest, host: &Machine) -> Started {
    Started {
        format: FORMAT,
        id: request.id.clone(),
        name: None,
        unix_ms: unix_ms(),
        command: request.command.clone(),
        folder: PathBuf::new(),
        mode: Mode::Host,
        sconce_pid: std::process::id(),
        limits: request.limits,
        near: request.near,
        network: Some(request.network),
        // Told when it is there.
        way_out: None,
        runtime: None,
        versions: None,
        plan: None,
        host: HostSummary {
            boot_id: crate::live::boot_id(),
            ..host.summary()
        },
        gpus: Vec::new(),
    }
}

/// A request for work of Sconce's own in `root`: no network, no limits, no cards.
pub(crate) fn chore(
    root: Root,
    name: &str,
    command: Vec<String>,
    mounts: Vec<Mount>,
) -> RunRequest {
    RunRequest {
        mounts,
        ..RunRequest::new(new_id(name), root, command)
    }
}

pub(super) fn new_id(name: &str) -> String {
    sconce_record::new_id(name, unix_ms(), random())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Chance for ids; nothing depends on its quality.
fn random() -> u16 {
    let mut bytes = [0_u8; 2];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or(std::process::id() as u16, |()| u16::from_ne_bytes(bytes))
}

/// This program.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|source| {
        CliError::File {
            action: "find",
            path: PathBuf::from("/proc/self/exe"),
            source,
        }
        .into()
    })
}

/// Has what a run stands on stay in the store as long as what this gives is held.
pub(crate) fn stay(root: &Root) -> Result<Vec<Held>> {
    let Root::Image(manifest) = root else {
        return Ok(Vec::new());
    };
    let trees = manifest.layers.iter().map(|layer| layer.path.as_path());
    Ok(sconce_store::hold(trees)?)
}

/// Where the program was started.
pub(super) fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|source| {
        CliError::File {
            action: "open",
            path: PathBuf::from("."),
            source,
        }
        .into()
    })
}
