//! The folder of a job, which all of its nodes see: what was handed over, and what became of it.
//!
//! | file | what |
//! |---|---|
//! | `job.json` | the [`JobRequest`] |
//! | `spec`, `sconce.lock` | copies: the job is what it was when it was handed over |
//! | `key` | what nodes prove to each other |
//! | `variables.json` | values of the caller's variables that the run is given by name; removed when its first task has ended by itself |
//! | `submission.sh` | the script that was handed over |
//! | `submitted.json` | to whom it was handed, and what the scheduler calls it |
//! | `claim` | the scheduler's id of the start that these files are of |
//! | `tasks/N.json` | the run of each task |
//! | `logs/` | what tasks print, and the scheduler |
//! | `array/N/` | of an array, the last three of each element |

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sconce_schema::job::{self, JobRequest};
use sconce_schema::{Hint, exit};
use sconce_submit::{ARRAY_DIR, LOG_NAME, StepLog};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fault::JobFault;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::input;

/// What a scheduler was handed, and what it calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SubmittedJob {
    /// The target's name.
    pub target: String,
    /// The scheduler's own id; absent where it gave no answer: the job may be there all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A task's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TaskRun {
    /// The node's name.
    pub node: String,
    /// The id of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Whether its end was asked for: by its scheduler, which may start the job again, or because another task failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_to_end: bool,
    /// Its exit code, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
    /// What went wrong beside what its command did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<JobFault>,
}

/// How much of each log's end is looked at for what the scheduler says of a failure.
const MAX_LOG_END_BYTES: u64 = 64 << 10;

/// Of how many tasks the logs are looked at for that.
const MAX_LOGS_LOOKED_AT: u32 = 64;

/// The file that says that its owner cancelled it.
const CANCELLED: &str = "cancelled";

/// Whether an exit code is that of a command which a signal ended.
pub(super) fn is_signal(exit: u8) -> bool {
    exit > exit::code_for_signal(0)
}

/// The task that failed first, of those that have ended: the others are ended because of it.
pub(super) fn first_failed(tasks: &BTreeMap<u32, TaskRun>) -> Option<&TaskRun> {
    let ended = tasks.values().filter(|task| task.exit.is_some());
    ended.min_by_key(|task| {
        let is_good = task.exit == Some(exit::OK) && !task.asked_to_end;
        (is_good, task.was_ended(), task.ended_unix_ms)
    })
}

/// What went wrong: with the task that failed first, else with any. Who only heard of another's fault knows no mend.
pub(super) fn first_fault(tasks: &BTreeMap<u32, TaskRun>) -> Option<&JobFault> {
    let of_first = first_failed(tasks).and_then(|task| task.fault.as_ref());
    let all = of_first.into_iter();
    let mut all = all.chain(tasks.values().filter_map(|task| task.fault.as_ref()));
    let with_mend = all.clone().find(|fault| fault.hint.is_some());
    with_mend.or_else(|| all.next())
}

/// With what tasks ended, as far as they said so.
pub(super) fn first_exit(tasks: &BTreeMap<u32, TaskRun>) -> Option<u8> {
    first_failed(tasks)?.exit
}

impl TaskRun {
    /// Whether somebody else ended it: it does not know who, and whether the job is started again.
    pub(super) fn was_ended(&self) -> bool {
        // A kill for want of memory is its own.
        let is_own = self.fault.as_ref().is_some_and(|fault| fault.out_of_memory);
        self.asked_to_end || !is_own && self.exit.is_some_and(is_signal)
    }
}

/// Why a job's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JobDirError {
    /// Of a newer program.
    #[error("{} has format {found}; this Sconce reads format {}", path.display(), job::FORMAT)]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Not what it should be.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Hint for JobDirError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Newer { .. } => "use the Sconce that submitted the job".to_owned(),
            Self::Damaged { .. } => "submit the job again".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The folder of a job, or of an element of one.
