//! What became of a job, in one set of words for all schedulers.

use crate::job_id::SchedulerJobId;

/// How a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// In the queue; also between two of its starts.
    Waiting,
    /// Its nodes are being made ready.
    Starting,
    /// Its processes run.
    Running,
    /// It was interrupted and holds its place: suspended, stopped by a signal, resizing.
    Suspended,
    /// Its processes have ended or are being ended; its nodes are not free yet.
    Ending,
    /// It ended, and with 0.
    Succeeded,
    /// It ended otherwise.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// Its time was over.
    TimedOut,
    /// It took more memory than it was given.
    OutOfMemory,
    /// A node failed or did not start.
    NodeFailed,
    /// Another job took its place, and it is not started again.
    Preempted,
    /// The scheduler does not know it any more, and with that not how it ended: its own files do.
    Forgotten,
    /// A word that this program does not know; it may be going on.
    Unknown(String),
}

impl JobState {
    /// Whether nothing of it runs or will run. A word that is not known says neither, and counts as no end.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Waiting
            | Self::Starting
            | Self::Running
            | Self::Suspended
            | Self::Ending
            | Self::Unknown(_) => false,
            Self::Succeeded
            | Self::Failed
            | Self::Cancelled
            | Self::TimedOut
            | Self::OutOfMemory
            | Self::NodeFailed
            | Self::Preempted
            | Self::Forgotten => true,
        }
    }

    /// Its word, as people read it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Ending => "ending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::OutOfMemory => "out of memory",
            Self::NodeFailed => "node failed",
            Self::Preempted => "preempted",
            Self::Forgotten => "forgotten",
            Self::Unknown(word) => word,
        }
    }
}

/// Why a job is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateReason {
    /// The scheduler's own word: `Priority`.
    pub raw: String,
    /// The same in plain words; the scheduler's own where it is not known.
    pub text: String,
}

/// How the script of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobExit {
    /// With this code.
    Code(u32),
    /// By this signal.
    Signal(u32),
}

/// Why processes of a job could not start or were killed, where the scheduler says so in the job's logs alone. Texts
/// have nothing that a terminal obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepFault {
    /// More memory than it was given.
    OutOfMemory {
        /// The node, where it is named; of several, in the scheduler's notation.
        node: Option<String>,
    },
    /// This program cannot be started.
    NoProgram {
        /// The node, where it is named.
        node: Option<String>,
        /// The program's path.
        program: String,
        /// The kernel's words.
        why: String,
    },
    /// A signal ended Sconce itself on a node.
    Killed {
        /// The node; of several, in the scheduler's notation.
        node: String,
        /// The signal in the scheduler's words: `Killed`.
        signal: String,
        /// Its number, where that is known.
        number: Option<i32>,
    },
    /// A line of the target's `setup` failed.
    Setup {
        /// Its exit code.
        exit: u8,
    },
    /// The file that a task writes to cannot be opened.
    NoLog {
        /// The node, where it is named.
        node: Option<String>,
        /// The file.
        file: String,
        /// The kernel's words.
        why: String,
    },
}

/// The end of a log of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLog {
    /// Whose it is; absent where it is the scheduler's own.
    pub task: Option<u32>,
    /// Whatever is in it.
    pub text: String,
}

/// What a scheduler says of one job. Texts come from outside and have nothing that a terminal obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    /// Which job it is.
    pub id: SchedulerJobId,
    /// How it is.
    pub state: JobState,
    /// Why it waits, or why it ended as it did.
    pub reason: Option<StateReason>,
    /// Its nodes, in the scheduler's own notation: `n[1-2]`.
    pub nodes: Option<String>,
    /// How its script ended, where the scheduler still knows that.
    pub exit: Option<JobExit>,
    /// When it started, or is expected to while it waits; seconds since 1970.
    pub start_s: Option<u64>,
    /// When it ended, or will at the latest; seconds since 1970.
    pub end_s: Option<u64>,
    /// How often it was started again; absent where that is not known.
    pub restarts: Option<u32>,
}

/// A job in the queue of its scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedJob {
    /// How it is.
    pub status: JobStatus,
    /// The token that it was handed over with; absent where it is none of Sconce's.
    pub token: Option<String>,
}

/// The jobs of a user that a scheduler has, by one question: those that wait, run, or ended a short time ago.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQueue(pub Vec<QueuedJob>);

impl JobQueue {
    /// How a job is; `None` of one that is not in the queue.
    #[must_use]
    pub fn status(&self, id: &SchedulerJobId) -> Option<&JobStatus> {
        let job = self.0.iter().find(|job| job.status.id == *id)?;
        Some(&job.status)
    }

    /// Finds the job with a token. A scheduler may keep a job for what it refused, too, which never had nodes: that is
    /// none. Of several the one that goes on counts, and of those the newest.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<SchedulerJobId> {
        let jobs = self.0.iter().filter(|job| {
            let was_refused = job.status.state == JobState::Failed && job.status.nodes.is_none();
            job.token.as_deref() == Some(token) && !was_refused
        });
        let newest = jobs.max_by_key(|job| {
            let number: u64 = job.status.id.whole_job().parse().unwrap_or(0);
            (!job.status.state.is_final(), number)
        });
        SchedulerJobId::parse(newest?.status.id.whole_job())
    }
}

impl JobStatus {
    /// Of a job that the queue does not know any more, and whose accounting does not answer.
    #[must_use]
    pub fn unanswered(id: SchedulerJobId, why: &str) -> Self {
        Self {
            state: JobState::Unknown("not known".to_owned()),
            reason: Some(StateReason {
                raw: String::new(),
                text: why.to_owned(),
            }),
            ..Self::forgotten(id)
        }
    }

    /// Of a job that the scheduler does not know.
    #[must_use]
    pub fn forgotten(id: SchedulerJobId) -> Self {
        Self {
            id,
            state: JobState::Forgotten,
            reason: None,
            nodes: None,
            exit: None,
            start_s: None,
            end_s: None,
            restarts: None,
        }
    }
}
