//! How jobs are: by their own files where these say it, else by what their scheduler last said.

use std::collections::BTreeMap;
use std::time::Duration;

use sconce_schema::exit;

use super::answers::{Silence, ask};
use super::job_report::{JobReport, UNANSWERED, report_of_preparation, sum_up};
use super::lookup::KnownJob;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{Failure, Result};
use crate::reporter::AppEvent;

/// Time between two looks at a job's own files.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How jobs are, in the order in which they were asked for.
#[derive(Debug)]
pub struct JobReports {
    /// Each job's. Of an array, what its elements come to; of one whose environment is still made, or could not be, how
    /// that is.
    pub reports: Vec<JobReport>,
    /// Why their scheduler says nothing of those that have not ended.
    pub silence: Option<Failure>,
}

/// How jobs are; where the scheduler does not answer, what their own files say, and why no more.
///
/// # Errors
/// The scheduler cannot be asked, or its answer cannot be read.
pub fn query_jobs(
    jobs: &[KnownJob],
    places: &SconceDirs,
    context: &AppContext,
) -> Result<JobReports> {
    let mut known = KnownReports::read(jobs);
    let mut silence: Option<Silence> = None;
    let mut asked_in_s = 0;
    if !known.open.is_empty() {
        let open: Vec<&KnownJob> = known.open.iter().collect();
        let answers = ask(&open, places, context)?;
        let age_s = answers.age_s();
        asked_in_s = places.config.ask_interval().as_secs().saturating_sub(age_s);
        known.answers = answers.jobs;
        silence = (answers.silence.map(|silence| silence.with_age(age_s)))
            .filter(|_| open.iter().any(|job| known.find(job).is_none()));
    }
    if let Some(unreadable) = silence.as_ref().filter(|silence| !silence.is_away()) {
        return Err(unreadable.clone().into());
    }
    let unknown = match silence {
        None => JobReport {
            reason: Some(format!(
                "its scheduler has not been asked for it yet, and is in {asked_in_s} s"
            )),
            ..JobReport::waiting()
        },
        Some(_) => JobReport {
            state: UNANSWERED.to_owned(),
            reason: Some("its scheduler does not answer".to_owned()),
            ..JobReport::waiting()
        },
    };
    let report = |job: &KnownJob| {
        let report = known.of_job(job, &unknown);
        if report.is_final && job.submitted.id.is_some() && job.dir.is_whole() {
            job.dir.remove_variables();
        }
        report
    };
    Ok(JobReports {
        reports: jobs.iter().map(report).collect(),
        silence: silence.map(Failure::from),
    })
}

/// How jobs are, by their tokens.
struct KnownReports {
    /// Of those whose own files say it.
    own: BTreeMap<String, JobReport>,
    /// Those of which the scheduler is to say it.
    open: Vec<KnownJob>,
    /// What it says.
    answers: BTreeMap<String, JobReport>,
}

impl KnownReports {
    fn read(jobs: &[KnownJob]) -> Self {
        let (mut own, mut open) = (BTreeMap::new(), Vec::new());
        for job in jobs {
            let preparation = job.preparation();
            let prepared = preparation.as_ref().and_then(KnownJob::own_report);
            let has_failed = |report: &JobReport| report.exit != Some(exit::OK);
            // What waits for one that has failed never begins.
            let elements = match prepared.as_ref().is_some_and(has_failed) {
                true => Vec::new(),
                false => job.elements(),
            };
            let open_before = open.len();
            for element in elements {
                match element.own_report() {
                    Some(report) => {
                        own.insert(element.request.token, report);
                    }
                    None => open.push(element),
                }
            }
            match (preparation, prepared) {
                (Some(preparation), Some(report)) => {
                    own.insert(preparation.request.token, report);
                }
                (Some(preparation), None) if open.len() > open_before => open.push(preparation),
                _ => {}
            }
        }
        Self {
            own,
            open,
            answers: BTreeMap::new(),
        }
    }

    fn find(&self, job: &KnownJob) -> Option<&JobReport> {
        let token = &job.request.token;
        // One that was not there may have been handed over again since.
        let is_out_of_date = |report: &&JobReport| report.is_absent() && job.submitted.id.is_some();
        let answer = self.answers.get(token);
        let answer = answer.filter(|report| !is_out_of_date(report));
        self.own.get(token).or(answer)
    }

    /// How one is, where `unknown` is how those are of which nobody says anything, not even their own files: those that
    /// were handed over since the scheduler was asked.
    fn of_job(&self, job: &KnownJob, unknown: &JobReport) -> JobReport {
        let elements = job.elements();
        let report = |element: &KnownJob| {
            let known = self.find(element).cloned();
            let known = known.or_else(|| {
                // What is new has begun by its own word; of a scheduler that is silent more is to be said.
                let silence = unknown.reason.as_ref();
                let silence = silence.filter(|_| unknown.state == UNANSWERED);
                Some(JobReport {
                    reason: silence
                        .map(|why| format!("{why}; its own files say that it has begun")),
                    ..element.begun_report()?
                })
            });
            known.unwrap_or_else(|| unknown.clone())
        };
        let reports: Vec<JobReport> = elements.iter().map(report).collect();
        if let Some(preparation) = job.preparation().filter(|_| job.submitted.id.is_some())
            && let Some(known) = self.find(&preparation)
            && let Some(report) = report_of_preparation(known, &preparation, &reports)
        {
            return report;
        }
        match &job.request.array {
            Some(array) => sum_up(&array.indices, &reports),
            None => reports
                .into_iter()
                .next()
                .unwrap_or_else(|| unknown.clone()),
        }
    }
}

/// Says once that a scheduler does not answer, and again when it has answered meanwhile.
#[derive(Debug, Default)]
pub struct SilenceWatch {
    is_silent: bool,
}

impl SilenceWatch {
    /// Says it where that is new.
    pub fn tell(&mut self, silence: Option<&Failure>, context: &AppContext) {
        if let Some(failure) = silence.filter(|_| !self.is_silent) {
            context.report(&AppEvent::JobRemark(&failure.message()));
        }
        self.is_silent = silence.is_some();
    }
}

/// Waits until a job has ended, and gives how. Its own files are looked at often, the scheduler is asked seldom; one that
/// does not answer for a while is said, and asked again.
///
/// # Errors
/// The scheduler cannot be asked.
pub fn until_job_ended(
    job: &KnownJob,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<JobReport> {
    let mut watch = SilenceWatch::default();
    loop {
        let JobReports { reports, silence } =
            query_jobs(std::slice::from_ref(job), places, context)?;
        if let Some(report) = reports.into_iter().next().filter(|report| report.is_final) {
            return Ok(report);
        }
        watch.tell(silence.as_ref(), context);
        std::thread::sleep(LOOK_INTERVAL);
    }
}
