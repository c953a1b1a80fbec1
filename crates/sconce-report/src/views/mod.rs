//! What pages show of a record: the report's model, and every figure over time.
//!
//! A record is folded once for both. Memory does not grow with its length: a figure over time is
//! [`DownsampledSeries`] to a bounded number of points, which keep the least and the most of what they stand
//! for.

mod downsampled;
mod series;
mod shape;
mod table;

use std::io::BufRead;

use sconce_record::RecordReader;

use crate::fold::Fold;
use crate::model::RunReport;

pub use downsampled::{DownsampledSeries, SeriesBucket};
pub use series::{Plot, PlotUnit, RunSeries, SeriesFold, SeriesKey, SeriesScope};
pub use shape::{render_run, render_series};

/// A record, as a page shows it.
#[derive(Debug)]
pub struct RecordView {
    /// The report.
    pub report: RunReport,
    /// Every figure over time, of the window that was asked for.
    pub series: RunSeries,
}

impl RecordView {
    /// Reads the rest of a record. Figures over time have up to `points` points each (at least 2) over
    /// the whole run.
    #[must_use]
    pub fn from_record<R: BufRead>(record: RecordReader<R>, points: usize) -> Self {
        let mut fold = Fold::new(record.started.clone(), record.running);
        let mut series = SeriesFold::new(0, None, points);
        series.apply_start_event(&record.started);
        for line in record.without_processes() {
            if let Ok(line) = &line {
                series.add_line(line);
            }
            fold.add_line(line);
        }
        Self {
            report: fold.finish(),
            series: series.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
