//! What `bench/account/record` runs: writes the record of a day (24 h at 1 Hz, 8 cards, 64 processes of
//! which 32 are told, one training rank a card), and folds it into a report, or into
//! what a page shows.
//!
//!     day write FOLDER
//!     day fold FOLDER
//!     day view FOLDER
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for a bench"
)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use sconce_record::RecordWriter;
use sconce_report::RunReport;
use sconce_report::views::RecordView;
use sconce_schema::Bytes;
use sconce_schema::event::{
    Containment, GpuSample, GpuSummary, HostSummary, Pressure, ProcessSample, RecordEvent,
    RunStarted, Sample,
};
use sconce_schema::request::RunLimits;
use sconce_schema::training::{
    DataLoaderCounters, GpuAllocatorCounters, PhaseTimes, TrainingSample, TrainingStep,
};

const SECONDS: u64 = 86_400;
const CARDS: u32 = 8;
const PROCESSES: u32 = 32;
const CPUS: u64 = 64;
/// A step of training, µs.
const STEP_US: u64 = 230_000;

fn main() {
    let mut words = std::env::args().skip(1);
    let (what, folder) = (words.next().unwrap(), PathBuf::from(words.next().unwrap()));
    match what.as_str() {
        "write" => write(&folder),
        "view" => view(&folder.join("day")),
        _ => fold(&folder.join("day")),
    }
}

fn write(folder: &Path) {
    let mut writer = RecordWriter::create(folder, &started()).unwrap();
    let mut noise = Noise(1);
    let began = Instant::now();
    for second in 1..=SECONDS {
        let event = RecordEvent::Sample(Box::new(sample(second, &mut noise)));
        writer
            .write_event(second * 1_000_000 + noise.below(900), &event)
            .unwrap();
    }
    let us = began.elapsed().as_secs_f64() * 1e6 / SECONDS as f64;
    println!("written: {us:.0} µs a line, making it included");
}

fn fold(folder: &Path) {
    let began = Instant::now();
    let report = RunReport::from_record(sconce_record::open_record(folder).unwrap());
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!((report.samples, report.damaged_lines), (SECONDS, 0));
    println!("folded: {seconds:.2} s");
}

fn view(folder: &Path) {
    let began = Instant::now();
    let view = RecordView::from_record(sconce_record::open_record(folder).unwrap(), 4096);
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(view.report.samples, SECONDS);
    println!("viewed: {seconds:.2} s");
}

/// Figures that do not repeat (xorshift): a record of round numbers would be too easily compressed.
struct Noise(u64);