#[derive(Debug, Clone)]
pub struct JobDir {
    path: PathBuf,
    element: Option<u32>,
}

impl JobDir {
    /// The folder of the job that `token` names, which need not be there.
    pub fn of(places: &SconceDirs, token: &str) -> Self {
        Self {
            path: places.jobs.join(token),
            element: None,
        }
    }

    /// The folder at `path`.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            element: None,
        }
    }

    /// The folder of an element of this job, an array.
    pub fn element(&self, index: u32) -> Self {
        Self {
            path: self.path.clone(),
            element: Some(index),
        }
    }

    /// Which element of its job it is of; `None` where it is of the whole job.
    pub fn index(&self) -> Option<u32> {
        self.element
    }

    /// Where what became of it lies: of an element, in a folder of its own.
    fn outcome(&self) -> PathBuf {
        match self.element {
            Some(index) => self.path.join(ARRAY_DIR).join(index.to_string()),
            None => self.path.clone(),
        }
    }

    /// Where it is; an element has its job's.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The copy of the spec.
    pub fn spec(&self) -> PathBuf {
        self.path.join("spec")
    }

    /// The copy of the lock.
    pub fn lock(&self) -> PathBuf {
        self.path.join("sconce.lock")
    }

    /// The OCI bundle that the scheduler starts, where it is to start one.
    pub fn bundle(&self) -> PathBuf {
        self.path.join("bundle")
    }

    /// The folder of the logs.
    pub fn logs(&self) -> PathBuf {
        self.outcome().join("logs")
    }

    fn tasks(&self) -> PathBuf {
        self.outcome().join("tasks")
    }

    /// Makes the folder, with what travels. Nobody but its owner sees into it.
    pub fn create(&self, job: &JobRequest, spec: &[u8], lock: &[u8]) -> Result<()> {
        let indices = job.array.as_ref().map(|array| array.indices.iter());
        let dirs: Vec<Self> = match indices {
            // The scheduler writes their logs and makes no folders for them.
            Some(indices) => indices.map(|index| self.element(*index)).collect(),
            None => vec![self.clone()],
        };
        let folders = dirs.iter().flat_map(|dir| [dir.logs(), dir.tasks()]);
        for folder in folders {
            make_private_dir(&folder).map_err(|source| AppError::File {
                action: FileAction::Create,
                path: folder,
                source,
            })?;
        }
        self.write("spec", spec)?;
        self.write("sconce.lock", lock)?;
        let secret: [u8; 32] = crate::services::files::random_bytes()?;
        self.write("key", sconce_schema::Sha256(secret).to_string().as_bytes())?;
        self.write_json(job::FILE_NAME, job)
    }

    /// What was handed over.
    ///
    /// # Errors
    /// It cannot be read, or a newer Sconce wrote it.
    pub fn read_job(&self) -> Result<JobRequest> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = self.read_json(job::FILE_NAME)?;
        if version.format > job::FORMAT {
            return Err(JobDirError::Newer {
                path: self.path.join(job::FILE_NAME),
                found: version.format,
            }
            .into());
        }
        self.read_json(job::FILE_NAME)
    }

    /// The secret of its nodes.
    pub fn read_key(&self) -> Result<String> {
        let path = self.path.join("key");
        input::read_text(&path).map_err(|error| AppError::unreadable(&path)(error).into())
    }

    /// Keeps values that stand in no script, no argument and no exported variable.
    pub fn write_variables(&self, variables: &BTreeMap<String, String>) -> Result<()> {
        self.write_json("variables.json", variables)
    }

    /// The values; none where there are none.
    pub fn read_variables(&self) -> Result<BTreeMap<String, String>> {
        match self.path.join("variables.json").exists() {
            true => self.read_json("variables.json"),
            false => Ok(BTreeMap::new()),
        }
    }

    /// Takes the values away: the job's commands have them, or have ended.
    pub(super) fn remove_variables(&self) {
        let _ = std::fs::remove_file(self.path.join("variables.json"));
    }

    /// Keeps the script that is handed over.
    pub fn write_script(&self, script: &str) -> Result<()> {
        self.write("submission.sh", script.as_bytes())
    }

    /// The script.
    pub fn read_script(&self) -> Result<String> {
        let path = self.path.join("submission.sh");
        input::read_text(&path).map_err(|error| AppError::unreadable(&path)(error).into())
    }

    /// Says that it was not handed over after all.
    pub(super) fn remove_submitted(&self) {
        let _ = std::fs::remove_file(self.path.join("submitted.json"));
    }

    /// Keeps what the scheduler calls it.
    pub fn write_submitted(&self, submitted: &SubmittedJob) -> Result<()> {
        self.write_json("submitted.json", submitted)
    }

    /// What the scheduler calls it; `None` where it was not handed over, or not known to be.
    pub fn read_submitted(&self) -> Result<Option<SubmittedJob>> {
        match self.path.join("submitted.json").exists() {
            true => self.read_json("submitted.json").map(Some),
            false => Ok(None),
        }
    }

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
    pub(super) fn write_leader(&self, start: &str, addresses: &[SocketAddr]) -> Result<()> {
        write_json(
            &self.outcome().join(format!("leader-{start}.json")),
            &addresses,
        )
    }

    /// Where the first node of this start of the job is, as far as it has said so.
    pub(super) fn read_leader(&self, start: &str) -> Vec<SocketAddr> {
        // A shared file system may go on saying that a file is not there; it looks when the folder is read.
        let name = format!("leader-{start}.json");
        let outcome = self.outcome();
        let mut entries = std::fs::read_dir(&outcome).into_iter().flatten().flatten();
        match entries.any(|entry| entry.file_name() == *name) {
            true => read_json(&outcome.join(name)).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    /// Takes the files of this job for the start that its scheduler calls `id`, unless another start has them, whose id is
    /// given then. A second start by the same id, after a node's failure, has them already.
    pub(super) fn claim(&self, id: &str) -> Result<Option<String>> {
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
    pub(super) fn claim_file(&self) -> PathBuf {
        self.outcome().join("claim")
    }

    /// Takes the files over from a start that has ended, with what became of it.
    pub(super) fn take_over(&self, id: &str) -> Result<()> {
        for task in self.read_tasks().into_keys() {
            let _ = std::fs::remove_file(self.tasks().join(format!("{task}.json")));
        }
        write(&self.claim_file(), id.as_bytes())
    }

    /// Keeps that whoever handed it over cancelled it: a scheduler without accounting forgets what never ran.
    pub(super) fn mark_cancelled(&self) -> Result<()> {
        write(&self.outcome().join(CANCELLED), b"")
    }

    /// The ends of the logs of its scheduler and its tasks, at most [`MAX_LOG_END_BYTES`] of each: of a few, since
    /// what went wrong with many nodes went wrong with one of the first.
    pub(super) fn read_log_ends(&self) -> Vec<StepLog> {
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
    pub(super) fn is_cancelled(&self) -> bool {
        self.outcome().join(CANCELLED).exists()
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        write_json(&self.path.join(name), value)
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        read_json(&self.path.join(name))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(&self.path.join(name), bytes)
    }
}

/// Reads the end of a file, whatever is in it, from the beginning of a line.
fn read_end(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max_bytes)))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match (length > max_bytes, text.split_once('\n')) {
        (true, Some((_, rest))) => rest.to_owned(),
        _ => text,
    })
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).expect("plain data is JSON");
    text.push(b'\n');
    write(path, &text)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = input::read_text(path).map_err(AppError::unreadable(path))?;
    Ok(
        serde_json::from_str(&text).map_err(|source| JobDirError::Damaged {
            path: path.to_owned(),
            source,
        })?,
    )
}

