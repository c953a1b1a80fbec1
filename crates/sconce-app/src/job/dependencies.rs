//! The jobs that come before one that is handed over.

use sconce_schema::{Hint, exit};
use sconce_submit::{DependencyKind, JobDependency, SchedulerJobId};

use super::job_report::JobReport;
use super::lookup::{KnownJob, find_job};
use super::query::query_jobs;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;

/// A job that is to come before, as its caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobBefore {
    /// How it has to end.
    pub kind: DependencyKind,
    /// What it is called.
    pub name: String,
}

impl JobBefore {
    /// Reads `JOB`, which has to end well, or `KIND:JOB`.
    ///
    /// # Errors
    /// There is no such kind.
    pub fn parse(text: &str) -> Result<Self, UnknownKind> {
        let (kind, name) = match text.split_once(':') {
            None => (DependencyKind::AfterOk, text),
            Some((word, name)) => match DependencyKind::parse(word) {
                Some(kind) => (kind, name),
                None => {
                    let word = word.to_owned();
                    return Err(UnknownKind { word });
                }
            },
        };
        let name = name.to_owned();
        Ok(Self { kind, name })
    }
}

/// A word that says not how a job has to end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is none of {}", DependencyKind::ALL.map(DependencyKind::name).join(", "))]
pub struct UnknownKind {
    /// The word.
    pub word: String,
}

/// Why nothing can come after a job.
#[derive(Debug, thiserror::Error)]
pub enum DependencyError {
    /// There is none of this name.
    #[error("there is no job `{name}` to come after")]
    NoJob {
        /// The name.
        name: String,
    },
    /// It has ended, and otherwise than it has to.
    #[error(
        "job {job} has ended already ({ended}): what waits for it by `{}` would never start",
        kind.name()
    )]
    NeverSatisfied {
        /// The job.
        job: String,
        /// How it ended.
        ended: String,
        /// How it has to.
        kind: DependencyKind,
    },
}

impl Hint for DependencyError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoJob { .. } => "`sconce ps --all` lists jobs".to_owned(),
            Self::NeverSatisfied { job, .. } => {
                format!("`--after afterany:{job}` starts it however that one ended")
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Finds what the scheduler calls the jobs that come before, of those that have not ended: for one that ended as it has
/// to nothing waits, and the scheduler may have forgotten it.
///
/// # Errors
/// There is no such job, or it has ended otherwise.
pub(super) fn find_jobs_before(
    before: &[JobBefore],
    places: &SconceDirs,
    context: &AppContext,
) -> Result<Vec<JobDependency>> {
    let mut jobs = Vec::new();
    for one in before {
        let name = one.name.clone();
        let none = || DependencyError::NoJob { name };
        jobs.push(find_job(places, &one.name)?.ok_or_else(none)?);
    }
    let reports = match jobs.is_empty() {
        true => Vec::new(),
        false => query_jobs(&jobs, places, context)?.reports,
    };
    let mut after = Vec::new();
    for ((one, job), report) in before.iter().zip(&jobs).zip(&reports) {
        after.extend(dependency_on(one, job, report)?);
    }
    Ok(after)
}

/// What a job that is handed over waits for; `None` where the one before has ended as it has to.
fn dependency_on(
    before: &JobBefore,
    job: &KnownJob,
    report: &JobReport,
) -> Result<Option<JobDependency>, DependencyError> {
    let name = before.name.clone();
    let id = job.submitted.id.as_deref().and_then(SchedulerJobId::parse);
    let job_id = id.ok_or(DependencyError::NoJob { name })?;
    let kind = before.kind;
    let is_known = report.is_final && report.exit.is_some() || report.is_bad_end();
    if !is_known {
        return Ok(Some(JobDependency { kind, job: job_id }));
    }
    match kind.allows(report.exit == Some(exit::OK)) {
        true => Ok(None),
        false => Err(DependencyError::NeverSatisfied {
            job: job.request.token.clone(),
            ended: match report.exit {
                Some(code) if code != exit::OK => format!("{}, exit code {code}", report.state),
                _ => report.state.clone(),
            },
            kind,
        }),
    }
}
