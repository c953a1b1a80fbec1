//! Handing a job over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_schema::job::{JobLayout, PreparationRequest};
use sconce_schema::spec::{LaunchMode, TargetSpec};
use sconce_schema::{Hint, Runtime, duration, exit};
use sconce_submit::{JobDependency, JobScript, NodeWork};

use super::architectures::refuse_other_architecture;
use super::dependencies::{JobBefore, find_jobs_before};
use super::hand_over::{hand_over, list_same, take_up_unanswered, warn_of_same};
use super::job_dir::{JobDir, SubmittedJob};
use super::prepare::PreparedJob;
use super::program::keep_program;
use super::scheduler_overrides::SchedulerOverrides;
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
    /// What the scheduler is told otherwise than its target says.
    pub scheduler: SchedulerOverrides,
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
    /// The file that has the values of variables which are passed by name, where there are some.
    pub variables: Option<PathBuf>,
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
    /// A job that would make its environment where it runs.
    #[error("`prepare-on` of target `{target}` is `{target}` itself")]
    PreparesOnItself {
        /// The target.
        target: String,
    },
    /// A job that another scheduler's would have to wait for.
    #[error(
        "`prepare-on` of target `{target}` is `{other}`, which is of {engine}: jobs of two schedulers do not wait for each other"
    )]
    PreparesElsewhere {
        /// The target.
        target: String,
        /// The other one.
        other: String,
        /// Its scheduler.
        engine: &'static str,
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
            Self::PreparesOnItself { .. } => {
                "leave it out, and the environment is made here; or name a target whose nodes have no cards".to_owned()
            }
            Self::PreparesElsewhere { .. } => "name another target of the same engine".to_owned(),
            Self::Storage { .. } => {
                "name a directory that this machine and every node see, or `--store` for once".to_owned()
            }
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
    let target = &job.scheduler.lay_over(target);
    let context = &with_storage(job, target, context)?;
    let opened = CommandContext::open(project, context)?;
    let prepared = &PreparedJob::new(&opened, overrides, command, job, target, context)?;
    let places = &opened.places;
    let hand_over = JobHandOver {
        job,
        target,
        prepared,
        after: find_jobs_before(&job.after, places, context)?,
        dir: JobDir::of(places, &prepared.request.token),
        work_dir: &opened.project.folder,
        places,
        context,
    };
    if job.dry_run {
        let scripts = hand_over.render()?;
        hand_over.write(&scripts)?;
        hand_over.dir.write_by_hand(&hand_over.describe())?;
        return Ok(hand_over.to_submission(scripts));
    }
    hand_over.refuse_other_architectures()?;
    remove_old_dry_runs(places);
    if let Some(taken) = hand_over.take_up_same()? {
        return Ok(taken);
    }
    let scripts = hand_over.render()?;
    hand_over.write(&scripts)?;
    hand_over.submit(scripts)
}

/// A job on its way to its scheduler.
struct JobHandOver<'a> {
    job: &'a JobOptions,
    target: &'a TargetSpec,
    prepared: &'a PreparedJob,
    /// Jobs that have to end well before.
    after: Vec<JobDependency>,
    /// Where the job's files are, or will be.
    dir: JobDir,
    work_dir: &'a Path,
    places: &'a SconceDirs,
    context: &'a AppContext,
}

/// The scripts of a job.
struct RenderedScripts {
    run: String,
    /// Of the job that makes its environment before, where one does.
    preparation: Option<String>,
    /// What hands over all of them by hand.
    by_hand: String,
}

