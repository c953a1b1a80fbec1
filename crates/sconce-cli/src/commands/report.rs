//! `sconce report`.

use sconce_report::views::RecordView;
use sconce_report::{RunReport, json, terminal};
use sconce_schema::exit;

use super::wait::print_job_end;
use crate::args::ReportArgs;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::{JobLookupError, KnownJob, find_job};
use sconce_app::job::query::query_jobs;
use sconce_app::outputs::{self, OutputForm, VerbFiles, inputs};
use sconce_web::view;

/// Says what went wrong with a job beside its command: its record is of one task, and need not know.
fn tell_fault(job: &KnownJob, places: &SconceDirs, context: &AppContext) -> Result<()> {
    let reports = query_jobs(std::slice::from_ref(job), places, context)?.reports;
    let ended = reports.iter().find(|ended| ended.hint.is_some());
    if let Some(ended) = ended.filter(|_| !context.quiet) {
        print_job_end(&job.request.token, ended);
    }
    Ok(())
}

/// Says of a job with several tasks whose record it is, and how the others ended.
fn tell_of_tasks(job: &KnownJob, context: &AppContext) {
    let tasks = job.tasks();
    if let Some(first) = tasks.get(&0).filter(|_| tasks.len() > 1 && !context.quiet) {
        let others = tasks.iter().filter(|(number, _)| **number != 0);
        let mut failed = others.filter(|(_, task)| task.exit.is_some_and(|exit| exit != exit::OK));
        let said = match failed.next() {
            Some((number, task)) => format!(
                "; task {number}, on {}, ended with exit code {}",
                task.node,
                task.exit.unwrap_or_default()
            ),
            None => String::new(),
        };
        output::print_message(&format!(
            "the record of rank 0's node, {}; {} has {} tasks{said}",
            first.node,
            job.request.token,
            tasks.len()
        ));
    }
}

pub(crate) fn report(args: &ReportArgs, context: &AppContext) -> Result<u8> {
    let page = outputs::find_some(args.html.as_deref(), OutputForm::Text)?;
    let places = SconceDirs::find(context)?;
    // Of a job, the run of its first task: rank 0's.
    let job = find_job(&places, &args.run)?;
    if let Some(failure) = job.as_ref().and_then(KnownJob::find_preparation_failure) {
        return Err(failure.into());
    }
    if let Some(job) = job.as_ref().filter(|job| job.request.array.is_some()) {
        return Err(JobLookupError::Array(job.request.token.clone()).into());
    }
    if let Some(job) = &job {
        tell_fault(job, &places, context)?;
        tell_of_tasks(job, context);
    }
    let of_job = match &job {
        Some(job) => {
            let token = || vec![job.request.token.clone()];
            let run = job.first_run();
            Some(run.ok_or_else(|| JobLookupError::NoRecord(token()))?)
        }
        None => None,
    };
    let path = sconce_record::resolve_run(&places.runs, of_job.as_ref().unwrap_or(&args.run))?;
    VerbFiles {
        outputs: &[page.as_ref()],
        inputs: &inputs::of_record(&path),
        prints_json: args.json,
        ..VerbFiles::default()
    }
    .claim()?;
    if let Some(page) = page {
        let view =
            RecordView::from_record(sconce_record::open_record(&path)?, view::POINTS_PER_FIGURE);
        outputs::write(
            page,
            view::render_standalone_page(&view, view::POINTS_PER_FIGURE).as_bytes(),
            context,
        )?;
        return Ok(exit::OK);
    }
    let report = RunReport::from_record(sconce_record::open_record(&path)?);
    output::write_data(&if args.json {
        json::render_report(&report)
    } else {
        terminal::render_report(&report, OutputStyle::for_stdout().for_reports())
    })?;
    Ok(exit::OK)
}
