//! `sconce run`.

mod cards;
mod contained;
mod held;
pub(crate) mod image;
mod leased;
mod nvml;
mod request;
pub(crate) mod target;

use std::path::{Path, PathBuf};

use sconce_host::{Card, Machine, Roots};
use sconce_image::bytecode;
use sconce_image::system::PLAIN_HOME;
use sconce_run::Native;
use sconce_schema::Service;
use sconce_schema::event::{Mode, Started};
use sconce_schema::request::{Root, RunRequest, User};
use sconce_schema::spec::{Gpus, Run, Services};

use self::contained::{Called, Contained};
use self::held::Held;
use self::image::Asked;
use self::nvml::Loading;
use self::request::{current_folder, new_id, started};
use self::target::Target;
use super::build;
use super::opened::Opened;
use crate::args::{Global, RunArgs, RunFlags};
use crate::background::Background;
use crate::detach;
use crate::executor::find_executor;
use crate::failure::{CliError, Result};
use crate::judge::quick;
use crate::kernels::{self, Owner};
use crate::limits;
use crate::outputs::{self, Form};
use crate::own_folders;
use crate::places::Places;
use crate::probe::Probe;
use crate::project::Project;
use crate::ranks::World;
use crate::virtual_gpu::VirtualGpus;
use crate::wish::Wish;

pub(crate) use self::request::{chore, program, stay};

pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<u8> {
    let json = args.json.as_deref();
    if let Some(file) = json {
        // Asked before the command takes its hours; looked at again when it has taken them.
        match args.detach {
            true => outputs::find_in_background(file, Form::Text)?,
            false => outputs::find_beside_command(file, Form::Text)?,
        };
    }
    if args.detach && !global.holds_run() {
        return detach::run(global);
    }
    if args.host {
        on_host(&args.flags, &args.command, json, None, global)
    } else {
        match Target::of(&args.spec) {
            Target::Spec(spec) => {
                let asked = match args.services {
                    true => Wanted::Both(&args.command),
                    false => Wanted::Command(&args.command),
                };
                contained_as(&spec, &args.flags, asked, json, None, global)
            }
            Target::Image(which) => image::run(
                &which,
                &args.flags,
                Asked::Command(&args.command),
                json,
                global,
            ),
        }
    }
}

/// What makes a run a trial of `sconce fit`: its report is nobody's, and its record goes elsewhere.
pub(crate) struct Trial {
    pub(crate) gpus: VirtualGpus,
    pub(crate) probe: Probe,
    /// Where the record goes.
    pub(crate) runs: PathBuf,
}

/// Runs `command`, or the spec's own where it is empty, in the spec's environment.
pub(crate) fn contained(
    spec: &Path,
    flags: &RunFlags,
    command: &[String],
    json: Option<&Path>,
    global: &Global,
) -> Result<u8> {
    contained_as(spec, flags, Wanted::Command(command), json, None, global)
}

