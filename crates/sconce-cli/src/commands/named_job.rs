//! The job that a verb is about, where its caller names one or is where it was submitted.

use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::{JobLookupError, KnownJob, find_job, list_jobs_of_dir};
use sconce_app::job::query::query_jobs;
use sconce_app::{detach, run_lookup};
use sconce_record::{RunEntry, RunState};

use crate::output;

/// Finds the job that is called `which`; where nothing is named, that of the project in this directory, which is said:
/// the only one that has not ended, else the newest. `None` where a run is meant: one in the background that goes on, or
/// that is newer than the newest job, where all of those have ended.
pub(crate) fn find_named_job(
    which: Option<&str>,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<Option<KnownJob>> {
    if let Some(which) = which {
        return find_job(places, which);
    }
    // Newest first.
    let mut runs = sconce_record::list_runs(&places.runs)?.runs;
    runs.retain(|run| detach::is_detached(run_lookup::run_dir(run)));
    let goes_on = runs.iter().any(|run| run.state == RunState::Running);
    let (false, Ok(dir)) = (goes_on, std::env::current_dir()) else {
        return Ok(None);
    };
    let jobs = list_jobs_of_dir(places, &dir);
    if jobs.is_empty() {
        return Ok(None);
    }
    let reports = query_jobs(&jobs, places, context)?.reports;
    let open = jobs.iter().zip(&reports);
    let open: Vec<&KnownJob> = open
        .filter(|(_, report)| !report.is_final)
        .map(|(job, _)| job)
        .collect();
    let job = match open[..] {
        [] => jobs.first().filter(|job| is_newer(job, runs.first())),
        [job] => Some(job),
        _ => {
            let tokens = open.iter().map(|job| job.request.token.clone());
            return Err(JobLookupError::Several(tokens.collect()).into());
        }
    };
    if let Some(job) = job.filter(|_| !context.quiet) {
        output::print_message(&format!("job {}", job.request.token));
    }
    Ok(job.cloned())
}

/// Whether a job was handed over after a run began.
fn is_newer(job: &KnownJob, run: Option<&RunEntry>) -> bool {
    run.is_none_or(|run| run.started.unix_ms < job.request.unix_ms)
}
