//! Whether a forecast hangs on values, which are zeros on a virtual card: the program is run again with
//! others, and what it then takes of memory is compared.

use serde::{Deserialize, Serialize};

use super::inconclusive::{self, PATTERN_STEPS};
use super::probe_report::{ObservationEnd, ProbeReport, SourceLine, ValueRead, ValueUse};
use super::{FitOutcome, GpuBudget, RESERVED, fit_outcome, of_card, ran_out};

/// What all numbers are in one trial, and in another to tell a size from a branch. Both of the first pair are above
/// what people compare with (1,000 and 1,024), and no size that is rounded to 1,024 or less makes one of two. A
/// program that refuses such numbers is tried with smaller ones: they index lists, and lengths are checked.
const NUMBERS: [(u32, u32); 4] = [(4_099, 1_031), (257, 67), (60, 14), (9, 2)];
/// Lines that are left at zero, one after the other, as the program fails by itself with their values.
const MAX_PINNED_LINES: usize = 4;
/// Reads in a step from which on a line is told zero again (`MOST_IN_A_STEP` of the probe).
const MAX_READS_PER_STEP: u64 = 64;
/// Lines that are named.
const MAX_NAMED_LINES: usize = 8;
/// What the probe calls a read that it cannot answer with anything but zeros.
const UNANSWERED: &str = "unanswered";

/// How much is selected where values decide how large a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectedShare {
    /// Nothing, as zeros do.
    #[default]
    None,
    /// Every other element.
    Half,
    /// Everything.
    All,
}

/// In which steps and at which places a program is told them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValuePattern {
    /// Truth values are true in every other step, everywhere; numbers are the same in all.
    #[default]
    EveryOtherStep,
    /// Truth values are true in every step.
    Always,
    /// Each place that reads has steps of its own in which it is told something; numbers of a list differ.
    Varied,
    /// The same with other steps: of any two places each combination comes in one of both.
    VariedAgain,
}

impl ValuePattern {
    fn name(self) -> &'static str {
        match self {
            Self::EveryOtherStep => "every-other-step",
            Self::Always => "always",
            Self::Varied => "varied",
            Self::VariedAgain => "varied-again",
        }
    }
}

/// What a program is told in the place of zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SubstituteValues {
    /// How much is selected.
    pub share: SelectedShare,
    /// Truth values are true where the pattern says so.
    pub truth: bool,
    /// What all other numbers are.
    pub number: u32,
    /// Where they are so.
    #[serde(default)]
    pub pattern: ValuePattern,
    /// Lines whose values stay zero.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<SourceLine>,
}

impl SubstituteValues {
    /// Whether it is zeros all over.
    #[must_use]
    pub fn are_zeros(&self) -> bool {
        self.share == SelectedShare::None && !self.truth && self.number == 0
    }

    /// As the probe reads it: `SCONCE_FIT_VALUES` and `SCONCE_FIT_PINNED`.
    #[must_use]
    pub fn to_env_values(&self) -> (String, String) {
        let share = match self.share {
            SelectedShare::None => "none",
            SelectedShare::Half => "half",
            SelectedShare::All => "all",
        };
        let lines = self.pinned.iter();
        let lines: Vec<String> = lines.map(|at| format!("{}:{}", at.file, at.line)).collect();
        let pattern = self.pattern.name();
        let values = format!("{share},{},{},{pattern}", u8::from(self.truth), self.number);
        (values, lines.join("\n"))
    }
}

/// What a trial with some values came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ValueTrial {
    /// Which values.
    pub values: SubstituteValues,
    /// Whether it fitted with them.
    pub verdict: FitOutcome,
    /// What the allocator had at most; where memory ran out, until then.
    pub reserved_bytes: Option<u64>,
}

/// Why a forecast that hangs on values is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum UnboundedReason {
    /// It fits with some values and not with others.
    Disagree,
    /// A size is a number that was read: nothing bounds it.
    Size,
    /// A loop ends when a value says so.
    Loop,
    /// With other values the program fails by itself.
    #[serde(rename_all = "kebab-case")]
    Fails {
        /// Python's name of the error; empty where it only did not come to its steps.
        kind: String,
    },
    /// Something is read for which no other value can be given.
    Unanswered,
    /// Threads beside the script's own and those of backward passes read values: no others are given to them.
    OtherThreads,
    /// Something is kept each time that a value says so.
    #[serde(rename_all = "kebab-case")]
    Growth {
        /// How much more there is after each step in the mean, with the values that were tried, bytes.
        step_bytes: u64,
        /// After how many more steps the card is full, if that goes on.
        steps_left: u64,
    },
}

