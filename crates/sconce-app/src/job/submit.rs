//! Handing a job over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_schema::job::{self, JobLayout, JobRequest};
use sconce_schema::lock::Lock;
use sconce_schema::request::Mount;
use sconce_schema::spec::TargetSpec;
use sconce_schema::spec::{JobContainment, LaunchMode};
use sconce_schema::{Hint, Runtime, Sha256, duration, exit};
use sconce_submit::{JobScript, SchedulerJobId, StepContainer};
use sha2::Digest as _;

use super::containment::{ContainedJob, choose_containment};
use super::job_dir::{JobDir, SubmittedJob};
use super::lookup::{KnownJob, find_job, list_jobs, query_jobs};
use super::program::keep_program;
use super::schedulers::scheduler_of;
use super::site_image::{OciBundle, ensure_site_image, find_site_image, list_machine_mounts};
use super::wishes::JobWishes;
use crate::background::Background;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::environment_builder::debian_architecture;
use crate::failure::{AppError, Result};
use crate::input;
use crate::project::Project;
use crate::protected_dirs;
use crate::reporter::AppEvent;
use crate::run::site_containment::SYSTEM_PATH;
use crate::run_id::{new_id, unix_ms};
use crate::run_options::{ResolvedRunOptions, RunOverrides};

/// How long nodes wait for each other where nobody says otherwise.
const DEFAULT_MEETING_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the folder of a job is kept that was not handed over: a week.
const MAX_DRY_RUN_AGE: Duration = Duration::from_secs(7 * 86_400);
/// The variable for the store.
pub(super) const STORE: &str = "SCONCE_STORE";
/// Variables that say where Sconce's folders are.
const DIRECTORY_VARIABLES: [&str; 5] = [
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];

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
    /// Jobs that have to end well before.
    pub after: Vec<String>,
    /// The same may be handed over while it waits or runs.
    pub again: bool,
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
    /// What the script needs and is not there yet.
    pub lacks: Option<&'static str>,
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
    /// A job that is to come before, and is none.
    #[error("there is no job `{name}` to come after")]
    NoJobBefore {
        /// Its name.
        name: String,
    },
    /// A job that is to come before, and is of another scheduler.
    #[error("job `{name}` was handed to {target}, and only jobs of one target wait for each other")]
    OtherTarget {
        /// Its name.
        name: String,
        /// Its target.
        target: String,
    },
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
            Self::OtherRuntime(_) => "submit it with `--runtime sconce`, or without".to_owned(),
            Self::NoJobBefore { .. } => "`sconce ps --all` lists jobs".to_owned(),
            Self::OtherTarget { .. } => "`sconce wait` waits for it".to_owned(),
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
    let here = crate::run::current_folder()?;
    let opened = CommandContext::open(project, context)?;
    let (project, places) = (&opened.project, &opened.places);
    let target = find_target(&job.target, project, places)?;
    let run = &project.spec.run;
    let options = ResolvedRunOptions::merge(
        run,
        &project.folder,
        overrides,
        &here,
        command,
        &context.env,
    )?;
    if options.runtime != Runtime::Sconce {
        return Err(SubmissionError::OtherRuntime(options.runtime).into());
    }
    protected_dirs::validate_mounts(&options.mounts, Some(&project.folder), places)?;
    let containment = choose_containment(job, &target)?;
    let contained = ContainedJob {
        containment,
        project,
        options: &options,
        env: &context.env,
    };
    let wishes = JobWishes::new(
        run,
        overrides,
        &here,
        &options.workdir,
        command,
        &context.env,
    )?;
    let launch = job.launch.or(target.launch);
    contained.validate_site(launch.unwrap_or(LaunchMode::Node))?;
    let (lock, site_image) = match job.dry_run {
        true => {
            let lock = project.load_lock()?;
            let lock = lock.filter(|lock| lock.inputs == project.inputs);
            let image = lock
                .as_ref()
                .and_then(|lock| find_site_image(containment, lock, &opened.store));
            (lock, image)
        }
        false => {
            let (lock, image) = bring(&opened, overrides, &contained, context)?;
            (Some(lock), image)
        }
    };
    contained.validate(lock.as_ref())?;
    if let Some(gaps) = contained.describe_gaps() {
        context.report(&AppEvent::JobRemark(&gaps));
    }
    let layout = layout(job, &target, lock.as_ref())?;
    let lock_text = match &lock {
        Some(_) => {
            let path = project.lock_file();
            input::read_text(&path).map_err(AppError::unreadable(&path))?
        }
        None => String::new(),
    };
    let request = JobRequest {
        format: job::FORMAT,
        token: new_id(&project.name, &places.jobs),
        name: project.name.clone(),
        spec: project.file.clone(),
        run: wishes.run,
        directories: own_directories(places, context),
        lock: Sha256(sha2::Sha256::digest(lock_text.as_bytes()).into()),
        architecture: debian_architecture().to_owned(),
        layout,
        containment,
        engine: target.engine,
        meet_within_ms: meeting_timeout(&target),
        unix_ms: unix_ms(),
    };
    let after = find_jobs_before(&job.after, &job.target, places)?;
    if !job.dry_run {
        remove_old_dry_runs(places);
        if !job.again {
            warn_of_same_job(&request, places, context);
        }
    }
    let dir = JobDir::of(places, &request.token);
    let program = keep_program(places)?;
    let bundle = dir.bundle();
    let own_directories = [
        places.store.as_path(),
        &places.scratch,
        &places.state,
        &places.config_folder,
        &project.folder,
    ];
    let mounts = list_machine_mounts(&options.mounts, &own_directories);
    let scheduler = scheduler_of(target.engine, context);
    let cpus = request.run.cpus.map(|cpus| cpus.0.div_ceil(1000));
    let cpus = cpus.or(target.cpus_per_node);
    let script = scheduler.render(&JobScript {
        name: &request.name,
        token: &request.token,
        layout,
        cpus_per_task: cpus.map(|cpus| (cpus / layout.tasks_per_node()).max(1)),
        memory_per_node: request.run.memory,
        time_limit: job.time.or_else(|| time_limit(&target)),
        after: &after,
        program: &program,
        job_dir: dir.path(),
        work_dir: &project.folder,
        container: step_container(containment, site_image.as_deref(), &bundle, &mounts),
        target: &target,
    })?;
    let spec_text = input::read_text(&project.file).map_err(AppError::unreadable(&project.file))?;
    dir.create(&request, spec_text.as_bytes(), lock_text.as_bytes())?;
    if !wishes.variables.is_empty() {
        dir.write_variables(&wishes.variables)?;
    }
    if let (JobContainment::Slurm, Some(tree)) = (containment, &site_image) {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        OciBundle {
            tree,
            mounts: &mounts,
            env: &BTreeMap::from([("PATH".to_owned(), SYSTEM_PATH.to_owned())]),
            user: (user.as_raw(), group.as_raw()),
        }
        .write(&bundle)?;
    }
    dir.write_script(&script)?;
    let mut submission = Submission {
        token: request.token,
        script,
        id: None,
        lacks: match (&lock, &site_image) {
            (None, _) => Some("lock of this spec"),
            (Some(_), None) if !containment.is_own() => {
                Some("environment in the form that its nodes take")
            }
            (Some(_), _) => None,
        },
    };
    if !job.dry_run {
        let id = scheduler.submit(&submission.script, &submission.token)?;
        dir.write_submitted(&SubmittedJob {
            target: job.target.clone(),
            id: id.to_string(),
        })?;
        submission.id = Some(id.to_string());
    }
    Ok(submission)
}

