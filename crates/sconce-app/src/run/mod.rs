//! Runs: of a spec's environment, of an image, of this machine's own programs.

mod contained_run;
mod gpu_assignment;
pub mod image;
mod leased_gpus;
mod nvml;
mod request;
mod run_session;
pub mod run_source;

use std::path::{Path, PathBuf};

use sconce_base::output::OutputDestination;
use sconce_host::{GpuDevice, HostProfile, Roots};
use sconce_image::bytecode;
use sconce_image::system::PLAIN_HOME;
use sconce_run::Native;
use sconce_schema::RunService;
use sconce_schema::event::{Containment, RunStarted};
use sconce_schema::request::{ContainerUser, RunRequest, RunRoot};
use sconce_schema::spec::{GpuRequest, RunSpec, ServicesSpec};

use self::contained_run::{CommandInvocation, ContainedRun};
use self::nvml::NvmlLoad;
use self::request::{common_start_event, current_folder};
use self::run_session::RunSession;
use crate::background::Background;
use crate::build;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::executor::find_executor;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::inspect::precheck;
use crate::kernel_cache::{self, KernelCacheOwner};
use crate::limits;
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
    let wish = match wanted {
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
    protected_dirs::validate_mounts(
        &wish.mounts,
        Some(&project.folder),
        &SconceDirs::find(context)?,
    )?;
    let host = HostProfile::read(&Roots::default());
    gpu_assignment::validate_gpu_request(&host, &wish.gpus)?;
    let executor = find_executor(wish.runtime, &context.env)?;
    let nvml = NvmlLoad::start_if_needed(&host, &wish.gpus);
    let mut opened = CommandContext::open(project, context)?;
    let silent = context.to_quiet();
    let held_by = if trial.is_some() { &silent } else { context };
    let is_trial = trial.is_some();
    let (virtual_gpus, probe) = cards_of(trial, overrides, &wish, &mut opened.places, context)?;
    let (project, places) = (&opened.project, &opened.places);
    let workshop = opened.environment_builder(overrides.sources.clone(), context);
    let lock = workshop.ensure_lock()?;
    // Before anything is fetched.
    if wish.gpus != GpuRequest::Count(0) {
        let facts = precheck::facts_without_nvml(&host);
        precheck::report_failures(&lock, facts.as_slice(), context);
    }
    let mut background = Background::default();
    let (manifest, stays) = workshop.assemble_with_guards(&lock, &mut background)?;
    let executor = executor.with_image(&project.name, &opened.store, &*opened.progress, || {
        build::of_environment(&opened, &workshop, &lock, &manifest)
    })?;
    opened.progress.finish();
    let home = match wish.user {
        ContainerUser::Root => "/root",
        ContainerUser::Plain => PLAIN_HOME,
    };
    let idle_work = || {
        if !bytecode::list_missing(&manifest, &lock, &opened.store).is_empty() {
            background.start(project, places);
        }
    };
    let keeps =
        !is_trial && executor.maps_owners() && project.spec.run.kernel_cache.unwrap_or(true);
    let owner = || KernelCacheOwner {
        environment: kernel_cache::digest_text(&lock.to_text()),
        folders: vec![&project.folder],
        user: wish.user,
        virtual_gpus: virtual_gpus.is_some(),
    };
    let kernels = match keeps && kernel_cache::are_compiled(&lock.versions) {
        true => places.kernels.open_or_say(&owner(), context),
        false => None,
    };
    let contained = ContainedRun {
        id: new_id(&project.name, &places.runs),
        name: project.name.clone(),
        folder: project.folder.clone(),
        image: manifest.clone(),
        stays,
        home: home.to_owned(),
        wish,
        versions: Some(lock.versions.clone()),
        host,
        nvml,
        virtual_gpus,
        probe,
        kernels,
        beside: (!services.is_empty()).then(|| (services, lock.clone())),
        executor,
    };
    let called = CommandInvocation {
        places,
        overrides,
        json,
        context: held_by,
    };
    contained.run(called, Box::new(idle_work))
}

/// Runs a command with what this machine has, recorded and limited, but not contained: what only
/// a container can give is refused where the overrides are read.
pub fn on_host(
    overrides: &RunOverrides,
    command: &[String],
    json: Option<OutputDestination>,
    trial: Option<TrialRun>,
    context: &AppContext,
) -> Result<u8> {
    host_run(overrides, command, None, json, trial, context)
}

