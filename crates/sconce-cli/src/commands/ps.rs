//! `sconce ps`.

use clap::Args;
use sconce_record::{RunEntry, State};
use sconce_run::control;
use sconce_schema::exit;
use serde_json::json;

use crate::args::Global;
use crate::failure::Result;
use crate::live::{self, End};
use crate::output;
use crate::places::Places;
use crate::services::jupyter::{self, Kernels};
use crate::services::private_folder;
use crate::style::Style;
use crate::table::table;

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Those that have ended too.
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn ps(args: &PsArgs, global: &Global) -> Result<u8> {
    let places = Places::find(global)?;
    let listing = sconce_record::list(&places.runs)?;
    for error in &listing.unreadable {
        output::say(&crate::failure::with_causes(error));
    }
    let wanted = |run: &&RunEntry| args.all || run.state == State::Running;
    let boot_id = live::boot_id();
    let runs: Vec<_> = (listing.runs.iter())
        .filter(wanted)
        .map(|run| {
            let private = private_folder(&places, &run.started.id);
            let state = live::state(run);
            let served = state.as_ref().is_some_and(|state| {
                (state.services.iter()).any(|service| service.name == jupyter::NAME)
            });
            Shown {
                run,
                kernels: served.then(|| jupyter::kernels(&private)).flatten(),
                state,
                end: End::of(run, boot_id.as_deref()),
            }
        })
        .collect();
    if args.json {
        let list: Vec<_> = runs.iter().map(value).collect();
        output::data(&json!({ "format": 1, "runs": list }).to_string())?;
        return Ok(exit::OK);
    }
    if runs.is_empty() {
        output::data(if args.all {
            "No run has been recorded."
        } else {
            "No run goes on."
        })?;
        return Ok(exit::OK);
    }
    let rows: Vec<_> = runs.iter().map(row).collect();
    let heads = [
        "RUN",
        "ENVIRONMENT",
        "SINCE (UTC)",
        "STATE",
        "SERVICES",
        "PORTS",
        "CARDS",
    ];
    output::data(&table(heads, &rows, &Style::for_stdout()))?;
    Ok(exit::OK)
}

/// A run, and what it answers.
struct Shown<'a> {
    run: &'a RunEntry,
    state: Option<control::State>,
    end: Option<End>,
    /// Of its JupyterLab, where it has one that answers.
    kernels: Option<Kernels>,
}

fn state_of(state: Option<&control::State>, end: Option<End>) -> String {
    match (end, state) {
        (Some(end), _) => end.text(),
        (None, Some(state)) if state.stopping => "stopping".to_owned(),
        (None, _) => "running".to_owned(),
    }
}

fn row(shown: &Shown<'_>) -> [String; 7] {
    let (run, state, end) = (shown.run, shown.state.as_ref(), shown.end);
    let none = || "–".to_owned();
    let or_none = |list: Vec<String>| {
        if list.is_empty() {
            none()
        } else {
            list.join(" ")
        }
    };
    let services = state.map(|s| s.services.as_slice()).unwrap_or_default();
    let own = state.map(|s| s.ports.as_slice()).unwrap_or_default();
    let ports = own.iter().chain(services.iter().flat_map(|s| &s.ports));
    let cards = run.started.gpus.iter().map(|gpu| gpu.index.to_string());
    [
        run.started.id.clone(),
        run.started.name.clone().unwrap_or_else(none),
        live::moment(run.started.unix_ms),
        state_of(state, end),
        or_none(
            services
                .iter()
                .map(|s| {
                    let kernels = (shown.kernels).filter(|_| s.name == jupyter::NAME);
                    let kernels = kernels.map_or_else(String::new, words);
                    format!("{}:{}{kernels}", s.name, s.state.word())
                })
                .collect(),
        ),
        or_none(
            ports
                .map(|port| format!("{}:{}", port.host_ip, port.host))
                .collect(),
        ),
        or_none(cards.collect()),
    ]
}

/// `(2 kernels, 1 busy)`.
fn words(kernels: Kernels) -> String {
    let Kernels { all, busy } = kernels;
    let plural = if all == 1 { "" } else { "s" };
    match busy {
        0 => format!("({all} kernel{plural})"),
        _ => format!("({all} kernel{plural}, {busy} busy)"),
    }
}

/// Links are left out: they may hold tokens, and lists are sent around.
fn value(shown: &Shown<'_>) -> serde_json::Value {
    let (run, state, end) = (shown.run, shown.state.as_ref(), shown.end);
    let services = state.map(|s| s.services.as_slice()).unwrap_or_default();
    let services: Vec<_> = services
        .iter()
        .map(|service| {
            json!({
                "name": service.name,
                "state": service.state,
                "starts": service.starts,
                "exit": service.exit,
                "why": service.why,
                "ports": service.ports,
            })
        })
        .collect();
    json!({
        "id": run.started.id,
        "environment": run.started.name,
        "since_unix_ms": run.started.unix_ms,
        "running": end.is_none(),
        "state": state_of(state, end),
        "exit_code": match end {
            Some(End::As(exit)) => Some(exit.code()),
            _ => None,
        },
        "command": run.started.command,
        "services": services,
        "kernels": shown.kernels,
        "ports": state.map(|s| s.ports.as_slice()).unwrap_or_default(),
        "cards": run.started.gpus,
    })
}