/// Makes a directory, with those above it, that nobody but its owner sees into.
pub(super) fn make_private_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Another node sees the file before or the file after, and no part of one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_added_extension(sconce_base::random_name());
    let write = || {
        let mut options = File::options();
        let mut file = (options.write(true).create_new(true).mode(0o600)).open(&beside)?;
        file.write_all(bytes)?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&beside);
        AppError::File {
            action: FileAction::Write,
            path: path.to_owned(),
            source,
        }
        .into()
    })
}

#[cfg(test)]
mod tests {
    use sconce_schema::job::{FORMAT, JobArray, JobLayout};
    use sconce_schema::spec::{JobContainment, LaunchMode, RunSpec, SchedulerKind};

    use super::*;

    fn job() -> JobRequest {
        JobRequest {
            format: FORMAT,
            token: "demo-1".into(),
            name: "demo".into(),
            spec: "/home/ada/demo/sconce.toml".into(),
            run: RunSpec::default(),
            directories: BTreeMap::new(),
            lock: sconce_schema::Sha256([0; 32]),
            architecture: "amd64".into(),
            layout: JobLayout {
                nodes: 1,
                gpus_per_node: None,
                ranks_per_node: None,
                launch: LaunchMode::Node,
            },
            array: None,
            containment: JobContainment::Sconce,
            strict: false,
            engine: SchedulerKind::Slurm,
            meet_within_ms: 1,
            local_store: None,
            unix_ms: 2,
        }
    }