/// As [`on_host`], or the services of an environment of that name alone.
fn host_run(
    overrides: &RunOverrides,
    command: &[String],
    services: Option<(&str, &ServicesSpec)>,
    json: Option<OutputDestination>,
    trial: Option<TrialRun>,
    context: &AppContext,
) -> Result<u8> {
    let here = current_folder()?;
    let wish = match services {
        None => ResolvedRunOptions::merge(
            &RunSpec::default(),
            &here,
            overrides,
            &here,
            command,
            &context.env,
        )?,
        Some(_) => ResolvedRunOptions::of_services(
            &RunSpec::default(),
            &here,
            overrides,
            &here,
            &context.env,
        )?,
    };
    let workdir = host_folder(overrides)?;
    let mut places = SconceDirs::find(context)?;
    let mut host = HostProfile::read(&Roots::default());
    // Every card is there to be used; the record watches all of them.
    let silent = context.to_quiet();
    let held_by = if trial.is_some() { &silent } else { context };
    let (virtual_gpus, mut probe) = cards_of(trial, overrides, &wish, &mut places, context)?;
    let watched = match virtual_gpus {
        Some(_) => GpuRequest::Count(0),
        None => GpuRequest::All,
    };
    let gpus = NvmlLoad::start_if_needed(&host, &watched).finish_loading(&mut host);
    let name = match services {
        Some((name, _)) => Some(name),
        None => (wish.command.first()).and_then(|word| word.rsplit('/').next()),
    };
    let mut request = RunRequest {
        id: new_id(name.unwrap_or_default(), &places.runs),
        command: wish.command,
        root: RunRoot::Host,
        workdir: workdir.clone(),
        env: wish.env,
        limits: wish.limits,
        mounts: Vec::new(),
        network: wish.network,
        ports: Vec::new(),
        near: match &host.nvidia {
            Some(nvidia) if wish.place && virtual_gpus.is_none() => {
                let cards: Vec<&GpuDevice> = nvidia.cards.iter().collect();
                limits::place_near_gpus(&cards, &host, wish.limits.cpus)
            }
            _ => None,
        },
        user: wish.user,
        edits: Vec::new(),
        terminal: false,
        services: (services.iter())
            .flat_map(|(_, services)| of_spec(services))
            .collect(),
    };
    let variable = |name: &str| context.env.var(name).map(str::to_owned);
    let cards = match &virtual_gpus {
        Some(gpus) => {
            gpus.apply_to(&mut request, variable);
            gpus.gpu_summaries()
        }
        None => {
            let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
            cards.map(GpuDevice::summary).collect()
        }
    };
    if let Some(probe) = &mut probe {
        probe.apply_to(&mut request, false, variable)?;
    }
    let started = RunStarted {
        name: services.map(|(name, _)| name.to_owned()),
        folder: workdir,
        plan: probe.as_ref().and_then(Probe::plans),
        mode: Containment::Host,
        gpus: cards,
        ..common_start_event(&request, &host)
    };
    let held = RunSession {
        places: &places,
        host: &host,
        strict: overrides.strict,
        executor: &Native,
        sample_hz: wish.sample_hz,
        json,
        context: held_by,
    };
    let account = probe.as_ref().and_then(Probe::accounting_location);
    held.run(&request, started, gpus, account, None)
}

/// The folder in which a run on this machine itself begins.
pub fn host_folder(overrides: &RunOverrides) -> Result<PathBuf> {
    let folder = current_folder()?.join(overrides.workdir.as_deref().unwrap_or_default());
    let whole = folder.canonicalize();
    Ok(whole.map_err(|source| AppError::File {
        action: FileAction::Enter,
        path: folder,
        source,
    })?)
}

/// The services of a spec as a run has them.
fn of_spec(services: &ServicesSpec) -> Vec<RunService> {
    let programs = services.programs.iter();
    programs
        .map(|(name, program)| program.to_run_service(name))
        .collect()
}

/// The cards that are played, and the probe: a trial's own, or those that overrides name.
fn cards_of(
    trial: Option<TrialRun>,
    overrides: &RunOverrides,
    wish: &ResolvedRunOptions,
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
            let world = RankWorld::for_ranks(overrides.ranks, cards.len(), &wish.command)?;
            let gpus = VirtualGpus::from_names(cards, world, scratch, context)?;
            let probe = Probe::of_flags(wish.probe, overrides.plans.as_ref(), world, places)?;
            Ok((gpus, probe))
        }
    }
}
