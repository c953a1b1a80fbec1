//! Handing a job over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_schema::job::{JobLayout, PreparationRequest};
use sconce_schema::spec::{GpuRequest, LaunchMode, TargetSpec};
use sconce_schema::{Hint, Runtime, duration, exit};
use sconce_submit::{JobScript, NodeWork};

use super::architectures::refuse_other_architecture;
use super::dependencies::{JobBefore, find_jobs_before};
use super::hand_over::{hand_over, list_same, take_up_unanswered, warn_of_same};
use super::job_dir::{JobDir, SubmittedJob};
use super::prepare::PreparedJob;
use super::program::keep_program;
use super::schedulers::scheduler_of;
use super::sweep::ArrayOptions;
use super::target_path::expand_variables;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::project::Project;
use crate::run_options::RunOverrides;

/// How long the folder of a job is kept that was not handed over: a week.
const MAX_DRY_RUN_AGE: Duration = Duration::from_secs(7 * 86_400);

/// What its caller says of a job, beside the run.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    /// The target's name.
    pub target: String,
    /// Nodes.
    pub nodes: Option<u32>,
    /// Cards of each.
    pub gpus_per_node: Option<u32>,
    /// Ranks of each, where that is not one a card.
    pub ranks_per_node: Option<u32>,
    /// The longest that it may take.
    pub time: Option<Duration>,
    /// Who starts the ranks.
    pub launch: Option<LaunchMode>,
    /// The elements, where it is an array.
    pub array: ArrayOptions,
    /// Jobs that have to end before.
    pub after: Vec<JobBefore>,
    /// The same may be handed over while it waits or runs.
    pub again: bool,
    /// The target on whose nodes the environment is made, in the place of that which the target names.
    pub prepare_on: Option<String>,
    /// Nothing is to hold its processes.
    pub is_uncontained: bool,
    /// Nothing is handed over.
    pub dry_run: bool,
}

/// A job that was handed over, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Its token, by which the other verbs know it.
    pub token: String,
    /// The script.
    pub script: String,
    /// What the scheduler calls it, once it has it.
    pub id: Option<String>,
    /// The job that makes its environment before, where one does.
    pub preparation: Option<SubmittedPreparation>,
    /// One script that hands over all that a dry run did not.
    pub by_hand: String,
    /// What the script needs and is not there yet.
    pub lacks: Option<&'static str>,
}

/// A job that makes the environment of another, handed over or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedPreparation {
    /// Its target.
    pub target: String,
    /// The script.
    pub script: String,
    /// What the scheduler calls it, once it has it.
    pub id: Option<String>,
}