    #[test]
    fn what_is_kept_of_a_job_is_its_owners_alone() {
        use std::os::unix::fs::MetadataExt as _;
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(&above.path().join("jobs/demo-1"));
        dir.create(&job(), b"[run]\n", b"lock").ok().unwrap();
        assert_eq!(dir.read_job().ok().unwrap(), job());
        assert_eq!(dir.read_key().ok().unwrap().len(), 64);
        assert!(dir.read_submitted().ok().unwrap().is_none());
        let values = BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]);
        dir.write_variables(&values).ok().unwrap();
        assert_eq!(dir.read_variables().ok().unwrap(), values);
        dir.remove_variables();
        assert!(dir.read_variables().ok().unwrap().is_empty());
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(
            (mode(dir.path()), mode(&dir.path().join("key"))),
            (0o700, 0o600)
        );
        assert!(dir.read_leader("17.0.0").is_empty());
        let address = ["10.0.0.7:21000".parse().unwrap()];
        dir.write_leader("17.0.0", &address).ok().unwrap();
        assert_eq!(dir.read_leader("17.0.0"), address);
        assert!(dir.read_leader("17.1.0").is_empty());
    }

    #[test]
    fn elements_share_what_was_handed_over_and_not_what_became_of_it() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        let array = JobArray::parse("1,3").unwrap();
        let job = JobRequest {
            array: Some(array),
            ..job()
        };
        dir.create(&job, b"[run]\n", b"lock").ok().unwrap();
        let (one, three) = (dir.element(1), dir.element(3));
        assert_eq!(one.spec(), dir.spec());
        assert!(one.logs().is_dir() && !dir.logs().exists());
        let task = TaskRun {
            node: "n2".into(),
            run: None,
            asked_to_end: false,
            exit: Some(0),
            ended_unix_ms: None,
            fault: None,
        };
        one.write_task(0, &task).ok().unwrap();
        assert_eq!(one.read_tasks()[&0], task);
        assert!(three.read_tasks().is_empty() && dir.read_tasks().is_empty());
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

    #[test]
    fn one_start_of_a_job_has_its_files() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        dir.create(&job(), b"", b"").ok().unwrap();
        let claim = |id| dir.claim(id).ok().unwrap();
        assert_eq!([claim("7"), claim("7")], [None, None]);
        assert_eq!(claim("8"), Some("7".to_owned()));
        let task = TaskRun {
            node: "n2".into(),
            run: None,
            asked_to_end: false,
            exit: Some(0),
            ended_unix_ms: None,
            fault: None,
        };
        dir.write_task(0, &task).ok().unwrap();
        dir.take_over("8").ok().unwrap();
        assert_eq!([claim("8"), claim("7")], [None, Some("8".to_owned())]);
        assert!(dir.read_tasks().is_empty());
    }

    #[test]
    fn a_newer_and_a_damaged_folder_are_told() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        dir.create(&job(), b"", b"").ok().unwrap();
        for (text, said) in [
            ("{\"format\":9}", "has format 9"),
            ("{", "is damaged"),
            ("", "is damaged"),
        ] {
            std::fs::write(above.path().join(job::FILE_NAME), text).unwrap();
            let error = dir.read_job().err().unwrap();
            assert!(error.message().contains(said), "{}", error.message());
        }
    }

    #[test]
    fn the_task_that_failed_first_decides() {
        let task = |exit, asked_to_end, at| TaskRun {
            node: "n2".into(),
            run: None,
            asked_to_end,
            exit: Some(exit),
            ended_unix_ms: Some(at),
            fault: None,
        };
        let first = |tasks: &[TaskRun]| {
            let tasks = (0..).zip(tasks.iter().cloned()).collect();
            let first = first_failed(&tasks).unwrap().clone();
            (first.exit.unwrap(), first.was_ended())
        };
        // One fails, and the other ends as it is asked to, by a signal or with a code of its own.
        assert_eq!(first(&[task(143, true, 1), task(9, false, 2)]), (9, false));
        assert_eq!(first(&[task(1, true, 1), task(9, false, 2)]), (9, false));
        // All are asked: nobody here knows whether the job is over.
        assert_eq!(first(&[task(1, true, 1), task(0, true, 2)]), (1, true));
        assert_eq!(first(&[task(0, true, 1), task(0, false, 2)]), (0, true));
        assert_eq!(first(&[task(0, false, 1), task(0, false, 2)]), (0, false));
    }

    #[test]
    fn the_fault_of_the_first_with_a_mend_is_told() {
        let fault = |why: &str, hint: Option<&str>| JobFault {
            why: why.to_owned(),
            hint: hint.map(str::to_owned),
            out_of_memory: false,
        };
        let task = |at, fault| TaskRun {
            node: "n2".into(),
            run: None,
            asked_to_end: false,
            exit: Some(5),
            ended_unix_ms: Some(at),
            fault,
        };
        let told = |first, second| {
            let tasks = [(0, task(1, first)), (1, task(2, second))].into();
            first_fault(&tasks).map(|fault| fault.why.clone())
        };
        let heard = || Some(fault("n10 cannot start", None));
        let own = || Some(fault("the store lacks it", Some("look")));
        assert_eq!(told(heard(), own()).unwrap(), "the store lacks it");
        assert_eq!(told(own(), heard()).unwrap(), "the store lacks it");
        assert_eq!(told(heard(), None).unwrap(), "n10 cannot start");
        assert_eq!(told(None, heard()).unwrap(), "n10 cannot start");
        assert_eq!(told(None, None), None);
    }

    #[test]
    fn files_are_written_as_before() {
        let task = TaskRun {
            node: "n2".into(),
            run: Some("demo-1-0".into()),
            asked_to_end: true,
            exit: Some(3),
            ended_unix_ms: Some(1_790_000_000_000),
            fault: Some(JobFault {
                why: "the kernel killed a process for want of memory on node n2".into(),
                hint: Some("ask for more".into()),
                out_of_memory: true,
            }),
        };
        let submitted = SubmittedJob {
            target: "lab".into(),
            id: Some("4711".into()),
        };
        let files = [
            serde_json::to_value(submitted).unwrap(),
            serde_json::to_value(task).unwrap(),
        ];
        crate::golden::goldens().assert_lines("job-files.jsonl", &files);
    }
}
