//! Reports for programs: JSON whose names carry their units.
//!
//! The shape is a promise: `format` is 1, and within a format keys are only added. Names are in
//! snake case and end in their unit (`_bytes`, `_seconds`, `_cores`, `_share` for 0 to 1, `_w`,
//! `_wh`, `_c`, `_mhz`, `_unix_ms`); a figure that was not measured is `null`; times without
//! `unix` count from the beginning of the run. The fields and their meaning are those of
//! [`crate::RunReport`] and [`crate::RunRow`].

mod compare;
mod load;
mod network;
mod report;
mod run_table;
mod runs;
mod training;

pub use compare::render_comparison;
pub use report::render_report;
pub use run_table::render_run_table;
pub use runs::render_run_list;

use serde::Serialize;

use crate::model::RunEnd;

/// The format of everything here.
pub const FORMAT: u32 = 1;

/// A JSON text, indented, with a newline at its end.
fn text(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain data with text keys is JSON");
    text.push('\n');
    text
}

const fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// How a run ended.
#[derive(Debug, Serialize)]
struct EndShape {
    /// `exited`, `signalled`, `interrupted` or `running`.
    state: &'static str,
    /// What the command returned; 128 + the signal where one ended it.
    exit_code: Option<u8>,
    /// The signal's number.
    signal: Option<i32>,
}

impl From<RunEnd> for EndShape {
    fn from(end: RunEnd) -> Self {
        let (state, exit_code, signal) = match end {
            RunEnd::Exited(code) => ("exited", Some(code), None),
            RunEnd::Signalled(signal) => {
                let code = sconce_schema::event::ExitStatus::Signal(signal).exit_code();
                ("signalled", Some(code), Some(signal))
            }
            RunEnd::Interrupted => ("interrupted", None, None),
            RunEnd::Running => ("running", None, None),
        };
        Self {
            state,
            exit_code,
            signal,
        }
    }
}
