//! `sconce usage`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use sconce_record::{RecordError, RunEntry};
use sconce_report::RunReport;
use sconce_report::usage::{GroupBy, PartialSum, Prices, RunUsage, UsageRow, group_usage as sums};
use sconce_schema::{duration, exit};
use serde_json::json;

use crate::error::CliError;
use crate::output;
use crate::style::OutputStyle;
use crate::table::table_of_figures;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{AppError, Result, with_causes};
use sconce_app::input;

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// Put runs together by this.
    #[arg(long, value_enum, default_value = "project")]
    by: ByFlag,
    /// Runs that began in the last days or hours: 30d, 12h, 1d12h; or `all`.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = since)]
    since: Since,
    /// Prices, as docs/usage.md says.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Folders of records instead of your own, such as /home/*/.local/state/sconce/runs.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    runs: Vec<PathBuf>,
    /// Print as JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print as CSV.
    #[arg(long)]
    csv: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ByFlag {
    User,
    Project,
    Card,
    Day,
}

impl ByFlag {
    fn word(self) -> (GroupBy, &'static str) {
        match self {
            Self::User => (GroupBy::User, "user"),
            Self::Project => (GroupBy::Project, "project"),
            Self::Card => (GroupBy::Card, "card"),
            Self::Day => (GroupBy::Day, "day"),
        }
    }
}

/// How far back, milliseconds; `None` is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(Option<u64>);

fn since(text: &str) -> std::result::Result<Since, String> {
    if text == "all" {
        return Ok(Since(None));
    }
    let ago = duration::parse_milliseconds(text);
    ago.map(|ago| Since(Some(ago)))
        .map_err(|error| format!("neither {}, nor `all`", error.expected))
}

pub(crate) fn usage(args: &UsageArgs, context: &AppContext) -> Result<u8> {
    let prices = args.prices.as_deref().map(read_prices).transpose()?;
    let folders = match args.runs.is_empty() {
        true => vec![SconceDirs::find(context)?.runs],
        false => args.runs.clone(),
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let from_ms = args
        .since
        .0
        .map_or(0, |ago| (now.as_millis() as u64).saturating_sub(ago));
    let (mut entries, mut unreadable) = (Vec::new(), 0);
    let (mut seen, mut refused) = (HashSet::new(), Vec::new());
    for folder in &folders {
        // One folder that cannot be read keeps nobody from the others. One's own is made by the first
        // run; one that was named is there, or its name is wrong.
        let there = match args.runs.is_empty() {
            true => Ok(()),
            false => there(folder),
        };
        let listing = match there.and_then(|()| sconce_record::list_runs(folder)) {
            Ok(listing) => listing,
            Err(error) => {
                refused.push(error);
                continue;
            }
        };
        unreadable += listing.unreadable.len();
        // Two names of one folder count once.
        let runs = listing.runs.into_iter();
        entries.extend(runs.filter(|run| {
            run.started.unix_ms >= from_ms && file(&run.path).is_some_and(|file| seen.insert(file))
        }));
    }
    if refused.len() == folders.len()
        && let Some(first) = refused.pop()
    {
        return Err(first.into());
    }
    for error in &refused {
        output::print_message(&format!("left out: {}", with_causes(error)));
    }
    let (spent, failed) = spent(&entries);
    unreadable += failed;
    let (by, word) = args.by.word();
    let (rows, all) = sums(&spent, by, prices.as_ref());
    if args.csv {
        // The table has them below it, JSON beside each figure.
        notes(&all)
            .iter()
            .for_each(|note| output::print_message(note));
    }
    if unreadable > 0 {
        output::print_message(&format!("records that cannot be read: {unreadable}"));
    }
    output::write_data(&if args.json {
        as_json(&rows, &all, word, prices.as_ref())
    } else if args.csv {
        as_csv(&rows, word, prices.as_ref())
    } else {
        as_text(
            &rows,
            &all,
            word,
            prices.as_ref(),
            &OutputStyle::for_stdout(),
        )
    })?;
    Ok(exit::OK)
}

fn there(folder: &Path) -> std::result::Result<(), RecordError> {
    match folder.metadata() {
        Ok(_) => Ok(()),
        Err(source) => Err(RecordError::Io {
            doing: "read",
            path: folder.to_owned(),
            source,
        }),
    }
}

fn read_prices(path: &Path) -> Result<Prices> {
    let text = input::read_stream_text(path, &output::tell_fifo_wait)
        .map_err(AppError::unreadable(path))?;
    text.parse().map_err(|source| {
        CliError::Prices {
            path: path.to_owned(),
            source,
        }
        .into()
    })
}

/// What each run used, on all cores, and how many could not be read.
fn spent(entries: &[RunEntry]) -> (Vec<RunUsage>, usize) {
    let users = users();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut spent, mut failed) = (Vec::new(), 0);
        while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            match sconce_record::open_record(&entry.path) {
                Ok(record) => spent.push(RunUsage::from_report(
                    &RunReport::from_record(record),
                    &owner(&entry.path, &users),
                )),
                Err(_) => failed += 1,
            }
        }
        (spent, failed)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.min(16)).map(|_| scope.spawn(work)).collect();
        let mut all = (Vec::new(), 0);
        for (spent, failed) in threads.into_iter().filter_map(|thread| thread.join().ok()) {
            all.0.extend(spent);
            all.1 += failed;
        }
        all
    })
}

