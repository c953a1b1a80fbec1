//! Whether a target's nodes can run what a lock is for, before anything is handed over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sconce_schema::job::JobRequest;
use sconce_schema::spec::TargetSpec;
use serde::{Deserialize, Serialize};

use super::job_dir::{make_private_dir, write};
use super::schedulers::scheduler_of;
use super::submit::SubmissionError;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::input;
use crate::run_id::unix_ms;

/// Where answers are kept: nodes are bought seldom, and a list of them is work for the scheduler.
const ANSWERS: &str = "architectures.json";
/// How long.
const MAX_AGE: Duration = Duration::from_secs(86_400);

/// What a scheduler said of a partition's nodes, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KnownArchitectures {
    unix_ms: u64,
    /// As the kernel names them.
    machines: BTreeSet<String>,
}

/// Refuses a job of whose target no node has the lock's processors. A scheduler that does not say it is no reason: the
/// node itself refuses then.
///
/// # Errors
/// All nodes have others.
pub(super) fn refuse_other_architecture(
    request: &JobRequest,
    name: &str,
    target: &TargetSpec,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<()> {
    let machines = ask(request, target, places, context);
    let nodes: Vec<String> = machines.iter().map(|one| debian_name(one)).collect();
    if nodes.is_empty() || nodes.contains(&request.architecture) {
        return Ok(());
    }
    Err(SubmissionError::Architecture {
        lock: request.architecture.clone(),
        target: name.to_owned(),
        nodes,
    }
    .into())
}

fn ask(
    request: &JobRequest,
    target: &TargetSpec,
    places: &SconceDirs,
    context: &AppContext,
) -> BTreeSet<String> {
    let path = places.jobs.join(ANSWERS);
    let text = input::read_text(&path).unwrap_or_default();
    let mut known: BTreeMap<String, KnownArchitectures> =
        serde_json::from_str(&text).unwrap_or_default();
    let key = target.partition.clone().unwrap_or_default();
    let is_new = |one: &&KnownArchitectures| {
        unix_ms().saturating_sub(one.unix_ms)
            < u64::try_from(MAX_AGE.as_millis()).unwrap_or(u64::MAX)
    };
    if let Some(one) = known.get(&key).filter(is_new) {
        return one.machines.clone();
    }
    let machines = match scheduler_of(request.engine, context).architectures(target) {
        Ok(machines) => machines,
        Err(error) => {
            tracing::info!(%error, "the nodes' architecture is not known");
            return BTreeSet::new();
        }
    };
    let now = KnownArchitectures {
        unix_ms: unix_ms(),
        machines: machines.clone(),
    };
    known.insert(key, now);
    let text = serde_json::to_vec(&known).expect("plain data is JSON");
    // Kept for the next time alone.
    if make_private_dir(&places.jobs).is_ok() {
        let _ = write(&path, &text);
    }
    machines
}

/// Debian's name of what the kernel calls a machine (uname(2)).
fn debian_name(machine: &str) -> String {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_written_as_before() {
        let one = KnownArchitectures {
            unix_ms: 1_790_000_000_000,
            machines: ["x86_64".to_owned()].into(),
        };
        let known = BTreeMap::from([("gpu".to_owned(), one)]);
        let text = serde_json::to_string_pretty(&known).unwrap() + "\n";
        crate::golden::goldens().assert_same("job-architectures.json", &text);
        assert_eq!(debian_name("aarch64"), "arm64");
    }
}
