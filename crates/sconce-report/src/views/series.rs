//! Every figure of a record over time.

use std::collections::BTreeMap;

use sconce_schema::Bytes;
use sconce_schema::event::{GpuSample, RecordEvent, RecordLine, RunStarted, Sample};
use sconce_schema::training::{
    DataLoaderCounters, PhaseTimes, TrainingSample, format_process_label,
};

use crate::timeline::MIN_RATE_INTERVAL_US;

use super::downsampled::{DownsampledSeries, SeriesBucket};
use super::table::SeriesTable;

/// How many processes' counters are kept at most.
const MAX_PROCESSES: usize = 64;
/// How many cards' memory is kept at most.
const MAX_CARDS: usize = 64;

/// A picture over time; in the order of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "`title` and `unit` say what each is")]
pub enum Plot {
    Phases,
    StepTime,
    Steps,
    Samples,
    Tokens,
    Loader,
    CardUse,
    CardMemory,
    TorchMemory,
    Cpu,
    Memory,
    ProcessMemory,
    Shm,
    Pressure,
    Disk,
    Network,
    CardPower,
    CardTemperature,
    CardClock,
    CardPcie,
    Tasks,
}

/// What figures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum PlotUnit {
    Bytes,
    BytesPerSecond,
    Cores,
    /// 0 to 1.
    Share,
    Seconds,
    PerSecond,
    Watts,
    Celsius,
    Megahertz,
    Count,
}

impl PlotUnit {
    /// The word for programs.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes-per-second",
            Self::Cores => "cores",
            Self::Share => "share",
            Self::Seconds => "seconds",
            Self::PerSecond => "per-second",
            Self::Watts => "watts",
            Self::Celsius => "celsius",
            Self::Megahertz => "megahertz",
            Self::Count => "count",
        }
    }
}

impl Plot {
    /// Each, in this order.
    pub(super) const ALL: [Self; 21] = [
        Self::Phases,
        Self::StepTime,
        Self::Steps,
        Self::Samples,
        Self::Tokens,
        Self::Loader,
        Self::CardUse,
        Self::CardMemory,
        Self::TorchMemory,
        Self::Cpu,
        Self::Memory,
        Self::ProcessMemory,
        Self::Shm,
        Self::Pressure,
        Self::Disk,
        Self::Network,
        Self::CardPower,
        Self::CardTemperature,
        Self::CardClock,
        Self::CardPcie,
        Self::Tasks,
    ];

    /// The word for programs, its title, and what its figures count.
    #[must_use]
    pub fn name_title_unit(self) -> (&'static str, &'static str, PlotUnit) {
        match self {
            Self::Phases => ("phases", "Where a step's time goes", PlotUnit::Share),
            Self::StepTime => ("step-time", "Time of a step", PlotUnit::Seconds),
            Self::Steps => ("steps", "Steps a second", PlotUnit::PerSecond),
            Self::Samples => ("samples", "Samples a second", PlotUnit::PerSecond),
            Self::Tokens => ("tokens", "Tokens a second", PlotUnit::PerSecond),
            Self::Loader => ("loader", "Batches that stand ready", PlotUnit::Count),
            Self::CardUse => ("card-use", "Cards: time with a kernel", PlotUnit::Share),
            Self::CardMemory => ("card-memory", "Cards: memory in use", PlotUnit::Bytes),
            Self::TorchMemory => (
                "torch-memory",
                "PyTorch's memory on the card",
                PlotUnit::Bytes,
            ),
            Self::Cpu => ("cpu", "Processor", PlotUnit::Cores),
            Self::Memory => ("memory", "Main memory", PlotUnit::Bytes),
            Self::ProcessMemory => (
                "process-memory",
                "Training processes' memory",
                PlotUnit::Bytes,
            ),
            Self::Shm => ("shm", "/dev/shm", PlotUnit::Bytes),
            Self::Pressure => ("pressure", "Time in which tasks waited", PlotUnit::Share),
            Self::Disk => ("disk", "Disk", PlotUnit::BytesPerSecond),
            Self::Network => ("network", "Network", PlotUnit::BytesPerSecond),
            Self::CardPower => ("card-power", "Cards: draw", PlotUnit::Watts),
            Self::CardTemperature => ("card-temperature", "Cards: temperature", PlotUnit::Celsius),
            Self::CardClock => ("card-clock", "Cards: clock", PlotUnit::Megahertz),
            Self::CardPcie => ("card-pcie", "Cards: PCIe", PlotUnit::BytesPerSecond),
            Self::Tasks => ("tasks", "Processes and threads", PlotUnit::Count),
        }
    }