/// Which file it is, whatever names lead to it.
fn file(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.symlink_metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whose file it is: a name, or a number that has none here.
fn owner(path: &Path, users: &HashMap<u32, String>) -> String {
    let Ok(metadata) = path.symlink_metadata() else {
        return "–".to_owned();
    };
    let uid = metadata.uid();
    users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
}

fn users() -> HashMap<u32, String> {
    let text = sconce_app::input::read_text(Path::new("/etc/passwd")).unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        Some((
            fields.nth(2)?.parse().ok()?,
            line.split(':').next()?.to_owned(),
        ))
    };
    text.lines().filter_map(user).collect()
}

/// Hours, watt-hours, money: three digits that count.
fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 0.01 => "< 0.01".to_owned(),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn known(sum: PartialSum) -> String {
    sum.known.map_or_else(|| "–".to_owned(), figure)
}

fn as_text(
    rows: &[UsageRow],
    all: &UsageRow,
    by: &str,
    prices: Option<&Prices>,
    style: &OutputStyle,
) -> String {
    if rows.is_empty() {
        return "no runs in that time\n".to_owned();
    }
    let cost = prices.map_or_else(String::new, |prices| format!("COST {}", prices.currency));
    let head = by.to_uppercase();
    let heads = [
        head.as_str(),
        "RUNS",
        "HOURS",
        "GPU-H HELD",
        "USED",
        "IDLE",
        "CPU-H",
        "GIB-H",
        "KWH",
        cost.as_str(),
    ];
    let cells = |row: &UsageRow| {
        let held = row.gpu_held_h > 0.0;
        [
            row.name.clone(),
            row.runs.to_string(),
            figure(row.wall_h),
            figure(row.gpu_held_h),
            if held {
                known(row.gpu_used_h)
            } else {
                "0".to_owned()
            },
            row.idle_share()
                .map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            known(row.cpu_h),
            known(row.gib_h),
            row.energy_wh
                .known
                .map_or_else(|| "–".to_owned(), |wh| figure(wh / 1000.0)),
            row.cost.map_or_else(String::new, known),
        ]
    };
    let mut lines: Vec<[String; 10]> = rows.iter().map(cells).collect();
    if rows.len() > 1 {
        lines.push(cells(all));
    }
    let mut text = table_of_figures(heads, &lines, style);
    text.push('\n');
    for note in notes(all) {
        let _ = writeln!(text, "{}", style.dim(&note));
    }
    text
}

