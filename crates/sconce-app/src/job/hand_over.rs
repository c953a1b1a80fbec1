//! Handing a script over so that it is there once: a job to which its scheduler gave no answer is looked for before the
//! same is handed over again.

use std::collections::BTreeMap;

use sconce_schema::job::JobRequest;
use sconce_submit::{Scheduler, SubmitError};

use super::job_dir::{JobDir, SubmittedJob};
use super::lookup::{KnownJob, list_jobs, query_jobs};
use super::schedulers::scheduler_of;
use super::submit::Submission;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::reporter::AppEvent;

/// Hands over the script in `dir`, and keeps what the scheduler calls it.
///
/// # Errors
/// The scheduler refused it, or gave no answer: then the job stays known by its token.
pub(super) fn hand_over(
    dir: &JobDir,
    target: &str,
    token: &str,
    script: &str,
    scheduler: &dyn Scheduler,
) -> Result<String> {
    let mut submitted = SubmittedJob {
        target: target.to_owned(),
        id: None,
    };
    // Before: whoever is killed meanwhile may have handed it over.
    dir.write_submitted(&submitted)?;
    let id = scheduler.submit(script, token).inspect_err(|error| {
        if !matches!(error, SubmitError::Unanswered { .. }) {
            dir.remove_submitted();
        }
    })?;
    let id = id.to_string();
    submitted.id = Some(id.clone());
    dir.write_submitted(&submitted)?;
    Ok(id)
}

/// Jobs with the same lock, command and nodes as `request`.
pub(super) fn list_same(request: &JobRequest, places: &SconceDirs) -> Vec<KnownJob> {
    let is_same = |job: &KnownJob| {
        let other = &job.request;
        (
            &other.lock,
            &other.run,
            &other.layout,
            &other.array,
            &other.spec,
        ) == (
            &request.lock,
            &request.run,
            &request.layout,
            &request.array,
            &request.spec,
        )
    };
    list_jobs(places).into_iter().filter(is_same).collect()
}

/// The same job, handed over before, to which the scheduler gave no answer: it is taken up where it is in the queue,
/// and handed over by the same token where it is not. `None` where there is none.
///
/// # Errors
/// The scheduler gives no answer now either.
pub(super) fn take_up_unanswered(
    same: &[KnownJob],
    target: &str,
    variables: &BTreeMap<String, String>,
    context: &AppContext,
) -> Result<Option<Submission>> {
    let is_open = |job: &&KnownJob| job.submitted.id.is_none() && job.submitted.target == target;
    let Some(job) = same.iter().find(is_open) else {
        return Ok(None);
    };
    let token = job.request.token.clone();
    let scheduler = scheduler_of(job.request.engine, context);
    let found = scheduler.find(&token)?;
    let remark = match found {
        Some(_) => format!("{token}, to which {target} gave no answer, is there"),
        None => format!(
            "{token}, to which {target} gave no answer, is not there: it is handed over again"
        ),
    };
    context.report(&AppEvent::JobRemark(&remark));
    let script = job.dir.read_script()?;
    let id = match found {
        Some(id) => {
            let id = id.to_string();
            job.dir.write_submitted(&SubmittedJob {
                target: target.to_owned(),
                id: Some(id.clone()),
            })?;
            id
        }
        None => {
            if !variables.is_empty() {
                job.dir.write_variables(variables)?;
            }
            hand_over(&job.dir, target, &token, &script, &*scheduler)?
        }
    };
    Ok(Some(Submission {
        token,
        script,
        id: Some(id),
        lacks: None,
    }))
}

/// Says that the same was handed over already and has not ended.
pub(super) fn warn_of_same(same: &[KnownJob], places: &SconceDirs, context: &AppContext) {
    // A scheduler that does not answer is said by the hand-over itself.
    let Ok(reports) = query_jobs(same, places, context) else {
        return;
    };
    let open = same
        .iter()
        .zip(&reports)
        .find(|(_, report)| !report.is_final);
    if let Some((job, report)) = open {
        let (token, state) = (&job.request.token, &report.state);
        let remark = format!(
            "the same was handed over as {token} ({state}); `--again` says that it is meant"
        );
        context.report(&AppEvent::JobRemark(&remark));
    }
}
