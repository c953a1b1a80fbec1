//! The parts that every run's request and record have.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sconce_host::HostProfile;
use sconce_schema::event::{Containment, FORMAT, HostSummary, RunStarted};
use sconce_schema::request::{Mount, RunRequest, RunRoot};
use sconce_store::ItemGuard;

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::item_guards::acquire_layer_guards;

/// So many ids are tried for one that is free.
const MAX_ATTEMPTS: usize = 32;

/// The parts of a run's beginning that every kind of run has.
pub(super) fn common_start_event(request: &RunRequest, host: &HostProfile) -> RunStarted {
    RunStarted {
        format: FORMAT,
        id: request.id.clone(),
        name: None,
        unix_ms: unix_ms(),
        command: request.command.clone(),
        folder: PathBuf::new(),
        mode: Containment::Host,
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
            boot_id: crate::run_lookup::boot_id(),
            ..host.summary()
        },
        gpus: Vec::new(),
    }
}

/// A request for work of Sconce's own in `root`: no network, no limits, no cards.
pub fn internal_run_request(
    root: RunRoot,
    name: &str,
    command: Vec<String>,
    mounts: Vec<Mount>,
) -> RunRequest {
    RunRequest {
        mounts,
        ..RunRequest::new(chore_id(name), root, command)
    }
}

/// The id of a chore, which has no record to be compared with: a build has many at once, and so may others.
fn chore_id(name: &str) -> String {
    let chance = sconce_base::random_name();
    format!(
        "{}-{chance}",
        sconce_record::new_id(name, unix_ms(), random())
    )
}

/// An id that no record in `runs` has: in a minute of many runs, chance could give one twice.
pub(super) fn new_id(name: &str, runs: &Path) -> String {
    let fresh = || sconce_record::new_id(name, unix_ms(), random());
    let taken = |id: &String| runs.join(id).exists();
    let mut ids = std::iter::repeat_with(fresh).take(MAX_ATTEMPTS);
    ids.find(|id| !taken(id)).unwrap_or_else(fresh)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Chance for ids; nothing depends on its quality. From the kernel, without a file: there may be no descriptor
/// left.
fn random() -> u32 {
    RandomState::new().hash_one(0) as u32
}

/// This program.
pub fn current_exe() -> Result<PathBuf> {
    std::env::current_exe().map_err(|source| {
        AppError::File {
            action: FileAction::Find,
            path: PathBuf::from("/proc/self/exe"),
            source,
        }
        .into()
    })
}

/// Has what a run stands on stay in the store as long as what this gives is held.
pub fn acquire_root_guards(root: &RunRoot) -> Result<Vec<ItemGuard>> {
    match root {
        RunRoot::Image(manifest) => Ok(acquire_layer_guards(&manifest.layers)?),
        RunRoot::Host => Ok(Vec::new()),
    }
}

/// Where the program was started.
pub(super) fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|source| {
        AppError::File {
            action: FileAction::Open,
            path: PathBuf::from("."),
            source,
        }
        .into()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A thousand runs in one minute, of 16 million ids: without a look at the others, some may be equal.
    #[test]
    fn no_run_has_the_id_of_another() {
        let runs = tempfile::tempdir().unwrap();
        for _ in 0..1000 {
            let id = new_id("same", runs.path());
            std::fs::create_dir(runs.path().join(id)).unwrap();
        }
    }

    /// A build of many wheels beside others: all of them live at once.
    #[test]
    fn no_chore_has_the_id_of_another() {
        let ids: BTreeSet<String> = (0..10_000).map(|_| chore_id("bytecode")).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
