//! A run on this machine itself: recorded and limited, not contained.

use std::path::PathBuf;

use sconce_base::output::OutputDestination;
use sconce_compat::explain::LogEnvironment;
use sconce_host::{GpuDevice, HostProfile, Roots};
use sconce_run::Native;
use sconce_schema::RunService;
use sconce_schema::event::{Containment, RunStarted};
use sconce_schema::request::{RunRequest, RunRoot};
use sconce_schema::spec::{GpuRequest, RunSpec, ServicesSpec};

use super::nvml::NvmlLoad;
use super::plan::{RunAdditions, RunPlan};
use super::request::current_folder;
use super::run_session::RunSession;
use super::{TrialRun, played_gpus};
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::limits;
use crate::run_id::new_id;
use crate::run_options::{ResolvedRunOptions, RunOverrides};

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
pub(super) fn host_run(
    overrides: &RunOverrides,
    command: &[String],
    services: Option<(&str, &ServicesSpec)>,
    json: Option<OutputDestination>,
    trial: Option<TrialRun>,
    context: &AppContext,
) -> Result<u8> {
    let here = current_folder()?;
    let options = match services {
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
    let (virtual_gpus, mut probe) = played_gpus(trial, overrides, &options, &mut places, context)?;
    let watched = match virtual_gpus {
        Some(_) => GpuRequest::Count(0),
        None => GpuRequest::All,
    };
    let gpus = NvmlLoad::start_if_needed(&host, &watched).finish_loading(&mut host);
    let name = match services {
        Some((name, _)) => Some(name),
        None => (options.command.first()).and_then(|word| word.rsplit('/').next()),
    };
    let request = RunRequest {
        id: new_id(name.unwrap_or_default(), &places.runs),
        command: options.command,
        root: RunRoot::Host,
        workdir: workdir.clone(),
        env: options.env,
        limits: options.limits,
        mounts: Vec::new(),
        network: options.network,
        address: None,
        ports: Vec::new(),
        near: match &host.nvidia {
            Some(nvidia) if options.place && virtual_gpus.is_none() => {
                let cards: Vec<&GpuDevice> = nvidia.cards.iter().collect();
                limits::place_near_gpus(&cards, &host, options.limits.cpus)
            }
            _ => None,
        },
        user: options.user,
        edits: Vec::new(),
        terminal: false,
        services: (services.iter())
            .flat_map(|(_, services)| of_spec(services))
            .collect(),
    };
    let cards = match &virtual_gpus {
        Some(_) => Vec::new(),
        None => {
            let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
            cards.map(GpuDevice::summary).collect()
        }
    };
    let additions = RunAdditions {
        virtual_gpus: virtual_gpus.as_ref(),
        probe: probe.as_mut(),
        inherited: Some(&context.env),
        ..RunAdditions::default()
    };
    let start = |common| RunStarted {
        name: services.map(|(name, _)| name.to_owned()),
        folder: workdir,
        mode: Containment::Host,
        ..common
    };
    let plan = RunPlan::complete(request, additions, &host, cards, start)?;
    let held = RunSession {
        places: &places,
        host: &host,
        log_environment: LogEnvironment::default(),
        project: None,
        strict: overrides.strict,
        executor: &Native,
        sample_hz: options.sample_hz,
        in_job: false,
        node_end: None,
        watch: None,
        environment: Some(&context.env),
        json,
        context: held_by,
    };
    held.run(plan, gpus, None)
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