/// Why a job is not handed over.
#[derive(Debug, thiserror::Error)]
pub enum SubmissionError {
    /// No target of that name.
    #[error("there is no target `{name}`")]
    NoTarget {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// What sets the container up on nodes is Sconce itself.
    #[error("a job's containers are set up by Sconce itself, and not by {0}")]
    OtherRuntime(Runtime),
    /// No node of the target has the lock's processors.
    #[error("the lock is for {lock}, and the nodes of target `{target}` are {}", nodes.join(", "))]
    Architecture {
        /// Debian's name of the lock's.
        lock: String,
        /// The target.
        target: String,
        /// Debian's names of the nodes'.
        nodes: Vec<String>,
    },
    /// The target's storage is no directory here.
    #[error("`storage` of target `{target}` is {directory}, {why}")]
    Storage {
        /// The target.
        target: String,
        /// As the target says it.
        directory: String,
        /// What is wrong with it.
        why: String,
    },
    /// The spec's cards are those of the machine where it stands.
    #[error("`[run] gpus = {}` says nothing of how many cards a node has", serde_json::to_string(.0).unwrap_or_default())]
    GpusOfThisMachine(GpuRequest),
    /// One task a card, and no card.
    #[error("`task-per-gpu` without a number of cards or ranks a node")]
    NoGpus,
}

impl Hint for SubmissionError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoTarget { known, .. } if known.is_empty() => {
                "write `[target.NAME]` with `engine = \"slurm\"` into sconce.toml or ~/.config/sconce/config.toml"
                    .to_owned()
            }
            Self::NoTarget { known, .. } => format!("there are: {}", known.join(", ")),
            Self::OtherRuntime(_) => "take `runtime` out of `[run]`: what contains a job is `containment` of its target".to_owned(),
            Self::Architecture { .. } => {
                "lock it on a machine of that kind, or name another `partition` in the target".to_owned()
            }
            Self::Storage { .. } => {
                "name a directory that this machine and every node see, or `--store` for once".to_owned()
            }
            Self::GpusOfThisMachine(_) => {
                "say how many it shall have: `--gpus-per-node 8`, or `gpus-per-node` in the target; 0 for none"
                    .to_owned()
            }
            Self::NoGpus => "say how many: `--gpus-per-node 8`, or `--ranks-per-node` without cards".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The target `name` of a project or, where it has none, of the user's configuration.
///
/// # Errors
/// There is none of this name.
pub fn find_target(name: &str, project: &Project, places: &SconceDirs) -> Result<TargetSpec> {
    let (own, configured) = (&project.spec.targets, &places.config.targets);
    if let Some(target) = own.get(name).or_else(|| configured.get(name)) {
        return Ok(target.clone());
    }
    let mut known: Vec<String> = own.keys().chain(configured.keys()).cloned().collect();
    known.sort();
    known.dedup();
    let name = name.to_owned();
    Err(SubmissionError::NoTarget { name, known }.into())
}

/// Hands `command`, or the spec's own where it is empty, to a scheduler, with all that it needs in the store.
///
/// # Errors
/// It cannot be locked or brought, or the scheduler does not take it.
pub fn submit_job(
    spec: &Path,
    overrides: &RunOverrides,
    command: &[String],
    job: &JobOptions,
    context: &AppContext,
) -> Result<Submission> {
    let project = Project::open(spec)?;
    let target = find_target(&job.target, &project, &SconceDirs::find(context)?)?;
    let context = &match (&context.store, find_storage(job, &target, context)?) {
        (None, Some(storage)) => AppContext {
            store: Some(storage),
            ..context.clone()
        },
        _ => context.clone(),
    };
    let opened = CommandContext::open(project, context)?;
    let (project, places) = (&opened.project, &opened.places);
    let prepared = PreparedJob::new(&opened, overrides, command, job, &target, context)?;
    let request = &prepared.request;
    let after = find_jobs_before(&job.after, places, context)?;
    if !job.dry_run {
        refuse_other_architecture(request, &job.target, &target, places, context)?;
        if let (Some(preparation), Some(preparing)) = (&request.preparation, &prepared.preparing) {
            let name = &preparation.target;
            refuse_other_architecture(request, name, preparing, places, context)?;
        }
        remove_old_dry_runs(places);
        if !job.again {
            let same = list_same(request, places);
            let variables = &prepared.variables;
            if let Some(taken) = take_up_unanswered(&same, &job.target, variables, context)? {
                return Ok(taken);
            }
            warn_of_same(&same, places, context);
        }
    }
    let dir = JobDir::of(places, &request.token);
    let program = keep_program(places)?;
    let (bundle, squashfs) = (dir.bundle(), dir.squashfs());
    let scheduler = scheduler_of(target.engine, context);
    let script = JobScript {
        name: &request.name,
        token: &request.token,
        work: NodeWork::Run,
        layout: request.layout,
        array: request.array.as_ref(),
        cpus_per_task: prepared.cpus_per_task(&target),
        memory_per_node: request.run.memory,
        time_limit: job.time.or_else(|| time_limit(&target)),
        after: &after,
        is_prepared: request.preparation.is_some(),
        leaves_limits: job.prepare_on.is_some() || target.prepare_on.is_some(),
        program: &program,
        job_dir: dir.path(),
        work_dir: &project.folder,
        container: prepared.step_container(&bundle, &squashfs),
        target: &target,
    };
    let rendered = scheduler.render(&script)?;
    let preparation = match (&request.preparation, &prepared.preparing) {
        (Some(preparation), Some(preparing)) => Some(SubmittedPreparation {
            target: preparation.target.clone(),
            script: scheduler.render(&preparation_script(&script, preparation, preparing))?,
            id: None,
        }),
        _ => None,
    };
    prepared.write(&dir)?;
    dir.write_script(&rendered)?;
    if let Some(preparation) = &preparation {
        dir.preparation().write_script(&preparation.script)?;
    }
    let mut submission = Submission {
        token: request.token.clone(),
        by_hand: match &preparation {
            Some(preparation) => scheduler.render_both(&preparation.script, &rendered, &after)?,
            None => rendered.clone(),
        },
        script: rendered,
        id: None,
        preparation,
        lacks: prepared.lacks,
    };
    if !job.dry_run {
        let submitted = SubmittedJob {
            target: job.target.clone(),
            id: None,
            preparation: None,
            after: match request.preparation {
                Some(_) => after.iter().map(ToString::to_string).collect(),
                None => Vec::new(),
            },
        };
        let submitted = hand_over(&dir, request, submitted, &*scheduler)?;
        submission.id = submitted.id;
        if let Some(preparation) = &mut submission.preparation {
            preparation.id = submitted.preparation;
        }
    }
    Ok(submission)
}

/// The script of the job that makes the environment of `job`: one task on one node of `target`, without cards.
fn preparation_script<'a>(
    job: &JobScript<'a>,
    preparation: &'a PreparationRequest,
    target: &'a TargetSpec,
) -> JobScript<'a> {
    JobScript {
        token: &preparation.token,
        work: NodeWork::Preparation,
        layout: preparation_layout(),
        array: None,
        cpus_per_task: target.cpus_per_node,
        memory_per_node: None,
        time_limit: time_limit(target),
        after: &[],
        is_prepared: false,
        container: None,
        target,
        ..*job
    }
}

