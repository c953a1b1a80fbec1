//! `sconce compare`.

use clap::Args;
use sconce_image::package_diff::diff_packages;
use sconce_image::sbom::SbomPackage;
use sconce_report::compare::{Comparison, SettingChange};
use sconce_report::{RunReport, json, terminal};
use sconce_schema::exit;

use super::package_list::PackageListSource;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The run to compare with: its id, the beginning of one, or `last`.
    #[arg(value_name = "BEFORE")]
    before: String,
    /// The run to look at.
    #[arg(value_name = "AFTER", default_value = "last")]
    after: String,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn compare(args: &CompareArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let read = |run: &str| -> Result<RunReport> {
        let path = sconce_record::resolve_run(&places.runs, run)?;
        Ok(RunReport::from_record(sconce_record::open_record(&path)?))
    };
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let mut comparison = Comparison::from_reports(&before, &after);
    comparison.packages = packages(&before, &after, context);
    output::write_data(&if args.json {
        json::render_comparison(&comparison)
    } else {
        terminal::render_comparison(&comparison, OutputStyle::for_stdout().for_reports())
    })?;
    Ok(exit::OK)
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
