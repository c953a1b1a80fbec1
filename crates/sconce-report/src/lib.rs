//! Records to reports for people and programs.
//!
//! A record is folded once into one view model, [`RunReport`]; each way to show it is a folder of
//! its own and a function of the model: [`terminal`] for people, [`json`] for programs. They
//! give text; the program prints it.
//!
//! A figure that was not measured stays `None` to the end: it is shown as `–` or as "not
//! measured", or as `null`, never as 0.
#![forbid(unsafe_code)]

mod collectives;
pub mod compare;
mod contention;
pub mod export;
mod fold;
mod format;
mod hints;
pub mod json;
pub mod live;
pub mod metrics;
mod model;
mod network;
mod stats;
mod step_sampling;
pub mod terminal;
mod timeline;
mod training;
pub mod usage;
mod verdict;
mod verdicts;
pub mod views;

pub use collectives::CollectiveWaits;
pub use contention::{ContentionReport, LinkTraffic};
pub use format::describe_signal;
pub use model::{
    CpuReport, DiskReport, Energy, GpuReport, MemoryMeasure, MemoryReport, RunEnd, RunReport,
    RunRow, ServiceReport, TaskReport, Timestamped,
};
pub use stats::growth::Trend;
pub use stats::shift::StepTimeShift;
pub use timeline::Timeline;
pub use training::{GrowthMetric, GrowthReport, RankReport, SteadyPhases, StepTimeStats};
pub use verdict::{SkippedRule, Verdict, VerdictSeverity, not_judged_yet};
pub use verdicts::render_docs_page as verdicts_document;