impl Noise {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn sample(second: u64, noise: &mut Noise) -> Sample {
    let us = second * 1_000_000;
    Sample {
        cpu_us: Some(us * 20 + noise.below(900_000)),
        throttled_us: Some(0),
        memory: Some(Bytes((200 << 30) + noise.below(1 << 30) / 4096 * 4096)),
        memory_peak: Some(Bytes(201 << 30)),
        cache: Some(Bytes((90 << 30) + noise.below(1 << 30) / 4096 * 4096)),
        pss: second
            .is_multiple_of(10)
            .then(|| Bytes((100 << 30) + noise.below(1 << 30))),
        rss: Some(Bytes((150 << 30) + noise.below(1 << 30) / 4096 * 4096)),
        processes: Some(64),
        threads: Some(1_400 + noise.below(20) as u32),
        read_bytes: Some(second * 300_000_000 + noise.below(90_000_000)),
        write_bytes: Some(second * 1_000_000 + noise.below(90_000)),
        shm: Some(Bytes((3 << 30) + noise.below(1 << 28))),
        oom_kills: Some(0),
        pids_refused: Some(0),
        pressure: Some(Pressure {
            cpu_some_us: Some(second * 9_000 + noise.below(5_000)),
            memory_some_us: Some(0),
            memory_full_us: Some(0),
            io_some_us: Some(second * 4_000 + noise.below(3_000)),
            io_full_us: Some(second * 3_000 + noise.below(3_000)),
        }),
        swap: Some(Bytes(0)),
        cpus_busy_us: (0..CPUS)
            .map(|_| us / 3 / 10_000 * 10_000 + noise.below(40) * 10_000)
            .collect(),
        received_bytes: Some(second * 1_000 + noise.below(900)),
        sent_bytes: Some(second * 1_000 + noise.below(900)),
        by_process: (0..PROCESSES).map(|n| process(n, us, noise)).collect(),
        gpus: (0..CARDS).map(|n| gpu(n, us, noise)).collect(),
        training: (0..CARDS).map(|n| training(n, us, noise)).collect(),
        training_left_out: None,
        nccl: Vec::new(),
    }
}

fn process(n: u32, us: u64, noise: &mut Noise) -> ProcessSample {
    ProcessSample {
        pid: 41_000 + n,
        inner_pid: Some(17 + n),
        parent: 40_999,
        name: "python".to_owned(),
        role: Some(if n < CARDS { "rank" } else { "worker" }.to_owned()),
        cpu_us: us / 2 + noise.below(50) * 10_000,
        rss: Bytes((4 << 30) + noise.below(1 << 28) / 4096 * 4096),
        threads: 21,
    }
}

fn gpu(index: u32, us: u64, noise: &mut Noise) -> GpuSample {
    GpuSample {
        index,
        utilisation_percent: Some(80 + noise.below(20) as u32),
        memory_utilisation_percent: Some(30 + noise.below(20) as u32),
        memory_used: Some(Bytes((61 << 30) + noise.below(50) * (1 << 21))),
        memory_by_pid: [(41_000 + index, Bytes(60 << 30))].into(),
        power_mw: Some(500_000 + noise.below(199_999) as u32),
        energy_mj: Some(us / 1_600 + noise.below(5_000)),
        temperature_c: Some(50 + noise.below(20) as u32),
        sm_clock_mhz: Some(1_600 + noise.below(25) as u32 * 15),
        memory_clock_mhz: Some(2_619),
        pcie_received_bytes_per_s: Some(noise.below(5_000_000_000) / 1000 * 1000),
        pcie_sent_bytes_per_s: Some(noise.below(500_000_000) / 1000 * 1000),
        nvlink_received_bytes: Some(us * 70_000 + noise.below(5_000_000_000)),
        nvlink_sent_bytes: Some(us * 70_000 + noise.below(5_000_000_000)),
        xids: Vec::new(),
        instances: Vec::new(),
        throttle: Some(Vec::new()),
    }
}

fn training(rank: u32, us: u64, noise: &mut Noise) -> TrainingSample {
    let steps = us / STEP_US;
    let part = |share: u64, noise: &mut Noise| us / 100 * share + noise.below(9_000);
    TrainingSample {
        pid: 41_000 + rank,
        rank: Some(rank),
        group: None,
        steps,
        wall_us: us - noise.below(STEP_US),
        phases: PhaseTimes {
            data_us: part(2, noise),
            copy_us: part(3, noise),
            forward_us: part(30, noise),
            backward_us: part(60, noise),
            optimizer_us: part(4, noise),
            other_us: part(1, noise),
        },
        on_card: Some(PhaseTimes {
            data_us: part(2, noise),
            copy_us: part(3, noise),
            forward_us: part(30, noise),
            backward_us: part(60, noise),
            optimizer_us: part(4, noise),
            other_us: part(1, noise),
        }),
        on_card_steps: Some(steps),
        samples: Some(steps * 64),
        loader: Some(DataLoaderCounters {
            batches: steps,
            empty: Some(steps / 100),
            ready: Some(6),
        }),
        card_memory: Some(GpuAllocatorCounters {
            allocated: Bytes((40 << 30) + noise.below(1 << 30) / 512 * 512),
            allocated_peak: Bytes(52 << 30),
            reserved: Bytes(58 << 30),
            reserved_peak: Bytes(58 << 30),
            inactive_split: Bytes(noise.below(1 << 30) / 512 * 512),
            blocks: 2_000 + noise.below(300),
            allocations: steps * 1_157,
            ..GpuAllocatorCounters::default()
        }),
        // A few steps of each reading.
        recent: (0..2)
            .map(|n| TrainingStep {
                step: steps.saturating_sub(n),
                t_us: us - n * STEP_US,
                wall_us: STEP_US + noise.below(9_000),
                data_us: noise.below(9_000),
                rss: Some(Bytes((4 << 30) + noise.below(1 << 28) / 4096 * 4096)),
                allocated: Some(Bytes((40 << 30) + noise.below(1 << 30) / 512 * 512)),
                reserved: Some(Bytes(58 << 30)),
                blocks: Some(2_000 + noise.below(300)),
            })
            .collect(),
        ..TrainingSample::default()
    }
}

fn started() -> RunStarted {
    let card = |index| GpuSummary {
        index,
        uuid: format!("GPU-00000000-0000-0000-0000-{index:012}"),
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        memory: Some(Bytes(85_520_809_984)),
    };
    RunStarted {
        format: sconce_schema::event::FORMAT,
        id: "day".to_owned(),
        name: Some("day".to_owned()),
        unix_ms: 1_795_221_240_000,
        command: vec!["torchrun".to_owned(), "train.py".to_owned()],
        folder: PathBuf::from("/home/ada/day"),
        mode: Containment::Container,
        sconce_pid: std::process::id(),
        limits: RunLimits::default(),
        versions: None,
        plan: None,
        near: None,
        network: None,
        way_out: None,
        runtime: None,
        containment: None,
        node_network: None,
        host: HostSummary::default(),
        gpus: (0..CARDS).map(card).collect(),
    }
}
