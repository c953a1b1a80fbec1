//! `sconce up`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sconce_record::RunEntry;
use sconce_run::control::{ControlRequest, ControlResponse, RunStatus, ServiceStatus};
use sconce_schema::event::{Containment, ServiceEvent, ServiceState};
use sconce_schema::exit;

use super::logs::last_lines;
use crate::args::RunFlags;
use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::context::AppContext;
use sconce_app::detach::{self, DetachOutcome};
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::project::Project;
use sconce_app::run_lookup::{self, RunTermination};

/// Time between two looks at how far the services are.
const SERVICE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A service without a check of its health counts as up when it has run for so long.
const SETTLE_TIME_MS: u64 = 1_500;
/// Of a service that failed, so many of its last lines are shown.
const LOG_TAIL_LINES: usize = 10;

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

pub(crate) fn up(args: &UpArgs, context: &AppContext) -> Result<u8> {
    if !args.another
        && !context.holds_run()
        && let Some((run, state)) = running(args, context)?
    {
        return already(args, &run, &state, context);
    }
    if args.foreground || context.holds_run() {
        return sconce_app::run::run_services(
            &args.spec,
            args.host,
            &args.flags.to_overrides(),
            context,
        );
    }
    let id = match detach::start_background_run(context)? {
        DetachOutcome::Begun(id) => id,
        DetachOutcome::Ended(code) => return Ok(code),
    };
    let places = SconceDirs::find(context)?;
    let path = places.runs.join(&id).join(sconce_record::FILE);
    let run = sconce_record::read_run_entry(&path)?;
    match settled(&run, context)? {
        Some(state) => told(&run, &state, args.json, context),
        None => gone(&run, context),
    }
}

/// Waits until nothing more is to be expected of the services, and says what becomes of them
/// meanwhile; `None` when the run has ended.
fn settled(run: &RunEntry, context: &AppContext) -> Result<Option<RunStatus>> {
    let mut said = Vec::new();
    loop {
        let Ok(ControlResponse::State(state)) =
            run_lookup::send_request(run, &ControlRequest::State)
        else {
            // It is spoken to a moment after it has begun.
            if sconce_record::read_run_entry(&run.path)?.state == sconce_record::RunState::Running {
                std::thread::sleep(SERVICE_POLL_INTERVAL);
                continue;
            }
            return Ok(None);
        };
        if !context.quiet {
            say_changes(&mut said, &state.services);
        }
        if state.stopping || are_settled(&state.services) {
            return Ok(Some(state));
        }
        std::thread::sleep(SERVICE_POLL_INTERVAL);
    }
}

/// Whether each is up or has failed. What waits for one that is not healthy may wait for ever.
fn are_settled(services: &[ServiceStatus]) -> bool {
    let is_up = |service: &ServiceStatus| match service.state {
        // There is no check of its health, and many a program ends soon after its start: a port is
        // taken, a file is missing.
        ServiceState::Running => service.state_ms.is_none_or(|ms| ms >= SETTLE_TIME_MS),
        ServiceState::Waiting
        | ServiceState::Starting
        | ServiceState::Stopping
        // One that is started again because it is unhealthy is on its way too.
        | ServiceState::Restarting => false,
        _ => true,
    };
    let stuck = (services.iter()).any(|service| service.state == ServiceState::Unhealthy);
    (services.iter()).all(|it| is_up(it) || stuck && it.state == ServiceState::Waiting)
}

/// The run of this environment's services that goes on.
fn running(args: &UpArgs, context: &AppContext) -> Result<Option<(RunEntry, RunStatus)>> {
    let project = Project::open(&args.spec)?;
    let (mode, folder) = match args.host {
        true => (
            Containment::Host,
            sconce_app::run::host_folder(&args.flags.to_overrides())?,
        ),
        false => (Containment::Container, project.folder),
    };
    let is_ours = |run: &RunEntry| {
        let started = &run.started;
        started.mode == mode
            && started.folder == folder
            && started.name.as_deref() == Some(project.name.as_str())
    };
    let going_on = run_lookup::going_on(&SconceDirs::find(context)?)?;
    let asked = going_on.into_iter().filter(is_ours).filter_map(|run| {
        let state = run_lookup::request_status(&run)?;
        Some((run, state))
    });
    // A command with services beside it is no `up`; a run that ends makes room.
    Ok({ asked }.find(|(_, state)| !state.command && !state.stopping))
}

