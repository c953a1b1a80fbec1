//! Many runs side by side.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{EndShape, FORMAT, seconds, text};
use crate::compare::RunTable;

#[derive(Serialize)]
struct Shape<'a> {
    format: u32,
    runs: Vec<RowShape<'a>>,
}

#[derive(Serialize)]
struct RowShape<'a> {
    id: &'a str,
    /// The words of its command that are not those of all runs.
    own_words: &'a str,
    wall_seconds: f64,
    end: EndShape,
    out_of_memory: bool,
    steps: Option<u64>,
    median_step_seconds: Option<f64>,
    steps_per_second: Option<f64>,
    samples_per_second: Option<f64>,
    tokens_per_second: Option<f64>,
    memory_peak_bytes: Option<u64>,
    card_peak_bytes: Option<u64>,
    /// What is not the same in all runs; null is "not known".
    settings: BTreeMap<&'a str, Option<&'a str>>,
}

/// Many runs side by side, in the order in which they were named.
///
/// # Panics
/// Never: a table is plain data.
#[must_use]
pub fn render_run_table(table: &RunTable<'_>) -> String {
    let runs = table.rows.iter().enumerate().map(|(at, row)| RowShape {
        id: row.id,
        own_words: &row.own_words,
        wall_seconds: seconds(row.wall_us),
        end: row.end.into(),
        out_of_memory: row.is_out_of_memory,
        steps: row.steps,
        median_step_seconds: row.median_step_us.map(|us| us / 1e6),
        steps_per_second: row.steps_per_s,
        samples_per_second: row.samples_per_s,
        tokens_per_second: row.tokens_per_s,
        memory_peak_bytes: row.memory_peak.map(|bytes| bytes.0),
        card_peak_bytes: row.card_peak.map(|bytes| bytes.0),
        settings: (table.settings.iter())
            .map(|setting| (setting.what, setting.values[at].as_deref()))
            .collect(),
    });
    text(&Shape {
        format: FORMAT,
        runs: runs.collect(),
    })
}
