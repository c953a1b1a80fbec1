//! Runs that go on, and a machine's cards, in Prometheus's text format
//! (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4), with names by its rules: base
//! units, `_total` for counters, shares from 0 to 1, and no label without a bound. What is not known has
//! no line.

mod gpu;
mod names;
mod otlp;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use sconce_record::RunEntry;
use sconce_schema::Bytes;
use sconce_schema::event::{Containment, GpuSample, RecordEvent, Sample};
use sconce_schema::training::TrainingSample;

pub use otlp::{OtlpResource, render_otlp};

/// One card of the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineGpuSample {
    /// `GPU-…`.
    pub uuid: String,
    /// Product name.
    pub name: Option<String>,
    /// PCI address.
    pub bus_id: Option<String>,
    /// All of its memory.
    pub memory: Option<Bytes>,
    /// Name of the machine.
    pub hostname: String,
    /// The driver's version.
    pub driver: Option<String>,
    /// The reading.
    pub sample: GpuSample,
}

/// How many training processes of one run are told.
const MAX_RANKS: usize = 1024;

/// The metrics' text. `dcgm_names` tells the cards by the names of NVIDIA's dcgm-exporter too.
pub fn render_prometheus<'a>(
    running: impl Iterator<Item = &'a RunEntry>,
    cards: &[MachineGpuSample],
    dcgm_names: bool,
) -> String {
    let mut page = Page::of(running, cards);
    if dcgm_names {
        cards
            .iter()
            .for_each(|card| gpu::add_dcgm_metrics(&mut page, card));
    }
    page.text()
}

/// A figure: what is counted in whole numbers stays whole.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Whole(u64),
    Real(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value}"),
        }
    }
}

/// One figure under its labels.
#[derive(Debug)]
struct Point {
    labels: Vec<(&'static str, String)>,
    value: Value,
    /// Since when it counts, in ms since 1970, where that is known.
    since_ms: Option<u64>,
}

/// Points by metric, in the order of the list of names: all of one stand together.
#[derive(Debug, Default)]
struct Page {
    points: BTreeMap<usize, Vec<Point>>,
    /// When what is told now began to count.
    since_ms: Option<u64>,
}

impl Page {
    fn of<'a>(running: impl Iterator<Item = &'a RunEntry>, cards: &[MachineGpuSample]) -> Self {
        let mut page = Self::default();
        page.put(
            "sconce_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))],
            Some(Value::Whole(1)),
        );
        for entry in running {
            page.since_ms = Some(entry.started.unix_ms);
            run(&mut page, entry);
        }
        // Cards count since their driver was loaded, which nothing tells.
        page.since_ms = None;
        cards
            .iter()
            .for_each(|card| gpu::add_gpu_metrics(&mut page, card));
        page
    }

