//! Records of runs that never were: each a plain run of 400 steps with one thing changed.

use std::path::Path;

use sconce_record::RecordReader;
use sconce_report::RunReport;
use sconce_report::terminal::TerminalStyle;
use sconce_schema::event::{
    Containment, ExitStatus, FORMAT, GpuSample, GpuSummary, HostSummary, Pressure, RecordEvent,
    RecordLine, RunEnded, RunStarted, Sample,
};
use sconce_schema::network::{NcclNetwork, NodeNetwork};
use sconce_schema::request::RunLimits;
use sconce_schema::training::{
    CollectiveTimes, DataLoaderCounters, DataLoaderSetup, GpuAllocatorCounters, GpuOutOfMemory,
    PhaseTimes, TrainingSample, TrainingSetup, TrainingStep,
};
use sconce_schema::{Bytes, Millicores};

/// A wide terminal without colours.
pub(crate) const WIDE: TerminalStyle = TerminalStyle {
    color: false,
    width: 100,
};

const MIB: u64 = 1024 * 1024;

/// One rank.
#[derive(Clone)]
pub(crate) struct Rank {
    /// Time of a mean step by phase, µs.
    pub(crate) phases: PhaseTimes,
    /// The same on the card.
    pub(crate) on_card: Option<PhaseTimes>,
    pub(crate) setup: TrainingSetup,
    pub(crate) group: Option<u32>,
    /// Batches of 100 for which none stood ready.
    pub(crate) empty: u64,
    /// What the resident set grows by in each step, bytes.
    pub(crate) rss_growth: u64,
    /// What malloc has given out more in each step, bytes; `None` where that is not read.
    pub(crate) heap_growth: Option<u64>,
    pub(crate) allocated_growth: u64,
    pub(crate) reserved_growth: u64,
    /// Blocks more in use after ten steps.
    pub(crate) blocks_growth: u64,
    pub(crate) memory: Option<GpuAllocatorCounters>,
    pub(crate) exchange: Option<CollectiveTimes>,
}

/// A run.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) steps: u64,
    pub(crate) limits: RunLimits,
    pub(crate) card: Option<GpuSample>,
    pub(crate) card_name: &'static str,
    /// What each reading has; counters grow evenly to these.
    pub(crate) last: Sample,
    pub(crate) oom: Option<GpuOutOfMemory>,
    pub(crate) command: &'static str,
    pub(crate) node_network: Option<NodeNetwork>,
    /// What NCCL chose, told in the first reading.
    pub(crate) nccl: Vec<NcclNetwork>,
}

impl Rank {
    /// On a CPU, with a loader that keeps up.
    pub(crate) fn healthy() -> Self {
        Self {
            phases: PhaseTimes {
                data_us: 400,
                copy_us: 0,
                forward_us: 15_000,
                backward_us: 28_000,
                optimizer_us: 2_500,
                other_us: 600,
            },
            on_card: None,
            group: None,
            setup: TrainingSetup {
                pid: 100,
                python: "3.11.9".into(),
                torch: "2.15.0".into(),
                model: Some("ResNet".into()),
                modules: Some(68),
                parameters: Some(11_689_512),
                optimizers: vec!["SGD".into()],
                dtype: Some("float32".into()),
                loader: Some(DataLoaderSetup {
                    workers: 2,
                    prefetch: Some(2),
                    pinned: false,
                    persistent: true,
                    batch: Some(32),
                }),
                fixed_shapes: Some(true),
                ..TrainingSetup::default()
            },
            empty: 2,
            rss_growth: 0,
            heap_growth: None,
            allocated_growth: 0,
            reserved_growth: 0,
            blocks_growth: 0,
            memory: None,
            exchange: None,
        }
    }

    /// On a card that is busy.
    pub(crate) fn on_card() -> Self {
        let mut rank = Self::healthy();
        rank.setup.card = Some("0a1b".into());
        rank.setup.autocast = Some("bfloat16".into());
        if let Some(loader) = &mut rank.setup.loader {
            loader.pinned = true;
        }
        rank.memory = Some(GpuAllocatorCounters {
            allocated: Bytes::from_mib(9_000),
            allocated_peak: Bytes::from_mib(20_000),
            reserved: Bytes::from_mib(21_000),
            reserved_peak: Bytes::from_mib(21_000),
            blocks: 500,
            allocations: 100_000,
            ..GpuAllocatorCounters::default()
        });
        rank
    }

