//! Handing a script over so that it is there once: a job to which its scheduler gave no answer is looked for before the
//! same is handed over again.

use std::collections::BTreeMap;

use sconce_schema::job::JobRequest;
use sconce_submit::{JobDependency, JobState, JobStatus, Scheduler, SchedulerJobId, SubmitError};

use super::job_dir::{JobDir, SubmittedJob};
use super::lookup::{KnownJob, list_jobs};
use super::query::{JobReports, query_jobs};
use super::schedulers::scheduler_of;
use super::submit::{Submission, SubmittedPreparation};
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::reporter::AppEvent;

/// Hands over what of the job in `dir` its scheduler does not have: what makes its environment first, and then the job,
/// which waits for that. Keeps what the scheduler calls them.
///
/// # Errors
/// The scheduler refused one, and then it has none of them; or it gave no answer: then the job stays known by its token.
pub(super) fn hand_over(
    dir: &JobDir,
    request: &JobRequest,
    mut submitted: SubmittedJob,
    scheduler: &dyn Scheduler,
) -> Result<SubmittedJob> {
    // Before: whoever is killed meanwhile may have handed it over.
    dir.write_submitted(&submitted)?;
    let is_open = |error: &SubmitError| matches!(error, SubmitError::Unanswered { .. });
    let mut after = Vec::new();
    if let Some(preparation) = &request.preparation {
        let id = match &submitted.preparation {
            Some(id) => id.clone(),
            None => {
                let script = dir.preparation().read_script()?;
                let id = scheduler.submit(&script, &preparation.token, &[]);
                let id = id.inspect_err(|error| {
                    if !is_open(error) {
                        dir.remove_submitted();
                    }
                })?;
                id.to_string()
            }
        };
        submitted.preparation = Some(id.clone());
        dir.write_submitted(&submitted)?;
        let jobs = submitted.after.iter().chain([&id]);
        after.extend(jobs.filter_map(|one| JobDependency::parse(one)));
    }
    let script = dir.read_script()?;
    let id = scheduler.submit(&script, &request.token, &after);
    let id = id.inspect_err(|error| {
        if is_open(error) {
            return;
        }
        if let Some(id) = (submitted.preparation.as_deref()).and_then(SchedulerJobId::parse) {
            let cancelled = scheduler.cancel(&id);
            tracing::info!(%id, ?cancelled, "nobody waits for the preparation");
        }
        dir.remove_submitted();
    })?;
    submitted.id = Some(id.to_string());
    dir.write_submitted(&submitted)?;
    Ok(submitted)
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
    let request = &job.request;
    let token = request.token.clone();
    let scheduler = scheduler_of(request.engine, context);
    let found = scheduler.find(&token)?;
    let remark = match found {
        Some(_) => format!("{token}, to which {target} gave no answer, is there"),
        None => format!(
            "{token}, to which {target} gave no answer, is not there: it is handed over again"
        ),
    };
    context.report(&AppEvent::JobRemark(&remark));
    let mut submitted = job.submitted.clone();
    if let Some(preparation) = job.preparation() {
        submitted.preparation = find_preparation(&preparation, &*scheduler)?;
    }
    let submitted = match found {
        Some(id) => {
            submitted.id = Some(id.to_string());
            job.dir.write_submitted(&submitted)?;
            submitted
        }
        None => {
            if !variables.is_empty() {
                job.dir.write_variables(variables)?;
            }
            hand_over(&job.dir, request, submitted, &*scheduler)?
        }
    };
    let script = job.dir.read_script()?;
    let preparation = match &request.preparation {
        Some(preparation) => Some(SubmittedPreparation {
            target: preparation.target.clone(),
            script: job.dir.preparation().read_script()?,
            id: submitted.preparation,
        }),
        None => None,
    };
    Ok(Some(Submission {
        token,
        by_hand: script.clone(),
        script,
        id: submitted.id,
        preparation,
        lacks: None,
        variables: None,
    }))
}

/// What the scheduler calls a preparation for which a job that is handed over may wait; `None` where it has none, or one
/// that has failed.
fn find_preparation(preparation: &KnownJob, scheduler: &dyn Scheduler) -> Result<Option<String>> {
    let id = match preparation.scheduler_id() {
        Some(id) => Some(id),
        None => scheduler.find(&preparation.request.token)?,
    };
    let Some(id) = id else {
        return Ok(None);
    };
    let states = scheduler.states(std::slice::from_ref(&id))?;
    let is_over = |status: &JobStatus| match status.state {
        JobState::Succeeded => false,
        _ => status.state.is_final(),
    };
    let has_failed = states.iter().any(is_over);
    Ok((!has_failed).then(|| id.to_string()))
}