impl JobHandOver<'_> {
    /// Refuses nodes with other processors than the lock is for, of the job and of what makes its environment.
    fn refuse_other_architectures(&self) -> Result<()> {
        let request = &self.prepared.request;
        let refuse = |name: &str, target| {
            refuse_other_architecture(request, name, target, self.places, self.context)
        };
        refuse(&self.job.target, self.target)?;
        match (&request.preparation, &self.prepared.preparing) {
            (Some(preparation), Some(preparing)) => refuse(&preparation.target, preparing),
            _ => Ok(()),
        }
    }

    /// The same job, where its scheduler gave no answer before; says where the same waits or runs.
    fn take_up_same(&self) -> Result<Option<Submission>> {
        if self.job.again {
            return Ok(None);
        }
        let same = list_same(&self.prepared.request, self.places);
        let variables = &self.prepared.variables;
        let taken = take_up_unanswered(&same, &self.job.target, variables, self.context)?;
        if taken.is_none() {
            warn_of_same(&same, self.places, self.context);
        }
        Ok(taken)
    }

    fn render(&self) -> Result<RenderedScripts> {
        let (prepared, job, target) = (self.prepared, self.job, self.target);
        let request = &prepared.request;
        let scheduler = scheduler_of(target.engine, self.context);
        let program = keep_program(self.places)?;
        let (bundle, squashfs) = (self.dir.bundle(), self.dir.squashfs());
        let script = JobScript {
            name: job.scheduler.name.as_deref().unwrap_or(&request.name),
            token: &request.token,
            work: NodeWork::Run,
            layout: request.layout,
            array: request.array.as_ref(),
            cpus_per_task: prepared.cpus_per_task(target),
            memory_per_node: request.run.memory,
            time_limit: job.time.or_else(|| time_limit(target)),
            after: &self.after,
            is_prepared: request.preparation.is_some(),
            leaves_limits: job.prepare_on.is_some() || target.prepare_on.is_some(),
            program: &program,
            job_dir: self.dir.path(),
            work_dir: self.work_dir,
            container: prepared.step_container(&bundle, &squashfs),
            target,
        };
        let run = scheduler.render(&script)?;
        let preparation = match (&request.preparation, &prepared.preparing) {
            (Some(preparation), Some(preparing)) => {
                Some(scheduler.render(&preparation_script(&script, preparation, preparing))?)
            }
            _ => None,
        };
        let by_hand = match &preparation {
            Some(preparation) => scheduler.render_both(preparation, &run, &self.after)?,
            None => run.clone(),
        };
        Ok(RenderedScripts {
            run,
            preparation,
            by_hand,
        })
    }

    /// Makes the job's directory.
    fn write(&self, scripts: &RenderedScripts) -> Result<()> {
        self.prepared.write(&self.dir)?;
        self.dir.write_script(&scripts.run)?;
        match &scripts.preparation {
            Some(preparation) => self.dir.preparation().write_script(preparation),
            None => Ok(()),
        }
    }

    /// What is known of it before its scheduler has it.
    fn describe(&self) -> SubmittedJob {
        SubmittedJob {
            target: self.job.target.clone(),
            id: None,
            preparation: None,
            after: match self.prepared.request.preparation {
                Some(_) => self.after.iter().map(ToString::to_string).collect(),
                None => Vec::new(),
            },
        }
    }

    fn submit(&self, scripts: RenderedScripts) -> Result<Submission> {
        let scheduler = scheduler_of(self.target.engine, self.context);
        let request = &self.prepared.request;
        let submitted = hand_over(&self.dir, request, self.describe(), &*scheduler)?;
        let mut submission = self.to_submission(scripts);
        submission.id = submitted.id;
        if let Some(preparation) = &mut submission.preparation {
            preparation.id = submitted.preparation;
        }
        Ok(submission)
    }

    fn to_submission(&self, scripts: RenderedScripts) -> Submission {
        let request = &self.prepared.request;
        let preparation = request.preparation.as_ref().zip(scripts.preparation);
        Submission {
            token: request.token.clone(),
            script: scripts.run,
            id: None,
            preparation: preparation.map(|(preparation, script)| SubmittedPreparation {
                target: preparation.target.clone(),
                script,
                id: None,
            }),
            by_hand: scripts.by_hand,
            lacks: self.prepared.lacks,
            variables: match self.prepared.variables.is_empty() {
                true => None,
                false => Some(self.dir.variables_file()),
            },
        }
    }
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

/// A context whose store is the target's, where the caller names none.
fn with_storage(job: &JobOptions, target: &TargetSpec, context: &AppContext) -> Result<AppContext> {
    let storage = find_storage(job, target, context)?;
    Ok(AppContext {
        store: context.store.clone().or(storage),
        ..context.clone()
    })
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
    let ms = duration::parse_time_limit(target.time.as_deref()?).ok()?;
    Some(Duration::from_millis(ms))
}