/// What is known of a program's values.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueDependence {
    /// Nothing that it takes of memory hangs on them, or nothing is read that could.
    Free,
    /// With all that was tried it fits, or does not.
    Bounded {
        /// Those with which it takes the most.
        most: SubstituteValues,
    },
    /// It cannot be known.
    Unknown {
        /// Why.
        why: UnboundedReason,
        /// The lines that it hangs on, those that do most with values first.
        lines: Vec<ValueRead>,
        /// What was tried.
        with: Vec<ValueTrial>,
    },
}

/// How many steps a trial is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialLength {
    /// As many as that with zeros.
    AsAsked,
    /// At least so many.
    AtLeast(u32),
}

/// Judges a trial with zeros by others on the same card, which `run` makes; it gives nothing where one was not
/// watched to its end.
///
/// # Errors
/// What `run` fails with.
pub fn classify_dependence<E>(
    card: &GpuBudget,
    zeros: &ProbeReport,
    run: impl FnMut(&SubstituteValues, TrialLength) -> Result<Option<ProbeReport>, E>,
) -> Result<ValueDependence, E> {
    if zeros.reads.iter().all(|read| read.shown) && zeros.reads_elsewhere == 0 {
        return Ok(ValueDependence::Free);
    }
    let mut search = Search {
        card,
        zeros,
        run,
        reads: zeros.reads.clone(),
        keeping: Vec::new(),
        with: vec![with(&SubstituteValues::default(), zeros)],
    };
    search.judge()
}

/// A trial that came to its steps, or to the card's end.
type ValueTrialResult = Result<(SubstituteValues, ProbeReport), UnboundedReason>;

struct Search<'a, R> {
    card: &'a GpuBudget,
    zeros: &'a ProbeReport,
    run: R,
    /// The lines of all trials.
    reads: Vec<ValueRead>,
    /// Values with which more was there after the last step than with zeros.
    keeping: Vec<SubstituteValues>,
    with: Vec<ValueTrial>,
}

