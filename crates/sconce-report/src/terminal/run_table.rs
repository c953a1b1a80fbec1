//! Many runs side by side.

use std::collections::BTreeSet;

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
/// So much stays of a beginning that all commands have.
const KEPT_BEGINNING: usize = 6;
/// More values of a setting than this are counted.
const MAX_LISTED_VALUES: usize = 6;

/// A cell, and how it is meant.
type Cell = (String, Tone);

/// A row for each run, and below what else was not the same in all of them. Figures that no run has get no column.
#[must_use]
pub fn render_run_table(table: &RunTable<'_>, style: TerminalStyle) -> String {
    let mut columns: Vec<(&str, Vec<Cell>)> = columns(table)
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
        widths[at] = narrow_own_words(&mut columns[at].1, left);
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

/// Brings the column of commands to `width` where that keeps those apart that differ: first without the beginning that
/// all have, and no narrower than that needs. Returns the width that it has then.
fn narrow_own_words(cells: &mut [Cell], width: usize) -> usize {
    let widest = |cells: &[Cell]| {
        let widths = cells.iter().map(|(text, _)| text.chars().count());
        widths.chain([HEAD_OWN_WORDS.len()]).max().unwrap_or(0)
    };
    let shown = |cells: &[Cell], width: usize| -> BTreeSet<String> {
        cells
            .iter()
            .map(|(text, _)| shortened(text, width))
            .collect()
    };
    let different = shown(cells, usize::MAX).len();
    let keeps_apart = |cells: &[Cell], width| shown(cells, width).len() == different;
    let whole = widest(cells);
    if whole <= width || keeps_apart(cells, width) {
        return whole.min(width);
    }
    let common = count_common_chars(cells);
    // A mark and a few words more tell where it is.
    if common > KEPT_BEGINNING + 1 {
        for (text, _) in cells.iter_mut() {
            let rest: String = text.chars().skip(common - KEPT_BEGINNING).collect();
            *text = format!("…{rest}");
        }
    }
    let whole = widest(cells);
    (width..whole)
        .find(|width| keeps_apart(cells, *width))
        .unwrap_or(whole)
}

/// With how many characters all commands begin.
fn count_common_chars(cells: &[Cell]) -> usize {
    let Some(((first, _), others)) = cells.split_first() else {
        return 0;
    };
    let common = |text: &str| {
        first
            .chars()
            .zip(text.chars())
            .take_while(|(a, b)| a == b)
            .count()
    };
    let counts = others.iter().map(|(text, _)| common(text));
    counts.min().unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_differ_look_different() {
        let narrow = |texts: &[&str], width| {
            let mut cells: Vec<Cell> = texts
                .iter()
                .map(|text| ((*text).to_owned(), Tone::Plain))
                .collect();
            let width = narrow_own_words(&mut cells, width);
            let shown: Vec<String> = cells
                .iter()
                .map(|(text, _)| shortened(text, width))
                .collect();
            (width, shown)
        };
        let (width, shown) = narrow(&["--lr 0.1", "--lr 0.2"], 12);
        assert_eq!((width, &*shown[0]), (8, "--lr 0.1"));
        let long = [
            "--data /lustre/one/long/path/a --seed 1",
            "--data /lustre/one/long/path/b --seed 1",
        ];
        let (width, shown) = narrow(&long, 14);
        assert_eq!((width, shown[0] == shown[1]), (14, false));
        assert!(
            shown[0].starts_with("…/path/a") || shown[0].starts_with("…path/a"),
            "{shown:?}"
        );
        // The same ends after other beginnings: there is nothing to leave out.
        let (width, shown) = narrow(&["a-long-word-0 x", "a-long-word-1 x", "b"], 12);
        assert!(width > 12 && shown[0] != shown[1], "{shown:?}");
        assert_eq!(narrow(&["", ""], 12).1, ["", ""]);
    }
}