    /// Whether its figures are parts of one whole.
    #[must_use]
    pub fn is_stacked(self) -> bool {
        self == Self::Phases
    }
}

/// Whose figure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SeriesScope {
    /// The whole run's.
    Run,
    /// A card's, by the driver's index.
    Card(u32),
    /// A process's, by the host's process id.
    Process(u32),
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    /// In which picture.
    pub plot: Plot,
    /// Whose.
    pub of: SeriesScope,
    /// Which of them, in the order of a stack; with its name.
    pub which: (u8, &'static str),
}

/// Every figure over time.
#[derive(Debug, Clone, Default)]
pub struct RunSeries {
    /// Until the last line, µs.
    pub wall_us: u64,
    /// The ranks and groups of processes that have a rank.
    pub ranks: BTreeMap<u32, (u32, Option<u32>)>,
    /// Where a figure's picture ends: limits of the run that are enforced, memory of cards.
    pub(super) limits: BTreeMap<(Plot, SeriesScope), f64>,
    figures: BTreeMap<SeriesKey, DownsampledSeries>,
}

impl RunSeries {
    /// Each figure in a window: `count` equal parts of the time from `from_us` to `to_us`.
    pub fn buckets_in_range(
        &self,
        from_us: u64,
        to_us: u64,
        count: usize,
    ) -> impl Iterator<Item = (&SeriesKey, Vec<SeriesBucket>)> {
        (self.figures.iter())
            .map(move |(key, figure)| (key, figure.buckets_in_range(from_us, to_us, count)))
    }

    /// The widest part of any figure, µs: what lies within it cannot be told apart.
    #[must_use]
    pub fn width_us(&self) -> u64 {
        let widths = self.figures.values().map(DownsampledSeries::width_us);
        widths.max().unwrap_or(1)
    }

    /// `rank 3`, `process 4123`, `card 0`; nothing for the run itself.
    #[must_use]
    pub fn name_of(&self, of: SeriesScope) -> String {
        match of {
            SeriesScope::Run => String::new(),
            SeriesScope::Card(index) => format!("card {index}"),
            SeriesScope::Process(pid) => {
                let (rank, group) = self.ranks.get(&pid).copied().unzip();
                format_process_label(rank, group.flatten(), pid, None)
            }
        }
    }
}

/// Figures in the making, in one pass and in constant memory.
#[derive(Debug)]
pub struct SeriesFold {
    from_us: u64,
    to_us: Option<u64>,
    points: usize,
    pub(super) series: RunSeries,
    table: SeriesTable,
    before: Option<Counters>,
    /// By process, and cell of a notebook.
    processes: BTreeMap<(u32, Option<u32>), ProcessCounters>,
}

/// Counters of one reading.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    t_us: u64,
    cpu_us: Option<u64>,
    throttled_us: Option<u64>,
    waited_us: [Option<u64>; 3],
    moved: [Option<u64>; 4],
}

impl Counters {
    fn of(t_us: u64, sample: &Sample) -> Self {
        let pressure = sample.pressure.unwrap_or_default();
        Self {
            t_us,
            cpu_us: sample.cpu_us,
            throttled_us: sample.throttled_us,
            waited_us: [
                pressure.cpu_some_us,
                pressure.memory_some_us,
                pressure.io_some_us,
            ],
            moved: [
                sample.read_bytes,
                sample.write_bytes,
                sample.received_bytes,
                sample.sent_bytes,
            ],
        }
    }
}