impl<E, R> Search<'_, R>
where
    R: FnMut(&SubstituteValues, TrialLength) -> Result<Option<ProbeReport>, E>,
{
    fn judge(&mut self) -> Result<ValueDependence, E> {
        if self.zeros.reads_elsewhere > 0 {
            return Ok(self.unknown(UnboundedReason::OtherThreads));
        }
        let all = SubstituteValues {
            share: SelectedShare::All,
            truth: true,
            number: NUMBERS[0].0,
            ..SubstituteValues::default()
        };
        let first = self.pinning(all.clone(), TrialLength::AsAsked)?;
        if self.is_unanswered() {
            return Ok(self.unknown(UnboundedReason::Unanswered));
        }
        // Most programs read values to print them: nothing changes, and that is all that there is to know.
        if let Ok((answers, seen)) = &first
            && same(self.zeros, seen)
        {
            let answers = answers.clone();
            return match self.variations(&answers)? {
                Some(why) => Ok(self.unknown(why)),
                None if self.with.len() == 1 => Ok(ValueDependence::Free),
                None => self.bounded(),
            };
        }
        let mut number = NUMBERS[0].0;
        if self.any(is_number) {
            match self.numbers()? {
                Ok(taken) => number = taken,
                Err(why) => return Ok(self.unknown(why)),
            }
        }
        if self.any(|read| is_bool(read) || read.done == ValueUse::Size) {
            for share in [SelectedShare::All, SelectedShare::Half] {
                let answers = SubstituteValues {
                    share,
                    number: 0,
                    ..all.clone()
                };
                match self.pinning(answers, TrialLength::AsAsked)? {
                    Err(why) => return Ok(self.unknown(why)),
                    Ok((_, seen)) if self.is_endless(&seen) && !same(self.zeros, &seen) => {
                        return Ok(self.unknown(UnboundedReason::Loop));
                    }
                    Ok((answers, seen)) => self.with.push(with(&answers, &seen)),
                }
            }
        }
        if let Ok((answers, seen)) = first {
            self.keep_other(&answers, &seen);
        }
        if let Some(why) = self.variations(&SubstituteValues { number, ..all })? {
            return Ok(self.unknown(why));
        }
        self.bounded()
    }

    /// What is known where all trials came to something.
    fn bounded(&mut self) -> Result<ValueDependence, E> {
        if self.disagree() {
            return Ok(self.unknown(UnboundedReason::Disagree));
        }
        let most = self.with.iter().rev().max_by_key(|one| one.reserved_bytes);
        let most = most.map(|one| one.values.clone()).unwrap_or_default();
        if !ran_out(self.zeros)
            && let Some(why) = self.growth()?
        {
            return Ok(self.unknown(why));
        }
        Ok(ValueDependence::Bounded { most })
    }

    /// Whether it fits with some values and not with others.
    fn disagree(&self) -> bool {
        let fits = |one: &ValueTrial| one.verdict != FitOutcome::DoesNotFit;
        let first = self.with.first().map(fits);
        self.with.iter().any(|one| Some(fits(one)) != first)
    }

    /// Whether what is kept with some values is more and more of it: each step that was watched fits, and all that
    /// come do not. In so few steps that is not told from what is kept once, so that more of them are run.
    fn growth(&mut self) -> Result<Option<UnboundedReason>, E> {
        for answers in std::mem::take(&mut self.keeping) {
            let longer = TrialLength::AtLeast(PATTERN_STEPS);
            let (answers, seen) = match self.pinning(answers, longer)? {
                Ok(came) => came,
                Err(why) => return Ok(Some(why)),
            };
            if ran_out(&seen) {
                self.with.push(with(&answers, &seen));
                return Ok(Some(UnboundedReason::Disagree));
            }
            let said = of_card(self.card, &seen, None);
            if let Some((step_bytes, steps_left)) = inconclusive::growth_of_patterns(&said, &seen) {
                return Ok(Some(UnboundedReason::Growth {
                    step_bytes,
                    steps_left,
                }));
            }
        }
        Ok(None)
    }

    /// Tries what places that read are told in steps of their own: `a and not b` is never true, and no number
    /// larger than the one before, where all are told the same. What takes memory is kept; returns why it is not
    /// known, where that came out.
    fn variations(&mut self, answers: &SubstituteValues) -> Result<Option<UnboundedReason>, E> {
        let mut patterns = Vec::new();
        if self.any(|read| is_bool(read) || is_number(read)) {
            patterns.extend([ValuePattern::Varied, ValuePattern::VariedAgain]);
        }
        // What does not fit with any truth value may fit where one is true in each step.
        if ran_out(self.zeros) && self.any(is_bool) {
            patterns.push(ValuePattern::Always);
        }
        for pattern in patterns {
            let answers = SubstituteValues {
                pattern,
                pinned: Vec::new(),
                ..answers.clone()
            };
            match self.pinning(answers, TrialLength::AsAsked)? {
                Err(why) => return Ok(Some(why)),
                Ok((_, seen)) if same(self.zeros, &seen) => {}
                Ok((_, seen)) if self.is_endless(&seen) => return Ok(Some(UnboundedReason::Loop)),
                Ok((answers, seen)) => self.keep_other(&answers, &seen),
            }
        }
        Ok(None)
    }

    /// Keeps a trial that came to something else than those before.
    fn keep_other(&mut self, answers: &SubstituteValues, seen: &ProbeReport) {
        let new = with(answers, seen);
        let is_alike = |one: &ValueTrial| {
            (one.verdict, one.reserved_bytes) == (new.verdict, new.reserved_bytes)
        };
        if !self.with.iter().any(is_alike) {
            self.with.push(new);
        }
    }

    /// The number of the first pair that the program takes, or why numbers are a reason not to know it. What is the
    /// same with both of a pair is a branch at most. Truth values are true meanwhile: a number may be a size behind one.
    fn numbers(&mut self) -> Result<Result<u32, UnboundedReason>, E> {
        let mut why = UnboundedReason::Size;
        for (one, other) in NUMBERS {
            let answers = SubstituteValues {
                truth: true,
                number: one,
                ..SubstituteValues::default()
            };
            let (answers, seen) = match self.pinning(answers, TrialLength::AsAsked)? {
                Ok(came) => came,
                Err(failed) => {
                    why = failed;
                    continue;
                }
            };
            if same(self.zeros, &seen) {
                return Ok(Ok(one));
            }
            if self.is_endless(&seen) {
                return Ok(Err(UnboundedReason::Loop));
            }
            let second = SubstituteValues {
                number: other,
                ..answers.clone()
            };
            let other = (self.run)(&second, TrialLength::AsAsked)?;
            self.with.push(with(&answers, &seen));
            return Ok(match other {
                Some(other) if same(&seen, &other) => Ok(one),
                _ => Err(UnboundedReason::Size),
            });
        }
        Ok(Err(why))
    }

    /// Whether a number is read there, which may be a size beside being checked: zero says nothing of others.
    fn reads_number(&self, line: &SourceLine) -> bool {
        let mut reads = self.reads.iter();
        reads.any(|read| read.at == *line && is_number(read))
    }

    /// Runs with these answers. Where the program fails by itself, the line that was told a truth value last is
    /// left at zero: a check that ends the program takes no memory after that.
    fn pinning(
        &mut self,
        mut answers: SubstituteValues,
        length: TrialLength,
    ) -> Result<ValueTrialResult, E> {
        loop {
            let Some(seen) = (self.run)(&answers, length)? else {
                return Ok(Err(UnboundedReason::Fails {
                    kind: String::new(),
                }));
            };
            self.merge(&seen.reads);
            if !failed(self.zeros, &seen) {
                if keeps_more(self.zeros, &seen) && !self.keeping.contains(&answers) {
                    self.keeping.push(answers.clone());
                }
                return Ok(Ok((answers, seen)));
            }
            let last = seen.answers.as_ref().and_then(|told| told.last.clone());
            let may_pin =
                |line: &SourceLine| !answers.pinned.contains(line) && !self.reads_number(line);
            match last.filter(may_pin) {
                Some(line) if answers.pinned.len() < MAX_PINNED_LINES => answers.pinned.push(line),
                _ => {
                    let kind = seen.error.map(|error| error.kind).unwrap_or_default();
                    return Ok(Err(UnboundedReason::Fails { kind }));
                }
            }
        }
    }

    /// Lines of another trial, which knows the operations better.
    fn merge(&mut self, reads: &[ValueRead]) {
        for read in reads {
            match self.reads.iter_mut().find(|known| known.at == read.at) {
                Some(known) => {
                    known.operation.clone_from(&read.operation);
                    known.done = known.done.min(read.done);
                    known.shown &= read.shown;
                }
                None => self.reads.push(read.clone()),
            }
        }
    }

    fn any(&self, is: impl Fn(&ValueRead) -> bool) -> bool {
        self.reads.iter().any(|read| !read.shown && is(read))
    }

    fn is_unanswered(&self) -> bool {
        self.any(|read| read.operation == UNANSWERED)
    }

    /// Whether a loop would not have ended: a line read more than it does with zeros, until it was stopped.
    fn is_endless(&self, seen: &ProbeReport) -> bool {
        let steps = self.zeros.step_count().max(1) as u64;
        let told = seen.answers.iter().flat_map(|told| &told.endless);
        let mut endless = told.filter(|line| {
            let zeros = self.zeros.reads.iter();
            let times: u64 = zeros
                .filter(|read| read.at == **line)
                .map(|read| read.times)
                .sum();
            times / steps <= MAX_READS_PER_STEP
        });
        endless.next().is_some()
    }

    fn unknown(&self, why: UnboundedReason) -> ValueDependence {
        let mut lines: Vec<ValueRead> = self
            .reads
            .iter()
            .filter(|read| !read.shown)
            .cloned()
            .collect();
        let unanswered =
            |read: &ValueRead| why == UnboundedReason::Unanswered && read.operation != UNANSWERED;
        lines.sort_by_key(|read| (unanswered(read), read.done, read.by.is_some()));
        lines.truncate(MAX_NAMED_LINES);
        ValueDependence::Unknown {
            why,
            lines,
            with: self.with.clone(),
        }
    }
}