    /// A point, where there is a value.
    fn put(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: Option<Value>) {
        let place = names::ALL.iter().position(|metric| metric.0 == name);
        let (Some(place), Some(value)) = (place, value) else {
            debug_assert!(place.is_some(), "{name} is in the list of names");
            return;
        };
        let labels = labels.iter().map(|(key, text)| (*key, (*text).to_owned()));
        self.points.entry(place).or_default().push(Point {
            labels: labels.collect(),
            value,
            since_ms: self.since_ms,
        });
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (place, points) in self.points {
            let (name, kind, help) = names::ALL[place];
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for point in points {
                text.push_str(name);
                for (at, (key, value)) in point.labels.iter().enumerate() {
                    let before = if at == 0 { '{' } else { ',' };
                    let _ = write!(text, "{before}{key}=\"{}\"", escaped(value));
                }
                let end = if point.labels.is_empty() { "" } else { "}" };
                let _ = writeln!(text, "{end} {}", point.value);
            }
        }
        text
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

fn run(page: &mut Page, entry: &RunEntry) {
    let started = &entry.started;
    let labels = [("run", started.id.as_str())];
    let mode = match started.mode {
        Containment::Container => "container",
        Containment::Host => "host",
    };
    let name = started.name.as_deref().unwrap_or_default();
    page.put(
        "sconce_run_info",
        &[labels[0], ("environment", name), ("mode", mode)],
        Some(Value::Whole(1)),
    );
    page.put(
        "sconce_run_start_time_seconds",
        &labels,
        Some(Value::Real(started.unix_ms as f64 / 1e3)),
    );
    page.put(
        "sconce_run_cpu_limit_cores",
        &labels,
        started.limits.cpus.map(|cpus| Value::Real(cpus.as_cores())),
    );
    page.put(
        "sconce_run_memory_limit_bytes",
        &labels,
        bytes(started.limits.memory),
    );
    page.put(
        "sconce_run_gpus",
        &labels,
        Some(Value::Whole(started.gpus.len() as u64)),
    );
    let Some(RecordEvent::Sample(sample)) = entry.last.as_ref().map(|line| &line.event) else {
        return;
    };
    reading(page, &labels, sample);
    for gpu in &sample.gpus {
        let index = gpu.index.to_string();
        let sum = gpu
            .memory_by_pid
            .values()
            .fold(0_u64, |sum, bytes| sum.saturating_add(bytes.0));
        let held = (!gpu.memory_by_pid.is_empty()).then_some(Value::Whole(sum));
        page.put(
            "sconce_run_gpu_memory_bytes",
            &[labels[0], ("gpu", &index)],
            held,
        );
    }
    // A process id is a label without a bound. Labels that stand twice are an error in Prometheus, and a
    // record may say anything.
    let mut told = BTreeSet::new();
    for training in &sample.training {
        let rank = training.rank.unwrap_or_default();
        if told.len() == MAX_RANKS || !told.insert((rank, training.group)) {
            continue;
        }
        let (rank, group) = (
            rank.to_string(),
            training.group.map(|group| group.to_string()),
        );
        let labels = [
            Some(labels[0]),
            Some(("rank", rank.as_str())),
            group.as_deref().map(|group| ("group", group)),
        ];
        self::training(
            page,
            &labels.into_iter().flatten().collect::<Vec<_>>(),
            training,
        );
    }
}

fn reading(page: &mut Page, labels: &[(&'static str, &str); 1], sample: &Sample) {
    for (name, value) in [
        ("sconce_run_cpu_seconds_total", seconds(sample.cpu_us)),
        (
            "sconce_run_cpu_throttled_seconds_total",
            seconds(sample.throttled_us),
        ),
        ("sconce_run_memory_bytes", bytes(sample.memory)),
        ("sconce_run_memory_peak_bytes", bytes(sample.memory_peak)),
        ("sconce_run_memory_cache_bytes", bytes(sample.cache)),
        ("sconce_run_proportional_memory_bytes", bytes(sample.pss)),
        ("sconce_run_resident_memory_bytes", bytes(sample.rss)),
        ("sconce_run_swap_bytes", bytes(sample.swap)),
        ("sconce_run_shm_bytes", bytes(sample.shm)),
        ("sconce_run_processes", few(sample.processes)),
        ("sconce_run_threads", few(sample.threads)),
        ("sconce_run_disk_read_bytes_total", many(sample.read_bytes)),
        (
            "sconce_run_disk_written_bytes_total",
            many(sample.write_bytes),
        ),
        (
            "sconce_run_network_receive_bytes_total",
            many(sample.received_bytes),
        ),
        (
            "sconce_run_network_transmit_bytes_total",
            many(sample.sent_bytes),
        ),
        ("sconce_run_oom_kills_total", many(sample.oom_kills)),
    ] {
        page.put(name, labels, value);
    }
    let pressure = sample.pressure.unwrap_or_default();
    for (resource, kind, us) in [
        ("cpu", "some", pressure.cpu_some_us),
        ("memory", "some", pressure.memory_some_us),
        ("memory", "full", pressure.memory_full_us),
        ("io", "some", pressure.io_some_us),
        ("io", "full", pressure.io_full_us),
    ] {
        let labels = [labels[0], ("resource", resource), ("waiting", kind)];
        page.put("sconce_run_pressure_seconds_total", &labels, seconds(us));
    }
}

fn training(page: &mut Page, labels: &[(&'static str, &str)], training: &TrainingSample) {
    let loader = training.loader.as_ref();
    let evaluation = training.evaluation.as_ref();
    let exchange = training.exchange.unwrap_or_default();
    for (name, value) in [
        ("sconce_train_steps_total", many(Some(training.steps))),
        (
            "sconce_train_step_seconds_total",
            seconds(Some(training.wall_us)),
        ),
        ("sconce_train_samples_total", many(training.samples)),
        ("sconce_train_tokens_total", many(training.tokens)),
        ("sconce_train_flops_per_step", many(training.flops_per_step)),
        (
            "sconce_train_sharded_steps_total",
            many(exchange.sharded_steps),
        ),
        (
            "sconce_train_loader_batches_total",
            many(loader.map(|loader| loader.batches)),
        ),
        (
            "sconce_train_loader_empty_total",
            many(loader.and_then(|loader| loader.empty)),
        ),
        (
            "sconce_train_loader_ready_batches",
            few(loader.and_then(|loader| loader.ready)),
        ),
        (
            "sconce_train_evaluation_batches_total",
            many(evaluation.map(|part| part.batches)),
        ),
        (
            "sconce_train_evaluation_seconds_total",
            seconds(evaluation.map(|part| part.wall_us)),
        ),
    ] {
        page.put(name, labels, value);
    }
    for (phase, us) in training.phases.by_name() {
        let labels = [labels, &[("phase", phase)]].concat();
        page.put(
            "sconce_train_phase_seconds_total",
            &labels,
            seconds(Some(us)),
        );
    }
    for (collective, all, exposed) in [
        (
            "all-gather",
            exchange.all_gather_us,
            exchange.all_gather_exposed_us,
        ),
        (
            "reduce-scatter",
            exchange.reduce_scatter_us,
            exchange.reduce_scatter_exposed_us,
        ),
    ] {
        let labels = [labels[0], labels[1], ("collective", collective)];
        page.put("sconce_train_sharded_seconds_total", &labels, seconds(all));
        page.put(
            "sconce_train_sharded_exposed_seconds_total",
            &labels,
            seconds(exposed),
        );
    }
    let Some(memory) = training.card_memory else {
        return;
    };
    for (name, value) in [
        (
            "sconce_torch_allocated_bytes",
            bytes(Some(memory.allocated)),
        ),
        (
            "sconce_torch_allocated_peak_bytes",
            bytes(Some(memory.allocated_peak)),
        ),
        ("sconce_torch_reserved_bytes", bytes(Some(memory.reserved))),
        (
            "sconce_torch_reserved_peak_bytes",
            bytes(Some(memory.reserved_peak)),
        ),
        (
            "sconce_torch_inactive_split_bytes",
            bytes(Some(memory.inactive_split)),
        ),
        (
            "sconce_torch_alloc_retries_total",
            many(Some(memory.retries)),
        ),
        ("sconce_torch_ooms_total", many(Some(memory.ooms))),
    ] {
        page.put(name, labels, value);
    }
}

fn bytes(bytes: Option<Bytes>) -> Option<Value> {
    bytes.map(|bytes| Value::Whole(bytes.0))
}

fn seconds(us: Option<u64>) -> Option<Value> {
    us.map(|us| Value::Real(us as f64 / 1e6))
}

fn many(count: Option<u64>) -> Option<Value> {
    count.map(Value::Whole)
}

fn few(count: Option<u32>) -> Option<Value> {
    count.map(|count| Value::Whole(count.into()))
}

#[cfg(test)]
mod tests;
