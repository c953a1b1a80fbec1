//! What a job is, before anybody has it: the spec and what its caller says become a request, and all that its
//! environment needs is brought.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_schema::job::{self, JobLayout, JobRequest, LocalStoreRequest};
use sconce_schema::lock::Lock;
use sconce_schema::request::Mount;
use sconce_schema::spec::{JobContainment, LaunchMode, TargetSpec};
use sconce_schema::{Runtime, Sha256, duration};
use sconce_submit::StepContainer;
use sha2::Digest as _;

use super::containment::{ContainedJob, choose_containment};
use super::job_dir::JobDir;
use super::local_store::pack_environment;
use super::site_image::{OciBundle, ensure_site_image, find_site_image, list_machine_mounts};
use super::submit::{JobOptions, SubmissionError};
use super::wishes::JobWishes;
use crate::background::Background;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::environment_builder::debian_architecture;
use crate::failure::{AppError, Result};
use crate::input;
use crate::probe;
use crate::protected_dirs;
use crate::reporter::AppEvent;
use crate::run::site_containment::SYSTEM_PATH;
use crate::run_id::{new_id, unix_ms};
use crate::run_options::{ResolvedRunOptions, RunOverrides};

/// How long nodes wait for each other where nobody says otherwise.
const DEFAULT_MEETING_TIMEOUT: Duration = Duration::from_secs(120);

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

/// A job whose directory can be written.
pub(super) struct PreparedJob {
    /// What is handed over.
    pub(super) request: JobRequest,
    /// Values of the caller's variables that its run is given by name.
    pub(super) variables: BTreeMap<String, String>,
    /// What the script needs and is not there yet, of a dry run.
    pub(super) lacks: Option<&'static str>,
    /// The environment in the form that the site's container takes.
    site_image: Option<PathBuf>,
    /// What of the machine is in the site's container.
    mounts: Vec<Mount>,
    spec_text: String,
    lock_text: String,
}

impl PreparedJob {
    /// Locks the project and brings its environment; for a dry run, takes the lock that is there.
    ///
    /// # Errors
    /// It cannot be locked or brought, or cannot be a job.
    pub(super) fn new(
        opened: &CommandContext,
        overrides: &RunOverrides,
        command: &[String],
        job: &JobOptions,
        target: &TargetSpec,
        context: &AppContext,
    ) -> Result<Self> {
        let (project, places) = (&opened.project, &opened.places);
        let here = crate::run::current_folder()?;
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
        let containment = choose_containment(job, target)?;
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
        let (lock, brought) = match job.dry_run {
            true => {
                let lock = project.load_lock()?;
                let lock = lock.filter(|lock| lock.inputs == project.inputs);
                let image = |lock| find_site_image(containment, lock, &opened.store);
                let brought = BroughtEnvironment {
                    site_image: lock.as_ref().and_then(image),
                    local_store: None,
                };
                (lock, brought)
            }
            false => {
                let (lock, brought) = bring(opened, overrides, &contained, target, context)?;
                (Some(lock), brought)
            }
        };
        contained.validate(lock.as_ref())?;
        if let Some(gaps) = contained.describe_gaps() {
            context.report(&AppEvent::JobRemark(&gaps));
        }
        let lock_text = match &lock {
            Some(_) => {
                let path = project.lock_file();
                input::read_text(&path).map_err(AppError::unreadable(&path))?
            }
            None => String::new(),
        };
        let path = &project.file;
        Ok(Self {
            request: JobRequest {
                format: job::FORMAT,
                token: new_id(&project.name, &places.jobs),
                name: project.name.clone(),
                spec: project.file.clone(),
                run: wishes.run,
                directories: own_directories(places, context),
                lock: Sha256(sha2::Sha256::digest(lock_text.as_bytes()).into()),
                architecture: debian_architecture().to_owned(),
                layout: layout(job, target, lock.as_ref())?,
                array: job.array.read()?,
                containment,
                strict: overrides.strict,
                engine: target.engine,
                meet_within_ms: meeting_timeout(target),
                local_store: brought.local_store,
                host_plugins: target.host_plugins,
                unix_ms: unix_ms(),
            },
            variables: wishes.variables,
            lacks: match (&lock, &brought.site_image) {
                (None, _) => Some("lock of this spec"),
                (Some(_), None) if !containment.is_own() => {
                    Some("environment in the form that its nodes take")
                }
                (Some(_), _) => None,
            },
            site_image: brought.site_image,
            mounts: list_machine_mounts(
                &options.mounts,
                &[
                    places.store.as_path(),
                    &places.scratch,
                    &places.state,
                    &places.config_folder,
                    &project.folder,
                ],
            ),
            spec_text: input::read_text(path).map_err(AppError::unreadable(path))?,
            lock_text,
        })
    }

