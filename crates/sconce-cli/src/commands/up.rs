//! `sconce up`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sconce_record::RunEntry;
use sconce_run::control::{Answer, Ask, Standing, State};
use sconce_schema::event::{Mode, ServiceState};
use sconce_schema::exit;

use super::logs::last_lines;
use crate::args::{Global, RunFlags};
use crate::detach::{self, Start};
use crate::failure::Result;
use crate::live::{self, End};
use crate::output;
use crate::places::Places;
use crate::project::Project;
use crate::style::Style;
use crate::table::table;

/// Time between two looks at how far the services are.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Of a service that failed, so many of its last lines are shown.
const LAST_LINES: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// A sconce.toml or its folder.
    #[arg(default_value = ".")]
    pub(crate) spec: PathBuf,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
    /// Start them on this machine itself: no image, no container.
    #[arg(long, conflicts_with_all = ["gpus", "shm_size", "volumes", "ports", "network", "runtime", "root"])]
    pub(crate) host: bool,
    /// Stay in the foreground, with what they write; Ctrl-C stops them.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Start them also where this environment's services run already.
    #[arg(long)]
    pub(crate) another: bool,
    /// Print what was started as JSON.
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) json: bool,
}

pub(crate) fn up(args: &UpArgs, global: &Global) -> Result<u8> {
    if !args.another
        && !global.held
        && let Some((run, state)) = running(args, global)?
    {
        return already(args, &run, &state, global);
    }
    if args.foreground || global.held {
        return super::run::services(&args.spec, args.host, &args.flags, global);
    }
    let id = match detach::start(global)? {
        Start::Begun(id) => id,
        Start::Ended(code) => return Ok(code),
    };
    let places = Places::find(global)?;
    let path = places.runs.join(&id).join(sconce_record::FILE);
    let run = sconce_record::entry(&path)?;
    let mut said = Vec::new();
    loop {
        let Ok(Answer::State(state)) = live::ask(&run, &Ask::State) else {
            // It is spoken to a moment after it has begun.
            if sconce_record::entry(&path)?.state == sconce_record::State::Running {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            return gone(&run, global);
        };
        if !global.quiet {
            say_changes(&mut said, &state.services);
        }
        // One that is started again because it is unhealthy is on its way too.
        let over = |service: &Standing| {
            !matches!(
                service.state,
                ServiceState::Waiting
                    | ServiceState::Starting
                    | ServiceState::Stopping
                    | ServiceState::Restarting
            )
        };
        if state.stopping || state.services.iter().all(over) {
            return told(&run, &state, args.json, global);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The run of this environment's services that goes on.
fn running(args: &UpArgs, global: &Global) -> Result<Option<(RunEntry, State)>> {
    let project = Project::open(&args.spec)?;
    let (mode, folder) = match args.host {
        true => (Mode::Host, super::run::host_folder(&args.flags)?),
        false => (Mode::Container, project.folder),
    };
    let is_ours = |run: &RunEntry| {
        let started = &run.started;
        started.mode == mode
            && started.folder == folder
            && started.name.as_deref() == Some(project.name.as_str())
    };
    let going_on = live::going_on(&Places::find(global)?)?;
    let asked = going_on.into_iter().filter(is_ours).filter_map(|run| {
        let state = live::state(&run)?;
        Some((run, state))
    });
    // A command with services beside it is no `up`; a run that ends makes room.
    Ok({ asked }.find(|(_, state)| !state.command && !state.stopping))
}

/// Says what runs already.
fn already(args: &UpArgs, run: &RunEntry, state: &State, global: &Global) -> Result<u8> {
    if !global.quiet {
        let id = &state.id;
        output::say(&format!(
            "{id} runs these services already, since {} UTC",
            live::moment(run.started.unix_ms)
        ));
        output::say(&format!(
            "{} `sconce restart {id}` starts its services again, `sconce stop {id}` ends it; \
             `sconce up --another` starts another one beside it",
            Style::for_stderr().hint("hint:")
        ));
    }
    told(run, state, args.json, global)
}

fn say_changes(said: &mut Vec<(String, ServiceState)>, services: &[Standing]) {
    for service in services {
        let now = (service.name.clone(), service.state);
        if !said.contains(&now) {
            said.retain(|(name, _)| *name != service.name);
            said.push(now);
            let why = service.why.as_ref().map(|why| format!(" ({why})"));
            let why = why.unwrap_or_default();
            output::say(&format!("{}: {}{why}", service.name, service.state.word()));
        }
    }
}

/// The services, what to open, and what the failed ones wrote last.
fn told(run: &RunEntry, state: &State, json: bool, global: &Global) -> Result<u8> {
    let bad = |service: &&Standing| {
        matches!(
            service.state,
            ServiceState::Failed | ServiceState::Unhealthy
        )
    };
    let failed = state.services.iter().find(bad);
    if json {
        output::data(&serde_json::to_string(state).unwrap_or_default())?;
    } else {
        let rows: Vec<_> = state.services.iter().map(row).collect();
        let heads = ["SERVICE", "STATE", "OPEN"];
        output::data(&table_with_links(heads, &rows))?;
    }
    let Some(failed) = failed else {
        return Ok(exit::OK);
    };
    if !global.quiet {
        state.services.iter().filter(bad).for_each(|service| {
            say_last_lines(run, &service.name);
        });
    }
    output::say(&format!(
        "{} {} is {}: `sconce logs {} {}` shows what it wrote, `sconce stop {}` ends the run",
        Style::for_stderr().hint("hint:"),
        failed.name,
        failed.state.word(),
        state.id,
        failed.name,
        state.id
    ));
    Ok(exit::NO)
}

fn say_last_lines(run: &RunEntry, name: &str) {
    let lines = last_lines(live::folder(run), name, LAST_LINES);
    if lines.is_empty() {
        output::say(&format!("{name} wrote nothing"));
    }
    for line in lines {
        output::say(&format!("{name} | {line}"));
    }
}

fn row(service: &Standing) -> [String; 3] {
    let ports = service
        .ports
        .iter()
        .map(|port| format!("{}:{}", port.host_ip, port.host));
    let open = match service.links.is_empty() {
        true => ports.collect::<Vec<_>>().join(" "),
        false => service.links.join(" "),
    };
    let open = if open.is_empty() {
        "–".to_owned()
    } else {
        open
    };
    [service.name.clone(), service.state.word().to_owned(), open]
}

/// As a table, but that what is to be opened is never cut.
fn table_with_links(heads: [&str; 3], rows: &[[String; 3]]) -> String {
    let short: Vec<[String; 2]> = rows
        .iter()
        .map(|[a, b, _]| [a.clone(), b.clone()])
        .collect();
    let text = table([heads[0], heads[1]], &short, &Style { color: false });
    let width = text
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let last = std::iter::once(heads[2]).chain(rows.iter().map(|row| row[2].as_str()));
    let lines = text.lines().zip(last).map(|(line, open)| {
        let tame: String = open.chars().filter(|c| !c.is_control()).collect();
        format!("{line:width$}  {tame}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// It ended before all of its services were there.
fn gone(run: &RunEntry, global: &Global) -> Result<u8> {
    let ended = live::until_ended(run)?;
    let end = End::of(&ended, live::boot_id().as_deref());
    if !global.quiet {
        live::logs(live::folder(run))
            .iter()
            .for_each(|name| say_last_lines(run, name));
        let id = &run.started.id;
        let how = end.map_or_else(|| "ended".to_owned(), End::text);
        output::say(&format!(
            "run {id} has ended ({how}): `sconce logs {id}` shows what it wrote"
        ));
    }
    Ok(end.map_or(exit::NO, End::code))
}
