//! What plans came to: which fits on which card, the fastest first.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::GpuBudget;
use super::search::{PlanTrial, TrialFigures, TrialOutcome};
use super::training_plan::{TrainingPlan, TrainingPlans};

/// Whether a plan fits on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanFit {
    /// All that the allocator reserves does.
    Yes,
    /// What tensors need does, the allocator's cache beside it does not: whether the allocator can give
    /// enough of it back was not tried.
    Perhaps,
    /// It ran on that card, with the cache given back in between.
    Tight,
    /// Whether it does cannot be known.
    NotKnown,
    /// It does not.
    No,
}

/// Of one card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GpuPlanFit {
    /// Its name.
    pub card: String,
    /// Whether it fits there.
    pub fits: PlanFit,
    /// A step there at least, ms: an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ms: Option<f64>,
    /// What the allocator had at most where it was run on that card as it is. Near the card's end that can
    /// be more than on a card without end: growing segments then find other places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
}

/// One row: a plan that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlanRow {
    /// Names, as `sconce run --plan` takes them; empty for the program as it is.
    pub plan: String,
    /// The value of the user's flag, where it is not the command's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Tensors at most.
    pub allocated_bytes: Option<u64>,
    /// The allocator at most.
    pub reserved_bytes: Option<u64>,
    /// Reserved, context and libraries.
    pub on_card_bytes: Option<u64>,
    /// What it takes less of the card than the program as it is.
    pub saved_bytes: Option<i64>,
    /// A step at least, ms: an estimate.
    pub step_ms: Option<f64>,
    /// What ranks send each other takes of it at least, ms: an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_ms: Option<f64>,
    /// Blocks that can be checkpointed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// Whether it fits, in the order of the table's cards.
    pub cards: Vec<GpuPlanFit>,
    /// Lines that must be written, where the plan cannot be applied from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// Why it was not applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Plans tried on one kind of card, the row of the program as it is first, then those that fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlanTable {
    /// The card whose memory was searched for, and whose rates the estimates are of.
    pub card: String,
    /// The flag that values are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// The rows.
    pub rows: Vec<PlanRow>,
}

impl PlanTable {
    /// Of what was tried on a card without end: the program as it is, and the trials. `cards` are those
    /// that the figures hold for, the one that was searched for first.
    #[must_use]
    pub fn from_trials(
        flag: Option<String>,
        plain: &TrialFigures,
        trials: &[PlanTrial],
        cards: &[GpuBudget],
    ) -> Self {
        let mut rows = vec![row(Some(plain), plain, cards)];
        for trial in trials {
            let mut one = row(trial.figures(), plain, cards);
            one.plan = trial.asked.plans.to_string();
            one.value = trial.asked.value;
            one.lines = trial
                .asked
                .plans
                .needs_lines()
                .map(|plan| plan.code_lines().to_owned());
            if let TrialOutcome::Failed(why) = &trial.outcome {
                one.failed = Some(why.clone());
            }
            rows.push(one);
        }
        let mut table = Self {
            card: cards
                .first()
                .map(|card| card.name.clone())
                .unwrap_or_default(),
            flag,
            rows,
        };
        table.sort_rows();
        table
    }

    /// Puts what fits on the first card first, the fastest before the others; then what does not, the
    /// smallest first; what was not applied last. The program as it is stays on top.
    pub fn sort_rows(&mut self) {
        let key = |row: &PlanRow| {
            let fits = row
                .cards
                .first()
                .is_some_and(|card| card.fits != PlanFit::No);
            let class = match (&row.failed, fits) {
                (Some(_), _) => 2,
                (None, true) => 0,
                (None, false) => 1,
            };
            let ms = row.step_ms.filter(|_| class == 0).unwrap_or(f64::MAX);
            (class, ms, row.on_card_bytes.unwrap_or(u64::MAX))
        };
        let rest = self.rows.get_mut(1..).unwrap_or_default();
        rest.sort_by(|one, other| {
            let (one, other) = (key(one), key(other));
            let by_time = one.1.total_cmp(&other.1);
            one.0.cmp(&other.0).then(by_time).then(one.2.cmp(&other.2))
        });
    }

