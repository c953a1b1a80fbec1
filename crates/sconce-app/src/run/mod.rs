//! Runs: of a spec's environment, of an image, of this machine's own programs.

mod contained_run;
mod gpu_assignment;
mod host_run;
pub mod image;
mod leased_gpus;
pub(crate) mod node_part;
mod nvml;
mod plan;
mod project_source;
mod request;
mod run_failure;

mod run_session;
pub mod run_source;
pub(crate) mod site_containment;

use std::path::{Path, PathBuf};

use sconce_base::output::OutputDestination;
use sconce_host::{HostProfile, Roots, facts};
use sconce_image::bytecode;
use sconce_image::system::PLAIN_HOME;
use sconce_schema::request::ContainerUser;
use sconce_schema::spec::{GpuRequest, JobContainment, ServicesSpec};

pub use self::run_failure::explain_ended_run;

use self::contained_run::{CommandInvocation, ContainedRun};
use self::host_run::host_run;
pub use self::host_run::{host_folder, on_host};
use self::node_part::JoinNodes;
use self::nvml::NvmlLoad;
use self::project_source::ProjectSource;
pub(crate) use self::request::current_folder;
use self::site_containment::SiteContainment;
use crate::background::Background;
use crate::build;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::executor::find_executor;
use crate::failure::{AppError, Result};
use crate::inspect::{InspectedEnvironment, precheck};
use crate::kernel_cache::{self, KernelCacheOwner};
use crate::probe::Probe;
use crate::project::Project;
use crate::protected_dirs;
use crate::ranks::RankWorld;
use crate::run_id::new_id;
use crate::run_options::{ResolvedRunOptions, RunOverrides};
use crate::virtual_gpu::VirtualGpus;

/// What makes a run a trial of `sconce fit`: its report is nobody's, and its record goes elsewhere.
pub struct TrialRun {
    /// The GPUs that are played.
    pub gpus: VirtualGpus,
    /// Watches the trial.
    pub probe: Probe,
    /// Where the record goes.
    pub runs: PathBuf,
}

/// Runs `command`, or the spec's own where it is empty, in the spec's environment.
pub fn run_contained(
    spec: &Path,
    overrides: &RunOverrides,
    command: &[String],
    json: Option<OutputDestination>,
    context: &AppContext,
) -> Result<u8> {
    contained_as(
        spec,
        overrides,
        RunWorkload::Command(command),
        json,
        None,
        context,
    )
}

/// What of a spec is to be run.
#[derive(Debug, Clone, Copy)]
pub enum RunWorkload<'a> {
    /// This command, or the spec's own where it is empty.
    Command(&'a [String]),
    /// The same, with the spec's services beside it.
    Both(&'a [String]),
    /// The services.
    Services,
}

/// Runs the services of a spec, in its environment or, with `host`, on this machine itself.
pub fn run_services(
    spec: &Path,
    host: bool,
    overrides: &RunOverrides,
    context: &AppContext,
) -> Result<u8> {
    if !host {
        return contained_as(spec, overrides, RunWorkload::Services, None, None, context);
    }
    let project = Project::open(spec)?;
    if project.spec.services.is_empty() {
        return Err(AppError::NoServices.into());
    }
    if let Some(known) = project.spec.services.builtin_services().first() {
        return Err(AppError::ServiceOfImage(known.name()).into());
    }
    let services = Some((project.name.as_str(), &project.spec.services));
    host_run(overrides, &[], services, None, None, context)
}

/// As [`contained`], or as a trial.
pub fn contained_as(
    spec: &Path,
    overrides: &RunOverrides,
    wanted: RunWorkload<'_>,
    json: Option<OutputDestination>,
    trial: Option<TrialRun>,
    context: &AppContext,
) -> Result<u8> {
    let project = Project::open(spec)?;
    let here = current_folder()?;
    let run = &project.spec.run;
    let options = match wanted {
        RunWorkload::Command(command) | RunWorkload::Both(command) => ResolvedRunOptions::merge(
            run,
            &project.folder,
            overrides,
            &here,
            command,
            &context.env,
        )?,
        RunWorkload::Services => {
            ResolvedRunOptions::of_services(run, &project.folder, overrides, &here, &context.env)?
        }
    };
    let services = match wanted {
        RunWorkload::Command(_) => ServicesSpec::default(),
        RunWorkload::Both(_) | RunWorkload::Services => project.spec.services.clone(),
    };
    if services.is_empty() && matches!(wanted, RunWorkload::Services) {
        return Err(AppError::NoServices.into());
    }
    let called = ProjectRun {
        project,
        options,
        services,
        trial,
        join: None,
        id: None,
        containment: JobContainment::Sconce,
    };
    called.run(overrides, json, context)
}

/// A project, and what is to be run of it.
pub(crate) struct ProjectRun<'a> {
    pub(crate) project: Project,
    pub(crate) options: ResolvedRunOptions,
    /// The services that run beside the command, or instead of one.
    pub(crate) services: ServicesSpec,
    pub(crate) trial: Option<TrialRun>,
    /// Of a node's part of a job.
    pub(crate) join: Option<JoinNodes<'a>>,
    /// The run's id, where it has one already.
    pub(crate) id: Option<String>,
    /// What holds it.
    pub(crate) containment: JobContainment,
}