fn is_number(read: &ValueRead) -> bool {
    ["number", "copy"].contains(&read.operation.as_str())
}

fn is_bool(read: &ValueRead) -> bool {
    read.operation == "bool"
}

fn with(answers: &SubstituteValues, seen: &ProbeReport) -> ValueTrial {
    let device = seen.fullest_gpu().map(|(_, device)| device);
    ValueTrial {
        values: answers.clone(),
        verdict: fit_outcome(seen),
        reserved_bytes: device.and_then(|device| device.stat_value(RESERVED)),
    }
}

/// Whether a trial says nothing of memory: it did not come as far as the one with zeros.
fn failed(zeros: &ProbeReport, seen: &ProbeReport) -> bool {
    !ran_out(seen)
        && (seen.error.is_some()
            || seen.ended == ObservationEnd::Time
            || seen.step_count() < zeros.step_count())
}

/// Whether more is left on a card than with zeros, after the last step of both.
fn keeps_more(zeros: &ProbeReport, seen: &ProbeReport) -> bool {
    let last = zeros.step_count().saturating_sub(1);
    let left = |seen: &ProbeReport| -> Vec<u64> {
        let devices = seen.steps.get(last).map(|step| &step.devices);
        let devices = devices.into_iter().flatten();
        devices
            .map(|one| one.allocated_bytes.unwrap_or(0))
            .collect()
    };
    left(zeros)
        .iter()
        .zip(left(seen))
        .any(|(zeros, other)| *zeros < other)
}

/// Whether two trials asked the allocator for the same, as far as its counters tell: as often, of as many
/// bytes in all, with the same peaks.
fn same(one: &ProbeReport, other: &ProbeReport) -> bool {
    const TOLD: [&str; 6] = [
        "requested_bytes.all.allocated",
        "requested_bytes.all.peak",
        "allocation.all.allocated",
        super::ALLOCATED,
        RESERVED,
        "num_alloc_retries",
    ];
    one.ended == other.ended
        && one.step_count() == other.step_count()
        && ran_out(one) == ran_out(other)
        && one.devices.len() == other.devices.len()
        && one.devices.iter().zip(&other.devices).all(|(one, other)| {
            TOLD.iter()
                .all(|name| one.stats.get(*name) == other.stats.get(*name))
        })
}

#[cfg(test)]
mod tests;