/// Counters of one process.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessCounters {
    t_us: u64,
    steps: u64,
    wall_us: u64,
    phases: PhaseTimes,
    samples: Option<u64>,
    tokens: Option<u64>,
}

impl SeriesFold {
    /// Figures from `from_us` to `to_us` (to the end where there is none), of up to `points` points each.
    #[must_use]
    pub fn new(from_us: u64, to_us: Option<u64>, points: usize) -> Self {
        Self {
            from_us,
            to_us,
            points: points.max(2),
            series: RunSeries::default(),
            table: SeriesTable::default(),
            before: None,
            processes: BTreeMap::new(),
        }
    }

    /// Takes the beginning of the record: its limits and cards.
    pub fn apply_start_event(&mut self, started: &RunStarted) {
        let limits = &started.limits;
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
        let run = [
            (Plot::Cpu, limits.cpus.map(|cpus| cpus.as_cores())),
            (Plot::Memory, bytes(limits.memory)),
            (Plot::Shm, bytes(limits.shm)),
        ];
        let run = run
            .into_iter()
            .map(|(plot, limit)| ((plot, SeriesScope::Run), limit));
        let cards = (started.gpus.iter().take(MAX_CARDS)).map(|card| {
            (
                (Plot::CardMemory, SeriesScope::Card(card.index)),
                bytes(card.memory),
            )
        });
        self.series.limits = (run.chain(cards))
            .filter_map(|(of, limit)| Some((of, limit.filter(|limit| *limit > 0.0)?)))
            .collect();
    }

    /// Takes a line of the record.
    pub fn add_line(&mut self, line: &RecordLine) {
        self.series.wall_us = self.series.wall_us.max(line.t_us);
        match &line.event {
            RecordEvent::Sample(sample) => self.sample(line.t_us, sample, true),
            // Everything of it is gone by then: only its counters are of the run.
            RecordEvent::Ended(ended) => self.sample(line.t_us, &ended.last, false),
            RecordEvent::Unenforced(limit) => {
                let plot = match limit.what.as_str() {
                    "cpus" => Plot::Cpu,
                    "memory" => Plot::Memory,
                    "shm" => Plot::Shm,
                    _ => return,
                };
                self.series.limits.remove(&(plot, SeriesScope::Run));
            }
            _ => {}
        }
    }

    /// What there is.
    #[must_use]
    pub fn finish(self) -> RunSeries {
        RunSeries {
            figures: self.table.finish(),
            ..self.series
        }
    }

    fn rank(&mut self, of: &TrainingSample) {
        if let Some(rank) = of.rank
            && self.series.ranks.len() < MAX_PROCESSES
        {
            self.series.ranks.insert(of.pid, (rank, of.group));
        }
    }

