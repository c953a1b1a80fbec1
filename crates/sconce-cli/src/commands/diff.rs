//! `sconce diff`.

use clap::Args;
use sconce_image::package_diff::{PackageChange, PackageDiff, diff_packages as compare};
use sconce_image::sbom::SbomPackage;
use sconce_schema::{Bytes, exit};

use super::package_list::PackageListSource;
use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The older: an image, a lock, a spec, or an SPDX or CycloneDX list.
    #[arg(value_name = "BEFORE")]
    before: String,
    /// The newer.
    #[arg(value_name = "AFTER")]
    after: String,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Exit code 1 where they differ, as diff(1).
pub(crate) fn diff(args: &DiffArgs, context: &AppContext) -> Result<u8> {
    let before = PackageListSource::from_argument(&args.before, context)?.packages();
    let after = PackageListSource::from_argument(&args.after, context)?.packages();
    let found = compare(&before, &after);
    if args.json {
        output::write_data(&as_json(&found).to_string())?;
    } else {
        let rows = rows(&found);
        if !rows.is_empty() {
            let heads = ["package", "before", "after", "download"];
            output::write_data(&format_table(heads, &rows, &OutputStyle::for_stdout()))?;
        }
        if !context.quiet {
            output::print_message(&summary(&found));
        }
    }
    Ok(if found.is_empty() { exit::OK } else { exit::NO })
}

fn rows(found: &PackageDiff) -> Vec<[String; 4]> {
    let none = || "–".to_owned();
    let size = |package: &SbomPackage| {
        package
            .size_bytes
            .map_or_else(none, |n| Bytes(n).to_string())
    };
    let version = |package: &SbomPackage| package.version.clone().unwrap_or_else(none);
    let mut rows = Vec::new();
    for PackageChange { before, after } in &found.changed {
        let change = found_growth(before, after).map_or_else(none, signed);
        let versions = (version(before), version(after));
        rows.push([after.name.clone(), versions.0, versions.1, change]);
    }
    for package in &found.added {
        rows.push([
            package.name.clone(),
            none(),
            version(package),
            format!("+{}", size(package)),
        ]);
    }
    for package in &found.removed {
        rows.push([
            package.name.clone(),
            version(package),
            none(),
            format!("-{}", size(package)),
        ]);
    }
    rows.sort();
    rows
}

fn found_growth(before: &SbomPackage, after: &SbomPackage) -> Option<i128> {
    Some(i128::from(after.size_bytes?) - i128::from(before.size_bytes?))
}

fn signed(bytes: i128) -> String {
    let size = Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "same".to_owned(),
        n if n > 0 => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

fn summary(found: &PackageDiff) -> String {
    if found.is_empty() {
        return "the same packages".to_owned();
    }
    let growth = found
        .growth_bytes()
        .map_or_else(String::new, |bytes| format!("; download {}", signed(bytes)));
    format!(
        "{} changed, {} added, {} removed{growth}",
        found.changed.len(),
        found.added.len(),
        found.removed.len()
    )
}

fn as_json(found: &PackageDiff) -> serde_json::Value {
    let one = |p: &SbomPackage| serde_json::json!({"name": p.name, "version": p.version, "download_bytes": p.size_bytes});
    let change =
        |c: &PackageChange| serde_json::json!({"before": one(&c.before), "after": one(&c.after)});
    serde_json::json!({
        "added": found.added.iter().map(one).collect::<Vec<_>>(),
        "removed": found.removed.iter().map(one).collect::<Vec<_>>(),
        "changed": found.changed.iter().map(change).collect::<Vec<_>>(),
    })
}