/// Says what runs already.
fn already(args: &UpArgs, run: &RunEntry, state: &RunStatus, context: &AppContext) -> Result<u8> {
    if !context.quiet {
        let id = &state.id;
        output::print_message(&format!(
            "{id} runs these services already, since {} UTC",
            run_lookup::format_utc(run.started.unix_ms)
        ));
        output::print_message(&format!(
            "{} `sconce restart {id}` starts its services again, `sconce stop {id}` ends it; \
             `sconce up --another` starts another one beside it",
            OutputStyle::for_stderr().hint("hint:")
        ));
    }
    // It may be between an end and its next start.
    match settled(run, &context.to_quiet())? {
        Some(state) => told(run, &state, args.json, context),
        None => gone(run, context),
    }
}

fn say_changes(said: &mut Vec<(String, ServiceState)>, services: &[ServiceStatus]) {
    for service in services {
        let now = (service.name.clone(), service.state);
        if !said.contains(&now) {
            said.retain(|(name, _)| *name != service.name);
            said.push(now);
            output::print_message(&run_lookup::format_service_event(&ServiceEvent {
                name: service.name.clone(),
                state: service.state,
                starts: service.starts,
                // It stays told when the service runs again.
                exit: (service.exit).filter(|_| is_end(service.state)),
                why: service.why.clone(),
                again_ms: None,
                open: Vec::new(),
            }));
        }
    }
}

fn is_end(state: ServiceState) -> bool {
    use ServiceState::{Ended, Failed, Restarting};
    matches!(state, Restarting | Ended | Failed)
}

/// The services, what to open, and what the failed ones wrote last.
fn told(run: &RunEntry, state: &RunStatus, json: bool, context: &AppContext) -> Result<u8> {
    if json {
        output::write_data(&serde_json::to_string(state).unwrap_or_default())?;
    } else {
        let rows: Vec<_> = state.services.iter().map(row).collect();
        let heads = ["SERVICE", "STATE", "OPEN"];
        output::write_data(&table_with_links(heads, &rows))?;
    }
    let bad: Vec<&ServiceStatus> = state.services.iter().filter(|it| !is_well(it)).collect();
    if bad.is_empty() {
        return Ok(exit::OK);
    }
    let mut wrote = Vec::new();
    for service in &bad {
        let lines = last_lines(run_lookup::run_dir(run), &service.name, LOG_TAIL_LINES);
        if !lines.is_empty() {
            wrote.push(service.name.as_str());
        }
        if !context.quiet {
            say_lines(&service.name, lines);
        }
    }
    let hint = OutputStyle::for_stderr().hint("hint:");
    output::print_message(&format!("{hint} {}", what_to_do(&state.id, &bad, &wrote)));
    Ok(exit::NO)
}

fn is_well(service: &ServiceStatus) -> bool {
    use ServiceState::{Ended, Healthy, Running};
    matches!(service.state, Running | Healthy | Ended)
}

/// Which services are not well, and where to look: a log is named only where there is something in it.
fn what_to_do(id: &str, bad: &[&ServiceStatus], wrote: &[&str]) -> String {
    let named = |it: &&ServiceStatus| format!("{} ({})", it.name, it.state.label());
    let bad: Vec<_> = bad.iter().map(named).collect();
    let logs = match wrote {
        [] => String::new(),
        [one] => format!("`sconce logs {id} {one}` shows what it wrote, "),
        several => format!(
            "`sconce logs {id} NAME` shows what {} wrote, ",
            several.join(", ")
        ),
    };
    format!(
        "not well: {}. {logs}`sconce stop {id}` ends the run",
        bad.join(", ")
    )
}

fn say_lines(name: &str, lines: Vec<String>) {
    if lines.is_empty() {
        output::print_message(&format!("{name} wrote nothing"));
    }
    for line in lines {
        output::print_message(&format!("{name} | {line}"));
    }
}

