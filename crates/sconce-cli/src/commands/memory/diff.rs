//! `sconce memory diff`.

mod page;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use sconce_memory::analysis::{self, FunctionChange, MemoryTotals, ReportDiff};
use sconce_schema::exit;

use super::claim_page;
use super::format::{analyze_snapshot_file, format_bytes, format_signed_bytes, printable_text};
use crate::output;
use crate::table::format_table;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::outputs;

/// Places without --all.
const DEFAULT_ROWS: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct MemoryDiffArgs {
    /// The older snapshot.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The newer.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Show all that differs.
    #[arg(long)]
    all: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Write a page to FILE; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Says what differs. Exit code 1 where anything does, as diff(1).
pub(crate) fn diff_snapshots(args: &MemoryDiffArgs, context: &AppContext) -> Result<u8> {
    let html = claim_page(
        args.html.as_deref(),
        &[args.before.clone(), args.after.clone()],
        args.json,
    )?;
    let found = analysis::diff_reports(
        &analyze_snapshot_file(&args.before)?,
        &analyze_snapshot_file(&args.after)?,
    );
    if let Some(output) = html {
        let name =
            |path: &Path| printable_text(&path.file_name().unwrap_or_default().to_string_lossy());
        let whole = page::render_page(&name(&args.before), &name(&args.after), &found);
        outputs::write(output, whole.as_bytes(), context)?;
    }
    if args.json {
        output::write_data(&serde_json::to_string_pretty(&found).unwrap_or_default())?;
    } else if args.html.is_some() {
        // It is all on the page.
    } else if !found.is_empty() {
        output::write_data(&text(&found, args.all, &TextLayout::for_stdout()))?;
    } else if !context.quiet {
        output::print_message("nothing differs in what they say");
    }
    Ok(if found.is_empty() { exit::OK } else { exit::NO })
}

fn text(found: &ReportDiff, all: bool, page: &TextLayout) -> String {
    let mut text = String::new();
    for said in settings(found) {
        let _ = writeln!(text, "{}", page.wrap_text(&said, 0, 2));
    }
    for device in &found.devices {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{}",
            page.style.warn(&format!("card {}", device.device))
        );
        let rows = figures(device.before.as_ref(), device.after.as_ref());
        let heads = ["", "before", "after", "change"];
        let _ = writeln!(text, "{}", format_table(heads, &rows, &page.style));
        if device.changes.is_empty() {
            continue;
        }
        let few = if all { usize::MAX } else { DEFAULT_ROWS };
        let rows: Vec<[String; 4]> = device.changes.iter().take(few).map(cells).collect();
        let heads = ["change", "before", "after", "what filled the peak"];
        let _ = writeln!(text, "\n{}", format_table(heads, &rows, &page.style));
        let more = device.changes.len().saturating_sub(few);
        if more > 0 {
            let _ = writeln!(text, "{more} more: --all shows them");
        }
    }
    text
}

/// Settings that differ.
fn settings(found: &ReportDiff) -> Vec<String> {
    let value = |value: &Option<String>| value.as_deref().map_or("–".to_owned(), quoted);
    let said = found.settings.iter().map(|(name, before, after)| {
        let (before, after) = (value(before), value(after));
        format!("{name}: {before} before, {after} after")
    });
    said.collect()
}

fn cells(change: &FunctionChange) -> [String; 4] {
    let cell = |bytes: Option<u64>| bytes.map_or("–".to_owned(), format_bytes);
    let place = change.place.as_deref();
    [
        format_signed_bytes(change.growth_bytes()),
        cell(change.before_bytes),
        cell(change.after_bytes),
        place.unwrap_or("no Python, or not recorded").to_owned(),
    ]
}

fn quoted(value: &str) -> String {
    match value {
        "" => "nothing".to_owned(),
        value => printable_text(value),
    }
}

fn figures(before: Option<&MemoryTotals>, after: Option<&MemoryTotals>) -> Vec<[String; 4]> {
    type FigureGetter = fn(&MemoryTotals) -> u64;
    let rows: [(&str, FigureGetter); 5] = [
        ("live at the peak", |one| one.peak_bytes),
        ("reserved at its peak", |one| one.peak_reserved_bytes),
        ("live at the end", |one| one.live_bytes),
        ("reserved at the end", |one| one.reserved_bytes),
        ("free, kept by live blocks", |one| one.stuck_bytes),
    ];
    let cell = |bytes: Option<u64>| bytes.map_or("–".to_owned(), format_bytes);
    let rows = rows.into_iter().map(|(name, of)| {
        let (first, second) = (before.map(of), after.map(of));
        let change = first.zip(second);
        let change = change.map_or("–".to_owned(), |(first, second)| {
            format_signed_bytes(i128::from(second) - i128::from(first))
        });
        [name.to_owned(), cell(first), cell(second), change]
    });
    let mut rows: Vec<[String; 4]> = rows.collect();
    let failed =
        |one: Option<&MemoryTotals>| one.map_or("–".to_owned(), |one| one.ooms.to_string());
    if [before, after].iter().flatten().any(|one| one.ooms > 0) {
        rows.push([
            "requests that failed".to_owned(),
            failed(before),
            failed(after),
            String::new(),
        ]);
    }
    rows
}
