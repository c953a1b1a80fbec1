//! The parts that every run's request and record have.

use std::path::PathBuf;

use sconce_host::HostProfile;
use sconce_schema::event::{Containment, FORMAT, HostSummary, RunStarted};
use sconce_schema::request::RunRequest;

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::run_id::unix_ms;

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
        containment: None,
        node_network: None,
        versions: None,
        plan: None,
        host: HostSummary {
            boot_id: crate::run_lookup::boot_id(),
            ..host.summary()
        },
        gpus: Vec::new(),
    }
}

/// Where the program was started.
pub(crate) fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|source| {
        AppError::File {
            action: FileAction::Open,
            path: PathBuf::from("."),
            source,
        }
        .into()
    })
}
