//! The plans that bring a command onto cards: each is really run, in processes beside each other.

use sconce_compat::tables::Hardware;
use sconce_memory::forecast::probe_report::{ObservationEnd, ProbeReport};
use sconce_memory::forecast::search::{self, PlanCandidate as Wish, TrialFigures, TrialOutcome};
use sconce_memory::forecast::table::{PlanFit, PlanTable};
use sconce_memory::forecast::training_plan::{TrainingPlan, TrainingPlans};
use sconce_memory::forecast::values::SubstituteValues;
use sconce_memory::forecast::work::{self, GpuRates, WorkItem};
use sconce_memory::forecast::{self, FitOutcome, GpuBudget};
use sconce_schema::Bytes;

use super::trial::{TrialContext, TrialOutput, TrialRequest};
use super::trial_process::{self, TrialResult};
use super::{UNLIMITED_CARD_MEMORY, command, say};
use crate::commands::memory::format::format_count;
use sconce_app::failure::Result;
use sconce_app::worker::TrialTask;

/// Values of the user's flag that are tried at most.
const MAX_FLAG_VALUES: usize = 6;
/// Plans that are run on a card as it is until one fits.
const MAX_CONFIRMED_PLANS: usize = 4;
/// A value of the flag with less than this part of the work changes how much is done in a step.
const MIN_SAME_WORK_SHARE: f64 = 0.75;

/// The command as it is, on one card.
pub(super) struct BaselineTrial {
    hardware: &'static Hardware,
    card: GpuBudget,
    /// Whether it fits there as it is, which was tried.
    fits: PlanFit,
    command: Vec<String>,
    figures: TrialFigures,
    work: Vec<WorkItem>,
    installed: Vec<String>,
    /// Plans that are there whatever is tried.
    base: TrainingPlans,
    /// What it is told in the place of zeros: the values with which it takes the most.
    answers: SubstituteValues,
    /// Whether it is not known that what is tried is all that it does.
    in_doubt: bool,
    /// Whether it has anything to tell other ranks.
    exchanges: bool,
}

impl BaselineTrial {
    /// `None` where the trial did not come to its steps.
    pub(super) fn from_probe_report(
        hardware: &'static Hardware,
        card: &GpuBudget,
        verdict: FitOutcome,
        seen: &ProbeReport,
        command: Vec<String>,
        answers: SubstituteValues,
    ) -> Option<Self> {
        Some(Self {
            hardware,
            card: card.clone(),
            fits: match verdict {
                FitOutcome::Fits => PlanFit::Yes,
                FitOutcome::Tight => PlanFit::Tight,
                FitOutcome::DoesNotFit => PlanFit::No,
                FitOutcome::NotKnown => PlanFit::NotKnown,
            },
            in_doubt: verdict == FitOutcome::NotKnown,
            answers,
            command,
            figures: figures(seen, card, &[hardware])?,
            work: seen.work.clone(),
            installed: seen.installed.clone(),
            base: TrainingPlans::default(),
            exchanges: seen.devices.iter().any(|device| device.communicators > 0),
        })
    }

    /// As one of the ranks that are asked for: a script of one process has DDP in all that is tried, as
    /// without it ranks would be as many trainings. Where it cannot be had the trials say why.
    pub(super) fn of_ranks(mut self, asked: &mut TrialContext<'_>) -> Self {
        self.base = asked.args.plan.plan.clone().unwrap_or_default();
        if asked.args.ranks.ranks.is_none() || self.exchanges || self.base.of_ranks().is_some() {
            return self;
        }
        let base = self.base.with_plan(TrainingPlan::Ddp);
        say(
            asked.context,
            &format!("trying {base} on the {}", self.card.name),
        );
        let Ok(limited) = asked.run_trial(self.wanted(None, &base)) else {
            return self;
        };
        let without_end = forecast::ran_out(&limited.seen)
            .then(|| {
                asked
                    .run_trial(self.wanted(Some(UNLIMITED_CARD_MEMORY), &base))
                    .ok()
            })
            .flatten();
        let seen = without_end
            .as_ref()
            .map_or(&limited.seen, |done| &done.seen);
        let applied = seen
            .plan
            .as_ref()
            .is_some_and(|plan| plan.problems.is_empty());
        if let (true, Some(figures)) = (applied, figures(seen, &self.card, &[self.hardware])) {
            self.figures = figures;
            if !self.in_doubt {
                self.fits = fits(&limited);
            }
            self.work.clone_from(&seen.work);
            self.base = base;
        }
        self
    }

