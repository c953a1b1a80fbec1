//! Many runs side by side.

use super::TerminalStyle;
use super::layout::{Tone, paint};
use super::runs::{describe_end, shortened};
use crate::compare::{RunTable, RunTableRow, SettingRow};
use crate::format::{format_duration, printable_text};
use crate::verdicts::value::{format_number, format_precise_duration};

const GAP: &str = "  ";
/// The column of what a run's command has that others' have not: the one that is cut where the terminal is narrow.
const OWN_WORDS: usize = 1;
/// No less of it is shown.
const MIN_OWN_WORDS: usize = 12;
/// More values of a setting than this are counted.
const MAX_LISTED_VALUES: usize = 6;

/// A cell, and how it is meant.
type Cell = (String, Tone);

/// A row for each run, and below what else was not the same in all of them. Figures that no run has get no column.
#[must_use]
pub fn render_run_table(table: &RunTable<'_>, style: TerminalStyle) -> String {
    let columns: Vec<(&str, Vec<Cell>)> = columns(table)
        .into_iter()
        .filter(|(_, cells)| cells.iter().any(|(text, _)| text != NONE))
        .collect();
    let mut widths: Vec<usize> = columns
        .iter()
        .map(|(head, cells)| {
            let cells = cells.iter().map(|(text, _)| text.chars().count());
            cells.chain([head.len()]).max().unwrap_or(0)
        })
        .collect();
    if let Some(at) = columns.iter().position(|(head, _)| *head == HEAD_OWN_WORDS) {
        let others: usize =
            widths.iter().map(|width| width + GAP.len()).sum::<usize>() - widths[at];
        let left = style.columns().saturating_sub(others).max(MIN_OWN_WORDS);
        widths[at] = widths[at].min(left);
    }
    let heads: Vec<(String, Tone)> = columns
        .iter()
        .map(|(head, _)| ((*head).to_owned(), Tone::Dim))
        .collect();
    let rows = (0..table.rows.len()).map(|row| {
        let cells = columns.iter().map(|(_, cells)| cells[row].clone());
        cells.collect::<Vec<_>>()
    });
    let mut text: String = std::iter::once(heads)
        .chain(rows)
        .map(|cells| line(&cells, &widths, style))
        .collect();
    for (at, setting) in table.settings.iter().enumerate() {
        if at == 0 {
            text.push('\n');
        }
        text += &setting_line(setting, table, style);
    }
    text
}

const NONE: &str = "–";
const HEAD_OWN_WORDS: &str = "COMMAND";

fn columns(table: &RunTable<'_>) -> Vec<(&'static str, Vec<Cell>)> {
    let column = |head, cell: fn(&RunTableRow<'_>) -> Option<String>| {
        let cells = table.rows.iter().map(|row| {
            let text = cell(row).filter(|text| !text.is_empty());
            let text = text.unwrap_or_else(|| NONE.to_owned());
            (printable_text(&text), Tone::Plain)
        });
        (head, cells.collect())
    };
    vec![
        column("RUN", |row| Some(row.id.to_owned())),
        column(HEAD_OWN_WORDS, |row| Some(row.own_words.clone())),
        column("TOOK", |row| Some(format_duration(row.wall_us))),
        column("STEPS", |row| row.steps.map(|steps| steps.to_string())),
        column("STEP", |row| {
            row.median_step_us.map(format_precise_duration)
        }),
        column("STEPS/S", |row| row.steps_per_s.map(format_number)),
        column("SAMPLES/S", |row| row.samples_per_s.map(format_number)),
        column("TOKENS/S", |row| row.tokens_per_s.map(format_number)),
        column("MEMORY", |row| {
            row.memory_peak.map(|bytes| bytes.to_string())
        }),
        column("ON CARD", |row| {
            row.card_peak.map(|bytes| bytes.to_string())
        }),
        (
            "ENDED",
            (table.rows.iter())
                .map(|row| describe_end(row.end, row.is_out_of_memory))
                .collect(),
        ),
    ]
}

fn line(cells: &[Cell], widths: &[usize], style: TerminalStyle) -> String {
    let last = cells.len().saturating_sub(1);
    let mut line = String::new();
    for (at, ((text, tone), width)) in cells.iter().zip(widths).enumerate() {
        let text = shortened(text, *width);
        let pad = " ".repeat(width - text.chars().count());
        let text = paint(&text, *tone, style);
        let is_figure = at > OWN_WORDS && at < last;
        match is_figure {
            true => line += &format!("{pad}{text}{GAP}"),
            false => line += &format!("{text}{pad}{GAP}"),
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// `machine: n2 (2 runs), n10 (6 runs)`.
fn setting_line(setting: &SettingRow, table: &RunTable<'_>, style: TerminalStyle) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (value, row) in setting.values.iter().zip(&table.rows) {
        let value = value.as_deref().unwrap_or("not known");
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, ids)) => ids.push(row.id),
            None => groups.push((value, vec![row.id])),
        }
    }
    let count = groups.len();
    let values = groups.iter().take(MAX_LISTED_VALUES).map(|(value, ids)| {
        let value = printable_text(value);
        match ids.as_slice() {
            [id] => format!("{value} ({})", printable_text(id)),
            ids => format!("{value} ({} runs)", ids.len()),
        }
    });
    let mut values: Vec<String> = values.collect();
    if count > MAX_LISTED_VALUES {
        values.push(format!("and {} more", count - MAX_LISTED_VALUES));
    }
    let what = paint(&format!("{}:", setting.what), Tone::Dim, style);
    format!("{what} {}\n", values.join(", "))
}