fn row(service: &ServiceStatus) -> [String; 3] {
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
    let state = service.state.label();
    let state = match run_lookup::format_restarts(service.starts) {
        Some(restarts) => format!("{state} ({restarts})"),
        None => state.to_owned(),
    };
    [service.name.clone(), state, open]
}

/// As a table, but that what is to be opened is never cut.
fn table_with_links(heads: [&str; 3], rows: &[[String; 3]]) -> String {
    let short: Vec<[String; 2]> = rows
        .iter()
        .map(|[a, b, _]| [a.clone(), b.clone()])
        .collect();
    let text = format_table([heads[0], heads[1]], &short, &OutputStyle { color: false });
    let width = text
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let last = std::iter::once(heads[2]).chain(rows.iter().map(|row| row[2].as_str()));
    let lines = text.lines().zip(last).map(|(line, open)| {
        let tame: String = open
            .chars()
            .filter(|c| !sconce_base::text::is_unprintable(*c))
            .collect();
        format!("{line:width$}  {tame}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// It ended before all of its services were there.
fn gone(run: &RunEntry, context: &AppContext) -> Result<u8> {
    let ended = run_lookup::until_ended(run)?;
    let end = RunTermination::from_entry(&ended, run_lookup::boot_id().as_deref());
    if !context.quiet {
        let (folder, mut wrote) = (run_lookup::run_dir(run), false);
        for name in run_lookup::list_log_names(folder) {
            let lines = last_lines(folder, &name, LOG_TAIL_LINES);
            wrote |= !lines.is_empty();
            say_lines(&name, lines);
        }
        let id = &run.started.id;
        let how = end.map_or_else(|| "ended".to_owned(), RunTermination::to_text);
        let logs = match wrote {
            true => format!(": `sconce logs {id}` shows what it wrote"),
            false => String::new(),
        };
        output::print_message(&format!("run {id} has ended ({how}){logs}"));
    }
    Ok(end.map_or(exit::NO, RunTermination::exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(name: &str, state: ServiceState, state_ms: Option<u64>) -> ServiceStatus {
        ServiceStatus {
            name: name.to_owned(),
            state,
            state_ms,
            starts: 1,
            exit: None,
            why: None,
            ports: Vec::new(),
            links: Vec::new(),
        }
    }

    #[test]
    fn one_without_a_check_has_to_run_for_a_while() {
        use ServiceState::{Failed, Healthy, Restarting, Running, Unhealthy, Waiting};
        let after = |state, ms| are_settled(&[standing("a", state, Some(ms))]);
        assert!(!after(Running, 0) && after(Running, SETTLE_TIME_MS));
        assert!(after(Healthy, 0) && after(Failed, 0) && !after(Restarting, 60_000));
        // An older program does not say.
        assert!(are_settled(&[standing("a", Running, None)]));
        // What waits for one that is unhealthy is not waited for.
        let waits = standing("b", Waiting, Some(0));
        for (state, settled) in [(Unhealthy, true), (Healthy, false)] {
            let first = standing("a", state, Some(0));
            assert_eq!(are_settled(&[first, waits.clone()]), settled);
        }
    }

    #[test]
    fn all_that_are_not_well_are_named_and_logs_where_there_are_any() {
        let all = [
            standing("dies", ServiceState::Failed, None),
            standing("sick", ServiceState::Unhealthy, None),
            standing("good", ServiceState::Healthy, None),
        ];
        let bad: Vec<_> = all.iter().filter(|it| !is_well(it)).collect();
        let end = "`sconce stop x` ends the run";
        let none = what_to_do("x", &bad, &[]);
        assert_eq!(
            none,
            format!("not well: dies (failed), sick (unhealthy). {end}")
        );
        let one = what_to_do("x", &bad, &["sick"]);
        assert!(one.contains("`sconce logs x sick` shows"), "{one}");
        let both = what_to_do("x", &bad, &["dies", "sick"]);
        assert!(
            both.contains("`sconce logs x NAME` shows what dies, sick wrote"),
            "{both}"
        );
    }
}