    fn put(
        &mut self,
        plot: Plot,
        of: SeriesScope,
        which: (u8, &'static str),
        t_us: u64,
        value: Option<f64>,
    ) {
        let Some(value) = value else { return };
        if t_us < self.from_us || self.to_us.is_some_and(|to_us| t_us > to_us) {
            return;
        }
        let (from_us, to_us, points) = (self.from_us, self.to_us, self.points);
        self.table
            .add(SeriesKey { plot, of, which }, t_us, value, || {
                // With an end, no part is ever joined; without, the first width is that of a short run.
                let span_us = to_us.map(|to_us| to_us.saturating_sub(from_us));
                let width_us = span_us.map_or(10_000, |us| us.div_ceil(points as u64));
                DownsampledSeries::new(from_us, width_us, points)
            });
    }

    fn sample(&mut self, t_us: u64, sample: &Sample, alive: bool) {
        self.rates(t_us, sample);
        if alive {
            self.levels(t_us, sample);
        }
        for training in &sample.training {
            self.training(t_us, training);
        }
        for gpu in &sample.gpus {
            self.card(t_us, gpu);
        }
    }

    fn rates(&mut self, t_us: u64, sample: &Sample) {
        let now = Counters::of(t_us, sample);
        let before = self.before.unwrap_or(Counters {
            cpu_us: Some(0),
            throttled_us: now.throttled_us.map(|_| 0),
            ..Counters::default()
        });
        let Some(passed_us) = long_enough(before.t_us, t_us) else {
            return;
        };
        let rate = |before: Option<u64>, now: Option<u64>| {
            Some(now?.checked_sub(before?)? as f64 / passed_us)
        };
        self.put(
            Plot::Cpu,
            SeriesScope::Run,
            (0, "used"),
            t_us,
            rate(before.cpu_us, now.cpu_us),
        );
        let held_back = rate(before.throttled_us, now.throttled_us);
        self.put(
            Plot::Cpu,
            SeriesScope::Run,
            (1, "held back by the limit"),
            t_us,
            held_back,
        );
        let names = [
            (0, "for a CPU"),
            (1, "for memory"),
            (2, "for input and output"),
        ];
        for (at, name) in names.into_iter().enumerate() {
            let share = rate(before.waited_us[at], now.waited_us[at]);
            self.put(
                Plot::Pressure,
                SeriesScope::Run,
                name,
                t_us,
                share.map(|share| share.min(1.0)),
            );
        }
        let names = [
            (Plot::Disk, (0, "read")),
            (Plot::Disk, (1, "written")),
            (Plot::Network, (0, "received")),
            (Plot::Network, (1, "sent")),
        ];
        for (at, (plot, name)) in names.into_iter().enumerate() {
            let bytes = rate(before.moved[at], now.moved[at]).map(|per_us| per_us * 1e6);
            self.put(plot, SeriesScope::Run, name, t_us, bytes);
        }
        self.before = Some(now);
    }

    fn levels(&mut self, t_us: u64, sample: &Sample) {
        for (plot, which, value) in [
            (
                Plot::Memory,
                (0, "charged to the run"),
                bytes(sample.memory),
            ),
            (Plot::Memory, (1, "of it file cache"), bytes(sample.cache)),
            (
                Plot::Memory,
                (2, "processes' share (PSS)"),
                bytes(sample.pss),
            ),
            (Plot::Memory, (3, "resident (RSS)"), bytes(sample.rss)),
            (Plot::Memory, (4, "swap"), bytes(sample.swap)),
            (Plot::Shm, (0, "in use"), bytes(sample.shm)),
            (
                Plot::Tasks,
                (0, "processes"),
                sample.processes.map(f64::from),
            ),
            (Plot::Tasks, (1, "threads"), sample.threads.map(f64::from)),
        ] {
            self.put(plot, SeriesScope::Run, which, t_us, value);
        }
    }

    fn card(&mut self, t_us: u64, gpu: &GpuSample) {
        let percent = gpu
            .utilisation_percent
            .map(|percent| f64::from(percent) / 100.0);
        let run = gpu
            .memory_by_pid
            .values()
            .fold(0_u64, |sum, bytes| sum.saturating_add(bytes.0));
        let run = (!gpu.memory_by_pid.is_empty()).then_some(run as f64);
        let per_s = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        for (plot, which, value) in [
            (Plot::CardUse, (0, ""), percent),
            (Plot::CardMemory, (0, "all"), bytes(gpu.memory_used)),
            (Plot::CardMemory, (1, "this run"), run),
            (
                Plot::CardPower,
                (0, ""),
                gpu.power_mw.map(|mw| f64::from(mw) / 1e3),
            ),
            (
                Plot::CardTemperature,
                (0, ""),
                gpu.temperature_c.map(f64::from),
            ),
            (Plot::CardClock, (0, ""), gpu.sm_clock_mhz.map(f64::from)),
            (
                Plot::CardPcie,
                (0, "to it"),
                per_s(gpu.pcie_received_bytes_per_s),
            ),
            (
                Plot::CardPcie,
                (1, "from it"),
                per_s(gpu.pcie_sent_bytes_per_s),
            ),
        ] {
            self.put(plot, SeriesScope::Card(gpu.index), which, t_us, value);
        }
    }

    fn training(&mut self, t_us: u64, training: &TrainingSample) {
        let of = SeriesScope::Process(training.pid);
        self.rank(training);
        for step in training.recent.iter().filter(|step| step.t_us <= t_us) {
            let seconds = step.wall_us as f64 / 1e6;
            self.put(Plot::StepTime, of, (0, ""), step.t_us, Some(seconds));
            self.put(Plot::ProcessMemory, of, (0, ""), step.t_us, bytes(step.rss));
            self.put(
                Plot::TorchMemory,
                of,
                (0, "allocated"),
                step.t_us,
                bytes(step.allocated),
            );
            self.put(
                Plot::TorchMemory,
                of,
                (1, "reserved"),
                step.t_us,
                bytes(step.reserved),
            );
        }
        if let Some(memory) = training.card_memory {
            self.put(
                Plot::TorchMemory,
                of,
                (0, "allocated"),
                t_us,
                bytes(Some(memory.allocated)),
            );
            self.put(
                Plot::TorchMemory,
                of,
                (1, "reserved"),
                t_us,
                bytes(Some(memory.reserved)),
            );
        }
        let ready = training
            .loader
            .and_then(|DataLoaderCounters { ready, .. }| ready);
        self.put(Plot::Loader, of, (0, ""), t_us, ready.map(f64::from));

        let which = (training.pid, training.cell);
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&which) {
            return;
        }
        let before = self.processes.get(&which).copied().unwrap_or_default();
        if long_enough(before.t_us, t_us).is_none() {
            return;
        }
        let now = ProcessCounters {
            t_us,
            steps: training.steps,
            wall_us: training.wall_us,
            phases: training.phases,
            samples: training.samples,
            tokens: training.tokens,
        };
        self.processes.insert(which, now);
        // Rates need a reading before; phases of the first one are those since the process began.
        let since = |before: u64, now: u64| now.saturating_sub(before) as f64;
        let (then, all) = (before.phases.by_name(), now.phases.by_name());
        let spent = |place: usize| since(then[place].1, all[place].1);
        let sum: f64 = (0..all.len()).map(spent).sum();
        for (name, _) in now.phases.measured_phases() {
            let Some(place) = all.iter().position(|(other, _)| *other == name) else {
                continue;
            };
            let share = (sum > 0.0).then(|| spent(place) / sum);
            self.put(Plot::Phases, of, (place as u8, name), t_us, share);
        }
        let steps = since(before.steps, now.steps);
        if steps > 0.0 && training.recent.is_empty() {
            let seconds = since(before.wall_us, now.wall_us) / steps / 1e6;
            self.put(Plot::StepTime, of, (0, ""), t_us, Some(seconds));
        }
        // Of the steps' own time, as the report has it: a reading in which none ended has no rate.
        let steps_us = since(before.wall_us, now.wall_us);
        if before.t_us > 0 && steps > 0.0 && steps_us > 0.0 {
            let rate = |before: Option<u64>, now: Option<u64>| {
                Some(now?.checked_sub(before?)? as f64 * 1e6 / steps_us)
            };
            for (plot, before, now) in [
                (Plot::Steps, Some(before.steps), Some(now.steps)),
                (Plot::Samples, before.samples, now.samples),
                (Plot::Tokens, before.tokens, now.tokens),
            ] {
                self.put(plot, of, (0, ""), t_us, rate(before, now));
            }
        }
    }
}

/// The time between two readings, µs, where it is long enough to compare them.
fn long_enough(before_us: u64, now_us: u64) -> Option<f64> {
    let passed_us = now_us.checked_sub(before_us)?;
    (passed_us >= MIN_RATE_INTERVAL_US).then_some(passed_us as f64)
}

fn bytes(bytes: Option<Bytes>) -> Option<f64> {
    bytes.map(|bytes| bytes.0 as f64)
}
