//! The folder of a job, which all of its nodes see: what was handed over, and what became of it.
//!
//! | file | what |
//! |---|---|
//! | `job.json` | the [`JobRequest`] |
//! | `spec`, `sconce.lock` | copies: the job is what it was when it was handed over |
//! | `key` | what nodes prove to each other |
//! | `variables.json` | values of the caller's variables that the run is given by name; removed when its first task has ended by itself |
//! | `submission.sh` | the script that was handed over |
//! | `submitted.json` | what the scheduler calls it |
//! | `tasks/N.json` | the run of each task |
//! | `logs/` | what tasks print, and the scheduler |

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sconce_schema::job::{self, JobRequest};
use sconce_schema::{Hint, exit};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
    /// The scheduler's own id.
    pub id: String,
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
    /// Its exit code, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
}

/// Whether an exit code is that of a command which a signal ended.
pub(super) fn is_signal(exit: u8) -> bool {
    exit > exit::code_for_signal(0)
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

/// The folder of a job.
#[derive(Debug, Clone)]
pub struct JobDir {
    path: PathBuf,
}

impl JobDir {
    /// The folder of the job that `token` names, which need not be there.
    pub fn of(places: &SconceDirs, token: &str) -> Self {
        Self {
            path: places.jobs.join(token),
        }
    }

    /// The folder at `path`.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Where it is.
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
        self.path.join("logs")
    }

    /// Makes the folder, with what travels. Nobody but its owner sees into it.
    pub fn create(&self, job: &JobRequest, spec: &[u8], lock: &[u8]) -> Result<()> {
        for folder in [&self.path, &self.logs(), &self.path.join("tasks")] {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(|source| AppError::File {
                action: FileAction::Create,
                path: folder.clone(),
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
        self.write_json(&format!("tasks/{task}.json"), run)
    }

    /// What is known of the tasks' runs, by their numbers.
    pub fn read_tasks(&self) -> BTreeMap<u32, TaskRun> {
        let entries = std::fs::read_dir(self.path.join("tasks")).into_iter();
        let names = entries
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        numbers
            .filter_map(|task: u32| {
                Some((task, self.read_json(&format!("tasks/{task}.json")).ok()?))
            })
            .collect()
    }

    /// Tells the other nodes of this start of the job where the first is.
    pub(super) fn write_leader(&self, start: &str, addresses: &[SocketAddr]) -> Result<()> {
        self.write_json(&format!("leader-{start}.json"), &addresses)
    }

    /// Where the first node of this start of the job is, as far as it has said so.
    pub(super) fn read_leader(&self, start: &str) -> Vec<SocketAddr> {
        // A shared file system may go on saying that a file is not there; it looks when the folder is read.
        let name = format!("leader-{start}.json");
        let mut entries = std::fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .flatten();
        match entries.any(|entry| entry.file_name() == *name) {
            true => self.read_json(&name).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(value).expect("plain data is JSON");
        text.push(b'\n');
        self.write(name, &text)
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let path = self.path.join(name);
        let text = input::read_text(&path).map_err(AppError::unreadable(&path))?;
        Ok(serde_json::from_str(&text).map_err(|source| JobDirError::Damaged { path, source })?)
    }

    /// Another node sees the file before or the file after, and no part of one.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let beside = path.with_added_extension(sconce_base::random_name());
        let write = || {
            let mut options = File::options();
            let mut file = (options.write(true).create_new(true).mode(0o600)).open(&beside)?;
            file.write_all(bytes)?;
            std::fs::rename(&beside, &path)
        };
        write().map_err(|source| {
            let _ = std::fs::remove_file(&beside);
            AppError::File {
                action: FileAction::Write,
                path: path.clone(),
                source,
            }
            .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use sconce_schema::job::{FORMAT, JobLayout};
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
            containment: JobContainment::Sconce,
            engine: SchedulerKind::Slurm,
            meet_within_ms: 1,
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
    fn files_are_written_as_before() {
        let task = TaskRun {
            node: "n2".into(),
            run: Some("demo-1-0".into()),
            exit: Some(3),
            ended_unix_ms: Some(1_790_000_000_000),
        };
        let submitted = SubmittedJob {
            target: "lab".into(),
            id: "4711".into(),
        };
        let files = [
            serde_json::to_value(submitted).unwrap(),
            serde_json::to_value(task).unwrap(),
        ];
        crate::golden::goldens().assert_lines("job-files.jsonl", &files);
    }
}
