//! `sconce run`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sconce_host::{HostFacts, Roots};
use sconce_image::system::PLAIN_HOME;
use sconce_report::{Report, json, terminal};
use sconce_run::{Outcome, RunOptions};
use sconce_schema::event::{FORMAT, Mode, Started};
use sconce_schema::lock::Versions;
use sconce_schema::request::{ContainerEdits, Network, Root, RunRequest, User};
use sconce_schema::spec::{Gpus, Run};
use sconce_store::Store;

use crate::args::{Global, RunArgs, RunFlags};
use crate::background::Background;
use crate::failure::{CliError, Result};
use crate::output;
use crate::places::Places;
use crate::prepare::Workshop;
use crate::progress::Drawn;
use crate::project::Project;
use crate::style::Style;
use crate::watch::Recorder;
use crate::wish::Wish;

/// Time between two readings.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// How long after a first Ctrl-C a second one kills.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<u8> {
    if args.host {
        on_host(args, global)
    } else {
        contained(
            &args.spec,
            &args.flags,
            &args.command,
            args.json.as_deref(),
            global,
        )
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
    let places = Places::find(global)?;
    let host = HostFacts::read(&Roots::default());
    let scratch = places
        .scratch
        .join("edits")
        .join(std::process::id().to_string());
    let cards = Cards::choose(&host, &wish.gpus, &scratch, global)?;

    let store = Store::open(&places.store)?;
    let progress = Drawn::new(global.quiet);
    let workshop = Workshop {
        project: &project,
        places: &places,
        store: &store,
        sources: &flags.sources,
        global,
        progress: &progress,
    };
    let lock = workshop.locked()?;
    let manifest = workshop.assembled(&lock)?;
    progress.finish();

    let mut env = manifest.env.clone();
    let home = if wish.user == User::Root {
        "/root"
    } else {
        PLAIN_HOME
    };
    env.insert("HOME".to_owned(), home.to_owned());
    if let Ok(term) = std::env::var("TERM") {
        env.insert("TERM".to_owned(), term);
    }
    env.extend(wish.env.clone());
    let request = RunRequest {
        id: new_id(&project.name),
        command: wish.command.clone(),
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
    let background = RefCell::new(Background::default());
    let idle_work = || {
        background
            .borrow_mut()
            .start(&project, &places, &lock, &manifest, &store)
    };
    let held = Held {
        places: &places,
        host: &host,
        strict: flags.strict,
        json,
        global,
    };
    let done = held.run(&request, started, Some(Box::new(idle_work)));
    let _ = std::fs::remove_dir_all(&scratch);
    done
}

/// Runs a command with what this machine has, recorded and, where that is possible, limited.
fn on_host(args: &RunArgs, global: &Global) -> Result<u8> {
    let here = current_folder()?;
    let wish = Wish::merge(&Run::default(), &here, &args.flags, &here, &args.command)?;
    let places = Places::find(global)?;
    let host = HostFacts::read(&Roots::default());
    let name = wish.command[0]
        .rsplit('/')
        .next()
        .unwrap_or("run")
        .to_owned();
    let request = RunRequest {
        id: new_id(&name),
        command: wish.command,
        root: Root::Host,
        workdir: here.clone(),
        env: wish.env,
        limits: wish.limits,
        // The first mount is the working directory itself, which is there anyway.
        mounts: wish.mounts.into_iter().skip(1).collect(),
        network: wish.network,
        ports: wish.ports,
        user: wish.user,
        edits: Vec::new(),
        terminal: false,
    };
    // Without a container every card is there to be used; the record watches all of them.
    let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
    let started = Started {
        folder: here,
        mode: Mode::Host,
        gpus: cards.map(sconce_host::Card::summary).collect(),
        ..started(&request, &host)
    };
    let json = args.json.as_deref();
    let held = Held {
        places: &places,
        host: &host,
        strict: args.flags.strict,
        json,
        global,
    };
    held.run(&request, started, None)
}

/// The cards of a run.
struct Cards {
    edits: Vec<ContainerEdits>,
    given: Vec<sconce_schema::event::GpuSummary>,
}

impl Cards {
    fn choose(host: &HostFacts, wanted: &Gpus, scratch: &Path, global: &Global) -> Result<Self> {
        let cards = host.nvidia.as_ref().map_or(&[][..], |nvidia| &nvidia.cards);
        let chosen = sconce_host::select(cards, wanted)?;
        if chosen.is_empty() {
            if *wanted == Gpus::All && !global.quiet {
                let style = Style::for_stderr();
                output::say(
                    &style.dim("gpus: this machine has no NVIDIA card; running on the CPU"),
                );
            }
            return Ok(Self {
                edits: Vec::new(),
                given: Vec::new(),
            });
        }
        std::fs::create_dir_all(scratch).map_err(|source| CliError::File {
            action: "create",
            path: scratch.to_owned(),
            source,
        })?;
        let edits = sconce_host::edits_for(host, &chosen, &Roots::default(), scratch)?;
        Ok(Self {
            edits,
            given: chosen.iter().map(|card| card.summary()).collect(),
        })
    }
}

/// What holding a run needs beside the run itself.
struct Held<'a> {
    places: &'a Places,
    host: &'a HostFacts,
    strict: bool,
    json: Option<&'a Path>,
    global: &'a Global,
}

