//! One run as its record tells it so far.

use std::collections::{BTreeMap, VecDeque};

use sconce_record::DamagedLine;
use sconce_schema::Bytes;
use sconce_schema::event::{ProcessSample, RecordEvent, RecordLine, RunStarted, Sample};
use sconce_schema::training::{GpuOutOfMemory, PhaseTimes, TrainingSample};

use crate::fold::Fold;
use crate::model::{MemoryMeasure, RunEnd, ServiceReport, Timestamped};
use crate::timeline::{MIN_RATE_INTERVAL_US, Timeline};
use crate::verdict::{SkippedRule, Verdict, not_judged_yet};

/// Readings that rates of training are taken over: one a second is too few steps to be steady.
const RATE_WINDOW_READINGS: usize = 10;
/// Of processes that train, no more than this many are kept.
const MAX_TRAINING_PROCESSES: usize = 64;
/// Time of the record after which verdicts are looked at again, µs.
const JUDGE_INTERVAL_US: u64 = 5_000_000;

/// A run in the making.
#[derive(Debug)]
pub struct LiveRun {
    started: RunStarted,
    pub(super) end: RunEnd,
    pub(super) t_us: u64,
    /// The last readings, the newest last.
    window: VecDeque<(u64, Box<Sample>)>,
    /// What each process that trains told last; [`MAX_TRAINING_PROCESSES`] at most.
    told: Vec<TrainingSample>,
    pub(super) memory: Timeline,
    pub(super) memory_peak: Option<Bytes>,
    /// Memory of this run's processes on all cards; of everyone's where no process is known.
    pub(super) card_memory: Timeline,
    pub(super) card_memory_peak: Option<Bytes>,
    pub(super) out_of_memory: Option<Timestamped<GpuOutOfMemory>>,
    pub(super) killed: bool,
    pub(super) damaged_lines: u64,
    /// The report in the making, which verdicts are given from.
    fold: Fold,
    judged_us: Option<u64>,
    pub(super) verdicts: Vec<Verdict>,
    unjudged: Vec<SkippedRule>,
    pub(super) services: Vec<ServiceReport>,
    pub(super) card_oom: Vec<GpuOutOfMemory>,
}

/// A process with what it used since the reading before.
#[derive(Debug)]
pub(super) struct LiveProcess<'a> {
    pub(super) sample: &'a ProcessSample,
    pub(super) cores: Option<f64>,
    /// Its memory on cards.
    pub(super) card: Option<Bytes>,
}

/// How one process trains: over the last readings while it does, and over all of its steps when the run
/// has ended, as the report tells it.
#[derive(Debug)]
pub(super) struct TrainingRate<'a> {
    pub(super) training: &'a TrainingSample,
    /// Steps that it is told of.
    pub(super) steps: u64,
    /// Of them, µs.
    pub(super) phases: PhaseTimes,
    /// Samples a second of training steps, as [`Rank::samples_per_s`].
    ///
    /// [`Rank::samples_per_s`]: crate::RankReport::samples_per_s
    pub(super) samples_per_s: Option<f64>,
}

impl TrainingRate<'_> {
    /// A mean step, µs.
    pub(super) fn step_us(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.phases.sum_us() as f64 / self.steps as f64)
    }
}

impl LiveRun {
    /// A run of which only the beginning is known.
    #[must_use]
    pub fn new(started: RunStarted, running: bool) -> Self {
        Self {
            fold: Fold::new(started.clone(), running),
            judged_us: None,
            verdicts: Vec::new(),
            unjudged: Vec::new(),
            services: Vec::new(),
            card_oom: Vec::new(),
            started,
            end: if running {
                RunEnd::Running
            } else {
                RunEnd::Interrupted
            },
            t_us: 0,
            window: VecDeque::new(),
            told: Vec::new(),
            memory: Timeline::default(),
            memory_peak: None,
            card_memory: Timeline::default(),
            card_memory_peak: None,
            out_of_memory: None,
            killed: false,
            damaged_lines: 0,
        }
    }

    /// How it began.
    #[must_use]
    pub fn start_event(&self) -> &RunStarted {
        &self.started
    }

    /// The time of its last line, µs since it began.
    #[must_use]
    pub fn t_us(&self) -> u64 {
        self.t_us
    }