    fn wanted(&self, memory: Option<Bytes>, plans: &TrainingPlans) -> TrialRequest<'_> {
        TrialRequest {
            hardware: self.hardware,
            memory,
            command: &self.command,
            plans: plans.clone(),
            history: false,
            work: true,
            answers: self.answers.clone(),
            seconds: None,
            steps: None,
        }
    }

    fn singles(&self, ranks: Option<u32>) -> Vec<TrainingPlan> {
        let half = match has_bf16(self.hardware) {
            true => TrainingPlan::Bf16,
            false => TrainingPlan::Fp16,
        };
        let mut plans = vec![
            half,
            TrainingPlan::Checkpoint(None),
            TrainingPlan::ForeachOff,
            TrainingPlan::Fused,
            TrainingPlan::Expandable,
            TrainingPlan::Offload,
        ];
        if ranks.is_some() {
            // Optimizers of bitsandbytes know no parameters that are divided.
            plans.extend(TrainingPlan::OF_RANKS);
        } else if self.installed.iter().any(|name| name == "bitsandbytes") {
            plans.push(TrainingPlan::EightBit);
        }
        plans
    }
}

/// Whether tensor cores multiply bf16: from compute capability 8.0 on.
fn has_bf16(hardware: &Hardware) -> bool {
    hardware.card.capability.major >= 8
}