/// What of a spec is to be run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// This command, or the spec's own where it is empty.
    Command(&'a [String]),
    /// The same, with the spec's services beside it.
    Both(&'a [String]),
    /// The services.
    Services,
}

/// Runs the services of a spec, in its environment or, with `host`, on this machine itself.
pub(crate) fn services(spec: &Path, host: bool, flags: &RunFlags, global: &Global) -> Result<u8> {
    if !host {
        return contained_as(spec, flags, Wanted::Services, None, None, global);
    }
    let project = Project::open(spec)?;
    if project.spec.services.is_empty() {
        return Err(CliError::NoServices.into());
    }
    if let Some(known) = project.spec.services.known().first() {
        return Err(CliError::ServiceOfImage(known.name()).into());
    }
    let services = Some((project.name.as_str(), &project.spec.services));
    host_run(flags, &[], services, None, None, global)
}

/// As [`contained`], or as a trial.
pub(crate) fn contained_as(
    spec: &Path,
    flags: &RunFlags,
    wanted: Wanted<'_>,
    json: Option<&Path>,
    trial: Option<Trial>,
    global: &Global,
) -> Result<u8> {
    let project = Project::open(spec)?;
    let here = current_folder()?;
    let run = &project.spec.run;
    let wish = match wanted {
        Wanted::Command(command) | Wanted::Both(command) => {
            Wish::merge(run, &project.folder, flags, &here, command, &global.env)?
        }
        Wanted::Services => Wish::of_services(run, &project.folder, flags, &here, &global.env)?,
    };
    let services = match wanted {
        Wanted::Command(_) => Services::default(),
        Wanted::Both(_) | Wanted::Services => project.spec.services.clone(),
    };
    if services.is_empty() && matches!(wanted, Wanted::Services) {
        return Err(CliError::NoServices.into());
    }
    own_folders::refuse(&wish.mounts, Some(&project.folder), &Places::find(global)?)?;
    let host = Machine::read(&Roots::default());
    cards::check(&host, &wish.gpus)?;
    let executor = find_executor(wish.runtime, &global.env)?;
    let nvml = Loading::begin(&host, &wish.gpus);
    let mut opened = Opened::with(project, global)?;
    let silent = global.silent();
    let held_by = if trial.is_some() { &silent } else { global };
    let is_trial = trial.is_some();
    let (virtual_gpus, probe) = cards_of(trial, flags, &wish, &mut opened.places, global)?;
    let (project, places) = (&opened.project, &opened.places);
    let workshop = opened.workshop(&flags.sources, global);
    let lock = workshop.locked()?;
    // Before anything is fetched.
    if wish.gpus != Gpus::Count(0) && !global.quiet {
        quick::warn(&lock, quick::facts(&host).as_slice());
    }
    let mut background = Background::default();
    let (manifest, stays) = workshop.held(&lock, &mut background)?;
    let executor = executor.with_image(&project.name, &opened.store, &opened.progress, || {
        build::of_environment(&opened, &workshop, &lock, &manifest)
    })?;
    opened.progress.finish();
    let home = match wish.user {
        User::Root => "/root",
        User::Plain => PLAIN_HOME,
    };
    let idle_work = || {
        if !bytecode::missing(&manifest, &lock, &opened.store).is_empty() {
            background.start(project, places);
        }
    };
    let keeps =
        !is_trial && executor.maps_owners() && project.spec.run.kernel_cache.unwrap_or(true);
    let owner = || Owner {
        environment: kernels::digest(&lock.to_text()),
        folders: vec![&project.folder],
        user: wish.user,
        virtual_gpus: virtual_gpus.is_some(),
    };
    let kernels = match keeps && kernels::are_compiled(&lock.versions) {
        true => places.kernels.open_or_say(&owner(), global),
        false => None,
    };
    let contained = Contained {
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
    let called = Called {
        places,
        flags,
        json,
        global: held_by,
    };
    contained.run(&called, Box::new(idle_work))
}

/// Runs a command with what this machine has, recorded and limited, but not contained: what only
/// a container can give is refused where the flags are read.
pub(crate) fn on_host(
    flags: &RunFlags,
    command: &[String],
    json: Option<&Path>,
    trial: Option<Trial>,
    global: &Global,
) -> Result<u8> {
    host_run(flags, command, None, json, trial, global)
}

/// As [`on_host`], or the services of an environment of that name alone.
fn host_run(
    flags: &RunFlags,
    command: &[String],
    services: Option<(&str, &Services)>,
    json: Option<&Path>,
    trial: Option<Trial>,
    global: &Global,
) -> Result<u8> {
    let here = current_folder()?;
    let wish = match services {
        None => Wish::merge(&Run::default(), &here, flags, &here, command, &global.env)?,
        Some(_) => Wish::of_services(&Run::default(), &here, flags, &here, &global.env)?,
    };
    let workdir = host_folder(flags)?;
    let mut places = Places::find(global)?;
    let mut host = Machine::read(&Roots::default());
    // Every card is there to be used; the record watches all of them.
    let silent = global.silent();
    let held_by = if trial.is_some() { &silent } else { global };
    let (virtual_gpus, mut probe) = cards_of(trial, flags, &wish, &mut places, global)?;
    let watched = match virtual_gpus {
        Some(_) => Gpus::Count(0),
        None => Gpus::All,
    };
    let gpus = Loading::begin(&host, &watched).complete(&mut host);
    let name = match services {
        Some((name, _)) => Some(name),
        None => (wish.command.first()).and_then(|word| word.rsplit('/').next()),
    };
    let mut request = RunRequest {
        id: new_id(name.unwrap_or_default(), &places.runs),
        command: wish.command,
        root: Root::Host,
        workdir: workdir.clone(),
        env: wish.env,
        limits: wish.limits,
        mounts: Vec::new(),
        network: wish.network,
        ports: Vec::new(),
        near: match &host.nvidia {
            Some(nvidia) if wish.place && virtual_gpus.is_none() => {
                let cards: Vec<&Card> = nvidia.cards.iter().collect();
                limits::near(&cards, &host, wish.limits.cpus)
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
    let variable = |name: &str| global.env.var(name).map(str::to_owned);
    let cards = match &virtual_gpus {
        Some(gpus) => {
            gpus.give(&mut request, variable);
            gpus.summaries()
        }
        None => {
            let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
            cards.map(Card::summary).collect()
        }
    };
    if let Some(probe) = &mut probe {
        probe.give(&mut request, false, variable)?;
    }
    let started = Started {
        name: services.map(|(name, _)| name.to_owned()),
        folder: workdir,
        plan: probe.as_ref().and_then(Probe::plans),
        mode: Mode::Host,
        gpus: cards,
        ..started(&request, &host)
    };
    let held = Held {
        places: &places,
        host: &host,
        strict: flags.strict,
        executor: &Native,
        sample_hz: wish.sample_hz,
        json,
        global: held_by,
    };
    let account = probe.as_ref().and_then(Probe::account);
    held.run(&request, started, gpus, account, None)
}

/// The folder in which a run on this machine itself begins.
pub(crate) fn host_folder(flags: &RunFlags) -> Result<PathBuf> {
    let folder = current_folder()?.join(flags.workdir.as_deref().unwrap_or_default());
    let whole = folder.canonicalize();
    Ok(whole.map_err(|source| CliError::File {
        action: "enter",
        path: folder,
        source,
    })?)
}

/// The services of a spec as a run has them.
fn of_spec(services: &Services) -> Vec<Service> {
    let programs = services.programs.iter();
    programs
        .map(|(name, program)| program.service(name))
        .collect()
}

/// The cards that are played, and the probe: a trial's own, or those that flags name.
fn cards_of(
    trial: Option<Trial>,
    flags: &RunFlags,
    wish: &Wish,
    places: &mut Places,
    global: &Global,
) -> Result<(Option<VirtualGpus>, Option<Probe>)> {
    match trial {
        Some(trial) => {
            places.runs = trial.runs;
            Ok((Some(trial.gpus), Some(trial.probe)))
        }
        None => {
            let (cards, scratch) = (&flags.virtual_gpu, &places.scratch);
            let world = World::of(&flags.ranks, cards.len(), &wish.command)?;
            let gpus = VirtualGpus::prepare(cards, world, scratch, global)?;
            let probe = Probe::of_flags(wish.probe, flags.plan.plan.as_ref(), world, places)?;
            Ok((gpus, probe))
        }
    }
}