/// One task on one node, without cards.
pub(super) fn preparation_layout() -> JobLayout {
    JobLayout {
        nodes: 1,
        gpus_per_node: None,
        ranks_per_node: None,
        launch: LaunchMode::Node,
    }
}

/// Where the target has the store: a directory that nodes see, as a home may be too small or not be there.
fn find_storage(
    job: &JobOptions,
    target: &TargetSpec,
    context: &AppContext,
) -> Result<Option<PathBuf>, SubmissionError> {
    let Some(directory) = &target.storage else {
        return Ok(None);
    };
    let wrong = |why: String| SubmissionError::Storage {
        target: job.target.clone(),
        directory: directory.clone(),
        why,
    };
    let value = |name: &str| context.env.var(name).map(str::to_owned);
    let path = expand_variables(directory, value)
        .map_err(|name| wrong(format!("and ${name} is not set here")))?;
    match Path::new(&path).is_absolute() {
        true => Ok(Some(path.into())),
        false => Err(wrong(format!("which is {path:?} and no absolute path"))),
    }
}

/// Folders of jobs that were never handed over, and that nobody ran by hand.
fn remove_old_dry_runs(places: &SconceDirs) {
    let entries = std::fs::read_dir(&places.jobs)
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries {
        // Nothing is written into it any more: most are passed over without a look inside.
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_none_or(|age| age < MAX_DRY_RUN_AGE) {
            continue;
        }
        let dir = JobDir::at(&entry.path());
        let is_used = !dir.read_tasks().is_empty() || !dir.preparation().read_tasks().is_empty();
        if !is_used && dir.read_job().is_ok() && matches!(dir.read_submitted(), Ok(None)) {
            let _ = std::fs::remove_dir_all(dir.path());
        }
    }
}

fn time_limit(target: &TargetSpec) -> Option<Duration> {
    let ms = duration::parse_milliseconds(target.time.as_deref()?).ok()?;
    Some(Duration::from_millis(ms))
}
