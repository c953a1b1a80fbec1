//! Which plans are tried: each alone, then those that cost no time together, then what costs time, as
//! little of it as fits. Of plans that say what each rank holds, each is tried with those that cost none.

use super::training_plan::{TrainingPlan, TrainingPlans};

/// Plans to be tried, with the value of the flag that the user named, where it is not the command's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanCandidate {
    /// The plans.
    pub plans: TrainingPlans,
    /// The flag's value.
    pub value: Option<u64>,
}

/// What a trial on a card without end came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialFigures {
    /// Tensors at most, bytes.
    pub allocated_bytes: u64,
    /// The allocator at most, bytes.
    pub reserved_bytes: u64,
    /// What libraries took beside it, bytes.
    pub libraries_bytes: u64,
    /// A step at least, ms; for flags that change how much is done, for as much as the plain command does.
    pub step_ms: Option<f64>,
    /// The same on each of the cards that the figures hold for, in their order.
    pub of_cards_ms: Vec<Option<f64>>,
    /// What ranks send each other takes of it at least, ms.
    pub exchange_ms: Option<f64>,
    /// Blocks that can be checkpointed.
    pub blocks: Option<u32>,
}

impl TrialFigures {
    fn of_card(&self) -> u64 {
        self.reserved_bytes.saturating_add(self.libraries_bytes)
    }
}

/// What became of a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialOutcome {
    /// It took its steps.
    Ran(TrialFigures),
    /// A plan could not be applied, or the program failed with it.
    Failed(String),
}

/// A trial, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanTrial {
    /// What was tried.
    pub asked: PlanCandidate,
    /// What came of it.
    pub outcome: TrialOutcome,
}

impl PlanTrial {
    /// Its figures, where it ran.
    #[must_use]
    pub fn figures(&self) -> Option<&TrialFigures> {
        match &self.outcome {
            TrialOutcome::Ran(figures) => Some(figures),
            TrialOutcome::Failed(_) => None,
        }
    }
}

/// What a search is for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSearchInput {
    /// The program as it is, on a card without end.
    pub plain: TrialFigures,
    /// What the card has for PyTorch and libraries: its total without the context, bytes.
    pub room_bytes: u64,
    /// The plans that are tried alone.
    pub singles: Vec<TrainingPlan>,
    /// Values of the user's flag that are tried, the largest first.
    pub values: Vec<u64>,
}

/// A step that is this much longer is no longer for nothing.
const FOR_NOTHING: f64 = 1.02;

/// Tries plans through `run`, which is given several at once and answers each; the trials in their order.
///
/// # Errors
/// What `run` fails with.
pub fn search_plans<E>(
    wanted: &PlanSearchInput,
    run: impl FnMut(&[PlanCandidate]) -> Result<Vec<TrialOutcome>, E>,
) -> Result<Vec<PlanTrial>, E> {
    let mut search = Search {
        wanted,
        run,
        trials: Vec::new(),
    };
    search.alone()?;
    search.together()?;
    Ok(search.trials)
}

struct Gain {
    plan: TrainingPlan,
    /// Bytes.
    saved: u64,
    /// Its step beside the plain one.
    longer: f64,
    free: bool,
}

struct Search<'a, R> {
    wanted: &'a PlanSearchInput,
    run: R,
    trials: Vec<PlanTrial>,
}

