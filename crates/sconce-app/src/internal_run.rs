//! Runs of Sconce's own, which have no record: steps of a build, bytecode.

use sconce_schema::request::{Mount, RunRequest, RunRoot};

use crate::run_id::chore_id;

/// A request for work of Sconce's own in `root`: no network, no limits, no cards.
pub(crate) fn internal_run_request(
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