/// Says that the same was handed over already and has not ended.
pub(super) fn warn_of_same(same: &[KnownJob], places: &SconceDirs, context: &AppContext) {
    // A scheduler that does not answer is said by the hand-over itself.
    let Ok(JobReports {
        reports,
        silence: None,
    }) = query_jobs(same, places, context)
    else {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use sconce_schema::Hint as _;
    use sconce_schema::job::PreparationRequest;
    use sconce_schema::spec::TargetSpec;
    use sconce_submit::{JobQueue, JobScript, JobStep, StepFault, StepLog};

    use super::*;
    use crate::job::job_dir::tests::job;

    /// A scheduler that answers from a list, and keeps what it is asked.
    #[derive(Default)]
    struct PlayedScheduler {
        answers: RefCell<Vec<Result<u32, SubmitError>>>,
        calls: RefCell<Vec<String>>,
    }

    impl PlayedScheduler {
        fn new(answers: Vec<Result<u32, SubmitError>>) -> Self {
            Self {
                answers: RefCell::new(answers),
                ..Self::default()
            }
        }

        fn note(&self, call: String) {
            self.calls.borrow_mut().push(call);
        }
    }

    impl Scheduler for PlayedScheduler {
        fn submit(
            &self,
            script: &str,
            token: &str,
            after: &[JobDependency],
        ) -> Result<SchedulerJobId, SubmitError> {
            let after: Vec<String> = after.iter().map(ToString::to_string).collect();
            self.note(format!("submit {script} {token} {}", after.join(":")));
            self.answers
                .borrow_mut()
                .remove(0)
                .map(SchedulerJobId::from)
        }

        fn cancel(&self, job: &SchedulerJobId) -> Result<(), SubmitError> {
            self.note(format!("cancel {job}"));
            Ok(())
        }

        fn find_step_fault(&self, _: &[StepLog]) -> Option<StepFault> {
            unreachable!("nothing has gone wrong")
        }

        fn find(&self, _: &str) -> Result<Option<SchedulerJobId>, SubmitError> {
            unreachable!("nothing is looked for")
        }

        fn list_queue(&self) -> Result<JobQueue, SubmitError> {
            unreachable!("nobody asks")
        }

        fn past_states(&self, _: &[SchedulerJobId]) -> Result<Vec<JobStatus>, SubmitError> {
            unreachable!("nobody asks")
        }

        fn render(&self, _: &JobScript<'_>) -> Result<String, SubmitError> {
            unreachable!("the scripts are there")
        }

        fn render_both(
            &self,
            _: &str,
            _: &str,
            _: &[JobDependency],
        ) -> Result<String, SubmitError> {
            unreachable!("the scripts are there")
        }

        fn render_step(&self, _: &JobStep<'_>) -> Result<Vec<String>, SubmitError> {
            unreachable!("no step is started")
        }

        fn architectures(&self, _: &TargetSpec) -> Result<BTreeSet<String>, SubmitError> {
            unreachable!("nobody asks")
        }
    }

    const PREPARATION: &str = "submit prepare demo-1.prepare ";
    const RUN: &str = "submit run demo-1 5:7";

    fn refused() -> SubmitError {
        SubmitError::NoProgram { program: "sbatch" }
    }

    fn unanswered() -> SubmitError {
        SubmitError::Unanswered {
            token: "x".into(),
            source: Box::new(refused()),
        }
    }

    /// Hands a job over that was known as `submitted` before; gives whether that was done, what is known of it then and
    /// what the scheduler was asked.
    fn hand_over_as(
        submitted: SubmittedJob,
        answers: Vec<Result<u32, SubmitError>>,
    ) -> (Result<SubmittedJob, u8>, Option<SubmittedJob>, Vec<String>) {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::at(above.path());
        let request = JobRequest {
            preparation: Some(PreparationRequest {
                target: "cpu".into(),
                token: "demo-1.prepare".into(),
                local_store: None,
                mounts: Vec::new(),
            }),
            ..job()
        };
        dir.create(&request, b"", b"").ok().unwrap();
        dir.write_script("run").ok().unwrap();
        dir.preparation().write_script("prepare").ok().unwrap();
        let scheduler = PlayedScheduler::new(answers);
        let done = hand_over(&dir, &request, submitted, &scheduler);
        let done = done.map_err(|failure| failure.exit_code());
        (
            done,
            dir.read_submitted().ok().unwrap(),
            scheduler.calls.into_inner(),
        )
    }

    fn known(preparation: Option<&str>, id: Option<&str>) -> SubmittedJob {
        SubmittedJob {
            target: "lab".into(),
            id: id.map(str::to_owned),
            preparation: preparation.map(str::to_owned),
            after: vec!["5".into()],
        }
    }

    #[test]
    fn a_job_waits_for_its_preparation_and_for_those_before() {
        let whole = known(Some("7"), Some("8"));
        let (done, kept, calls) = hand_over_as(known(None, None), vec![Ok(7), Ok(8)]);
        assert_eq!((done, kept), (Ok(whole.clone()), Some(whole.clone())));
        assert_eq!(calls, [PREPARATION, RUN]);
        // One that is there is not handed over again.
        let (done, _, calls) = hand_over_as(known(Some("7"), None), vec![Ok(8)]);
        assert_eq!((done, calls), (Ok(whole), vec![RUN.to_owned()]));
    }

    #[test]
    fn what_is_refused_leaves_no_preparation_behind() {
        let code = refused().exit_code();
        let (done, kept, calls) = hand_over_as(known(None, None), vec![Err(refused())]);
        assert_eq!((done, kept), (Err(code), None));
        assert_eq!(calls, [PREPARATION]);
        let (done, kept, calls) = hand_over_as(known(None, None), vec![Ok(7), Err(refused())]);
        assert_eq!((done, kept), (Err(code), None));
        assert_eq!(calls, [PREPARATION, RUN, "cancel 7"]);
    }

    #[test]
    fn what_gets_no_answer_stays_known() {
        let (done, kept, _) = hand_over_as(known(None, None), vec![Err(unanswered())]);
        assert!(done.is_err());
        assert_eq!(kept, Some(known(None, None)));
        let (done, kept, calls) = hand_over_as(known(None, None), vec![Ok(7), Err(unanswered())]);
        assert!(done.is_err());
        assert_eq!(kept, Some(known(Some("7"), None)));
        assert_eq!(calls, [PREPARATION, RUN]);
    }
}
