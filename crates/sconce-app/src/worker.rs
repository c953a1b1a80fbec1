//! What one process of this program does for another one: a typed task on its standard input.
//!
//! A worker is started under a name of its own ([`NAME`]), so that no verb and no flag is needed for it, and
//! reads a [`WorkerTask`] as the first line of its standard input. Where the task is a part of what a verb does
//! (a run in the background, a trial of `fit`), the worker has the arguments of its caller as well, unchanged:
//! both read the same flags.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use sconce_memory::forecast::values::SubstituteValues;
use serde::{Deserialize, Serialize};

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

/// How a worker finds out that it is one, as `argv[0]`.
pub const NAME: &str = "sconce-worker";

/// The longest task that is read, in bytes.
const MAX_TASK_BYTES: usize = 16 << 20;

/// This program's own file.
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

/// What a worker is to do. Nothing keeps it: both processes are of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerTask {
    /// Compile bytecode, and have the disk confirm what was unpacked, beside a run of a project.
    WorkBesideRun {
        /// The spec's file.
        spec: OsString,
        /// The store's directory.
        store: OsString,
    },
    /// Ask a library of NVIDIA's driver, which may not answer, and print what it says.
    QueryDriver(DriverLibrary),
    /// Hold the run that the arguments ask for. Whoever started it waits on the same standard input for the
    /// word that the run has begun.
    HoldRun,
    /// Make one trial of the `fit` that the arguments ask for.
    Trial {
        /// The trial's own, in which it leaves what was seen.
        directory: OsString,
        /// The trial.
        task: Box<TrialTask>,
    },
}

/// A trial of `fit`, as it is told to the process that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialTask {
    /// Which of the cards that were asked about.
    pub card: usize,
    /// Other memory than the card's own, in bytes.
    pub memory: Option<u64>,
    /// The command.
    pub command: Vec<String>,
    /// Plans, as they are named.
    pub plans: Option<String>,
    /// What it is told in the place of zeros.
    #[serde(default)]
    pub answers: SubstituteValues,
    /// Whether it is no trial, but the process from which trials are forked.
    #[serde(default)]
    pub serve: bool,
}

/// Libraries that only a process of its own asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverLibrary {
    /// `libcuda.so.1`.
    Cuda,
    /// `libnvidia-ml.so.1`.
    Nvml,
}

impl WorkerTask {
    /// Returns the task as it stands on a worker's standard input, its line's end included.
    pub fn to_line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Whether a program that was started with this `argv[0]` is a worker.
pub fn is_worker(argv0: &OsStr) -> bool {
    argv0 == NAME
}

/// Makes the command that starts `program` as a worker, with `task` and nothing else on its standard input.
pub fn worker_command(program: &Path, task: &WorkerTask) -> io::Result<Command> {
    let mut input = File::from(memfd_create(c"sconce-task", MemfdFlags::CLOEXEC)?);
    input.write_all(&task.to_line()?)?;
    input.rewind()?;
    let mut command = bare_command(program);
    command.stdin(Stdio::from(OwnedFd::from(input)));
    Ok(command)
}

/// Makes the command that starts `program` as a worker whose standard input the caller provides.
pub fn bare_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg0(NAME);
    command
}

/// Reads this worker's task, and no byte behind its line.
///
/// # Errors
/// Standard input cannot be read, or has no task.
pub fn read_task() -> io::Result<WorkerTask> {
    let mut line = Vec::new();
    let mut byte = [0];
    // One at a time: what follows is read by others.
    while line.last() != Some(&b'\n') && line.len() < MAX_TASK_BYTES {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_task_is_one_line_whatever_its_paths_are() {
        let task = WorkerTask::WorkBesideRun {
            spec: OsStr::from_bytes(b"/a\nb/\xff/sconce.toml").to_owned(),
            store: "/store".into(),
        };
        let line = task.to_line().unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<WorkerTask>(&line).unwrap(), task);
    }

    #[test]
    fn tasks_are_written_as_before() {
        let trial = crate::golden::goldens().read_text("fit-task.json");
        let tasks = [
            WorkerTask::WorkBesideRun {
                spec: "/a/sconce.toml".into(),
                store: "/store".into(),
            },
            WorkerTask::QueryDriver(DriverLibrary::Cuda),
            WorkerTask::QueryDriver(DriverLibrary::Nvml),
            WorkerTask::HoldRun,
            WorkerTask::Trial {
                directory: "/store/scratch/fit/2".into(),
                task: serde_json::from_str(&trial).unwrap(),
            },
        ];
        crate::golden::goldens().assert_lines("worker-tasks.jsonl", &tasks);
    }

    #[test]
    fn a_worker_is_known_by_its_name_alone() {
        assert!(is_worker(OsStr::new(NAME)));
        assert!(!is_worker(OsStr::new("sconce")) && !is_worker(OsStr::new("/x/sconce-worker")));
    }
}