/// The container that the scheduler is to start, where it starts one.
fn step_container<'a>(
    containment: JobContainment,
    image: Option<&'a Path>,
    bundle: &'a Path,
    mounts: &'a [Mount],
) -> Option<StepContainer<'a>> {
    match containment {
        JobContainment::Slurm => Some(StepContainer::Bundle(bundle)),
        JobContainment::Pyxis => Some(StepContainer::Squashfs {
            image: image.unwrap_or(Path::new("/missing/image.sqsh")),
            mounts,
        }),
        JobContainment::Sconce | JobContainment::Apptainer | JobContainment::None => None,
    }
}

/// Locks the project and brings all that its environment needs: nodes may have no network.
fn bring(
    opened: &CommandContext,
    overrides: &RunOverrides,
    contained: &ContainedJob<'_>,
    context: &AppContext,
) -> Result<(Lock, Option<PathBuf>)> {
    let builder = opened.environment_builder(overrides.sources.clone(), context);
    let locked = builder.ensure_lock()?;
    contained.validate(Some(&locked))?;
    let lock = builder.with_editable_projects(&locked)?;
    let mut background = Background::default();
    let (environment, _guards) = builder.assemble_with_guards(&lock, &mut background)?;
    let image = ensure_site_image(contained.containment, &builder, &lock, &environment)?;
    opened.progress.finish();
    Ok((locked, image))
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
        let is_used = !dir.read_tasks().is_empty();
        if !is_used && dir.read_job().is_ok() && matches!(dir.read_submitted(), Ok(None)) {
            let _ = std::fs::remove_dir_all(dir.path());
        }
    }
}