impl<E, R: FnMut(&[PlanCandidate]) -> Result<Vec<TrialOutcome>, E>> Search<'_, R> {
    /// Runs those that were not run yet.
    fn try_all(&mut self, asked: &[PlanCandidate]) -> Result<(), E> {
        let mut new: Vec<PlanCandidate> = Vec::new();
        for one in asked {
            if self.found(one).is_none() && !new.contains(one) && *one != PlanCandidate::default() {
                new.push(one.clone());
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let outcomes = (self.run)(&new)?;
        let trials = new.into_iter().zip(outcomes);
        let trials = trials.map(|(asked, outcome)| PlanTrial { asked, outcome });
        self.trials.extend(trials);
        Ok(())
    }

    fn found(&self, asked: &PlanCandidate) -> Option<&PlanTrial> {
        self.trials.iter().find(|trial| trial.asked == *asked)
    }

    fn figures(&self, asked: &PlanCandidate) -> Option<&TrialFigures> {
        match *asked == PlanCandidate::default() {
            true => Some(&self.wanted.plain),
            false => self.found(asked).and_then(PlanTrial::figures),
        }
    }

    fn fits(&self, asked: &PlanCandidate) -> bool {
        let figures = self.figures(asked);
        figures.is_some_and(|figures| figures.of_card() <= self.wanted.room_bytes)
    }

    fn alone(&mut self) -> Result<(), E> {
        let plans = self.wanted.singles.iter().map(|&plan| alone(plan));
        let value = self
            .wanted
            .values
            .first()
            .map(|&value| with_value(&TrainingPlans::default(), value));
        self.try_all(&plans.chain(value).collect::<Vec<_>>())
    }

    /// What a plan saved alone, how much longer its step is, and whether that is for nothing. `None`
    /// where it is of no use.
    fn gain(&self, plan: TrainingPlan) -> Option<Gain> {
        let plain = &self.wanted.plain;
        let figures = self.figures(&alone(plan))?;
        let saved = plain.of_card().checked_sub(figures.of_card())?;
        let longer = match (figures.step_ms, plain.step_ms) {
            (Some(own), Some(plain)) if plain > 0.0 => Some(own / plain),
            _ => None,
        };
        // Without an estimate it is known of each what it costs.
        let dear = matches!(plan, TrainingPlan::Checkpoint(_) | TrainingPlan::Offload);
        let free = longer.map_or(!dear, |longer| longer <= FOR_NOTHING);
        // Another optimizer, whose state has less precision, is for those who need it.
        let free = free && plan != TrainingPlan::EightBit;
        let longer = longer.unwrap_or(1.0);
        // What saves nothing alone may do so where other plans have moved the peak.
        let of_use = saved > 0 || longer < 1.0;
        of_use.then_some(Gain {
            plan,
            saved,
            longer,
            free,
        })
    }

    fn together(&mut self) -> Result<(), E> {
        let gains = self.wanted.singles.iter();
        let gains = gains.filter(|plan| !plan.is_of_ranks());
        let mut gains: Vec<Gain> = gains.filter_map(|&plan| self.gain(plan)).collect();
        // Of two that exclude each other the better one is put in last.
        gains.sort_by(|one, other| {
            let by_time = other.longer.total_cmp(&one.longer);
            one.saved.cmp(&other.saved).then(by_time)
        });
        let of = |free: bool| {
            let of = gains.iter().filter(move |gain| gain.free == free);
            of.map(|gain| gain.plan)
        };
        let free = of(true).fold(TrainingPlans::default(), |plans, plan| {
            plans.with_plan(plan)
        });
        let dear: Vec<TrainingPlan> = of(false).rev().collect();
        let can_checkpoint = dear.contains(&TrainingPlan::Checkpoint(None));

        // What ranks hold is no more or less than something else, but one of several: each is tried.
        let mut bases = vec![free.clone()];
        let divided = self.wanted.singles.iter().filter(|plan| plan.is_of_ranks());
        let divided = divided.filter(|&&plan| self.gain(plan).is_some());
        bases.extend(divided.map(|&plan| free.with_plan(plan)));
        let checkpointed = |base: &TrainingPlans| base.with_plan(TrainingPlan::Checkpoint(None));

        let mut next: Vec<PlanCandidate> = bases.iter().map(asked).collect();
        if can_checkpoint {
            next.insert(1, asked(&checkpointed(&free)));
        }
        if dear.contains(&TrainingPlan::EightBit) {
            next.push(asked(&free.with_plan(TrainingPlan::EightBit)));
        }
        self.try_all(&next)?;
        if bases.iter().any(|base| self.fits(&asked(base))) {
            return Ok(());
        }
        self.values(&free)?;
        if can_checkpoint {
            let next: Vec<PlanCandidate> = bases
                .iter()
                .map(|base| asked(&checkpointed(base)))
                .collect();
            self.try_all(&next)?;
            if let Some(base) = bases
                .iter()
                .find(|base| self.fits(&asked(&checkpointed(base))))
            {
                return self.fewer_blocks(base);
            }
        }
        // The last one divides the most.
        let free = bases.pop().unwrap_or_default();
        let mut all = free;
        for plan in dear {
            all = all.with_plan(plan);
            self.try_all(&[asked(&all)])?;
            if self.fits(&asked(&all)) {
                return Ok(());
            }
        }
        self.values(&all)
    }

    /// The largest value with which plans fit; each half as large as the one before.
    fn values(&mut self, plans: &TrainingPlans) -> Result<(), E> {
        for pair in self.wanted.values.chunks(2) {
            let pair: Vec<PlanCandidate> =
                pair.iter().map(|&value| with_value(plans, value)).collect();
            self.try_all(&pair)?;
            if pair.iter().any(|one| self.fits(one)) {
                break;
            }
        }
        Ok(())
    }

    /// As few checkpointed blocks as fit, by what all of them save; and a few more, as not all save the
    /// same.
    fn fewer_blocks(&mut self, free: &TrainingPlans) -> Result<(), E> {
        let all = asked(&free.with_plan(TrainingPlan::Checkpoint(None)));
        let (Some(without), Some(with)) = (self.figures(&asked(free)), self.figures(&all)) else {
            return Ok(());
        };
        let Some(blocks) = with.blocks.filter(|blocks| *blocks > 1) else {
            return Ok(());
        };
        let saved = without.of_card().saturating_sub(with.of_card());
        let missing = without.of_card().saturating_sub(self.wanted.room_bytes);
        let Some(each) = saved
            .checked_div(u64::from(blocks))
            .filter(|each| *each > 0)
        else {
            return Ok(());
        };
        let few = u32::try_from(missing.div_ceil(each))
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let more = few.saturating_add(blocks.div_ceil(8));
        let counts = [few, more].into_iter().filter(|count| *count < blocks);
        let next =
            counts.map(|count| asked(&free.with_plan(TrainingPlan::Checkpoint(Some(count)))));
        self.try_all(&next.collect::<Vec<_>>())
    }
}

fn asked(plans: &TrainingPlans) -> PlanCandidate {
    PlanCandidate {
        plans: plans.clone(),
        value: None,
    }
}

fn alone(plan: TrainingPlan) -> PlanCandidate {
    asked(&plan.into())
}

fn with_value(plans: &TrainingPlans, value: u64) -> PlanCandidate {
    PlanCandidate {
        value: Some(value),
        ..asked(plans)
    }
}

#[cfg(test)]
mod tests;