/// A table for each kind of card. Cards that multiply the same types take nearly the same, so the one
/// with the least memory stands for the others; what is recommended for a card is run on that card.
pub(super) fn build_plan_tables(
    asked: &mut TrialContext<'_>,
    cards: &[&'static Hardware],
    plain: &[BaselineTrial],
) -> Result<Vec<PlanTable>> {
    let mut tables = Vec::new();
    let mut done: Vec<usize> = Vec::new();
    for (at, one) in plain.iter().enumerate() {
        if done.contains(&at) {
            continue;
        }
        let alike = |other: &&BaselineTrial| {
            has_bf16(other.hardware) == has_bf16(one.hardware)
                && other.command == one.command
                && other.base == one.base
                && other.answers == one.answers
        };
        let mut group: Vec<&BaselineTrial> = plain.iter().filter(alike).collect();
        let of_group = plain.iter().enumerate().filter(|(_, other)| alike(other));
        done.extend(of_group.map(|(at, _)| at));
        group.sort_by_key(|one| one.card.total_bytes.saturating_sub(one.card.context_bytes));
        tables.push(of_group_searched(asked, cards, &group)?);
    }
    Ok(tables)
}

fn of_group_searched(
    asked: &mut TrialContext<'_>,
    cards: &[&'static Hardware],
    group: &[&BaselineTrial],
) -> Result<PlanTable> {
    let plain = group[0];
    let vary = asked.args.vary.as_ref().filter(|_| asked.args.plans);
    let values: Vec<u64> = vary.map_or(Vec::new(), |vary| {
        let halves = std::iter::successors(Some(vary.most / 2), |value| Some(value / 2));
        let halves = halves.take_while(|value| *value >= vary.least.max(1));
        halves.take(MAX_FLAG_VALUES).collect()
    });
    let base = &plain.base;
    let ranks = asked.args.ranks.ranks;
    let flag = vary.map(ToString::to_string);
    let most = vary.map(|vary| vary.most);
    let hardware: Vec<&Hardware> = group.iter().map(|one| one.hardware).collect();
    let mut as_it_is = plain.figures.clone();
    as_it_is.of_cards_ms = steps_ms(&plain.work, &hardware);
    let wanted = search::PlanSearchInput {
        plain: as_it_is.clone(),
        room_bytes: plain
            .card
            .total_bytes
            .saturating_sub(plain.card.context_bytes),
        singles: plain
            .singles(ranks)
            .into_iter()
            // What ranks hold as it is, is DDP in a script that has any.
            .filter(|&plan| {
                base.with_plan(plan) != *base && !(plain.exchanges && plan == TrainingPlan::Ddp)
            })
            .collect(),
        values,
    };
    // By how much a value of the flag changes what a step does; told by the first trial of one.
    let mut scales: Option<bool> = None;
    let trials = search::search_plans(&wanted, |wishes: &[Wish]| {
        let named: Vec<String> = wishes
            .iter()
            .map(|wish| name(wish, flag.as_deref()))
            .collect();
        say(
            asked.context,
            &format!(
                "trying {}: {}",
                format_count(named.len() as u64, "plan"),
                named.join(", ")
            ),
        );
        let tasks: Vec<TrialTask> = wishes
            .iter()
            .map(|wish| task(asked, cards, plain, wish, Some(UNLIMITED_CARD_MEMORY.0)))
            .collect();
        let came = trial_process::run_trials(asked, cards, &tasks)?;
        let mut outcomes = Vec::new();
        for (wish, came) in wishes.iter().zip(came) {
            let mut outcome = outcome(&came, plain, &hardware);
            if let (TrialOutcome::Ran(figures), Some(value), Some(most), Ok(done)) =
                (&mut outcome, wish.value, most, &came)
            {
                let part =
                    work::total_operations(&done.seen.work) / work::total_operations(&plain.work);
                let scales = *scales.get_or_insert(part < MIN_SAME_WORK_SHARE);
                let times = if scales {
                    most as f64 / value as f64
                } else {
                    1.0
                };
                for ms in figures
                    .step_ms
                    .iter_mut()
                    .chain(figures.of_cards_ms.iter_mut().flatten())
                {
                    *ms *= times;
                }
            }
            outcomes.push(outcome);
        }
        Ok::<_, sconce_app::failure::Failure>(outcomes)
    })?;
    let of_cards: Vec<GpuBudget> = group.iter().map(|one| one.card.clone()).collect();
    let mut table = PlanTable::from_trials(flag, &as_it_is, &trials, &of_cards);
    for (known, card) in group.iter().zip(&mut table.rows[0].cards) {
        card.fits = known.fits;
    }
    for row in &mut table.rows {
        let own: TrainingPlans = row.plan.parse().unwrap_or_default();
        let all = joined(base, &own);
        row.lines = all.needs_lines().map(|plan| plan.code_lines().to_owned());
        row.plan = all.to_string();
    }
    confirm(asked, cards, group, &mut table)?;
    for (at, one) in group.iter().enumerate() {
        if one.in_doubt {
            table.mark_inconclusive(at);
        }
    }
    table.sort_rows();
    Ok(table)
}

/// Runs the fastest plan that may fit on each card as that card is; the next where it does not.
fn confirm(
    asked: &mut TrialContext<'_>,
    cards: &[&'static Hardware],
    group: &[&BaselineTrial],
    table: &mut PlanTable,
) -> Result<()> {
    let mut open: Vec<usize> = (0..group.len()).collect();
    let mut tried: Vec<(usize, usize)> = Vec::new();
    for _ in 0..MAX_CONFIRMED_PLANS {
        let mut next: Vec<(usize, usize)> = Vec::new();
        for &card in &open {
            let rows = table.rows.iter().enumerate().skip(1);
            let may = rows.filter(|(at, row)| {
                row.cards[card].fits != PlanFit::No && !tried.contains(&(card, *at))
            });
            let first = may
                .map(|(at, _)| at)
                .min_by(|&one, &other| table.rows[one].order_on(card, &table.rows[other]));
            next.extend(first.map(|at| (card, at)));
        }
        if next.is_empty() {
            break;
        }
        let mut tasks = Vec::new();
        for &(card, at) in &next {
            let row = &table.rows[at];
            say(
                asked.context,
                &format!(
                    "trying {} on the {} as it is",
                    row.plan, group[card].card.name
                ),
            );
            let wish = Wish {
                plans: row.plan.parse().unwrap_or_default(),
                value: row.value,
            };
            tasks.push(task(asked, cards, group[card], &wish, None));
        }
        let came = trial_process::run_trials(asked, cards, &tasks)?;
        for (&(card, at), came) in next.iter().zip(came) {
            tried.push((card, at));
            let found = &mut table.rows[at].cards[card];
            found.fits = PlanFit::No;
            if let Ok(done) = came {
                found.fits = fits(&done);
                let device = done.seen.fullest_gpu().map(|(_, device)| device);
                found.reserved_bytes =
                    device.and_then(|device| device.stat_value(forecast::RESERVED));
            }
            let fits = found.fits;
            if fits != PlanFit::No {
                open.retain(|one| *one != card);
            }
        }
    }
    Ok(())
}

fn fits(done: &TrialOutput) -> PlanFit {
    let count = |name: &str| {
        let device = done.seen.fullest_gpu().map(|(_, device)| device);
        device
            .and_then(|device| device.stat_value(name))
            .unwrap_or(0)
    };
    if done.seen.ended != ObservationEnd::Steps || forecast::ran_out(&done.seen) {
        PlanFit::No
    } else if count("num_alloc_retries") > 0 || count("num_ooms") > 0 {
        PlanFit::Tight
    } else {
        PlanFit::Yes
    }
}

fn task(
    asked: &TrialContext<'_>,
    cards: &[&'static Hardware],
    plain: &BaselineTrial,
    wish: &Wish,
    memory: Option<u64>,
) -> TrialTask {
    let here = cards
        .iter()
        .position(|card| std::ptr::eq(*card, plain.hardware));
    // What was asked for by --plan stays, but for what a plan says otherwise.
    let plans = joined(&plain.base, &wish.plans);
    TrialTask {
        card: here.unwrap_or_default(),
        memory,
        command: match wish.value {
            Some(value) => command(asked.args, Some(value)),
            None => plain.command.clone(),
        },
        plans: (!plans.is_empty()).then(|| plans.to_string()),
        answers: plain.answers.clone(),
        serve: false,
    }
}

fn joined(base: &TrainingPlans, plans: &TrainingPlans) -> TrainingPlans {
    plans
        .iter()
        .fold(base.clone(), |all, plan| all.with_plan(plan))
}

fn outcome(came: &TrialResult, plain: &BaselineTrial, hardware: &[&Hardware]) -> TrialOutcome {
    let done = match came {
        Ok(done) => done,
        Err(words) => return TrialOutcome::Failed(words.clone()),
    };
    let seen = &done.seen;
    if let Some((plan, why)) = seen.plan.iter().flat_map(|plan| &plan.problems).next() {
        return TrialOutcome::Failed(format!("{plan}: {why}"));
    }
    if seen.ended != ObservationEnd::Steps {
        let error = seen.error.as_ref();
        let error = error.map(|error| format!("{}: {}", error.kind, first_line(&error.message)));
        return TrialOutcome::Failed(
            error.unwrap_or_else(|| "it did not take its steps".to_owned()),
        );
    }
    match figures(seen, &plain.card, hardware) {
        Some(figures) => TrialOutcome::Ran(figures),
        None => TrialOutcome::Failed("nothing was put on a card".to_owned()),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What a step of that work takes on each card at least, ms.
fn steps_ms(work: &[WorkItem], hardware: &[&Hardware]) -> Vec<Option<f64>> {
    let of = |hardware: &&Hardware| work::step_ms(work, &rates(hardware));
    hardware.iter().map(of).collect()
}

/// What a trial came to on a card, which is the first of those that its figures hold for.
fn figures(seen: &ProbeReport, card: &GpuBudget, hardware: &[&Hardware]) -> Option<TrialFigures> {
    if seen.ended != ObservationEnd::Steps {
        return None;
    }
    let (_, device) = seen.fullest_gpu()?;
    let outside = u64::try_from(device.outside_bytes).unwrap_or(0);
    let of_cards_ms = steps_ms(&seen.work, hardware);
    Some(TrialFigures {
        allocated_bytes: device.stat_value(forecast::ALLOCATED)?,
        reserved_bytes: device.stat_value(forecast::RESERVED)?,
        libraries_bytes: outside.saturating_sub(card.context_bytes),
        step_ms: of_cards_ms.first().copied().flatten(),
        exchange_ms: work::exchange_ms(&seen.work, &rates(hardware.first()?)),
        of_cards_ms,
        blocks: seen
            .plan
            .as_ref()
            .and_then(|plan| plan.notes.get("blocks").copied()),
    })
}

fn rates(hardware: &Hardware) -> GpuRates {
    let single = hardware.fp32_tflops * 1e12;
    let (near, far) = GpuRates::between_cards(hardware.card.nvlink);
    GpuRates {
        near,
        far,
        half: hardware.tensor_tflops.map_or(single, |rate| rate * 1e12),
        tf32: hardware.tf32_tflops.map_or(single, |rate| rate * 1e12),
        single,
        memory: hardware.bandwidth_gb_s * 1e9,
    }
}

fn name(wish: &Wish, flag: Option<&str>) -> String {
    let plans = wish.plans.to_string();
    match (wish.value, flag) {
        (Some(value), Some(flag)) if plans.is_empty() => format!("{flag} {value}"),
        (Some(value), Some(flag)) => format!("{plans} with {flag} {value}"),
        _ => plans,
    }
}
