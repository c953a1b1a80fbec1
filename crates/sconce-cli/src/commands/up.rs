//! `sconce up`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sconce_run::control::{Answer, Ask, Standing, State};
use sconce_schema::event::ServiceState;
use sconce_schema::exit;

use crate::args::{Global, RunFlags};
use crate::detach::{self, Start};
use crate::failure::Result;
use crate::live::{self, End};
use crate::output;
use crate::places::Places;
use crate::style::Style;
use crate::table::table;

/// Time between two looks at how far the services are.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
    /// Stay in the foreground; Ctrl-C stops them.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Print what was started as JSON.
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) json: bool,
}

pub(crate) fn up(args: &UpArgs, global: &Global) -> Result<u8> {
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
        let over = |service: &Standing| {
            !matches!(
                service.state,
                ServiceState::Waiting | ServiceState::Starting | ServiceState::Restarting
            )
        };
        if state.services.iter().all(over) {
            return told(&state, args.json);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn say_changes(said: &mut Vec<(String, ServiceState)>, services: &[Standing]) {
    for service in services {
        let now = (service.name.clone(), service.state);
        if !said.contains(&now) {
            said.retain(|(name, _)| *name != service.name);
            said.push(now);
            let why = service.why.as_ref().map(|why| format!(" ({why})"));
            let why = why.unwrap_or_default();
            output::say(&format!(
                "{}: {}{why}",
                service.name,
                live::word(service.state)
            ));
        }
    }
}

/// The services, and what to open.
fn told(state: &State, json: bool) -> Result<u8> {
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
    output::say(&format!(
        "{} {} is {}: `sconce logs {} {}` shows what it wrote, `sconce stop {}` ends the run",
        Style::for_stderr().hint("hint:"),
        failed.name,
        live::word(failed.state),
        state.id,
        failed.name,
        state.id
    ));
    Ok(exit::NO)
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
    [
        service.name.clone(),
        live::word(service.state).to_owned(),
        open,
    ]
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
fn gone(run: &sconce_record::RunEntry, global: &Global) -> Result<u8> {
    let ended = live::until_ended(run)?;
    let end = End::of(&ended, live::boot_id().as_deref());
    if !global.quiet {
        let id = &run.started.id;
        let how = end.map_or_else(|| "ended".to_owned(), End::text);
        output::say(&format!(
            "run {id} has ended ({how}): `sconce logs {id}` shows what it wrote"
        ));
    }
    Ok(end.map_or(exit::NO, End::code))
}
