//! `sconce compare`.

use clap::Args;
use sconce_image::diff::diff;
use sconce_image::sbom::Package;
use sconce_report::compare::{Change, Comparison};
use sconce_report::{Report, json, terminal};
use sconce_schema::exit;

use super::subject::Subject;
use crate::args::Global;
use crate::failure::Result;
use crate::output;
use crate::places::Places;
use crate::style::Style;

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

pub(crate) fn compare(args: &CompareArgs, global: &Global) -> Result<u8> {
    let places = Places::find(global)?;
    let read = |run: &str| -> Result<Report> {
        let path = sconce_record::find(&places.runs, run)?;
        Ok(Report::of(sconce_record::read(&path)?))
    };
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let mut comparison = Comparison::of(&before, &after);
    comparison.packages = packages(&before, &after, global);
    output::data(&if args.json {
        json::compare(&comparison)
    } else {
        terminal::compare(&comparison, Style::for_stdout().for_reports())
    })?;
    Ok(exit::OK)
}

/// What the locks have otherwise. A lock may have been written anew since the run: it counts only where
/// its versions are still the record's. Runs of one folder have one lock, which tells nothing.
fn packages(before: &Report, after: &Report, global: &Global) -> Option<Vec<Change>> {
    if before.started.folder == after.started.folder {
        return None;
    }
    let found = diff(&lock(before, global)?, &lock(after, global)?);
    let version = |package: &Package| package.version.clone();
    let mut changes: Vec<Change> = (found.changed.iter())
        .map(|change| Change {
            what: change.after.name.clone(),
            before: version(&change.before),
            after: version(&change.after),
        })
        .collect();
    changes.extend(found.added.iter().map(|package| Change {
        what: package.name.clone(),
        before: None,
        after: version(package),
    }));
    changes.extend(found.removed.iter().map(|package| Change {
        what: package.name.clone(),
        before: version(package),
        after: None,
    }));
    Some(changes)
}

fn lock(report: &Report, global: &Global) -> Option<Vec<Package>> {
    let versions = report.started.versions.as_ref()?;
    let path = report.started.folder.join("sconce.lock");
    match Subject::find(path.to_str()?, global).ok()? {
        Subject::Lock { name, lock, image } if lock.versions == *versions => {
            Some(Subject::Lock { name, lock, image }.packages())
        }
        _ => None,
    }
}
