//! `sconce ps`.

use clap::Args;
use sconce_record::{RunEntry, RunState};
use sconce_run::control;
use sconce_schema::exit;
use sconce_schema::request::PublishedPort;
use serde_json::json;

use crate::output;
use crate::style::OutputStyle;
use crate::table::format_list;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::{JobReport, KnownJob, list_jobs};
use sconce_app::job::query::{JobReports, query_jobs};
use sconce_app::run_lookup::{self, RunTermination};
use sconce_app::services::jupyter::{self, JupyterKernels};
use sconce_app::services::private_folder;

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Those that have ended too.
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn ps(args: &PsArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    // Before runs are looked at: a scheduler takes its time, and tasks end meanwhile.
    let jobs = JobRow::list(args.all, &places, context)?;
    let listing = sconce_record::list_runs(&places.runs)?;
    for error in &listing.unreadable {
        output::print_message(&sconce_app::failure::with_causes(error));
    }
    let wanted = |run: &&RunEntry| args.all || run.state == RunState::Running;
    // A task's run is a part of its job, and often on another machine.
    let is_of_job = |run: &&RunEntry| {
        let mut tokens = jobs.iter().map(|row| &row.job.request.token);
        tokens.any(|token| {
            let rest = run.started.id.strip_prefix(token.as_str());
            rest.is_some_and(|rest| rest.starts_with(['-', '_']))
        })
    };
    let boot_id = run_lookup::boot_id();
    let runs: Vec<_> = (listing.runs.iter())
        .filter(|run| wanted(run) && !is_of_job(run))
        .map(|run| {
            let private = private_folder(&places, &run.started.id);
            let state = run_lookup::request_status(run);
            let served = state.as_ref().is_some_and(|state| {
                (state.services.iter()).any(|service| service.name == jupyter::NAME)
            });
            PsRow {
                run,
                kernels: served.then(|| jupyter::query_kernels(&private)).flatten(),
                state,
                end: RunTermination::from_entry(run, boot_id.as_deref()),
            }
        })
        .collect();
    if args.json {
        let list: Vec<_> = runs.iter().map(value).collect();
        let jobs: Vec<_> = jobs.iter().map(JobRow::value).collect();
        output::write_data(&json!({ "format": 1, "runs": list, "jobs": jobs }).to_string())?;
        return Ok(exit::OK);
    }
    if runs.is_empty() && jobs.is_empty() {
        output::write_data(if args.all {
            "No run has been recorded."
        } else {
            "No run goes on."
        })?;
        return Ok(exit::OK);
    }
    let cells = jobs.iter().map(JobRow::cells);
    let rows: Vec<_> = runs.iter().flat_map(rows).chain(cells).collect();
    // What a run's id tells as well is the first to be left out on a narrow terminal.
    let heads = [
        "RUN",
        "STATE",
        "PORTS",
        "CARDS",
        "SINCE (UTC)",
        "ENVIRONMENT",
    ];
    let columns = OutputStyle::stdout_columns();
    output::write_data(&format_list(
        heads,
        &rows,
        columns,
        &OutputStyle::for_stdout(),
    ))?;
    let reasons: Vec<String> = jobs.iter().filter_map(JobRow::reason).collect();
    if !reasons.is_empty() {
        output::write_data(&format!("\n{}", reasons.join("\n")))?;
    }
    Ok(exit::OK)
}

/// A job, and what its scheduler says of it.
struct JobRow {
    job: KnownJob,
    report: JobReport,
    /// Of an array, each of its elements.
    elements: Vec<JobRow>,
}

impl JobRow {
    /// The jobs that have not ended; with `all`, every one.
    fn list(all: bool, places: &SconceDirs, context: &AppContext) -> Result<Vec<Self>> {
        // Each job, and behind an array its elements: one question for all of them.
        let mut jobs = Vec::new();
        for job in list_jobs(places) {
            let elements = match job.request.array {
                Some(_) => job.elements(),
                None => Vec::new(),
            };
            jobs.push(job);
            jobs.extend(elements);
        }
        let JobReports { reports, silence } = query_jobs(&jobs, places, context)?;
        if let Some(failure) = silence {
            output::print_message(&failure.message());
        }
        let mut rows: Vec<Self> = Vec::new();
        for (job, report) in jobs.into_iter().zip(reports) {
            let is_element = job.dir.index().is_some();
            let row = Self {
                job: job.read_again(),
                report,
                elements: Vec::new(),
            };
            match rows.last_mut().filter(|_| is_element) {
                Some(array) => array.elements.push(row),
                None => rows.push(row),
            }
        }
        rows.retain(|row| all || !row.report.is_final);
        Ok(rows)
    }

