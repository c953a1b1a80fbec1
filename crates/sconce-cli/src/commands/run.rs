//! `sconce run`.

mod cards;
mod contained;
mod held;
pub(crate) mod image;
mod nvml;
mod request;
pub(crate) mod target;

use std::path::{Path, PathBuf};

use sconce_host::{Card, Machine, Roots};
use sconce_image::bytecode;
use sconce_image::system::PLAIN_HOME;
use sconce_schema::event::{Mode, Started};
use sconce_schema::request::{Root, RunRequest, User};
use sconce_schema::spec::{Gpus, Run};

use self::contained::{Called, Contained};
use self::held::Held;
use self::image::Asked;
use self::nvml::Loading;
use self::request::{current_folder, new_id, started};
use self::target::Target;
use super::opened::Opened;
use crate::args::{Global, RunArgs, RunFlags};
use crate::background::Background;
use crate::failure::{CliError, Result};
use crate::judge::quick;
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
        // Asked before the command takes its hours.
        let opened = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file);
        opened.map_err(|source| CliError::File {
            action: "write",
            path: file.to_owned(),
            source,
        })?;
    }
    if args.host {
        on_host(&args.flags, &args.command, json, None, global)
    } else {
        match Target::of(&args.spec) {
            Target::Spec(spec) => contained(&spec, &args.flags, &args.command, json, global),
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
    contained_as(spec, flags, command, json, None, global)
}

/// As [`contained`], or as a trial.
pub(crate) fn contained_as(
    spec: &Path,
    flags: &RunFlags,
    command: &[String],
    json: Option<&Path>,
    trial: Option<Trial>,
    global: &Global,
) -> Result<u8> {
    let project = Project::open(spec)?;
    let here = current_folder()?;
    let wish = Wish::merge(&project.spec.run, &project.folder, flags, &here, command)?;
    let host = Machine::read(&Roots::default());
    cards::check(&host, &wish.gpus)?;
    let nvml = Loading::begin(&host, &wish.gpus);
    let mut opened = Opened::with(project, global)?;
    let silent = global.silent();
    let held_by = if trial.is_some() { &silent } else { global };
    let (virtual_gpus, probe) = cards_of(trial, flags, &wish.command, &mut opened.places, global)?;
    let (project, places) = (&opened.project, &opened.places);
    let workshop = opened.workshop(&flags.sources, global);
    let lock = workshop.locked()?;
    // Before anything is fetched.
    if wish.gpus != Gpus::Count(0) && !global.quiet {
        quick::warn(&lock, quick::facts(&host).as_slice());
    }
    let mut background = Background::default();
    let manifest = workshop.assembled(&lock, &mut background)?;
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
    let contained = Contained {
        id: new_id(&project.name),
        name: project.name.clone(),
        folder: project.folder.clone(),
        image: manifest.clone(),
        home: home.to_owned(),
        wish,
        versions: Some(lock.versions.clone()),
        host,
        nvml,
        virtual_gpus,
        probe,
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
    let here = current_folder()?;
    let wish = Wish::merge(&Run::default(), &here, flags, &here, command)?;
    let workdir = here.join(flags.workdir.as_deref().unwrap_or_default());
    let workdir = workdir.canonicalize().map_err(|source| CliError::File {
        action: "enter",
        path: workdir.clone(),
        source,
    })?;
    let mut places = Places::find(global)?;
    let mut host = Machine::read(&Roots::default());
    // Every card is there to be used; the record watches all of them.
    let silent = global.silent();
    let held_by = if trial.is_some() { &silent } else { global };
    let (virtual_gpus, probe) = cards_of(trial, flags, &wish.command, &mut places, global)?;
    let watched = match virtual_gpus {
        Some(_) => Gpus::Count(0),
        None => Gpus::All,
    };
    let gpus = Loading::begin(&host, &watched).complete(&mut host);
    let name = wish
        .command
        .first()
        .and_then(|word| word.rsplit('/').next());
    let mut request = RunRequest {
        id: new_id(name.unwrap_or_default()),
        command: wish.command,
        root: Root::Host,
        workdir: workdir.clone(),
        env: wish.env,
        limits: wish.limits,
        mounts: Vec::new(),
        network: wish.network,
        ports: Vec::new(),
        user: wish.user,
        edits: Vec::new(),
        terminal: false,
    };
    let cards = match &virtual_gpus {
        Some(gpus) => {
            gpus.give(&mut request, |name| std::env::var(name).ok());
            gpus.summaries()
        }
        None => {
            let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
            cards.map(Card::summary).collect()
        }
    };
    if let Some(probe) = &probe {
        probe.give(&mut request, |name| std::env::var(name).ok());
    }
    let started = Started {
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
        json,
        global: held_by,
    };
    held.run(&request, started, gpus, None)
}

/// The cards that are played, and the probe: a trial's own, or those that flags name.
fn cards_of(
    trial: Option<Trial>,
    flags: &RunFlags,
    command: &[String],
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
            let world = World::of(&flags.ranks, cards.len(), command)?;
            let gpus = VirtualGpus::prepare(cards, world, scratch, global)?;
            let probe = Probe::of_flags(flags.plan.plan.as_ref(), world, scratch)?;
            Ok((gpus, probe))
        }
    }
}
