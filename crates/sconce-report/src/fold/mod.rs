//! The record, line by line, into the view model.

mod gpu;
mod training;

use std::collections::BTreeMap;

use sconce_record::DamagedLine;
use sconce_schema::Bytes;
use sconce_schema::event::{
    OomKill, RecordEvent, RecordLine, RunStarted, Sample, ServiceEvent, UnenforcedLimit, WriteLoss,
};
use sconce_schema::network::NcclNetwork;
use sconce_schema::training::GpuOutOfMemory;

use self::gpu::GpuFold;
use self::training::TrainingFold;
pub(crate) use self::training::steps_after_warm_up;
use crate::contention::ContentionReport;
use crate::model::{
    CpuReport, DiskReport, MemoryReport, RunEnd, RunReport, ServiceReport, TaskReport, Timestamped,
    oom_kills_in_sample,
};
use crate::timeline::{MIN_RATE_INTERVAL_US, Timeline};

/// Of damaged lines, unenforced limits and cards, a report keeps no more than this many.
const MAX_REPORT_ITEMS: usize = 64;

/// A report in the making.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    started: RunStarted,
    running: bool,
    wall_us: u64,
    end: Option<RunEnd>,
    out_of_memory: Option<OomKill>,
    /// Kills that samples know of.
    kills: Option<u64>,
    /// Some reading had the kernel's count, even of none.
    kills_counted: bool,
    samples: u64,
    cpu: CpuFold,
    memory: MemoryFold,
    shm_peak: Option<Timestamped<Bytes>>,
    tasks: TaskReport,
    disk: DiskReport,
    load: ContentionReport,
    cards: BTreeMap<u32, GpuFold>,
    training: TrainingFold,
    card_oom: Vec<GpuOutOfMemory>,
    nccl: BTreeMap<u32, NcclNetwork>,
    services: Vec<ServiceReport>,
    unenforced: Vec<UnenforcedLimit>,
    lost: Option<WriteLoss>,
    damage: Vec<DamagedLine>,
    damaged_lines: u64,
}

impl Fold {
    pub(crate) fn new(started: RunStarted, running: bool) -> Self {
        let cards = (started.gpus.iter().take(MAX_REPORT_ITEMS))
            .map(|card| (card.index, GpuFold::new(card.clone())))
            .collect();
        Self {
            started,
            running,
            wall_us: 0,
            end: None,
            out_of_memory: None,
            kills: None,
            kills_counted: false,
            samples: 0,
            cpu: CpuFold::default(),
            memory: MemoryFold::default(),
            shm_peak: None,
            tasks: TaskReport::default(),
            disk: DiskReport::default(),
            load: ContentionReport::default(),
            cards,
            training: TrainingFold::default(),
            card_oom: Vec::new(),
            nccl: BTreeMap::new(),
            services: Vec::new(),
            unenforced: Vec::new(),
            lost: None,
            damage: Vec::new(),
            damaged_lines: 0,
        }
    }

    pub(crate) fn add_line(&mut self, line: Result<RecordLine, DamagedLine>) {
        let RecordLine { t_us, event } = match line {
            Ok(line) => line,
            Err(damage) => {
                self.damaged_lines += damage.count();
                if self.damage.len() < MAX_REPORT_ITEMS {
                    self.damage.push(damage);
                }
                return;
            }
        };
        self.wall_us = self.wall_us.max(t_us);
        match event {
            // The reader gives the beginning by itself.
            RecordEvent::Started(_) => {}
            RecordEvent::Unenforced(what) if self.unenforced.len() < MAX_REPORT_ITEMS => {
                self.unenforced.push(what)
            }
            RecordEvent::Setup(setup) => self.training.apply_setup(*setup),
            RecordEvent::CardOutOfMemory(told) if self.card_oom.len() < MAX_REPORT_ITEMS => {
                self.card_oom.push(*told)
            }
            RecordEvent::Service(service) => self.service(t_us, *service),
            RecordEvent::Unenforced(_) | RecordEvent::CardOutOfMemory(_) => {}
            RecordEvent::Sample(sample) => {
                self.samples += 1;
                self.memory.over_time(t_us, &sample);
                self.sample(t_us, &sample);
            }
            RecordEvent::Ended(ended) => {
                self.end = Some(ended.exit.into());
                self.out_of_memory = ended.out_of_memory;
                self.lost = ended.lost;
                self.memory.largest_process = ended.largest_process;
                // Nobody is left to be counted then: 0 processes is no peak of the run's.
                let last = Sample {
                    processes: None,
                    threads: None,
                    rss: None,
                    pss: None,
                    ..*ended.last
                };
                self.sample(t_us, &last);
            }
        }
    }

