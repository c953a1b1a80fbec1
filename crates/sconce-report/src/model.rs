//! The view model: everything that a report says about a run, as values.

use std::io::BufRead;

use sconce_record::{DamagedLine, RecordReader, RunEntry, RunState};
use sconce_schema::Bytes;
use sconce_schema::event::{
    ExitStatus, GpuSummary, OomKill, RecordEvent, RunStarted, Sample, ServiceEvent, ServiceState,
    UnenforcedLimit, WriteLoss,
};
use sconce_schema::network::NcclNetwork;
use sconce_schema::training::GpuOutOfMemory;

use crate::contention::ContentionReport;
use crate::fold::Fold;
use crate::timeline::Timeline;
use crate::training::RankReport;
use crate::verdict::{SkippedRule, Verdict};

/// What a record says. `None` is "not measured" everywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// How it began: command, environment, machine, limits.
    pub started: RunStarted,
    /// From the beginning to the last line, µs.
    pub wall_us: u64,
    /// How it ended.
    pub end: RunEnd,
    /// Set when the kernel killed processes of the run because memory ran out.
    pub out_of_memory: Option<OomKill>,
    /// Whether the kernel's count of such kills was read: without it, none known is not none.
    pub kills_counted: bool,
    /// Readings in the record.
    pub samples: u64,
    /// CPU time.
    pub cpu: CpuReport,
    /// Main memory.
    pub memory: MemoryReport,
    /// The most that /dev/shm held.
    pub shm_peak: Option<Timestamped<Bytes>>,
    /// Processes and threads.
    pub tasks: TaskReport,
    /// Block devices.
    pub disk: DiskReport,
    /// What it waited for, and what its cards' links moved.
    pub load: ContentionReport,
    /// The cards that the run was given, by index.
    pub cards: Vec<GpuReport>,
    /// The processes that train, by rank.
    pub training: Vec<RankReport>,
    /// Processes that trained and are not among them, as they were too many at one time.
    pub training_left_out: Option<u32>,
    /// Each time a card's memory ran out, 64 at most.
    pub card_oom: Vec<GpuOutOfMemory>,
    /// The network that NCCL chose, of each process that said so; 64 at most.
    pub nccl: Vec<NcclNetwork>,
    /// What is wrong with it, the heaviest first.
    pub verdicts: Vec<Verdict>,
    /// The rules that could not be judged of it.
    pub unjudged: Vec<SkippedRule>,
    /// Its services as they stood last, in the order in which they were first told of; the first 64.
    pub services: Vec<ServiceReport>,
    /// Limits that were asked for and not enforced.
    pub unenforced: Vec<UnenforcedLimit>,
    /// What the disk did not take of the record and the logs.
    pub lost: Option<WriteLoss>,
    /// The first lines of the record that could not be read.
    pub damage: Vec<DamagedLine>,
    /// How many lines could not be read.
    pub damaged_lines: u64,
}

impl RunReport {
    /// Reads the rest of a record and says what it says. Memory does not grow with its length.
    #[must_use]
    pub fn from_record<R: BufRead>(record: RecordReader<R>) -> Self {
        let mut fold = Fold::new(record.started.clone(), record.running);
        record
            .without_processes()
            .for_each(|line| fold.add_line(line));
        fold.finish()
    }

    /// Processes that the kernel killed because memory ran out; `None` where that is not known.
    #[must_use]
    pub fn oom_kill_count(&self) -> Option<u64> {
        let told = self.out_of_memory.map(|killed| killed.kills);
        told.or(self.kills_counted.then_some(0))
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The command returned this code.
    Exited(u8),
    /// A signal ended the command.
    Signalled(i32),
    /// The record stops without an end: Sconce itself was killed, or the machine went down.
    Interrupted,
    /// It has not ended.
    Running,
}

impl From<ExitStatus> for RunEnd {
    fn from(exit: ExitStatus) -> Self {
        match exit {
            ExitStatus::Code(code) => Self::Exited(code),
            ExitStatus::Signal(signal) => Self::Signalled(signal),
        }
    }
}

/// Where a service stood last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceReport {
    /// Its name.
    pub name: String,
    /// What it was doing.
    pub state: ServiceState,
    /// Since when, µs since the run began.
    pub since_us: u64,
    /// How often it was started.
    pub starts: u32,
    /// How its process ended last, where one did.
    pub exit: Option<ExitStatus>,
    /// Why it was so, where the record tells.
    pub why: Option<String>,
    /// Where it is reached, without anything secret.
    pub open: Vec<String>,
}

