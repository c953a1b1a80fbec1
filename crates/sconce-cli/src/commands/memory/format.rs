//! What the verbs of `sconce memory` say in the same words.

use std::path::Path;

use sconce_base::text::to_printable;
use sconce_memory::analysis::{self, MemoryCategory, SnapshotReport, SourceLocation};
use sconce_memory::snapshot::{self, Snapshot, SnapshotLimits};
use sconce_schema::Bytes;
use sconce_schema::finding::Certainty;

use crate::error::CliError;
use crate::output;
use sconce_app::failure::{AppError, Result};
use sconce_app::input;

/// Longer names are cut.
const MAX_NAME_CHARS: usize = 120;

/// Reads a snapshot and says what is in it.
pub(crate) fn analyze_snapshot_file(path: &Path) -> Result<SnapshotReport> {
    Ok(analysis::analyze_snapshot(&read_snapshot(path)?))
}

/// Reads a snapshot.
pub(crate) fn read_snapshot(path: &Path) -> Result<Snapshot> {
    let file =
        input::open_stream(path, &output::tell_fifo_wait).map_err(AppError::unreadable(path))?;
    let read = snapshot::read(file, &SnapshotLimits::default());
    read.map_err(|source| {
        let path = path.to_owned();
        CliError::Snapshot { path, source }.into()
    })
}

pub(crate) fn format_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

pub(crate) fn format_signed_bytes(bytes: i128) -> String {
    let size = format_bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "–".to_owned(),
        n if n > 0 => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

/// `train.py:36 step`.
pub(crate) fn format_location(place: Option<&SourceLocation>) -> String {
    let Some(place) = place else {
        return "no Python: autograd's thread, or not recorded".to_owned();
    };
    let file = place.file.rsplit('/').next().unwrap_or(&place.file);
    let text = match place.line {
        Some(line) => format!("{file}:{line} {}", place.function),
        None => format!("{file} {}", place.function),
    };
    to_printable(&text, MAX_NAME_CHARS)
}

/// One frame of a stack; of an installed package without the folder that packages are in.
pub(crate) fn frame_of(frame: &str) -> String {
    let installed = frame.rsplit_once("-packages/").map(|(_, path)| path);
    printable_text(installed.unwrap_or(frame))
}

/// A text of a snapshot, without what a terminal would obey.
pub(crate) fn printable_text(text: &str) -> String {
    to_printable(text, MAX_NAME_CHARS)
}

pub(crate) fn format_category(category: MemoryCategory) -> &'static str {
    match category {
        MemoryCategory::Parameters => "parameters",
        MemoryCategory::Activations => "activations",
        MemoryCategory::Backward => "backward",
        MemoryCategory::OptimizerState => "optimizer state",
        MemoryCategory::OptimizerWork => "optimizer work",
        MemoryCategory::Communication => "communication",
        MemoryCategory::Workspace => "workspace",
        MemoryCategory::Other => "other",
    }
}

pub(crate) fn format_certainty(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Certain => "",
        Certainty::Likely => "likely",
        Certainty::Possible => "possibly",
    }
}

pub(crate) fn format_count(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

pub(crate) fn format_percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "    –".to_owned(),
        whole => format!("{:>3.0} %", part as f64 * 100.0 / whole as f64),
    }
}