    fn service(&mut self, t_us: u64, event: ServiceEvent) {
        let room = self.services.len() < MAX_REPORT_ITEMS;
        match (self.services.iter_mut()).find(|known| known.name == event.name) {
            Some(known) => known.apply_service_event(t_us, event),
            None if room => self.services.push(ServiceReport::new(t_us, event)),
            None => {}
        }
    }

    fn sample(&mut self, t_us: u64, sample: &Sample) {
        self.cpu.sample(t_us, sample);
        self.load.add_sample(t_us, sample);
        self.memory.sample(t_us, sample);
        raise_at(&mut self.shm_peak, t_us, sample.shm);
        raise(&mut self.tasks.processes_peak, sample.processes);
        raise(&mut self.tasks.threads_peak, sample.threads);
        raise(&mut self.tasks.pids_refused, sample.pids_refused);
        raise(&mut self.disk.read_bytes, sample.read_bytes);
        raise(&mut self.disk.written_bytes, sample.write_bytes);
        raise(&mut self.kills, oom_kills_in_sample(sample));
        self.kills_counted |= sample.oom_kills.is_some();
        self.training.add_sample(sample);
        for network in &sample.nccl {
            if self.nccl.len() < MAX_REPORT_ITEMS || self.nccl.contains_key(&network.inner_pid) {
                self.nccl.insert(network.inner_pid, network.clone());
            }
        }
        for reading in &sample.gpus {
            if self.cards.len() < MAX_REPORT_ITEMS || self.cards.contains_key(&reading.index) {
                (self.cards.entry(reading.index))
                    .or_insert_with(|| GpuFold::from_index(reading.index))
                    .add_sample(t_us, reading);
            }
        }
    }

    /// Its services as they stand.
    pub(crate) fn services(&self) -> &[ServiceReport] {
        &self.services
    }

    pub(crate) fn finish(self) -> RunReport {
        let mut report = self.folded();
        report.verdicts = crate::verdicts::evaluate_rules(&report);
        report.unjudged = crate::verdicts::all_unjudged(&report);
        report
    }