    /// It has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.end == RunEnd::Running
    }

    /// Its `sconce` is gone.
    pub fn mark_interrupted(&mut self) {
        if self.end == RunEnd::Running {
            self.end = RunEnd::Interrupted;
        }
    }

    /// Takes its next line.
    pub fn add_line(&mut self, line: Result<RecordLine, DamagedLine>) {
        self.fold.add_line(line.clone());
        let RecordLine { t_us, event } = match line {
            Ok(line) => line,
            Err(damage) => {
                self.damaged_lines += damage.count();
                return;
            }
        };
        self.t_us = self.t_us.max(t_us);
        match event {
            RecordEvent::Sample(sample) => self.sample(t_us, sample),
            RecordEvent::CardOutOfMemory(value) => {
                self.out_of_memory = Some(Timestamped {
                    value: *value,
                    t_us,
                });
            }
            RecordEvent::Ended(ended) => {
                self.end = ended.exit.into();
                self.tell(&ended.last);
                self.killed = ended.out_of_memory.is_some();
            }
            RecordEvent::Service(_) => self.services = self.fold.services().to_vec(),
            RecordEvent::Started(_) | RecordEvent::Unenforced(_) | RecordEvent::Setup(_) => {}
        }
    }

    /// Keeps what processes that train told. Counters only grow: an older reading has nothing new.
    fn tell(&mut self, sample: &Sample) {
        for training in &sample.training {
            let now = TrainingSample {
                recent: Vec::new(),
                ..training.clone()
            };
            let which = |it: &TrainingSample| (it.pid, it.cell);
            let room = self.told.len() < MAX_TRAINING_PROCESSES;
            match (self.told.iter_mut()).find(|it| which(it) == which(&now)) {
                Some(before) if before.steps > now.steps => {}
                Some(before) => *before = now,
                None if room => self.told.push(now),
                None => {}
            }
        }
    }

    fn sample(&mut self, t_us: u64, sample: Box<Sample>) {
        self.tell(&sample);
        if let Some(memory) = memory_in_use(&sample) {
            self.memory.add(t_us, memory.0 as f64);
            self.memory_peak = self.memory_peak.max(Some(memory)).max(sample.memory_peak);
        }
        let cards = sample.gpus.iter().filter_map(|card| {
            let run = card.memory_by_pid.values().map(|bytes| bytes.0);
            let run = (!card.memory_by_pid.is_empty()).then(|| run.fold(0, u64::saturating_add));
            run.or(card.memory_used.map(|used| used.0))
        });
        if let Some(held) = cards.reduce(u64::saturating_add) {
            self.card_memory.add(t_us, held as f64);
            self.card_memory_peak = self.card_memory_peak.max(Some(Bytes(held)));
        }
        if self.window.len() == RATE_WINDOW_READINGS {
            self.window.pop_front();
        }
        self.window.push_back((t_us, sample));
    }

    /// The newest reading.
    pub(super) fn latest_sample(&self) -> Option<&Sample> {
        self.window.back().map(|(_, sample)| &**sample)
    }

    /// The newest reading, the one before it, and the time between them, µs.
    fn last_two(&self) -> Option<(&Sample, &Sample, u64)> {
        let (t_us, now) = self.window.back()?;
        let (before_us, before) = self.window.get(self.window.len().checked_sub(2)?)?;
        let passed = t_us.checked_sub(*before_us)?;
        (passed >= MIN_RATE_INTERVAL_US).then_some((now, before, passed))
    }

    /// Cores in use.
    pub(super) fn cores(&self) -> Option<f64> {
        let (now, before, passed_us) = self.last_two()?;
        let used = now.cpu_us?.checked_sub(before.cpu_us?)?;
        Some(used as f64 / passed_us as f64)
    }

    /// Bytes a second of a counter.
    pub(super) fn per_second(&self, of: fn(&Sample) -> Option<u64>) -> Option<Bytes> {
        let (now, before, passed_us) = self.last_two()?;
        let more = of(now)?.checked_sub(of(before)?)?;
        Some(Bytes((more as f64 * 1e6 / passed_us as f64) as u64))
    }

    pub(super) fn processes(&self) -> Vec<LiveProcess<'_>> {
        let Some(now) = self.latest_sample() else {
            return Vec::new();
        };
        let before: BTreeMap<u32, u64> =
            self.last_two()
                .map_or_else(BTreeMap::new, |(_, before, _)| {
                    before
                        .by_process
                        .iter()
                        .map(|process| (process.pid, process.cpu_us))
                        .collect()
                });
        let passed_us = self.last_two().map(|(_, _, passed)| passed);
        let process = |sample| {
            let sample: &ProcessSample = sample;
            let used =
                (before.get(&sample.pid)).and_then(|before| sample.cpu_us.checked_sub(*before));
            let held = now
                .gpus
                .iter()
                .filter_map(|card| card.memory_by_pid.get(&sample.pid));
            LiveProcess {
                sample,
                cores: used
                    .zip(passed_us)
                    .map(|(used, passed)| used as f64 / passed as f64),
                card: held
                    .map(|bytes| bytes.0)
                    .reduce(u64::saturating_add)
                    .map(Bytes),
            }
        };
        now.by_process.iter().map(process).collect()
    }

    /// How each process trains: since the oldest reading of the window that has it, or, where only the
    /// newest has it, since its own beginning. When the run has ended, or its newest reading has none,
    /// all of what each did.
    pub(super) fn training_rates(&self) -> Vec<TrainingRate<'_>> {
        let now = self.latest_sample().map_or(&[][..], |now| &now.training);
        let over = !self.is_running() || now.is_empty();
        let told = if over { &self.told[..] } else { now };
        let mut paces: Vec<TrainingRate<'_>> = (told.iter())
            .map(|training| {
                let before = (!over).then(|| self.before(training)).flatten();
                pace(training, before)
            })
            .collect();
        if over {
            paces.sort_by_key(|pace| {
                let it = pace.training;
                (it.group, it.rank.unwrap_or(u32::MAX), it.pid, it.cell)
            });
        }
        paces
    }

    /// What a process told in the oldest reading of the window that has it, but for the newest.
    fn before(&self, of: &TrainingSample) -> Option<&TrainingSample> {
        let earlier = self.window.iter().rev().skip(1).rev();
        let mut told = earlier.flat_map(|(_, sample)| &sample.training);
        told.find(|it| (it.pid, it.cell) == (of.pid, of.cell))
    }

    /// What most rules still wait for, where a process trains.
    pub(super) fn waits_for_more(&self) -> Option<String> {
        if self.told.is_empty() {
            return None;
        }
        not_judged_yet(&self.unjudged)
    }

    /// What can be said where there is no verdict.
    pub(super) fn without_verdicts(&self) -> String {
        match (self.judged_us, self.waits_for_more()) {
            (None, _) => "nothing has been judged yet".to_owned(),
            (_, Some(waits)) => format!("nothing found so far; not judged yet: {waits}"),
            (_, None) if self.told.is_empty() => {
                "nothing is known to be wrong with this run; no training was seen".to_owned()
            }
            (_, None) => "nothing is known to be wrong with this run".to_owned(),
        }
    }

    /// What is wrong with the run so far. Looks again only where the record has gone on for some time.
    pub fn update_verdicts(&mut self) {
        let old = self.judged_us.is_none_or(|at_us| {
            self.t_us.saturating_sub(at_us) >= JUDGE_INTERVAL_US
                || (self.t_us > at_us && !self.is_running())
        });
        if old {
            self.judged_us = Some(self.t_us);
            let report = self.fold.clone().finish();
            (self.verdicts, self.card_oom) = (report.verdicts, report.card_oom);
            self.unjudged = report.unjudged;
        }
    }
}

