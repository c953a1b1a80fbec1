//! `sconce compare`.

use clap::Args;
use sconce_image::package_diff::diff_packages;
use sconce_image::sbom::SbomPackage;
use sconce_report::compare::{Comparison, RunTable, SettingChange};
use sconce_report::{RunReport, json, terminal};
use sconce_schema::exit;

use super::package_list::PackageListSource;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::{JobLookupError, find_job};

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Runs and jobs, in their order: ids, beginnings of them, or `last`. One is compared with the last; of two the
    /// second is looked at beside the first; more are a table. A job is its first task's run, an array each of its
    /// elements.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn compare(args: &CompareArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let mut ids = Vec::new();
    for name in &args.runs {
        ids.extend(expand(name, &places, context)?);
    }
    if ids.len() == 1 {
        ids.push("last".to_owned());
    }
    let read = |run: &String| -> Result<RunReport> {
        let path = sconce_record::resolve_run(&places.runs, run)?;
        Ok(RunReport::from_record(sconce_record::open_record(&path)?))
    };
    let reports = ids.iter().map(read).collect::<Result<Vec<_>>>()?;
    let style = OutputStyle::for_stdout().for_reports();
    let text = match reports.as_slice() {
        [before, after] => {
            let mut comparison = Comparison::from_reports(before, after);
            comparison.packages = packages(before, after, context);
            match args.json {
                true => json::render_comparison(&comparison),
                false => terminal::render_comparison(&comparison, style),
            }
        }
        reports => {
            let table = RunTable::from_reports(reports);
            match args.json {
                true => json::render_run_table(&table),
                false => terminal::render_run_table(&table, style),
            }
        }
    };
    output::write_data(&text)?;
    Ok(exit::OK)
}

/// The runs that a name means: of a job that of its first task, of an array those of its elements.
fn expand(name: &str, places: &SconceDirs, context: &AppContext) -> Result<Vec<String>> {
    let Some(job) = find_job(places, name)? else {
        return Ok(vec![name.to_owned()]);
    };
    let mut runs = Vec::new();
    let mut without = Vec::new();
    for element in job.elements() {
        let run = element.first_run();
        let is_recorded = |run: &String| sconce_record::resolve_run(&places.runs, run).is_ok();
        match run.filter(is_recorded) {
            Some(run) => runs.push(run),
            None => without.push(element.request.token),
        }
    }
    if runs.is_empty() {
        return Err(JobLookupError::NoRecord(without).into());
    }
    if !without.is_empty() && !context.quiet {
        let without = without.join(", ");
        output::print_message(&format!("no record of a run is here yet of {without}"));
    }
    Ok(runs)
}

/// What the locks have otherwise. A lock may have been written anew since the run: it counts only where
/// its versions are still the record's. Runs of one folder have one lock, which tells nothing.
fn packages(
    before: &RunReport,
    after: &RunReport,
    context: &AppContext,
) -> Option<Vec<SettingChange>> {
    if before.started.folder == after.started.folder {
        return None;
    }
    let found = diff_packages(&lock(before, context)?, &lock(after, context)?);
    let version = |package: &SbomPackage| package.version.clone();
    let mut changes: Vec<SettingChange> = (found.changed.iter())
        .map(|change| SettingChange {
            what: change.after.name.clone(),
            before: version(&change.before),
            after: version(&change.after),
        })
        .collect();
    changes.extend(found.added.iter().map(|package| SettingChange {
        what: package.name.clone(),
        before: None,
        after: version(package),
    }));
    changes.extend(found.removed.iter().map(|package| SettingChange {
        what: package.name.clone(),
        before: version(package),
        after: None,
    }));
    Some(changes)
}

fn lock(report: &RunReport, context: &AppContext) -> Option<Vec<SbomPackage>> {
    let versions = report.started.versions.as_ref()?;
    let path = report.started.folder.join("sconce.lock");
    match PackageListSource::from_argument(path.to_str()?, context).ok()? {
        PackageListSource::Lock { name, lock, image } if lock.versions == *versions => {
            Some(PackageListSource::Lock { name, lock, image }.packages())
        }
        _ => None,
    }
}
