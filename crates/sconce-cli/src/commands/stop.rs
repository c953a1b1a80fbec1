//! `sconce stop`.

use clap::Args;
use sconce_run::control::ControlRequest;
use sconce_schema::exit;

use crate::output;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::find_job;
use sconce_app::job::query::until_job_ended;
use sconce_app::run_lookup;

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Ids of runs and jobs, their beginnings, or names of environments; the only run in the background where none is given.
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// Seconds until what has not ended is killed, instead of each service's own; 10 for a command.
    #[arg(long, value_name = "SECONDS", value_parser = crate::number::whole_number_parser::<u32>(0, u64::MAX))]
    pub(crate) grace: Option<u32>,
}

pub(crate) fn stop(args: &StopArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let mut names = Vec::new();
    let mut jobs = Vec::new();
    for name in &args.runs {
        match find_job(&places, name)? {
            Some(job) => jobs.push(job),
            None => names.push(name),
        }
    }
    let named = names
        .iter()
        .map(|name| run_lookup::find_live(&places, Some(name)));
    let runs = match args.runs.is_empty() {
        true => vec![run_lookup::find_live(&places, None)?],
        // Nothing is stopped where one of them is not there.
        false => named.collect::<Result<Vec<_>>>()?,
    };
    let grace_s = args.grace;
    // All are asked before any is waited for.
    for job in &jobs {
        job.cancel(context)?;
    }
    for run in &runs {
        run_lookup::send_request(run, &ControlRequest::Stop { grace_s })?;
    }
    for run in &runs {
        run_lookup::until_ended(run)?;
        if !context.quiet {
            output::print_message(&format!("stopped {}", run.started.id));
        }
    }
    for job in &jobs {
        let ended = until_job_ended(job, &places, context)?;
        if !context.quiet {
            output::print_message(&format!("job {}: {}", job.request.token, ended.state));
        }
    }
    Ok(exit::OK)
}