    /// The same with another pid and rank.
    pub(crate) fn of(mut self, rank: u32, world: u32) -> Self {
        self.setup.pid = 100 + rank;
        self.setup.rank = Some(rank);
        self.setup.world_size = Some(world);
        self
    }

    /// Started by another launcher.
    pub(crate) fn of_group(mut self, group: u32) -> Self {
        self.setup.pid += 10 * group;
        self.group = Some(group);
        self
    }
}

impl Made {
    pub(crate) fn of(ranks: Vec<Rank>) -> Self {
        let card = ranks
            .iter()
            .any(|rank| rank.setup.card.is_some())
            .then(|| GpuSample {
                utilisation_percent: Some(96),
                memory_used: Some(Bytes::from_mib(22_500)),
                memory_by_pid: [(100, Bytes::from_mib(21_500))].into(),
                throttle: Some(Vec::new()),
                ..GpuSample::default()
            });
        Self {
            ranks,
            steps: 400,
            limits: RunLimits {
                cpus: Millicores::from_cores(8.0),
                memory: Some(Bytes::from_mib(16_384)),
                ..RunLimits::default()
            },
            card,
            card_name: "NVIDIA H100 PCIe",
            last: Sample {
                cpu_us: Some(60_000_000),
                throttled_us: Some(0),
                memory: Some(Bytes::from_mib(1_500)),
                oom_kills: Some(0),
                ..Sample::default()
            },
            oom: None,
            command: "python train.py",
            node_network: None,
            nccl: Vec::new(),
        }
    }

    pub(crate) fn report(&self) -> RunReport {
        let text = self.record();
        let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl"));
        RunReport::from_record(record.expect("it begins as a record"))
    }

    /// As it would lie on the disk.
    pub(crate) fn record(&self) -> String {
        let mut lines = vec![(0, RecordEvent::Started(Box::new(self.started())))];
        for rank in &self.ranks {
            lines.push((1_000, RecordEvent::Setup(Box::new(rank.setup.clone()))));
        }
        let readings = (self.steps / 10).max(1);
        let mut end = 0;
        for reading in 1..=readings {
            let mut sample = Sample {
                training_left_out: self.last.training_left_out,
                nccl: match reading {
                    1 => self.nccl.clone(),
                    _ => Vec::new(),
                },
                ..Sample::default()
            };
            for rank in &self.ranks {
                let (training, t_us) = self.training(rank, reading);
                end = t_us.max(end);
                sample.training.push(training);
            }
            let share = |all: Option<u64>| all.map(|all| all * reading / readings);
            let p = self.last.pressure;
            sample.cpu_us = share(self.last.cpu_us);
            sample.throttled_us = share(self.last.throttled_us);
            sample.cpus_busy_us = (self.last.cpus_busy_us.iter())
                .map(|all| all * reading / readings)
                .collect();
            sample.memory = self.last.memory;
            sample.oom_kills = self.last.oom_kills;
            sample.swap = self.last.swap;
            sample.pressure = p.map(|p| Pressure {
                memory_some_us: share(p.memory_some_us),
                io_some_us: share(p.io_some_us),
                ..Pressure::default()
            });
            sample.gpus = self.card.iter().cloned().collect();
            lines.push((end, RecordEvent::Sample(Box::new(sample))));
        }
        if let Some(oom) = &self.oom {
            lines.push((end, RecordEvent::CardOutOfMemory(Box::new(oom.clone()))));
        }
        let last = Sample {
            cpu_us: self.last.cpu_us,
            training_left_out: self.last.training_left_out,
            ..Sample::default()
        };
        lines.push((
            end + 1_000,
            RecordEvent::Ended(RunEnded {
                exit: ExitStatus::Code(u8::from(self.oom.is_some())),
                last: Box::new(last),
                out_of_memory: None,
                largest_process: None,
                lost: None,
            }),
        ));
        (lines.into_iter())
            .map(|(t_us, event)| {
                serde_json::to_string(&RecordLine { t_us, event }).expect("an event is JSON") + "\n"
            })
            .collect()
    }

