//! Figures over time in the making.

use std::collections::BTreeMap;

use super::downsampled::DownsampledSeries;
use super::series::{Plot, SeriesKey, SeriesScope};

/// How many figures are kept at most: a record may come from anywhere.
const MAX_FIGURES: usize = 512;
/// Figures that one plot has of one subject, at most.
const MAX_FIGURES_PER_PLOT: usize = 8;
const PLOTS: usize = Plot::Tasks as usize + 1;

/// Every figure has a fixed place among those of its subject: a day's record adds twenty million readings,
/// and a search for each by plot, subject and name took half of the time.
#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    subjects: Vec<Subject>,
    /// The subject of the last reading; mostly it is the next one's too.
    last: usize,
    figures: usize,
}

#[derive(Debug)]
struct Subject {
    of: SeriesScope,
    figures: Vec<Option<(&'static str, DownsampledSeries)>>,
}

impl SeriesTable {
    /// Adds a reading of the figure `key`; `new` makes one that is not there yet. Beyond [`MAX_FIGURES`] figures
    /// none is added.
    pub(super) fn add(
        &mut self,
        key: SeriesKey,
        t_us: u64,
        value: f64,
        new: impl FnOnce() -> DownsampledSeries,
    ) {
        let (place, name) = key.which;
        let place = usize::from(place);
        debug_assert!(place < MAX_FIGURES_PER_PLOT, "{key:?}");
        let Some(subject) = self.subject(key.of) else {
            return;
        };
        let full = self.figures >= MAX_FIGURES;
        let figures = &mut self.subjects[subject].figures;
        match &mut figures[key.plot as usize * MAX_FIGURES_PER_PLOT + place] {
            Some((_, figure)) => figure.add(t_us, value),
            None if full => {}
            empty => {
                let (_, figure) = empty.insert((name, new()));
                figure.add(t_us, value);
                self.figures += 1;
            }
        }
    }

    fn subject(&mut self, of: SeriesScope) -> Option<usize> {
        let is = |subject: &Subject| subject.of == of;
        if !self.subjects.get(self.last).is_some_and(is) {
            self.last = match self.subjects.iter().position(is) {
                Some(found) => found,
                None if self.figures >= MAX_FIGURES => return None,
                None => {
                    let figures = vec![None; PLOTS * MAX_FIGURES_PER_PLOT];
                    self.subjects.push(Subject { of, figures });
                    self.subjects.len() - 1
                }
            };
        }
        Some(self.last)
    }

    /// All of them, in the order of a page.
    pub(super) fn finish(self) -> BTreeMap<SeriesKey, DownsampledSeries> {
        let mut all = BTreeMap::new();
        for Subject { of, figures } in self.subjects {
            for (at, figure) in figures.into_iter().enumerate() {
                let Some((name, figure)) = figure else {
                    continue;
                };
                let which = ((at % MAX_FIGURES_PER_PLOT) as u8, name);
                let plot = Plot::ALL[at / MAX_FIGURES_PER_PLOT];
                all.insert(SeriesKey { plot, of, which }, figure);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_found_by_their_place() {
        for (at, plot) in Plot::ALL.into_iter().enumerate() {
            assert_eq!(plot as usize, at);
        }
    }

    #[test]
    fn figures_are_bounded_and_in_order() {
        let mut table = SeriesTable::default();
        let mut add = |plot, of, which| {
            let key = SeriesKey { plot, of, which };
            table.add(key, 5, 1.0, || DownsampledSeries::new(0, 1, 10));
        };
        add(Plot::Tasks, SeriesScope::Run, (1, "threads"));
        add(Plot::Phases, SeriesScope::Process(9), (5, "other"));
        add(Plot::Phases, SeriesScope::Process(9), (0, "data"));
        for card in 0..2 * MAX_FIGURES as u32 {
            add(Plot::CardUse, SeriesScope::Card(card), (0, ""));
        }
        let all = table.finish();
        assert_eq!(all.len(), MAX_FIGURES);
        let names: Vec<&str> = all.keys().map(|key| key.which.1).collect();
        assert_eq!((names[0], names[1]), ("data", "other"));
        assert_eq!(names.last(), Some(&"threads"));
    }
}