impl ServiceReport {
    /// Times that it was started again.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.starts.saturating_sub(1)
    }

    pub(crate) fn new(t_us: u64, event: ServiceEvent) -> Self {
        Self {
            name: event.name,
            state: event.state,
            since_us: t_us,
            starts: event.starts,
            exit: event.exit,
            why: event.why,
            open: event.open,
        }
    }

    /// Takes what became of it. How it ended last and where it is reached stay known.
    pub(crate) fn apply_service_event(&mut self, t_us: u64, event: ServiceEvent) {
        let (exit, open) = (self.exit, std::mem::take(&mut self.open));
        *self = Self::new(t_us, event);
        self.exit = self.exit.or(exit);
        if self.open.is_empty() {
            self.open = open;
        }
    }
}

/// The most memory, and what it was measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMeasure {
    /// What was charged to the run's cgroup.
    Charged,
    /// Proportional set sizes.
    Pss,
    /// Resident set sizes.
    Rss,
    /// The largest process alone.
    LargestProcess,
}

impl MemoryMeasure {
    /// What it is called where there is little room.
    #[must_use]
    pub fn short_label(self) -> &'static str {
        match self {
            Self::Charged => "cgroup",
            Self::Pss => "PSS",
            Self::Rss => "RSS",
            Self::LargestProcess => "largest process",
        }
    }

    /// What it is called.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Charged => "charged to the run",
            Self::Pss => "processes' share (PSS)",
            Self::Rss => "resident (RSS)",
            Self::LargestProcess => "in its largest process",
        }
    }
}

impl MemoryReport {
    /// The figure that a report leads with: what was charged to the run, and where its cgroup told
    /// nothing, the next best.
    #[must_use]
    pub fn leading_memory_figure(&self) -> Option<(Bytes, MemoryMeasure)> {
        [
            (self.peak.map(|peak| peak.value), MemoryMeasure::Charged),
            (self.pss_peak, MemoryMeasure::Pss),
            (self.rss_peak, MemoryMeasure::Rss),
            (self.largest_process, MemoryMeasure::LargestProcess),
        ]
        .into_iter()
        .find_map(|(bytes, kind)| Some((bytes?, kind)))
    }
}

/// A value and when it was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamped<T> {
    /// The value.
    pub value: T,
    /// Microseconds since the run began.
    pub t_us: u64,
}

/// CPU time.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuReport {
    /// Time used by the whole process tree, µs.
    pub used_us: Option<u64>,
    /// Cores used on average over the run, if it took 0.2 s or more: its start is in the CPU time
    /// and not in its length.
    pub mean_cores: Option<f64>,
    /// The most cores used between two readings, and the second one's time. Readings less than
    /// 0.2 s apart are not compared: the kernel's clock ticks are too coarse for that.
    pub peak_cores: Option<Timestamped<f64>>,
    /// Time in which the limit held threads back, µs, summed over the machine's CPUs as the
    /// kernel counts it; it can be more than [`RunReport::wall_us`].
    pub throttled_us: Option<u64>,
    /// Of the time in which it ran or wanted to run, the share in which the limit held it back,
    /// 0 to 1: `throttled / (throttled + used)`. (The kernel sums both over CPUs: a run of two
    /// busy threads under a limit of half a core has 0.75.)
    pub throttled_share: Option<f64>,
    /// CPUs of the machine that were busy with anything, on average between the first and the last
    /// reading; others' work is in it.
    pub machine_busy_cores: Option<f64>,
    /// Cores used over time.
    pub timeline: Timeline,
}

/// Main memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryReport {
    /// The most that was charged to the run's cgroup, file cache included, and the first reading
    /// that knew of it.
    pub peak: Option<Timestamped<Bytes>>,
    /// The share of file cache, 0 to 1, at the fullest reading.
    pub cache_share: Option<f64>,
    /// The most of the proportional set sizes, summed over the tree.
    pub pss_peak: Option<Bytes>,
    /// The most of the resident set sizes, summed over the tree.
    pub rss_peak: Option<Bytes>,
    /// The largest resident set of any one process.
    pub largest_process: Option<Bytes>,
    /// Charged memory over time, bytes; PSS, or RSS, where the cgroup tells nothing.
    pub timeline: Timeline,
}

/// Processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskReport {
    /// The most processes at once.
    pub processes_peak: Option<u32>,
    /// The most threads at once.
    pub threads_peak: Option<u32>,
    /// Forks refused because of the pids limit.
    pub pids_refused: Option<u64>,
}

/// Block devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskReport {
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub written_bytes: Option<u64>,
}

/// One card.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuReport {
    /// Which one. For a card that only samples name, uuid and name are empty.
    pub summary: GpuSummary,
    /// Readings in which it was.
    pub samples: u64,
    /// Mean share of time in which a kernel ran, 0 to 1.
    pub utilisation_mean: Option<f64>,
    /// Share of the readings in which no kernel ran at all, 0 to 1.
    pub idle_share: Option<f64>,
    /// The most memory that this run's processes held.
    pub memory_peak_run: Option<Timestamped<Bytes>>,
    /// The most memory that everyone held.
    pub memory_peak_all: Option<Timestamped<Bytes>>,
    /// Mean draw, watts.
    pub power_mean_w: Option<f64>,
    /// Energy between the first and the last reading.
    pub energy: Option<Energy>,
    /// The highest temperature, °C.
    pub temperature_peak_c: Option<u32>,
    /// Mean clock of the multiprocessors, MHz.
    pub sm_clock_mean_mhz: Option<f64>,
    /// Why its clocks were held down, and in which share of the readings (0 to 1); the most
    /// frequent first.
    pub throttled: Option<Vec<(String, f64)>>,
    /// Share of time in which a kernel ran (0 to 1), over time.
    pub timeline: Timeline,
}

/// Energy of a card.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Energy {
    /// Watt-hours.
    pub watt_hours: f64,
    /// Summed from readings of the draw, because the card has no counter of energy.
    pub estimated: bool,
}

/// One line of a list of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The run's name.
    pub id: String,
    /// The environment's name.
    pub name: Option<String>,
    /// When it began, milliseconds since 1970.
    pub unix_ms: u64,
    /// Program and arguments.
    pub command: Vec<String>,
    /// From the beginning to the last line, µs; `None` when there is only the beginning.
    pub wall_us: Option<u64>,
    /// How it ended.
    pub end: RunEnd,
    /// The kernel killed processes of the run because memory ran out; `None` where its count was not
    /// read.
    pub out_of_memory: Option<bool>,
    /// The most that was charged to the run's cgroup.
    pub peak_memory: Option<Bytes>,
}

impl From<&RunEntry> for RunRow {
    fn from(run: &RunEntry) -> Self {
        let last = run.last.as_ref();
        let peak = |sample: &Sample| sample.memory_peak.max(sample.memory);
        let (end, out_of_memory, peak_memory) = match last.map(|line| &line.event) {
            Some(RecordEvent::Ended(ended)) => (
                Some(RunEnd::from(ended.exit)),
                killed(&ended.last, ended.out_of_memory.is_some()),
                peak(&ended.last),
            ),
            Some(RecordEvent::Sample(sample)) => (None, killed(sample, false), peak(sample)),
            _ => (None, None, None),
        };
        Self {
            id: run.started.id.clone(),
            name: run.started.name.clone(),
            unix_ms: run.started.unix_ms,
            command: run.started.command.clone(),
            wall_us: last.map(|line| line.t_us),
            end: end.unwrap_or(match run.state {
                RunState::Running => RunEnd::Running,
                RunState::Ended | RunState::Interrupted => RunEnd::Interrupted,
            }),
            out_of_memory,
            peak_memory,
        }
    }
}

/// Whether the kernel killed for want of memory: told so, or by its count.
fn killed(sample: &Sample, told: bool) -> Option<bool> {
    match sample.oom_kills {
        _ if told => Some(true),
        kills => kills.map(|kills| kills > 0),
    }
}

/// Kills for want of memory that a sample knows of; `None` when there were none.
pub(crate) fn oom_kills_in_sample(sample: &Sample) -> Option<u64> {
    sample.oom_kills.filter(|kills| *kills > 0)
}
