//! The list of runs.

use sconce_record::RunListing;
use sconce_schema::Bytes;
use serde::Serialize;

use super::{EndShape, FORMAT, seconds, text};
use crate::model::RunRow;

#[derive(Serialize)]
struct Shape {
    format: u32,
    runs: Vec<RunShape>,
    /// One sentence for each record that cannot be read.
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct RunShape {
    id: String,
    name: Option<String>,
    started_unix_ms: u64,
    command: Vec<String>,
    wall_seconds: Option<f64>,
    #[serde(flatten)]
    end: EndShape,
    /// Null where the kernel's count of such kills was not read.
    out_of_memory: Option<bool>,
    peak_memory_bytes: Option<Bytes>,
}

/// The runs of a folder, newest first.
///
/// # Panics
/// Never: a listing is plain data.
#[must_use]
pub fn render_run_list(listing: &RunListing) -> String {
    let run = |run: RunRow| RunShape {
        id: run.id,
        name: run.name,
        started_unix_ms: run.unix_ms,
        command: run.command,
        wall_seconds: run.wall_us.map(seconds),
        end: run.end.into(),
        out_of_memory: run.out_of_memory,
        peak_memory_bytes: run.peak_memory,
    };
    text(&Shape {
        format: FORMAT,
        runs: listing.runs.iter().map(|entry| run(entry.into())).collect(),
        unreadable: listing.unreadable.iter().map(ToString::to_string).collect(),
    })
}