impl ProjectRun<'_> {
    /// Runs it to its end, and reports it.
    pub(crate) fn run(
        self,
        overrides: &RunOverrides,
        json: Option<OutputDestination>,
        context: &AppContext,
    ) -> Result<u8> {
        let Self {
            project,
            options,
            services,
            trial,
            join,
            id,
            containment,
        } = self;
        protected_dirs::validate_mounts(
            &options.mounts,
            Some(&project.folder),
            &SconceDirs::find(context)?,
        )?;
        let host = HostProfile::read(&Roots::default());
        gpu_assignment::validate_gpu_request(&host, &options.gpus)?;
        let executor = find_executor(options.runtime, &context.env)?;
        let nvml = NvmlLoad::start_if_needed(&host, &options.gpus);
        let mut opened = CommandContext::open(project, context)?;
        let silent = context.to_quiet();
        let held_by = if trial.is_some() { &silent } else { context };
        let is_trial = trial.is_some();
        let (virtual_gpus, probe) =
            played_gpus(trial, overrides, &options, &mut opened.places, context)?;
        let (project, places) = (&opened.project, &opened.places);
        let workshop = opened.environment_builder(overrides.sources.clone(), context);
        let lock = workshop.ensure_lock()?;
        // Before anything is fetched.
        if options.gpus != GpuRequest::Count(0) {
            let facts = facts::without_nvml(&host);
            precheck::report_failures(&lock, facts.as_slice(), context);
        }
        // Kernels are kept beside what is locked: a new version of the project compiles none anew.
        let locked = lock;
        let lock = workshop.with_editable_projects(&locked)?;
        let mut background = Background::default();
        let (manifest, stays) = workshop.assemble_with_guards(&lock, &mut background)?;
        let site = SiteContainment::prepare(
            containment,
            &manifest,
            &opened.store,
            &*opened.progress,
            &context.env,
        )?;
        let executor =
            executor.with_image(&project.name, &opened.store, &*opened.progress, || {
                build::of_environment(&opened, &workshop, &lock, &manifest)
            })?;
        opened.progress.finish();
        let home = match options.user {
            ContainerUser::Root => "/root",
            ContainerUser::Plain => PLAIN_HOME,
        };
        let idle_work = || {
            if !bytecode::list_missing(&manifest, &lock, &opened.store).is_empty() {
                background.start(project, &opened.store);
            }
        };
        let keeps = !is_trial
            && site.is_none()
            && executor.maps_owners()
            && project.spec.run.kernel_cache.unwrap_or(true);
        let owner = || KernelCacheOwner {
            environment: kernel_cache::digest_text(&locked.to_text()),
            folders: vec![&project.folder],
            user: options.user,
            virtual_gpus: virtual_gpus.is_some(),
        };
        let kernels = match keeps && kernel_cache::are_compiled(&lock.versions) {
            true => places.kernels.open_or_say(&owner(), context),
            false => None,
        };
        let contained = ContainedRun {
            id: id.unwrap_or_else(|| new_id(&project.name, &places.runs)),
            name: project.name.clone(),
            folder: project.folder.clone(),
            image: manifest.clone(),
            stays,
            home: home.to_owned(),
            options,
            versions: Some(lock.versions.clone()),
            log_environment: InspectedEnvironment::log_environment(
                &lock,
                project.spec.system.compiler,
            ),
            project: Some(ProjectSource::new(project)),
            host,
            nvml,
            virtual_gpus,
            probe,
            kernels,
            beside: (!services.is_empty()).then(|| (services, lock.clone())),
            executor,
            site,
            node: join.map(|join| join()).transpose()?,
        };
        let called = CommandInvocation {
            places,
            overrides,
            json,
            context: held_by,
        };
        contained.run(called, Box::new(idle_work))
    }
}

/// The cards that are played, and the probe: a trial's own, or those that overrides name.
fn played_gpus(
    trial: Option<TrialRun>,
    overrides: &RunOverrides,
    options: &ResolvedRunOptions,
    places: &mut SconceDirs,
    context: &AppContext,
) -> Result<(Option<VirtualGpus>, Option<Probe>)> {
    match trial {
        Some(trial) => {
            places.runs = trial.runs;
            Ok((Some(trial.gpus), Some(trial.probe)))
        }
        None => {
            let (cards, scratch) = (&overrides.virtual_gpus, &places.scratch);
            let world = RankWorld::for_ranks(overrides.ranks, cards.len(), &options.command)?;
            let gpus = VirtualGpus::from_names(cards, world, scratch, context)?;
            let probe = Probe::of_flags(options.probe, overrides.plans.as_ref(), world, places)?;
            Ok((gpus, probe))
        }
    }
}
