//! What became of a job, of an element of one or of a preparation: its tasks, its first node, and whose start it is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use sconce_submit::{LOG_NAME, StepLog};

use super::JobDir;
use super::files::{is_listed, read_end, read_json, write, write_json};
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::input;
use crate::job::task_run::TaskRun;

/// How much of each log's end is looked at for what the scheduler says of a failure.
const MAX_LOG_END_BYTES: u64 = 64 << 10;

/// Of how many tasks the logs are looked at for that.
const MAX_LOGS_LOOKED_AT: u32 = 64;

/// The file that says that its owner cancelled it.
const CANCELLED: &str = "cancelled";

impl JobDir {
    /// Keeps what is known of a task's run.
    pub fn write_task(&self, task: u32, run: &TaskRun) -> Result<()> {
        write_json(&self.tasks().join(format!("{task}.json")), run)
    }

    /// What is known of the tasks' runs, by their numbers.
    pub fn read_tasks(&self) -> BTreeMap<u32, TaskRun> {
        let tasks = self.tasks();
        let entries = std::fs::read_dir(&tasks).into_iter();
        let names = entries
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        numbers
            .filter_map(|task: u32| {
                Some((task, read_json(&tasks.join(format!("{task}.json"))).ok()?))
            })
            .collect()
    }

    /// Tells the other nodes of this start of the job where the first is.
    pub(in crate::job) fn write_leader(&self, start: &str, addresses: &[SocketAddr]) -> Result<()> {
        write_json(
            &self.outcome().join(format!("leader-{start}.json")),
            &addresses,
        )
    }

    /// Where the first node of this start of the job is, as far as it has said so.
    pub(in crate::job) fn read_leader(&self, start: &str) -> Vec<SocketAddr> {
        let name = format!("leader-{start}.json");
        let outcome = self.outcome();
        match is_listed(&outcome, &name) {
            true => read_json(&outcome.join(name)).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    /// Takes the files of this job for the start that its scheduler calls `id`, unless another start has them, whose id is
    /// given then. A second start by the same id, after a node's failure, has them already.
    pub(in crate::job) fn claim(&self, id: &str) -> Result<Option<String>> {
        let path = self.claim_file();
        let mut options = File::options();
        let made = options.write(true).create_new(true).mode(0o600).open(&path);
        let written = made.and_then(|mut file| file.write_all(id.as_bytes()));
        match written {
            Ok(()) => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => {
                return Err(AppError::File {
                    action: FileAction::Create,
                    path,
                    source,
                }
                .into());
            }
        }
        let owner = input::read_text(&path).map_err(AppError::unreadable(&path))?;
        // One that is not written yet is of this very moment, and so of this start: others do not come that near.
        Ok(Some(owner).filter(|owner| !owner.is_empty() && owner != id))
    }

    /// The file that says which start of the job the others are of.
    pub(in crate::job) fn claim_file(&self) -> PathBuf {
        self.outcome().join("claim")
    }

    /// Takes the files over from a start that has ended, with what became of it.
    pub(in crate::job) fn take_over(&self, id: &str) -> Result<()> {
        for task in self.read_tasks().into_keys() {
            let _ = std::fs::remove_file(self.tasks().join(format!("{task}.json")));
        }
        write(&self.claim_file(), id.as_bytes())
    }

    /// Keeps that whoever handed it over cancelled it: a scheduler without accounting forgets what never ran.
    pub(in crate::job) fn mark_cancelled(&self) -> Result<()> {
        write(&self.outcome().join(CANCELLED), b"")
    }

    /// The ends of the logs of its scheduler and its tasks, at most [`MAX_LOG_END_BYTES`] of each: of a few, since
    /// what went wrong with many nodes went wrong with one of the first.
    pub(in crate::job) fn read_log_ends(&self) -> Vec<StepLog> {
        let tasks = (0..MAX_LOGS_LOOKED_AT).map(Some);
        let read = |task: Option<u32>| {
            let path = match task {
                Some(task) => self.logs().join(format!("task-{task}.log")),
                None => self.outcome().join(LOG_NAME),
            };
            let text = read_end(&path, MAX_LOG_END_BYTES).ok()?;
            Some(StepLog { task, text })
        };
        std::iter::once(None)
            .chain(tasks)
            .filter_map(read)
            .collect()
    }

    /// Whether whoever handed it over cancelled it.
    pub(in crate::job) fn is_cancelled(&self) -> bool {
        self.outcome().join(CANCELLED).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ended_task, job};
    use super::*;

    #[test]
    fn one_start_of_a_job_has_its_files() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        dir.create(&job(), b"", b"").ok().unwrap();
        let claim = |id| dir.claim(id).ok().unwrap();
        assert_eq!([claim("7"), claim("7")], [None, None]);
        assert_eq!(claim("8"), Some("7".to_owned()));
        dir.write_task(0, &ended_task()).ok().unwrap();
        dir.take_over("8").ok().unwrap();
        assert_eq!([claim("8"), claim("7")], [None, Some("8".to_owned())]);
        assert!(dir.read_tasks().is_empty());
    }

    #[test]
    fn the_ends_of_logs_begin_with_a_line() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        dir.create(&job(), b"", b"").ok().unwrap();
        std::fs::write(above.path().join(LOG_NAME), "srun: error\n").unwrap();
        let long = "x".repeat(99) + "\n";
        std::fs::write(dir.logs().join("task-3.log"), long.repeat(1000)).unwrap();
        std::fs::write(dir.logs().join("task-4.log"), [0xff, b'\n']).unwrap();
        let logs = dir.read_log_ends();
        let tasks: Vec<Option<u32>> = logs.iter().map(|log| log.task).collect();
        assert_eq!(tasks, [None, Some(3), Some(4)]);
        assert_eq!(logs[0].text, "srun: error\n");
        let end = &logs[1].text;
        assert!(end.starts_with(&long) && end.len() as u64 <= MAX_LOG_END_BYTES);
        assert_eq!(logs[2].text, "\u{fffd}\n");
    }
}
