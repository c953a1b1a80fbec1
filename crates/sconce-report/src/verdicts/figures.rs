//! The figures that rules may name: of a run, a rank, a growing figure, a card, a card that ran out.

mod card;
mod kept;
mod rank;
mod run;
mod table;

use std::collections::BTreeMap;

pub(crate) use self::table::FIGURES;
use super::value::FigureUnit;
pub(crate) use super::value::FigureValue;
use crate::model::RunReport;

/// What a rule is about, and so which figures it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleSubject {
    /// The run as a whole.
    Run,
    /// A process that trains, and its card; with the run's figures.
    Rank,
    /// One figure of a rank over its steps; with the rank's and the run's.
    Growth,
    /// A card; with the run's.
    Card,
    /// A time when a card's memory ran out; with the rank's and the run's.
    CardOom,
}

impl RuleSubject {
    pub(crate) const ALL: [Self; 5] = [
        Self::Run,
        Self::Rank,
        Self::Growth,
        Self::Card,
        Self::CardOom,
    ];

    pub(crate) fn from_label(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|about| about.label() == word)
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Rank => "rank",
            Self::Growth => "growth",
            Self::Card => "card",
            Self::CardOom => "card-oom",
        }
    }

    /// Whether a rule about this knows figures of that.
    #[cfg(test)]
    pub(crate) fn has_figures_of(self, figures: Self) -> bool {
        match figures {
            Self::Run => true,
            Self::Rank => matches!(self, Self::Rank | Self::Growth | Self::CardOom),
            Self::Growth | Self::Card | Self::CardOom => self == figures,
        }
    }

    /// Several of them.
    pub(crate) fn plural_label(self) -> Option<&'static str> {
        match self {
            Self::Run => None,
            Self::Rank => Some("ranks"),
            Self::Growth => Some("growing figures that were watched"),
            Self::Card => Some("cards"),
            Self::CardOom => Some("times"),
        }
    }
}

/// A figure's unit.
pub(crate) fn unit_of(name: &str) -> Option<FigureUnit> {
    FIGURES
        .iter()
        .find(|figure| figure.0 == name)
        .map(|figure| figure.1)
}

/// Whose figure it is.
#[cfg(test)]
pub(crate) fn about_of(name: &str) -> Option<RuleSubject> {
    FIGURES
        .iter()
        .find(|figure| figure.0 == name)
        .map(|figure| figure.2)
}

/// The figures of one subject.
#[derive(Debug, Clone)]
pub(crate) struct FigureSet {
    pub(crate) about: RuleSubject,
    /// `rank 1`, `card 0`.
    pub(crate) name: Option<String>,
    values: BTreeMap<&'static str, FigureValue>,
}

impl FigureSet {
    /// Every subject of a run.
    pub(crate) fn compute_all(report: &RunReport) -> Vec<Self> {
        let run = run::compute_figures(report);
        let mut all = vec![run.clone()];
        for rank in &report.training {
            let figures = rank::compute_figures(&run, rank, report);
            all.extend(rank::compute_growth_figures(&figures, rank, report));
            all.push(figures);
        }
        all.extend(
            report
                .cards
                .iter()
                .map(|one| card::compute_figures(&run, one)),
        );
        for oom in &report.card_oom {
            let rank = report.training.iter().find(|rank| rank.pid == oom.pid);
            let base = rank.map_or_else(
                || run.clone(),
                |rank| rank::compute_figures(&run, rank, report),
            );
            all.push(card::out_of_memory(&base, oom));
        }
        all
    }

    pub(crate) fn get(&self, name: &str) -> Option<&FigureValue> {
        self.values.get(name)
    }

    fn new(about: RuleSubject) -> Self {
        Self {
            about,
            name: None,
            values: BTreeMap::new(),
        }
    }

    /// The same figures, for others to be added to.
    fn under(&self, about: RuleSubject, name: Option<String>) -> Self {
        Self {
            about,
            name,
            values: self.values.clone(),
        }
    }

    /// Puts a figure in, where it was measured and is a number.
    fn put(&mut self, name: &'static str, value: Option<FigureValue>) {
        let Some(value) = value.filter(|value| value.as_number().is_none_or(f64::is_finite)) else {
            return;
        };
        debug_assert_eq!(unit_of(name), Some(value.unit()), "{name}");
        self.values.insert(name, value);
    }

    fn share(&mut self, name: &'static str, value: Option<f64>) {
        self.put(name, value.map(FigureValue::Share));
    }

    fn bytes(&mut self, name: &'static str, value: Option<f64>) {
        self.put(name, value.map(FigureValue::Bytes));
    }

    fn time(&mut self, name: &'static str, us: Option<f64>) {
        self.put(name, us.map(FigureValue::Time));
    }

    fn count(&mut self, name: &'static str, value: Option<f64>) {
        self.put(name, value.map(FigureValue::Count));
    }

    fn text(&mut self, name: &'static str, value: Option<&str>) {
        let value = value.filter(|text| !text.is_empty());
        self.put(name, value.map(|text| FigureValue::Text(text.to_owned())));
    }

    fn flag(&mut self, name: &'static str, value: Option<bool>) {
        self.put(name, value.map(FigureValue::Flag));
    }
}

/// A share of a whole that is there.
fn of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
