//! `sconce run`.

mod cards;
mod held;
mod nvml;
mod request;

use std::io::IsTerminal;
use std::path::Path;

use sconce_host::{Card, HostFacts, Roots};
use sconce_image::bytecode;
use sconce_image::system::PLAIN_HOME;
use sconce_schema::event::{Mode, Started};
use sconce_schema::request::{Root, RunRequest, User};
use sconce_schema::spec::{Gpus, Run};

use self::cards::Cards;
use self::held::Held;
use self::nvml::Loading;
use self::request::{current_folder, new_id, started};
use super::opened::Opened;
use crate::args::{Global, RunArgs, RunFlags};
use crate::background::Background;
use crate::failure::{CliError, Result};
use crate::places::Places;
use crate::project::Project;
use crate::wish::Wish;

pub(crate) use self::request::{chore, program};

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
        on_host(&args.flags, &args.command, json, global)
    } else {
        contained(&args.spec, &args.flags, &args.command, json, global)
    }
}

/// Runs `command`, or the spec's own where it is empty, in the spec's environment.
pub(crate) fn contained(
    spec: &Path,
    flags: &RunFlags,
    command: &[String],
    json: Option<&Path>,
    global: &Global,
) -> Result<u8> {
    let project = Project::open(spec)?;
    let here = current_folder()?;
    let wish = Wish::merge(&project.spec.run, &project.folder, flags, &here, command)?;
    let mut host = HostFacts::read(&Roots::default());
    cards::check(&host, &wish.gpus)?;
    let nvml = Loading::begin(&host, &wish.gpus);
    let opened = Opened::with(project, global)?;
    let (project, places) = (&opened.project, &opened.places);

    let workshop = opened.workshop(&flags.sources, global);
    let lock = workshop.locked()?;
    let mut background = Background::default();
    let manifest = workshop.assembled(&lock, &mut background)?;
    opened.progress.finish();
    let gpus = nvml.complete(&mut host);
    let cards = Cards::choose(&host, &wish.gpus, &places.scratch, global)?;

    let mut env = manifest.env.clone();
    let home = match wish.user {
        User::Root => "/root",
        User::Plain => PLAIN_HOME,
    };
    env.insert("HOME".to_owned(), home.to_owned());
    // The terminal is the caller's.
    for name in ["TERM", "NO_COLOR"] {
        env.extend(
            std::env::var(name)
                .ok()
                .map(|value| (name.to_owned(), value)),
        );
    }
    env.extend(wish.env);
    let request = RunRequest {
        id: new_id(&project.name),
        command: wish.command,
        root: Root::Image(manifest.clone()),
        workdir: wish.workdir,
        env,
        limits: wish.limits,
        mounts: wish.mounts,
        network: wish.network,
        ports: wish.ports,
        user: wish.user,
        edits: cards.edits,
        terminal: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
    };
    let started = Started {
        name: Some(project.name.clone()),
        folder: project.folder.clone(),
        mode: Mode::Container,
        versions: Some(lock.versions.clone()),
        gpus: cards.given,
        ..started(&request, &host)
    };
    let idle_work = || {
        if !bytecode::missing(&manifest, &lock, &opened.store).is_empty() {
            background.start(project, places);
        }
    };
    let held = Held {
        places,
        host: &host,
        strict: flags.strict,
        json,
        global,
    };
    let done = held.run(&request, started, gpus, Some(Box::new(idle_work)));
    drop(cards.scratch);
    done
}

/// Runs a command with what this machine has, recorded and limited, but not contained: what only
/// a container can give is refused where the flags are read.
fn on_host(
    flags: &RunFlags,
    command: &[String],
    json: Option<&Path>,
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
    let places = Places::find(global)?;
    let mut host = HostFacts::read(&Roots::default());
    // Every card is there to be used; the record watches all of them.
    let gpus = Loading::begin(&host, &Gpus::All).complete(&mut host);
    let name = wish
        .command
        .first()
        .and_then(|word| word.rsplit('/').next());
    let request = RunRequest {
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
    let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
    let started = Started {
        folder: workdir,
        mode: Mode::Host,
        gpus: cards.map(Card::summary).collect(),
        ..started(&request, &host)
    };
    let held = Held {
        places: &places,
        host: &host,
        strict: flags.strict,
        json,
        global,
    };
    held.run(&request, started, gpus, None)
}