impl Held<'_> {
    fn run(
        &self,
        request: &RunRequest,
        started: Started,
        idle_work: Option<Box<dyn FnOnce() + '_>>,
    ) -> Result<u8> {
        let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let options = RunOptions {
            program: program()?,
            state_dir: self.places.scratch.clone(),
            sample_every: SAMPLE_EVERY,
            grace: GRACE,
            strict: self.strict,
            host: self.host,
            environment: &environment,
        };
        let mut recorder = Recorder::new(&self.places.runs, started, self.global.quiet, idle_work);
        let outcome = sconce_run::run(request, &options, &mut recorder);
        let outcome =
            outcome.inspect_err(|error| recorder.failed(sconce_schema::Hint::exit_code(error)))?;
        self.tell(&outcome, &recorder)?;
        Ok(outcome.exit.code())
    }

    /// The report, and whatever went wrong beside the command.
    fn tell(&self, outcome: &Outcome, recorder: &Recorder<'_>) -> Result<()> {
        let style = Style::for_stderr();
        for path in &outcome.left_behind {
            output::say(&style.warn(&format!("could not remove {}", path.display())));
        }
        if let Some(error) = &recorder.lost {
            output::say(&style.warn(&format!("the record is incomplete: {error}")));
        }
        let Some(path) = recorder.path() else {
            return Ok(());
        };
        if self.global.quiet && self.json.is_none() {
            return Ok(());
        }
        let report = Report::of(sconce_record::read(&path)?);
        if let Some(file) = self.json {
            std::fs::write(file, json::report(&report)).map_err(|source| CliError::File {
                action: "write",
                path: file.to_owned(),
                source,
            })?;
        }
        if !self.global.quiet {
            output::say(&format!(
                "\n{}",
                terminal::report(&report, style.for_reports()).trim_end()
            ));
        }
        Ok(())
    }
}

/// The parts of a run's beginning that every kind of run has.
fn started(request: &RunRequest, host: &HostFacts) -> Started {
    Started {
        format: FORMAT,
        id: request.id.clone(),
        name: None,
        unix_ms: unix_ms(),
        command: request.command.clone(),
        folder: PathBuf::new(),
        mode: Mode::Host,
        sconce_pid: std::process::id(),
        limits: request.limits,
        versions: None::<Versions>,
        host: host.summary(),
        gpus: Vec::new(),
    }
}

/// A request for work of Sconce's own in `root`: no network, no limits, no cards.
pub(crate) fn chore(
    root: Root,
    name: &str,
    command: Vec<String>,
    mounts: Vec<sconce_schema::request::Mount>,
) -> RunRequest {
    RunRequest {
        id: new_id(name),
        command,
        root,
        workdir: PathBuf::from("/"),
        env: BTreeMap::new(),
        limits: sconce_schema::request::Limits::default(),
        mounts,
        network: Network::None,
        ports: Vec::new(),
        user: User::Plain,
        edits: Vec::new(),
        terminal: false,
    }
}

fn new_id(name: &str) -> String {
    sconce_record::new_id(name, unix_ms(), random())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Chance for ids; nothing depends on its quality.
fn random() -> u16 {
    let mut bytes = [0_u8; 2];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_or(std::process::id() as u16, |()| u16::from_ne_bytes(bytes))
}

/// This program.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|source| {
        CliError::File {
            action: "find",
            path: PathBuf::from("/proc/self/exe"),
            source,
        }
        .into()
    })
}

fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|source| {
        CliError::File {
            action: "open",
            path: PathBuf::from("."),
            source,
        }
        .into()
    })
}
