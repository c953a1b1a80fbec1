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
//! | `by-hand.json` | of a dry run, the same before anybody has handed it over |
//! | `claim` | the scheduler's id of the start that these files are of |
//! | `tasks/N.json` | the run of each task |
//! | `logs/` | what tasks print, and the scheduler |
//! | `array/N/` | of an array, the last four of each element |
//! | `preparation.sh` | the script of the job that makes its environment before |
//! | `preparation/` | the last four of that job |
//! | `prepared.json` | what that job has made: the [`PreparedEnvironment`] |

mod files;
mod outcome;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_schema::job::{self, JobRequest, PreparedEnvironment};
use sconce_schema::{Hint, exit};
use sconce_submit::{ARRAY_DIR, PREPARATION_DIR, SchedulerJobId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::dirs::SconceDirs;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::input;
use files::{is_listed, read_json, write_json};
pub(super) use files::{make_private_dir, write};

/// What a scheduler was handed, and what it calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SubmittedJob {
    /// The target's name.
    pub target: String,
    /// The scheduler's own id; absent where it gave no answer: the job may be there all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The scheduler's id of the job that makes its environment, where there is one; absent as long as it gave no
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<String>,
    /// Jobs that have to end before, where a job makes its environment: it waits for that one too. A scheduler's id, and
    /// before it how that job has to end where that is not well: `afterany:7`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// Of a dry run, what is known of the job that its script would be.
const BY_HAND: &str = "by-hand.json";
/// What a preparation has made.
const PREPARED: &str = "prepared.json";

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

/// The folder of a job, of an element of one, or of what makes its environment.
#[derive(Debug, Clone)]
pub struct JobDir {
    path: PathBuf,
    part: JobPart,
}

/// Whose outcome a folder has.
#[derive(Debug, Clone, Copy)]
enum JobPart {
    Whole,
    Element(u32),
    Preparation,
}

impl JobDir {
    /// The folder of the job that `token` names, which need not be there.
    pub fn of(places: &SconceDirs, token: &str) -> Self {
        Self {
            path: places.jobs.join(token),
            part: JobPart::Whole,
        }
    }

    /// The folder at `path`.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            part: JobPart::Whole,
        }
    }

    /// The folder of an element of this job, an array.
    pub fn element(&self, index: u32) -> Self {
        Self {
            path: self.path.clone(),
            part: JobPart::Element(index),
        }
    }

    /// The folder of the job that makes this one's environment.
    pub fn preparation(&self) -> Self {
        Self {
            path: self.path.clone(),
            part: JobPart::Preparation,
        }
    }

    /// Which element of its job it is of; `None` where it is of none.
    pub fn index(&self) -> Option<u32> {
        match self.part {
            JobPart::Element(index) => Some(index),
            JobPart::Whole | JobPart::Preparation => None,
        }
    }

    /// Whether it is of the whole job.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.part, JobPart::Whole)
    }

    /// Where what became of it lies: of an element and of a preparation, in a folder of their own.
    fn outcome(&self) -> PathBuf {
        match self.part {
            JobPart::Element(index) => self.path.join(ARRAY_DIR).join(index.to_string()),
            JobPart::Preparation => self.path.join(PREPARATION_DIR),
            JobPart::Whole => self.path.clone(),
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

    /// The environment as a squashfs file, where a preparation makes one: a link into the store. enroot knows it by its
    /// end.
    pub fn squashfs(&self) -> PathBuf {
        self.path.join("environment.sqsh")
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
        let mut dirs: Vec<Self> = match indices {
            // The scheduler writes their logs and makes no folders for them.
            Some(indices) => indices.map(|index| self.element(*index)).collect(),
            None => vec![self.clone()],
        };
        dirs.extend(job.preparation.is_some().then(|| self.preparation()));
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
        self.read_versioned(job::FILE_NAME)
    }

    fn read_versioned<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = self.read_json(name)?;
        if version.format > job::FORMAT {
            return Err(JobDirError::Newer {
                path: self.path.join(name),
                found: version.format,
            }
            .into());
        }
        self.read_json(name)
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
        match self.variables_file().exists() {
            true => self.read_json("variables.json"),
            false => Ok(BTreeMap::new()),
        }
    }

    /// Where the values are, while there are some.
    pub(super) fn variables_file(&self) -> PathBuf {
        self.path.join("variables.json")
    }

    /// Takes the values away: the job's commands have them, or have ended.
    pub(super) fn remove_variables(&self) {
        let _ = std::fs::remove_file(self.variables_file());
    }

    /// Keeps the script that is handed over.
    pub fn write_script(&self, script: &str) -> Result<()> {
        write(&self.script(), script.as_bytes())
    }

    /// The script.
    pub fn read_script(&self) -> Result<String> {
        let path = self.script();
        input::read_text(&path).map_err(|error| AppError::unreadable(&path)(error).into())
    }

    fn script(&self) -> PathBuf {
        self.path.join(match self.part {
            JobPart::Preparation => "preparation.sh",
            JobPart::Whole | JobPart::Element(_) => "submission.sh",
        })
    }

    /// The file that says what a preparation has made.
    pub(super) fn prepared_file(&self) -> PathBuf {
        self.path.join(PREPARED)
    }

    /// Tells nodes what a preparation has made.
    pub(super) fn write_prepared(&self, prepared: &PreparedEnvironment) -> Result<()> {
        self.write_json(PREPARED, prepared)
    }

    /// What a preparation has made; `None` before it has ended well.
    ///
    /// # Errors
    /// It cannot be read, or a newer Sconce wrote it.
    pub(super) fn read_prepared(&self) -> Result<Option<PreparedEnvironment>> {
        match is_listed(&self.path, PREPARED) {
            true => self.read_versioned(PREPARED).map(Some),
            false => Ok(None),
        }
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

    /// Keeps what is known of a job that nobody has handed over: its owner may do so by hand.
    pub(super) fn write_by_hand(&self, job: &SubmittedJob) -> Result<()> {
        self.write_json(BY_HAND, job)
    }

    /// What is known of a job that is its owner's to hand over by hand; `None` where Sconce did.
    pub(super) fn read_by_hand(&self) -> Result<Option<SubmittedJob>> {
        match is_listed(&self.path, BY_HAND) {
            true => self.read_json(BY_HAND).map(Some),
            false => Ok(None),
        }
    }

    /// Keeps what the scheduler calls a job that was handed over by hand, or its preparation: those that start are the
    /// first to know.
    pub(super) fn note_start_by_hand(&self, id: &SchedulerJobId) -> Result<()> {
        let Some(by_hand) = self.read_by_hand()? else {
            return Ok(());
        };
        let before = self.read_submitted()?;
        let mut submitted = before.clone().unwrap_or(by_hand);
        // Of an array, each element has a number behind the job's id.
        let id = id.as_str().split('_').next().map(str::to_owned);
        match self.part {
            JobPart::Preparation => submitted.preparation = id,
            JobPart::Whole | JobPart::Element(_) => submitted.id = id,
        }
        match before.as_ref() == Some(&submitted) {
            true => Ok(()),
            false => self.write_submitted(&submitted),
        }
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

#[cfg(test)]
pub(super) mod tests {
    use sconce_schema::job::{FORMAT, JobArray, JobLayout};
    use sconce_schema::spec::{JobContainment, LaunchMode, RunSpec, SchedulerKind};

    use super::*;
    use crate::job::fault::JobFault;
    use crate::job::task_run::TaskRun;

    pub(in crate::job) fn job() -> JobRequest {
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
            starts_own_ranks: false,
            array: None,
            containment: JobContainment::Sconce,
            strict: false,
            engine: SchedulerKind::Slurm,
            meet_within_ms: 1,
            local_store: None,
            preparation: None,
            host_plugins: None,
            unix_ms: 2,
        }
    }

    pub(in crate::job) fn ended_task() -> TaskRun {
        TaskRun {
            node: "n2".into(),
            run: None,
            scheduler_job: None,
            asked_to_end: false,
            exit: Some(0),
            ended_unix_ms: None,
            fault: None,
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
    fn a_job_that_is_handed_over_by_hand_is_known_once_it_starts() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        let start = |dir: &JobDir, id| {
            let id = SchedulerJobId::parse(id).unwrap();
            dir.note_start_by_hand(&id).ok().unwrap();
            let submitted = dir.read_submitted().ok().unwrap();
            submitted.map(|job| (job.target, job.id, job.preparation))
        };
        assert_eq!(start(&dir, "7"), None);
        let by_hand = SubmittedJob {
            target: "lab".into(),
            id: None,
            preparation: None,
            after: Vec::new(),
        };
        dir.write_by_hand(&by_hand).ok().unwrap();
        let known = |id: Option<&str>, preparation: Option<&str>| {
            let owned = |id: Option<&str>| id.map(str::to_owned);
            Some(("lab".to_owned(), owned(id), owned(preparation)))
        };
        assert_eq!(start(&dir.preparation(), "7"), known(None, Some("7")));
        assert_eq!(start(&dir.element(3), "8_3"), known(Some("8"), Some("7")));
        assert_eq!(start(&dir, "9"), known(Some("9"), Some("7")));
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
        let task = ended_task();
        one.write_task(0, &task).ok().unwrap();
        assert_eq!(one.read_tasks()[&0], task);
        assert!(three.read_tasks().is_empty() && dir.read_tasks().is_empty());
    }

    #[test]
    fn a_preparation_shares_what_was_handed_over_and_not_what_became_of_it() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        let job = JobRequest {
            preparation: Some(job::PreparationRequest {
                target: "cpu".into(),
                token: "demo-1.prepare".into(),
                local_store: None,
                mounts: Vec::new(),
            }),
            ..job()
        };
        dir.create(&job, b"", b"").ok().unwrap();
        let preparation = dir.preparation();
        dir.write_script("run").ok().unwrap();
        preparation.write_script("prepare").ok().unwrap();
        assert_eq!(dir.element(1).read_script().ok().unwrap(), "run");
        assert_eq!(preparation.read_script().ok().unwrap(), "prepare");
        let claim = |dir: &JobDir, id| dir.claim(id).ok().unwrap();
        assert_eq!([claim(&preparation, "7"), claim(&dir, "8")], [None, None]);
        assert!(preparation.logs().is_dir() && preparation.logs() != dir.logs());
        assert!(dir.read_prepared().ok().unwrap().is_none());
        let prepared = PreparedEnvironment {
            format: FORMAT,
            local_store: None,
        };
        dir.write_prepared(&prepared).ok().unwrap();
        assert_eq!(dir.read_prepared().ok().unwrap(), Some(prepared));
        std::fs::write(above.path().join(PREPARED), "{\"format\":9}").unwrap();
        let error = dir.read_prepared().err().unwrap();
        assert!(
            error.message().contains("has format 9"),
            "{}",
            error.message()
        );
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
            scheduler_job: Some("4712".into()),
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
            preparation: Some("4710".into()),
            after: vec!["4700".into()],
        };
        let files = [
            serde_json::to_value(submitted).unwrap(),
            serde_json::to_value(task).unwrap(),
        ];
        crate::golden::goldens().assert_lines("job-files.jsonl", &files);
    }
}