    fn folded(self) -> RunReport {
        let limit = self.started.limits.memory;
        // Without an end there is still what the samples knew. Whose limit it was, the kernel's
        // count does not tell; that the run's own one was reached, the peak does.
        let seen_in_samples = self.kills.map(|kills| OomKill {
            limit: limit.filter(|limit| {
                (self.memory.peak).is_some_and(|peak| peak.value.0 >= limit.0 - limit.0 / 50)
            }),
            kills,
        });
        RunReport {
            wall_us: self.wall_us,
            end: self.end.unwrap_or(if self.running {
                RunEnd::Running
            } else {
                RunEnd::Interrupted
            }),
            out_of_memory: self.out_of_memory.or(seen_in_samples),
            kills_counted: self.kills_counted,
            samples: self.samples,
            cpu: self.cpu.finish(),
            memory: self.memory.finish(),
            shm_peak: self.shm_peak,
            tasks: self.tasks,
            disk: self.disk,
            load: self.load,
            cards: self.cards.into_values().map(GpuFold::finish).collect(),
            training_left_out: self.training.left_out(),
            training: self.training.finish(),
            card_oom: self.card_oom,
            nccl: self.nccl.into_values().collect(),
            verdicts: Vec::new(),
            unjudged: Vec::new(),
            services: self.services,
            unenforced: self.unenforced,
            lost: self.lost,
            damage: self.damage,
            damaged_lines: self.damaged_lines,
            started: self.started,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct CpuFold {
    used_us: Option<u64>,
    throttled_us: Option<u64>,
    /// When CPU time was read last.
    read_us: u64,
    /// The reading to compare the next one with; a run begins with no time used.
    before: Timestamped<u64>,
    peak: Option<Timestamped<f64>>,
    /// Time in which the machine's CPUs were busy, first and last, µs.
    busy: Option<(Timestamped<u64>, Timestamped<u64>)>,
    timeline: Timeline,
}

impl CpuFold {
    fn sample(&mut self, t_us: u64, sample: &Sample) {
        if !sample.cpus_busy_us.is_empty() {
            let busy = sample.cpus_busy_us.iter();
            let value = busy.fold(0, |sum: u64, us| sum.saturating_add(*us));
            let now = Timestamped { value, t_us };
            self.busy = Some((self.busy.map_or(now, |(first, _)| first), now));
        }
        raise(&mut self.throttled_us, sample.throttled_us);
        let Some(used_us) = sample.cpu_us else {
            return;
        };
        raise(&mut self.used_us, Some(used_us));
        self.read_us = self.read_us.max(t_us);
        let Some(passed_us) = (t_us.checked_sub(self.before.t_us))
            .filter(|passed_us| *passed_us >= MIN_RATE_INTERVAL_US)
        else {
            return;
        };
        // Less than before: a process left the tree and took its time along.
        if let Some(used_since_us) = used_us.checked_sub(self.before.value) {
            let cores = used_since_us as f64 / passed_us as f64;
            self.timeline.add(t_us, cores);
            raise_at(&mut self.peak, t_us, Some(cores));
        }
        self.before = Timestamped {
            value: used_us,
            t_us,
        };
    }

    fn finish(self) -> CpuReport {
        let share = |throttled_us: u64, used_us: u64| {
            let wanted_us = throttled_us as f64 + used_us as f64;
            (wanted_us > 0.0).then(|| throttled_us as f64 / wanted_us)
        };
        let busy = |(first, last): (Timestamped<u64>, Timestamped<u64>)| {
            let passed_us = last.t_us.checked_sub(first.t_us)?;
            let busy_us = last.value.checked_sub(first.value)?;
            (passed_us >= MIN_RATE_INTERVAL_US).then(|| busy_us as f64 / passed_us as f64)
        };
        CpuReport {
            machine_busy_cores: self.busy.and_then(busy),
            mean_cores: (self.used_us)
                .filter(|_| self.read_us >= MIN_RATE_INTERVAL_US)
                .map(|used_us| used_us as f64 / self.read_us as f64),
            throttled_share: (self.throttled_us.zip(self.used_us))
                .and_then(|(throttled_us, used_us)| share(throttled_us, used_us)),
            used_us: self.used_us,
            peak_cores: self.peak,
            throttled_us: self.throttled_us,
            timeline: self.timeline,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct MemoryFold {
    peak: Option<Timestamped<Bytes>>,
    /// The fullest reading, and what of it was file cache.
    fullest: Option<(Bytes, Option<Bytes>)>,
    pss_peak: Option<Bytes>,
    rss_peak: Option<Bytes>,
    largest_process: Option<Bytes>,
    timeline: Timeline,
}

impl MemoryFold {
    fn sample(&mut self, t_us: u64, sample: &Sample) {
        raise_at(&mut self.peak, t_us, sample.memory_peak.max(sample.memory));
        if let Some(memory) = sample.memory
            && self.fullest.is_none_or(|(fullest, _)| memory > fullest)
        {
            self.fullest = Some((memory, sample.cache));
        }
        raise(&mut self.pss_peak, sample.pss);
        raise(&mut self.rss_peak, sample.rss);
    }

    /// Only of readings while it ran: at the end every process is gone.
    fn over_time(&mut self, t_us: u64, sample: &Sample) {
        if let Some(bytes) = sample.memory.or(sample.pss).or(sample.rss) {
            self.timeline.add(t_us, bytes.0 as f64);
        }
    }

    fn finish(self) -> MemoryReport {
        let share = |memory: Bytes, cache: Bytes| {
            (memory.0 > 0).then(|| (cache.0 as f64 / memory.0 as f64).min(1.0))
        };
        MemoryReport {
            peak: self.peak,
            cache_share: self
                .fullest
                .and_then(|(memory, cache)| share(memory, cache?)),
            pss_peak: self.pss_peak,
            rss_peak: self.rss_peak,
            largest_process: self.largest_process,
            timeline: self.timeline,
        }
    }
}

/// The larger one; what was not read changes nothing.
fn raise<T: Copy + Ord>(peak: &mut Option<T>, value: Option<T>) {
    *peak = (*peak).max(value);
}

/// As [`raise`], with the time when the larger one was first seen.
fn raise_at<T: Copy + PartialOrd>(peak: &mut Option<Timestamped<T>>, t_us: u64, value: Option<T>) {
    if let Some(value) = value
        && peak.is_none_or(|peak| value > peak.value)
    {
        *peak = Some(Timestamped { value, t_us });
    }
}