    fn cells(&self) -> [String; 6] {
        let (request, report) = (&self.job.request, &self.report);
        let layout = &request.layout;
        let cards = layout
            .gpus_per_node
            .map(|gpus| (gpus * layout.nodes).to_string());
        let engine = request.engine.name();
        let id = self.job.submitted.id.as_deref().unwrap_or("–");
        [
            request.token.clone(),
            format!("{engine} {id}: {}", report.state),
            or_dash(Vec::new()),
            or_dash(cards.into_iter().collect()),
            run_lookup::format_utc(request.unix_ms),
            request.name.clone(),
        ]
    }

    /// Why it waits or ended so: too long for a column.
    fn reason(&self) -> Option<String> {
        let (token, state) = (&self.job.request.token, &self.report.state);
        let reason = self.report.reason.as_ref()?;
        let hint = self.report.hint.as_ref();
        let hint = hint.map_or_else(String::new, |hint| format!("\n  hint: {hint}"));
        Some(format!("{token} {state}: {reason}{hint}"))
    }

    fn value(&self) -> serde_json::Value {
        let (request, report) = (&self.job.request, &self.report);
        json!({
            "id": request.token,
            "environment": request.name,
            "since_unix_ms": request.unix_ms,
            "engine": request.engine,
            "engine_id": self.job.submitted.id,
            "target": self.job.submitted.target,
            "preparation": self.job.preparation().map(|one| json!({
                "target": one.submitted.target,
                "engine_id": one.submitted.id,
            })),
            "state": report.state,
            "reason": report.reason,
            "hint": report.hint,
            "running": !report.is_final,
            "nodes": report.nodes,
            "exit_code": report.exit,
            "command": request.run.command,
            "elements": self.elements.iter().map(Self::value).collect::<Vec<_>>(),
        })
    }
}

/// A run, and what it answers.
struct PsRow<'a> {
    run: &'a RunEntry,
    state: Option<control::RunStatus>,
    end: Option<RunTermination>,
    /// Of its JupyterLab, where it has one that answers.
    kernels: Option<JupyterKernels>,
}

fn state_of(state: Option<&control::RunStatus>, end: Option<RunTermination>) -> String {
    match (end, state) {
        (Some(end), _) => end.to_text(),
        (None, Some(state)) if state.stopping => "stopping".to_owned(),
        (None, _) => "running".to_owned(),
    }
}

/// A run, and below it each of its services.
fn rows(shown: &PsRow<'_>) -> Vec<[String; 6]> {
    let (run, state, end) = (shown.run, shown.state.as_ref(), shown.end);
    let own = state.map(|s| s.ports.as_slice()).unwrap_or_default();
    let cards = run.started.gpus.iter().map(|gpu| gpu.index.to_string());
    let first = [
        run.started.id.clone(),
        state_of(state, end),
        ports(own),
        or_dash(cards.collect()),
        run_lookup::format_utc(run.started.unix_ms),
        or_dash(run.started.name.iter().cloned().collect()),
    ];
    let services = state.map(|s| s.services.as_slice()).unwrap_or_default();
    let below = services.iter().map(|service| {
        let kernels = shown.kernels.filter(|_| service.name == jupyter::NAME);
        let more = kernels.map(words).into_iter();
        let more: Vec<_> = more
            .chain(run_lookup::format_restarts(service.starts))
            .collect();
        let mut state = service.state.label().to_owned();
        if !more.is_empty() {
            state = format!("{state} ({})", more.join(", "));
        }
        let [name, none] = [format!("  {}", service.name), String::new()];
        let ports = ports(&service.ports);
        [name, state, ports, none.clone(), none.clone(), none]
    });
    std::iter::once(first).chain(below).collect()
}

fn ports(ports: &[PublishedPort]) -> String {
    let ports = ports.iter();
    or_dash(
        ports
            .map(|port| format!("{}:{}", port.host_ip, port.host))
            .collect(),
    )
}

fn or_dash(list: Vec<String>) -> String {
    match list.is_empty() {
        true => "–".to_owned(),
        false => list.join(" "),
    }
}

/// `2 kernels, 1 busy`.
fn words(kernels: JupyterKernels) -> String {
    let JupyterKernels { all, busy } = kernels;
    let plural = if all == 1 { "" } else { "s" };
    match busy {
        0 => format!("{all} kernel{plural}"),
        _ => format!("{all} kernel{plural}, {busy} busy"),
    }
}

/// Links are left out: they may hold tokens, and lists are sent around.
fn value(shown: &PsRow<'_>) -> serde_json::Value {
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
            Some(RunTermination::As(exit)) => Some(exit.exit_code()),
            _ => None,
        },
        "command": run.started.command,
        "services": services,
        "kernels": shown.kernels,
        "ports": state.map(|s| s.ports.as_slice()).unwrap_or_default(),
        "cards": run.started.gpus,
    })
}
