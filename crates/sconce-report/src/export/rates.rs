//! Figures to look at over time: what counts since the beginning becomes a rate between two readings.

use std::collections::HashMap;

use super::cells::{ColumnType, RowSink};

/// Of a hostile record, no more figures than this are followed.
const MAX_FIGURES: usize = 4096;

/// Figures of one reading after the other.
#[derive(Debug, Default)]
pub(super) struct DerivedRates {
    t_us: u64,
    /// The last value of each counter and its time, µs.
    last: HashMap<String, (u64, u64)>,
    /// Of the present reading.
    figures: Vec<(String, f64)>,
}

impl DerivedRates {
    /// A reading begins.
    pub(super) fn start_sample(&mut self, t_us: u64) {
        self.t_us = t_us;
        self.figures.clear();
    }

    /// What the present reading tells.
    pub(super) fn current_figures(&self) -> &[(String, f64)] {
        &self.figures
    }
}

impl RowSink for DerivedRates {
    fn number(&mut self, name: &str, kind: ColumnType, value: Option<u64>) {
        let Some(value) = value else { return };
        if kind == ColumnType::Gauge {
            self.figures.push((name.to_owned(), value as f64));
            return;
        }
        let now = (self.t_us, value);
        let room = self.last.len() < MAX_FIGURES;
        let before = match self.last.get_mut(name) {
            Some(last) => std::mem::replace(last, now),
            None => {
                if room {
                    self.last.insert(name.to_owned(), now);
                }
                return;
            }
        };
        let passed_us = self.t_us.saturating_sub(before.0);
        // A counter that goes back is another's: a process that took a rank's place.
        let (Some(more), 1..) = (value.checked_sub(before.1), passed_us) else {
            return;
        };
        let per_us = more as f64 / passed_us as f64;
        self.figures.push(match name.strip_suffix("_us") {
            Some(stem) => (format!("{stem}_s_per_s"), per_us),
            None => (format!("{name}_per_s"), per_us * 1e6),
        });
    }

    fn text(&mut self, _: &str, _: Option<&str>) {}

    fn end(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