/// What is not in the figures, or only in part.
fn notes(all: &UsageRow) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: u64, words: &str| {
        if count > 0 {
            notes.push(format!("{words}: {count}"));
        }
    };
    note(
        all.open,
        "runs that go on or were interrupted, counted up to their last line",
    );
    note(
        all.gpu_used_h.unknown,
        "cards whose use was not measured, counted as held alone",
    );
    note(
        all.energy_wh.unknown,
        "cards whose energy was not measured, left out",
    );
    note(
        all.cpu_h.unknown,
        "runs whose CPU time was not measured, left out",
    );
    let unpriced = all.cost.map_or(0, |cost| cost.unknown);
    note(
        unpriced,
        "parts of the cost without a price or a figure, left out",
    );
    notes
}

fn shape(row: &UsageRow) -> serde_json::Value {
    let sum = |sum: PartialSum| json!({"known": sum.known, "not_measured": sum.unknown});
    json!({
        "name": row.name, "runs": row.runs, "open_runs": row.open, "wall_hours": row.wall_h,
        "gpu_held_hours": row.gpu_held_h, "gpu_used_hours": sum(row.gpu_used_h),
        "idle_share": row.idle_share(), "cpu_hours": sum(row.cpu_h),
        "memory_gib_hours": sum(row.gib_h), "energy_wh": sum(row.energy_wh),
        "cost": row.cost.map(sum),
    })
}

fn as_json(rows: &[UsageRow], all: &UsageRow, by: &str, prices: Option<&Prices>) -> String {
    let value = json!({
        "format": 1, "by": by, "currency": prices.map(|prices| &prices.currency),
        "rows": rows.iter().map(shape).collect::<Vec<_>>(), "all": shape(all),
    });
    format!("{value:#}\n")
}

fn as_csv(rows: &[UsageRow], by: &str, prices: Option<&Prices>) -> String {
    let mut text = format!(
        "{by},runs,open_runs,wall_hours,gpu_held_hours,gpu_used_hours,idle_share,cpu_hours,\
         memory_gib_hours,energy_wh,cost,currency\n"
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let currency = prices.map_or("", |prices| prices.currency.as_str());
    for row in rows {
        let cost = row.cost.and_then(|cost| cost.known);
        let figures = [
            Some(row.wall_h),
            Some(row.gpu_held_h),
            row.gpu_used_h.known,
            row.idle_share(),
            row.cpu_h.known,
            row.gib_h.known,
            row.energy_wh.known,
            cost,
        ];
        let figures = figures.map(number).join(",");
        let (runs, open) = (row.runs, row.open);
        let _ = writeln!(
            text,
            "{},{runs},{open},{figures},{}",
            field(&row.name),
            field(currency)
        );
    }
    text
}

/// A field of CSV (RFC 4180). A spreadsheet takes a text that begins with one of these for a formula.
fn field(text: &str) -> String {
    let text: String = text
        .chars()
        .filter(|c| !sconce_base::text::is_unprintable(*c))
        .collect();
    let formula = text.starts_with(['=', '+', '-', '@']);
    let text = if formula { format!("'{text}") } else { text };
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_no_folder_without_runs() {
        let error = there(Path::new("/nope")).unwrap_err();
        assert!(
            with_causes(&error).starts_with("cannot read /nope: "),
            "{error}"
        );
        assert!(there(Path::new("/")).is_ok());
    }

    #[test]
    fn times_and_fields() {
        assert_eq!(since("2d"), Ok(Since(Some(172_800_000))));
        assert_eq!(since("3h"), Ok(Since(Some(10_800_000))));
        assert_eq!(since("all"), Ok(Since(None)));
        assert_eq!(since("1d12h"), Ok(Since(Some(129_600_000))));
        for wrong in ["", "d", "-1d", "1", "1é", "99999999999999999d"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("a,\"b\"\n"), "\"a,\"\"b\"\"\"");
        assert_eq!(
            (figure(0.0), figure(0.001), figure(123.4)),
            ("0".into(), "< 0.01".into(), "123".into())
        );
    }
}
