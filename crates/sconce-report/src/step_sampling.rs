//! Steps of a run in constant memory.

use sconce_schema::Bytes;
use sconce_schema::training::TrainingStep;

/// How many steps are kept at most.
pub(crate) const MAX_STEPS: usize = 2048;

/// Steps, evenly over the run: one of every `stride`, chosen by a hash of its number, so that a script
/// that does something every 2ⁿ steps is not met every time. When there are too many, the stride doubles.
#[derive(Debug, Clone)]
pub(crate) struct StepSampling<T = TrainingStep> {
    stride: u64,
    steps: Vec<T>,
}

/// What is of a step.
pub(crate) trait NumberedStep: Copy {
    /// The step's number.
    fn number(&self) -> u64;
}

impl NumberedStep for TrainingStep {
    fn number(&self) -> u64 {
        self.step
    }
}

impl NumberedStep for (u64, Bytes) {
    fn number(&self) -> u64 {
        self.0
    }
}

impl<T> Default for StepSampling<T> {
    fn default() -> Self {
        Self {
            stride: 1,
            steps: Vec::new(),
        }
    }
}

impl<T: NumberedStep> StepSampling<T> {
    /// Adds a step. One that is not after the last one is left out: a reading may be told twice.
    pub(crate) fn add(&mut self, step: &T) {
        let Some(last) = self.steps.last_mut() else {
            self.steps.push(*step);
            return;
        };
        let (now, before) = (step.number(), last.number());
        if now <= before {
            return;
        }
        if now / self.stride != before / self.stride {
            self.steps.push(*step);
        } else if chance(now) < chance(before) {
            *last = *step;
        }
        while self.steps.len() > MAX_STEPS {
            self.stride = self.stride.saturating_mul(2);
            let mut kept: Vec<T> = Vec::with_capacity(MAX_STEPS);
            for step in &self.steps {
                match kept.last_mut() {
                    Some(last) if last.number() / self.stride == step.number() / self.stride => {
                        if chance(step.number()) < chance(last.number()) {
                            *last = *step;
                        }
                    }
                    _ => kept.push(*step),
                }
            }
            self.steps = kept;
        }
    }

    pub(crate) fn into_steps(self) -> Vec<T> {
        self.steps
    }
}

/// The finalizer of splitmix64: the same number has the same chance in every run.
fn chance(step: u64) -> u64 {
    let mut z = step.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(step: u64) -> TrainingStep {
        TrainingStep {
            step,
            ..TrainingStep::default()
        }
    }

    #[test]
    fn a_long_run_is_met_evenly() {
        let mut series = StepSampling::default();
        for n in 1..=1_000_000 {
            series.add(&step(n));
        }
        let steps = series.into_steps();
        assert!(
            (MAX_STEPS / 4..=MAX_STEPS).contains(&steps.len()),
            "{}",
            steps.len()
        );
        let early = steps.iter().filter(|step| step.step <= 500_000).count();
        assert!(early.abs_diff(steps.len() / 2) <= 2);
        // A script that logs every 100 steps is met about as often as it logs.
        let logged = steps.iter().filter(|step| step.step % 64 == 0).count();
        assert!(logged * 16 < steps.len(), "{logged}");
    }

    proptest! {
        #[test]
        fn no_number_panics(numbers in proptest::collection::vec(any::<u64>(), 0..4000)) {
            let mut series = StepSampling::default();
            for n in numbers {
                series.add(&step(n));
            }
            let steps = series.into_steps();
            prop_assert!(steps.len() <= MAX_STEPS);
            prop_assert!(steps.is_sorted_by(|a, b| a.step < b.step));
        }
    }
}