    /// CPUs of each process that the scheduler starts, where that is known.
    pub(super) fn cpus_per_task(&self, target: &TargetSpec) -> Option<u32> {
        let cpus = self.request.run.cpus.map(|cpus| cpus.0.div_ceil(1000));
        let cpus = cpus.or(target.cpus_per_node)?;
        Some((cpus / self.request.layout.tasks_per_node()).max(1))
    }

    /// Makes the job's directory.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, dir: &JobDir) -> Result<()> {
        let (spec, lock) = (self.spec_text.as_bytes(), self.lock_text.as_bytes());
        dir.create(&self.request, spec, lock)?;
        if !self.variables.is_empty() {
            dir.write_variables(&self.variables)?;
        }
        if let (JobContainment::Slurm, Some(tree)) = (self.request.containment, &self.site_image) {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            OciBundle {
                tree,
                mounts: &self.mounts,
                env: &BTreeMap::from([("PATH".to_owned(), SYSTEM_PATH.to_owned())]),
                user: (user.as_raw(), group.as_raw()),
            }
            .write(&dir.bundle())?;
        }
        Ok(())
    }

    /// The container that the scheduler is to start, where it starts one; `bundle` is the job's.
    pub(super) fn step_container<'a>(&'a self, bundle: &'a Path) -> Option<StepContainer<'a>> {
        let image = self.site_image.as_deref();
        match self.request.containment {
            JobContainment::Slurm => Some(StepContainer::Bundle(bundle)),
            JobContainment::Pyxis => Some(StepContainer::Squashfs {
                image: image.unwrap_or(Path::new("/missing/image.sqsh")),
                mounts: &self.mounts,
            }),
            JobContainment::Sconce | JobContainment::Apptainer | JobContainment::None => None,
        }
    }
}

/// What nodes run on, where that is not the store itself.
struct BroughtEnvironment {
    local_store: Option<LocalStoreRequest>,
    site_image: Option<PathBuf>,
}

/// Locks the project and brings all that its environment needs: nodes may have no network, and may not write to the
/// store.
fn bring(
    opened: &CommandContext,
    overrides: &RunOverrides,
    contained: &ContainedJob<'_>,
    target: &TargetSpec,
    context: &AppContext,
) -> Result<(Lock, BroughtEnvironment)> {
    let builder = opened.environment_builder(overrides.sources.clone(), context);
    let locked = builder.ensure_lock()?;
    contained.validate(Some(&locked))?;
    let lock = builder.with_editable_projects(&locked)?;
    let mut background = Background::default();
    let (environment, _guards) = builder.assemble_with_guards(&lock, &mut background)?;
    if contained.options.probe.is_some() && opened.store.is_writable() {
        probe::ensure_modules(&opened.store)?;
    }
    let brought = BroughtEnvironment {
        // What a site's container takes is one tree or one file already.
        local_store: match contained.containment.is_own() {
            true => pack_environment(target, &builder, &lock, &environment, context)?,
            false => None,
        },
        site_image: ensure_site_image(contained.containment, &builder, &lock, &environment)?,
    };
    opened.progress.finish();
    Ok((locked, brought))
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