/// What the scheduler of `target` calls the jobs that come before.
fn find_jobs_before(
    names: &[String],
    target: &str,
    places: &SconceDirs,
) -> Result<Vec<SchedulerJobId>> {
    let find = |name: &String| {
        let none = || SubmissionError::NoJobBefore { name: name.clone() };
        let job = find_job(places, name)?.ok_or_else(none)?;
        if job.submitted.target != target {
            return Err(SubmissionError::OtherTarget {
                name: name.clone(),
                target: job.submitted.target,
            }
            .into());
        }
        Ok(SchedulerJobId::parse(&job.submitted.id).ok_or_else(none)?)
    };
    names.iter().map(find).collect()
}

/// Says that the same lock, command and environment were handed over already and have not ended.
fn warn_of_same_job(request: &JobRequest, places: &SconceDirs, context: &AppContext) {
    let is_same = |job: &KnownJob| {
        let other = &job.request;
        (&other.lock, &other.run, &other.layout, &other.spec)
            == (&request.lock, &request.run, &request.layout, &request.spec)
    };
    let same: Vec<KnownJob> = list_jobs(places).into_iter().filter(is_same).collect();
    // A scheduler that does not answer is said by the hand-over itself.
    let Ok(reports) = query_jobs(&same, places, context) else {
        return;
    };
    let open = same
        .iter()
        .zip(&reports)
        .find(|(_, report)| !report.is_final);
    if let Some((job, report)) = open {
        let (token, state) = (&job.request.token, &report.state);
        let remark = format!(
            "the same was handed over as {token} ({state}); `--again` says that it is meant"
        );
        context.report(&AppEvent::JobRemark(&remark));
    }
}

/// Where Sconce's folders are for whoever hands a job over.
fn own_directories(places: &SconceDirs, context: &AppContext) -> BTreeMap<String, String> {
    let named = DIRECTORY_VARIABLES.into_iter();
    let named = named.filter_map(|name| Some((name.to_owned(), context.env.var(name)?.to_owned())));
    let store = places.store.to_string_lossy().into_owned();
    named.chain([(STORE.to_owned(), store)]).collect()
}

/// One rank a card by torchrun, where there is more than one and PyTorch to start it.
fn layout(job: &JobOptions, target: &TargetSpec, lock: Option<&Lock>) -> Result<JobLayout> {
    let nodes = job.nodes.or(target.nodes).unwrap_or(1);
    let gpus_per_node = job.gpus_per_node.or(target.gpus_per_node);
    let has_torch = lock.is_none_or(|lock| lock.wheels.iter().any(|wheel| wheel.name == "torch"));
    let ranks = job.ranks_per_node.or(gpus_per_node);
    let has_ranks = nodes > 1 || ranks.is_some_and(|ranks| ranks > 1);
    let usual = match has_torch && has_ranks {
        true => LaunchMode::Torchrun,
        false => LaunchMode::Node,
    };
    let launch = job.launch.or(target.launch).unwrap_or(usual);
    if launch == LaunchMode::TaskPerGpu && ranks.is_none_or(|ranks| ranks == 0) {
        return Err(SubmissionError::NoGpus.into());
    }
    Ok(JobLayout {
        nodes,
        gpus_per_node,
        ranks_per_node: job.ranks_per_node,
        launch,
    })
}

fn meeting_timeout(target: &TargetSpec) -> u64 {
    let said = target.meet_within.as_deref();
    said.and_then(|text| duration::parse_milliseconds(text).ok())
        .unwrap_or_else(|| u64::try_from(DEFAULT_MEETING_TIMEOUT.as_millis()).unwrap_or(u64::MAX))
}

fn time_limit(target: &TargetSpec) -> Option<Duration> {
    let ms = duration::parse_milliseconds(target.time.as_deref()?).ok()?;
    Some(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use sconce_schema::spec::SchedulerKind;

    use super::*;

    #[test]
    fn ranks_are_started_by_torchrun_where_there_are_several() {
        let launch = |nodes, gpus, launch| {
            let job = JobOptions {
                nodes,
                gpus_per_node: gpus,
                launch,
                ..JobOptions::default()
            };
            let target = TargetSpec::new(SchedulerKind::Slurm);
            layout(&job, &target, None)
                .map(|layout| (layout.nodes, layout.launch))
                .ok()
        };
        assert_eq!(launch(None, None, None), Some((1, LaunchMode::Node)));
        assert_eq!(launch(None, Some(1), None), Some((1, LaunchMode::Node)));
        assert_eq!(launch(Some(2), None, None), Some((2, LaunchMode::Torchrun)));
        assert_eq!(launch(None, Some(8), None), Some((1, LaunchMode::Torchrun)));
        let node = Some(LaunchMode::Node);
        assert_eq!(launch(Some(2), Some(8), node), Some((2, LaunchMode::Node)));
        assert_eq!(launch(Some(2), None, Some(LaunchMode::TaskPerGpu)), None);
    }
}