    fn started(&self) -> RunStarted {
        RunStarted {
            format: FORMAT,
            id: "made-20261122-0900-0001".into(),
            name: None,
            unix_ms: 1_795_338_000_000,
            command: self.command.split(' ').map(str::to_owned).collect(),
            folder: "/home/ada/made".into(),
            mode: Containment::Host,
            sconce_pid: 1,
            limits: self.limits,
            versions: None,
            plan: None,
            near: None,
            network: None,
            way_out: None,
            runtime: None,
            containment: None,
            node_network: self.node_network.clone(),
            host: HostSummary {
                hostname: "sun".into(),
                kernel: "6.12".into(),
                cpus: 8,
                memory: Bytes::from_mib(64 * 1024),
                ..HostSummary::default()
            },
            gpus: (self.card.iter())
                .map(|_| GpuSummary {
                    index: 0,
                    uuid: "GPU-0a1b".into(),
                    name: self.card_name.into(),
                    memory: Some(Bytes::from_mib(80 * 1024)),
                })
                .collect(),
        }
    }

    /// FSDP's counters grow evenly; DDP's figures are means.
    fn exchange(&self, all: CollectiveTimes, now: u64) -> CollectiveTimes {
        let share = |all: Option<u64>| all.map(|all| all * now / self.steps.max(1));
        CollectiveTimes {
            sharded_steps: share(all.sharded_steps),
            all_gather_us: share(all.all_gather_us),
            all_gather_exposed_us: share(all.all_gather_exposed_us),
            reduce_scatter_us: share(all.reduce_scatter_us),
            reduce_scatter_exposed_us: share(all.reduce_scatter_exposed_us),
            ..all
        }
    }

    /// One reading of a rank, and when it was.
    fn training(&self, rank: &Rank, reading: u64) -> (TrainingSample, u64) {
        let (now, p) = (reading * 10, rank.phases);
        let step_us = p.sum_us();
        let times = |phases: PhaseTimes| PhaseTimes {
            data_us: phases.data_us * now,
            copy_us: phases.copy_us * now,
            forward_us: phases.forward_us * now,
            backward_us: phases.backward_us * now,
            optimizer_us: phases.optimizer_us * now,
            other_us: phases.other_us * now,
        };
        let step = |step: u64| TrainingStep {
            step,
            t_us: 1_000_000 + step * step_us,
            // Some steps are slower: no two are the same.
            wall_us: step_us + step * 7_919 % 977,
            data_us: p.data_us,
            rss: Some(Bytes(
                800 * MIB + step * rank.rss_growth + step * 31 % 7 * 65_536,
            )),
            allocated: rank
                .memory
                .map(|memory| Bytes(memory.allocated.0 + step * rank.allocated_growth)),
            reserved: rank
                .memory
                .map(|memory| Bytes(memory.reserved.0 + step * rank.reserved_growth)),
            blocks: rank
                .memory
                .map(|memory| memory.blocks + step * rank.blocks_growth / 10),
        };
        let training = TrainingSample {
            pid: rank.setup.pid,
            rank: rank.setup.rank,
            group: rank.group,
            steps: now,
            wall_us: step_us * now,
            phases: times(p),
            on_card: rank.on_card.map(times),
            on_card_steps: rank.on_card.map(|_| now),
            samples: Some(now * 32),
            loader: Some(DataLoaderCounters {
                batches: now,
                empty: Some(now * rank.empty / 100),
                ready: Some(2),
            }),
            card_memory: rank.memory,
            exchange: rank.exchange.map(|all| self.exchange(all, now)),
            recent: (now - 9..=now).map(step).collect(),
            // As where a reading is dear: of every other step.
            heap: (rank.heap_growth.iter())
                .flat_map(|growth| {
                    (now - 9..=now)
                        .step_by(2)
                        .map(move |step| (step, Bytes(300 * MIB + step * growth)))
                })
                .collect(),
            ..TrainingSample::default()
        };
        (training, 1_000_000 + now * step_us)
    }
}

/// What was found, by its rules.
pub(crate) fn rules(report: &RunReport) -> Vec<&str> {
    let verdicts = report.verdicts.iter();
    verdicts.map(|verdict| verdict.rule.as_str()).collect()
}
