//! The list of runs.

use sconce_record::RunListing;

use super::TerminalStyle;
use super::layout::{Tone, paint};
use crate::format::{
    describe_signal, format_date_time, format_duration, format_workload, printable_text,
};
use crate::model::{RunEnd, RunRow};

const GAP: &str = "  ";
const HEAD: [&str; 6] = ["RUN", "BEGAN (UTC)", "TOOK", "MEMORY", "ENDED", "COMMAND"];
/// Columns of figures, which end at the same place.
const RIGHT: [usize; 2] = [2, 3];
/// When a run began, which its id tells too.
const BEGAN: usize = 1;
/// The last column gets what is left. Where that is less than this, [`BEGAN`] is left out.
const NARROWEST_COMMAND: usize = 12;

/// A table of runs, newest first, and what cannot be read of them.
#[must_use]
pub fn render_run_list(listing: &RunListing, style: TerminalStyle) -> String {
    if listing.runs.is_empty() && listing.unreadable.is_empty() {
        return "No run has been recorded.\n".to_owned();
    }
    let mut text = String::new();
    if !listing.runs.is_empty() {
        let rows: Vec<_> = listing
            .runs
            .iter()
            .map(|run| row(&RunRow::from(run)))
            .collect();
        let mut widths = HEAD.map(str::len);
        for (cells, _) in &rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let left = |widths: &[usize; 6]| {
            let shown = widths[..5].iter().filter(|width| **width > 0);
            let others: usize = shown.map(|width| width + GAP.len()).sum();
            style.columns().saturating_sub(others)
        };
        if left(&widths) < widths[5].min(NARROWEST_COMMAND) {
            widths[BEGAN] = 0;
        }
        widths[5] = widths[5].min(left(&widths)).max(1);

        text += &line(&HEAD.map(str::to_owned), &widths, [Tone::Dim; 6], style);
        for (cells, ended) in &rows {
            let tones = [
                Tone::Plain,
                Tone::Plain,
                Tone::Plain,
                Tone::Plain,
                *ended,
                Tone::Plain,
            ];
            text += &line(cells, &widths, tones, style);
        }
    }
    for error in &listing.unreadable {
        text += &paint(&printable_text(&error.to_string()), Tone::Warning, style);
        text.push('\n');
    }
    text
}

fn row(run: &RunRow) -> ([String; 6], Tone) {
    let dash = || "–".to_owned();
    let (ended, tone) = describe_end(run.end, run.out_of_memory == Some(true));
    let cells = [
        printable_text(&run.id),
        format_date_time(run.unix_ms),
        run.wall_us.map_or_else(dash, format_duration),
        run.peak_memory.map_or_else(dash, |bytes| bytes.to_string()),
        ended,
        printable_text(&format_workload(&run.command)),
    ];
    (cells, tone)
}

/// How a run ended, in a column's few characters.
pub(super) fn describe_end(end: RunEnd, is_out_of_memory: bool) -> (String, Tone) {
    match end {
        _ if is_out_of_memory => ("out of memory".to_owned(), Tone::Bad),
        RunEnd::Exited(0) => ("exit 0".to_owned(), Tone::Good),
        RunEnd::Exited(code) => (format!("exit {code}"), Tone::Bad),
        RunEnd::Signalled(number) => (describe_signal(number).0, Tone::Bad),
        RunEnd::Interrupted => ("interrupted".to_owned(), Tone::Bad),
        RunEnd::Running => ("running".to_owned(), Tone::Strong),
    }
}

fn line(
    cells: &[String; 6],
    widths: &[usize; 6],
    tones: [Tone; 6],
    style: TerminalStyle,
) -> String {
    let mut line = String::new();
    for (n, cell) in cells.iter().enumerate().filter(|(n, _)| widths[*n] > 0) {
        let cell = shortened(cell, widths[n]);
        let pad = " ".repeat(widths[n] - cell.chars().count());
        let cell = paint(&cell, tones[n], style);
        match n {
            _ if RIGHT.contains(&n) => line += &format!("{pad}{cell}{GAP}"),
            5 => line += &cell,
            _ => line += &format!("{cell}{pad}{GAP}"),
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// At most `width` characters, with an ellipsis for what is left out.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}
