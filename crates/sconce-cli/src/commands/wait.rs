//! `sconce wait`.

use clap::Args;
use sconce_record::RunEntry;
use sconce_schema::exit;

use super::logs::last_lines;
use super::named_job::find_named_job;
use crate::failure::render_failure;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::{JobLookupError, JobReport, KnownJob};
use sconce_app::job::query::until_job_ended;
use sconce_app::reporter::AppEvent;
use sconce_app::run::explain_ended_run;
use sconce_app::run_lookup::{self, RunTermination};

/// The log of what a run's command wrote.
const COMMAND_LOG: &str = "run";
/// So many lines of it are looked at where it failed.
const LAST_LINES: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Ids of runs and jobs, their beginnings, or names of environments; without, the only run in the background, or
    /// the job that was submitted in this directory.
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
}

pub(crate) fn wait(args: &WaitArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let names: Vec<Option<&str>> = match args.runs.is_empty() {
        true => vec![None],
        false => args.runs.iter().map(|name| Some(name.as_str())).collect(),
    };
    // All are found before any is waited for.
    let find = |which: Option<&str>| match find_named_job(which, &places, context)? {
        Some(job) => Ok(WaitTarget::Job(Box::new(job))),
        None => run_lookup::find_any(&places, which).map(|run| WaitTarget::Run(Box::new(run))),
    };
    let targets = names.into_iter().map(find).collect::<Result<Vec<_>>>()?;
    let mut first_bad = exit::OK;
    for target in &targets {
        let ended = match target {
            WaitTarget::Job(job) => wait_for_job(job, &places, context),
            WaitTarget::Run(run) => wait_for_run(run, context),
        };
        let code = match ended {
            // Nobody knows how one ended: the others are waited for all the same.
            Err(failure) if targets.len() > 1 => {
                output::print_error(&render_failure(&failure, &OutputStyle::for_stderr()));
                failure.exit_code()
            }
            ended => ended?,
        };
        if first_bad == exit::OK {
            first_bad = code;
        }
    }
    Ok(first_bad)
}

/// What is waited for.
enum WaitTarget {
    Job(Box<KnownJob>),
    Run(Box<RunEntry>),
}

fn wait_for_run(run: &RunEntry, context: &AppContext) -> Result<u8> {
    let run = run_lookup::until_ended(run)?;
    let end = RunTermination::from_entry(&run, run_lookup::boot_id().as_deref());
    if let Some(end @ (RunTermination::WithTheMachine | RunTermination::Killed)) = end {
        output::print_message(&format!("run {}: {}", run.started.id, end.to_text()));
    }
    if let Some(RunTermination::As(exit)) = end
        && !context.quiet
    {
        let log = last_lines(run_lookup::run_dir(&run), COMMAND_LOG, LAST_LINES).join("\n");
        if let Some(explained) = explain_ended_run(&run, exit, log.as_bytes()) {
            context.report(&AppEvent::RunExplained(&explained));
        }
    }
    Ok(end.map_or(exit::OK, RunTermination::exit_code))
}

/// How a job ended, why, and what to do about it.
pub(crate) fn print_job_end(token: &str, ended: &JobReport) {
    let reason = ended.reason.as_deref();
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let logs = match ended.exit {
        Some(_) => format!("; `sconce logs {token}` has what it printed"),
        None => String::new(),
    };
    output::print_message(&format!("job {token}: {}{reason}{logs}", ended.state));
    if let Some(hint) = &ended.hint {
        output::print_message(&format!("hint: {hint}"));
    }
}

/// What its command exited with; where the scheduler ended it, what that says.
pub(crate) fn wait_for_job(
    job: &KnownJob,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<u8> {
    let ended = until_job_ended(job, places, context)?;
    let token = &job.request.token;
    if !context.quiet && (ended.exit != Some(exit::OK) || ended.hint.is_some()) {
        print_job_end(token, &ended);
    }
    match ended.exit {
        Some(exit) => Ok(exit),
        // Cancelled while it waited, or nobody knows.
        None if ended.state == "forgotten" => Err(JobLookupError::Forgotten(token.clone()).into()),
        None => Ok(exit::RUN),
    }
}