/// What a process did since `before`, or since it began. Rates are of its steps' time, so that they agree
/// with the time of a step and with the report, however long it did something else.
fn pace<'a>(training: &'a TrainingSample, before: Option<&TrainingSample>) -> TrainingRate<'a> {
    let beginning = TrainingSample {
        samples: Some(0),
        ..TrainingSample::default()
    };
    let before = before.unwrap_or(&beginning);
    let steps_us = training.wall_us.saturating_sub(before.wall_us);
    TrainingRate {
        training,
        steps: training.steps.saturating_sub(before.steps),
        phases: less(training.phases, before.phases),
        samples_per_s: (training.samples.zip(before.samples))
            .and_then(|(now, before)| now.checked_sub(before))
            .filter(|_| steps_us > 0)
            .map(|more| more as f64 * 1e6 / steps_us as f64),
    }
}

/// What a run is charged; where its cgroup tells nothing, the sum of its processes' memory.
pub(super) fn memory_in_use(sample: &Sample) -> Option<Bytes> {
    sample.memory.or(sample.pss).or(sample.rss)
}

/// Which of them it is.
pub(super) fn memory_measure(sample: &Sample) -> Option<MemoryMeasure> {
    [
        (sample.memory, MemoryMeasure::Charged),
        (sample.pss, MemoryMeasure::Pss),
        (sample.rss, MemoryMeasure::Rss),
    ]
    .into_iter()
    .find_map(|(bytes, kind)| bytes.map(|_| kind))
}

fn less(now: PhaseTimes, before: PhaseTimes) -> PhaseTimes {
    PhaseTimes {
        data_us: now.data_us.saturating_sub(before.data_us),
        copy_us: now.copy_us.saturating_sub(before.copy_us),
        forward_us: now.forward_us.saturating_sub(before.forward_us),
        backward_us: now.backward_us.saturating_sub(before.backward_us),
        optimizer_us: now.optimizer_us.saturating_sub(before.optimizer_us),
        other_us: now.other_us.saturating_sub(before.other_us),
    }
}