    /// The row to recommend for a card: the fastest there of those that fit, beside the program as it is.
    #[must_use]
    pub fn fastest_fitting(&self, card: usize) -> Option<&PlanRow> {
        let fits = |row: &PlanRow| row.cards.get(card).map(|card| card.fits);
        // What of a program is not known stays so with a plan: of those the fastest is named too.
        let sure = |row: &&PlanRow| {
            matches!(
                fits(row),
                Some(PlanFit::Yes | PlanFit::Tight | PlanFit::NotKnown)
            )
        };
        let rows = self.rows.iter().skip(1).filter(sure);
        // Of equal ones the first.
        rows.min_by(|one, other| one.order_on(card, other))
    }

    /// Takes back what is said to fit on a card, of a program of which not all that it does was seen. What
    /// nobody ran on that card is not offered then.
    pub fn mark_inconclusive(&mut self, card: usize) {
        for found in self
            .rows
            .iter_mut()
            .filter_map(|row| row.cards.get_mut(card))
        {
            if matches!(found.fits, PlanFit::Yes | PlanFit::Tight) {
                found.fits = PlanFit::NotKnown;
            }
        }
    }
}

impl PlanRow {
    /// Which of two rows to recommend for a card where both fit: the faster there. An optimizer whose state
    /// has less precision comes after those that have it whole.
    #[must_use]
    pub fn order_on(&self, card: usize, other: &Self) -> Ordering {
        let key = |row: &Self| {
            let plans: TrainingPlans = row.plan.parse().unwrap_or_default();
            let of_card = row.cards.get(card).and_then(|card| card.step_ms);
            // What is not known is slowest.
            let ms = of_card.or(row.step_ms).unwrap_or(f64::MAX);
            (plans.iter().any(|plan| plan == TrainingPlan::EightBit), ms)
        };
        let (one, other) = (key(self), key(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    }
}

fn row(figures: Option<&TrialFigures>, plain: &TrialFigures, cards: &[GpuBudget]) -> PlanRow {
    let beside = |figures: &TrialFigures| {
        figures
            .reserved_bytes
            .saturating_add(figures.libraries_bytes)
    };
    let context = cards.first().map_or(0, |card| card.context_bytes);
    let saved = |figures: &TrialFigures| {
        let saved = i128::from(beside(plain)) - i128::from(beside(figures));
        saved.try_into().ok()
    };
    let fits = |(at, card): (usize, &GpuBudget)| GpuPlanFit {
        card: card.name.clone(),
        fits: figures.map_or(PlanFit::No, |figures| judged(figures, card)),
        step_ms: figures.and_then(|figures| *figures.of_cards_ms.get(at)?),
        reserved_bytes: None,
    };
    PlanRow {
        plan: String::new(),
        value: None,
        allocated_bytes: figures.map(|figures| figures.allocated_bytes),
        reserved_bytes: figures.map(|figures| figures.reserved_bytes),
        on_card_bytes: figures.map(|figures| beside(figures).saturating_add(context)),
        saved_bytes: figures.and_then(saved),
        step_ms: figures.and_then(|figures| figures.step_ms),
        exchange_ms: figures.and_then(|figures| figures.exchange_ms),
        blocks: figures.and_then(|figures| figures.blocks),
        cards: cards.iter().enumerate().map(fits).collect(),
        lines: None,
        failed: None,
    }
}

/// By figures of a card without end: the allocator does the same on one with an end until it meets it.
fn judged(figures: &TrialFigures, card: &GpuBudget) -> PlanFit {
    let room = card.total_bytes.saturating_sub(card.context_bytes);
    let room = room.saturating_sub(figures.libraries_bytes);
    if figures.reserved_bytes <= room {
        PlanFit::Yes
    } else if figures.allocated_bytes <= room {
        PlanFit::Perhaps
    } else {
        PlanFit::No
    }
}

#[cfg(test)]
mod tests {
    use super::super::search::PlanCandidate;
    use super::*;

    fn card(name: &str, total_bytes: u64) -> GpuBudget {
        GpuBudget {
            name: name.to_owned(),
            total_bytes,
            context_bytes: 10,
            context_reported: true,
            nccl_least_bytes: 0,
        }
    }

    fn figures(reserved_bytes: u64, step_ms: f64) -> TrialFigures {
        TrialFigures {
            allocated_bytes: reserved_bytes - 5,
            reserved_bytes,
            libraries_bytes: 1,
            step_ms: Some(step_ms),
            of_cards_ms: Vec::new(),
            exchange_ms: None,
            blocks: None,
        }
    }

    fn table() -> PlanTable {
        let trial = |plan: TrainingPlan, outcome: TrialOutcome| PlanTrial {
            asked: PlanCandidate {
                plans: plan.into(),
                value: None,
            },
            outcome,
        };
        let trials = [
            trial(
                TrainingPlan::EightBit,
                TrialOutcome::Failed("not installed".to_owned()),
            ),
            trial(
                TrainingPlan::ForeachOff,
                TrialOutcome::Ran(figures(190, 10.0)),
            ),
            trial(TrainingPlan::Offload, TrialOutcome::Ran(figures(40, 90.0))),
            trial(TrainingPlan::Fp16, TrialOutcome::Ran(figures(89, 5.0))),
            trial(TrainingPlan::Bf16, TrialOutcome::Ran(figures(93, 4.0))),
        ];
        let cards = [card("A", 100), card("B", 60)];
        PlanTable::from_trials(None, &figures(200, 10.0), &trials, &cards)
    }

    #[test]
    fn what_fits_comes_first_by_time() {
        let table = table();
        let names: Vec<&str> = table.rows.iter().map(|row| row.plan.as_str()).collect();
        assert_eq!(
            names,
            ["", "bf16", "fp16", "offload", "foreach-off", "8-bit"]
        );
        let first: Vec<PlanFit> = table.rows.iter().map(|row| row.cards[0].fits).collect();
        let expected = [
            PlanFit::No,
            PlanFit::Perhaps,
            PlanFit::Yes,
            PlanFit::Yes,
            PlanFit::No,
            PlanFit::No,
        ];
        assert_eq!(first, expected);
        assert_eq!(
            (table.rows[1].saved_bytes, table.rows[1].on_card_bytes),
            (Some(107), Some(104))
        );
        assert!(table.rows[2].lines.is_some() && table.rows[5].failed.is_some());
    }

    #[test]
    fn each_card_has_its_best() {
        let table = table();
        assert_eq!(table.fastest_fitting(0).unwrap().plan, "fp16");
        assert_eq!(table.fastest_fitting(1).unwrap().plan, "offload");
        assert_eq!(table.fastest_fitting(7), None);
        // By what a step takes on that card, and a state of less precision last.
        let mut table = table;
        for row in &mut table.rows {
            row.failed = None;
            row.cards[1].fits = PlanFit::Yes;
            row.cards[1].step_ms = row.step_ms.map(|ms| 100.0 - ms);
        }
        assert_eq!(table.fastest_fitting(1).unwrap().plan, "offload");
        let worse = table.rows.iter_mut().find(|row| row.plan == "8-bit");
        worse.unwrap().cards[1].step_ms = Some(1.0);
        assert_eq!(table.fastest_fitting(1).unwrap().plan, "offload");
        table
            .rows
            .retain(|row| ["", "8-bit"].contains(&row.plan.as_str()));
        assert_eq!(table.fastest_fitting(1).unwrap().plan, "8-bit");
    }
}
