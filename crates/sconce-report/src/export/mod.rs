//! Records for other programs: tables as CSV, JSON and Parquet, TensorBoard's event files, and traces
//! for Perfetto.
//!
//! An export is a function of a record's lines; nothing is thinned. Memory does not grow with the
//! record: it is read once for its columns where a format needs them first, and once more for its
//! rows. What is written to a record meanwhile is left out.

mod cells;
mod csv;
mod flat;
mod json;
mod parquet;
mod perfetto;
mod rates;
mod tensorboard;
mod thrift;

pub use csv::write_csv;
pub use json::write_json;
pub use parquet::write_parquet;
pub use perfetto::write_perfetto;
pub use tensorboard::write_tensorboard;

use std::io::{self, BufRead};

use sconce_record::{RecordError, RecordReader};
use sconce_schema::Hint;
use sconce_schema::event::RecordLine;

/// What the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportTable {
    /// One a reading: the run, each card, each training process.
    Readings,
    /// One a training step that is on record.
    Steps,
    /// One a process and reading.
    Processes,
}

/// What an export wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Rows of a table; scalars of TensorBoard; events of a trace.
    pub rows: u64,
    /// Lines of the record that could not be read.
    pub damaged_lines: u64,
    /// Columns that were left out, as there were too many.
    pub columns_left_out: u64,
}

/// An export that failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The record cannot be read.
    #[error("the record cannot be exported")]
    Record(#[from] RecordError),
    /// The export cannot be written.
    #[error("the export cannot be written")]
    Write(#[from] io::Error),
}

impl Hint for ExportError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Record(error) => error.hint(),
            Self::Write(_) => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Record(error) => error.exit_code(),
            Self::Write(_) => sconce_schema::exit::STORE,
        }
    }
}

/// Gives each line that can be read to `each`, `most` lines at most, and says how many lines there
/// were and how many could not be read.
fn walk<R: BufRead>(
    record: RecordReader<R>,
    most: u64,
    mut each: impl FnMut(&RecordLine) -> io::Result<()>,
) -> Result<(u64, u64), ExportError> {
    let (mut lines, mut damaged) = (0, 0);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    for line in record.take(most) {
        lines += 1;
        match line {
            Ok(line) => each(&line)?,
            Err(damage) => damaged += damage.count(),
        }
    }
    Ok((lines, damaged))
}
