//! What is printed, served and exported of a run, as bytes that a rename or a move must not change.
//!
//! Each is made of one record with every figure. Held elsewhere, and not again here: comparisons by the
//! snapshots of `verdicts.rs`, the list of runs by that of `reports.rs`, names of columns by those of
//! `export.rs`, price files by `src/usage/prices.rs`, rule files by `src/verdicts/rule.rs`.

use std::path::{Path, PathBuf};

use sconce_record::{RecordError, RecordReader, RunEntry, RunState};
use sconce_report::export::{self, ExportTable};
use sconce_report::metrics::{self, MachineGpuSample, OtlpResource};
use sconce_report::views::{self, RecordView};
use sconce_report::{RunReport, json};
use sconce_schema::Bytes;
use sconce_schema::event::{RecordEvent, RecordLine, RunStarted, Sample};
use sconce_schema::training::{PhaseTimes, TrainingSample, TrainingStep};
use sconce_testkit::golden_files::{Goldens, HeldBy};

const REPORT: HeldBy = HeldBy::Golden("report.json");
const COMPARISON: HeldBy =
    HeldBy::File("tests/it/snapshots/it__verdicts__what_cannot_be_judged_is_not_gone-2.snap");
const STEP_TIMES: HeldBy =
    HeldBy::File("tests/it/snapshots/it__verdicts__starved_and_mended-2.snap");
const RUN_TABLE: HeldBy =
    HeldBy::File("tests/it/snapshots/it__verdicts__many_runs_are_a_table-2.snap");
const RUNS: HeldBy = HeldBy::File("tests/it/snapshots/it__reports__a_list_of_runs-2.snap");
const METRICS: HeldBy = HeldBy::Golden("otlp.json");
const PAGE_RUN: HeldBy = HeldBy::Golden("page-run.json");
const PAGE_SERIES: HeldBy = HeldBy::Golden("page-series.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("json/run_table::Shape", RUN_TABLE),
    ("json/run_table::RowShape", RUN_TABLE),
    ("json/compare::Shape", COMPARISON),
    ("json/compare::NotJudgedShape", COMPARISON),
    ("json/compare::RunShape", COMPARISON),
    ("json/compare::ChangeShape", COMPARISON),
    ("json/compare::ShiftShape", STEP_TIMES),
    ("json/compare::PairShape", COMPARISON),
    ("json/compare::BytesShape", COMPARISON),
    ("json/load::LoadShape", REPORT),
    ("json/load::LinksShape", REPORT),
    ("json/load::XidShape", REPORT),
    ("json/mod::EndShape", REPORT),
    ("json/report::Shape", REPORT),
    ("json/report::LostShape", REPORT),
    ("json/report::RunShape", REPORT),
    ("json/report::RuntimeShape", REPORT),
    ("json/report::OutcomeShape", REPORT),
    ("json/report::OutOfMemoryShape", REPORT),
    ("json/report::EnvironmentShape", REPORT),
    ("json/report::HostShape", REPORT),
    ("json/report::LimitsShape", REPORT),
    ("json/report::CpuShape", REPORT),
    ("json/report::MemoryShape", REPORT),
    ("json/report::ShmShape", REPORT),
    ("json/report::TasksShape", REPORT),
    ("json/report::DiskShape", REPORT),
    ("json/report::CardShape", REPORT),
    ("json/report::ThrottleShape", REPORT),
    ("json/report::UnjudgedShape", REPORT),
    ("json/report::ServiceShape", REPORT),
    ("json/report::UnenforcedShape", REPORT),
    ("json/report::TimelineShape", REPORT),
    ("json/runs::Shape", RUNS),
    ("json/runs::RunShape", RUNS),
    ("json/network::NetworkShape", REPORT),
    ("json/network::PluginShape", REPORT),
    ("json/network::NcclShape", REPORT),
    ("json/training::RankShape", REPORT),
    ("json/training::SetupShape", REPORT),
    ("json/training::FlopsShape", REPORT),
    ("json/training::PeakShape", REPORT),
    ("json/training::PhasesShape", REPORT),
    ("json/training::StepTimeShape", REPORT),
    ("json/training::LoaderShape", REPORT),
    ("json/training::EvaluationShape", REPORT),
    ("json/training::CardMemoryShape", REPORT),
    ("json/training::ExchangeShape", REPORT),
    ("json/training::GrowthShape", REPORT),
    ("json/training::GpuOutOfMemoryShape", REPORT),
    ("json/training::HolderShape", REPORT),
    ("json/training::VerdictShape", REPORT),
    ("metrics/otlp::Request", METRICS),
    ("metrics/otlp::ResourceMetrics", METRICS),
    ("metrics/otlp::Resource", METRICS),
    ("metrics/otlp::ScopeMetrics", METRICS),
    ("metrics/otlp::Scope", METRICS),
    ("metrics/otlp::Metric", METRICS),
    ("metrics/otlp::Data", METRICS),
    ("metrics/otlp::DataPoint", METRICS),
    ("metrics/otlp::Attribute", METRICS),
    ("metrics/otlp::Text", METRICS),
    ("views/shape::RunShape", PAGE_RUN),
    ("views/shape::VerdictShape", PAGE_RUN),
    ("views/shape::ServiceShape", PAGE_RUN),
    ("views/shape::ProcessShape", PAGE_RUN),
    ("views/shape::SeriesShape", PAGE_SERIES),
    ("views/shape::PlotShape", PAGE_SERIES),
    ("views/shape::LimitShape", PAGE_SERIES),
    ("views/shape::LineShape", PAGE_SERIES),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

/// The schema's golden record: a line of each kind, with every figure.
fn lines() -> Vec<RecordLine> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../sconce-schema/tests/golden/record.jsonl");
    let text = std::fs::read_to_string(path).expect("the schema's golden file is there");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("it is a record's line"))
        .collect()
}

/// A record with every figure: `readings` samples, a second apart, with `steps` steps of two ranks each.
fn full_record(readings: u64, steps: u64) -> String {
    let mut record = Vec::new();
    for line in lines() {
        match line.event {
            RecordEvent::Sample(sample) => {
                record.extend((1..=readings).map(|reading| RecordLine {
                    t_us: line.t_us + reading * 1_000_000,
                    event: RecordEvent::Sample(Box::new(reading_of(&sample, reading, steps))),
                }))
            }
            event => {
                let after = u64::from(line.t_us > 2_000_000) * readings * 1_000_000;
                record.push(RecordLine {
                    t_us: line.t_us + after,
                    event,
                });
            }
        }
    }
    let text = record.iter().map(serde_json::to_string);
    text.map(|line| line.expect("an event is JSON") + "\n")
        .collect()
}

/// The sample as it would be at one of several readings: what counts has grown by as much at each.
fn reading_of(sample: &Sample, reading: u64, steps: u64) -> Sample {
    let grown = |count: Option<u64>| count.map(|count| count * reading);
    let mut sample = sample.clone();
    sample.cpu_us = grown(sample.cpu_us);
    sample.throttled_us = grown(sample.throttled_us).map(|us| us / 10);
    sample.read_bytes = grown(sample.read_bytes);
    sample.write_bytes = grown(sample.write_bytes);
    sample.received_bytes = grown(sample.received_bytes);
    sample.sent_bytes = grown(sample.sent_bytes);
    for busy in &mut sample.cpus_busy_us {
        *busy *= reading;
    }
    for gpu in &mut sample.gpus {
        // More than the allocator has: the rest is its context.
        gpu.memory_by_pid = [(4123, Bytes::from_mib(600))].into();
        gpu.energy_mj = grown(gpu.energy_mj);
        gpu.nvlink_received_bytes = grown(gpu.nvlink_received_bytes);
        gpu.nvlink_sent_bytes = grown(gpu.nvlink_sent_bytes);
    }
    let first = training_at(&sample.training[0], reading, steps, 10_000);
    let mut second = training_at(&sample.training[0], reading, steps, 14_000);
    (second.pid, second.rank, second.cell) = (4124, Some(4), None);
    sample.training = vec![first, second];
    sample
}

fn training_at(full: &TrainingSample, reading: u64, steps: u64, step_us: u64) -> TrainingSample {
    let now = reading * steps;
    let phases = PhaseTimes {
        data_us: now * 1_000,
        copy_us: now * 200,
        forward_us: now * 3_000,
        backward_us: now * (step_us - 5_300),
        optimizer_us: now * 1_000,
        other_us: now * 100,
    };
    let step = |step: u64| TrainingStep {
        step,
        t_us: 2_000_000 + step * step_us,
        wall_us: step_us + step * 7_919 % 977,
        data_us: 1_000,
        rss: Some(Bytes::from_mib(800 + step)),
        allocated: Some(Bytes::from_mib(2_000 + step)),
        reserved: Some(Bytes::from_mib(3_000 + step)),
        blocks: Some(500 + step),
    };
    TrainingSample {
        steps: now,
        wall_us: phases.sum_us(),
        phases,
        on_card: Some(phases),
        on_card_steps: Some(now),
        samples: Some(now * 32),
        tokens: Some(now * 4096),
        recent: (now - steps + 1..=now).map(step).collect(),
        heap: (now - steps + 1..=now)
            .map(|step| (step, Bytes::from_mib(300 + step)))
            .collect(),
        ..full.clone()
    }
}

fn open(text: &str) -> Result<RecordReader<&[u8]>, RecordError> {
    RecordReader::new(text.as_bytes(), Path::new("events.jsonl"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

#[test]
fn report_is_printed_as_before() {
    let report = RunReport::from_record(open(&full_record(18, 20)).unwrap());
    goldens().assert_same("report.json", json::render_report(&report));
}

#[test]
fn pages_are_served_as_before() {
    let view = RecordView::from_record(open(&full_record(18, 20)).unwrap(), 240);
    goldens().assert_same("page-run.json", views::render_run(&view) + "\n");
    let series = views::render_series(&view.series, 0, view.series.wall_us, 6);
    goldens().assert_same("page-series.json", series + "\n");
}

fn running() -> RunEntry {
    let mut started: Option<RunStarted> = None;
    let mut last = None;
    for line in lines() {
        match line.event {
            RecordEvent::Started(event) => started = Some(*event),
            RecordEvent::Sample(_) => last = Some(line),
            _ => {}
        }
    }
    RunEntry {
        path: PathBuf::from("/runs/brave-otter-7/events.jsonl"),
        started: started.expect("a line of each kind"),
        state: RunState::Running,
        last,
    }
}

fn card_reading(entry: &RunEntry) -> MachineGpuSample {
    let Some(RecordEvent::Sample(sample)) = entry.last.as_ref().map(|line| &line.event) else {
        panic!("the last line is a sample");
    };
    MachineGpuSample {
        uuid: "GPU-8b0c".into(),
        name: Some("NVIDIA H100".into()),
        bus_id: Some("00000000:17:00.0".into()),
        memory: Some(Bytes::from_gib(80)),
        hostname: "node-1".into(),
        driver: Some("580.65.06".into()),
        sample: sample.gpus[0].clone(),
    }
}

/// A release has another number.
fn without_version(text: &str) -> String {
    text.replace(
        concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
        "\"VERSION\"",
    )
}

#[test]
fn metrics_are_served_and_sent_as_before() {
    let run = running();
    let cards = [card_reading(&run)];
    let text = metrics::render_prometheus([&run].into_iter(), &cards, true);
    goldens().assert_same("metrics.txt", without_version(&text));
    let source = OtlpResource {
        hostname: "node-1",
        unix_ms: 1_764_000_060_123,
    };
    let request = metrics::render_otlp([&run].into_iter(), &cards, source);
    goldens().assert_same("otlp.json", without_version(&request) + "\n");
}

#[test]
fn tables_are_exported_as_before() {
    let record = full_record(2, 2);
    for (table, csv, parquet) in [
        (ExportTable::Readings, "readings.csv", "readings.parquet"),
        (ExportTable::Steps, "steps.csv", "steps.parquet"),
        (ExportTable::Processes, "processes.csv", "processes.parquet"),
    ] {
        let mut out = Vec::new();
        export::write_csv(|| open(&record), table, &mut out).unwrap();
        goldens().assert_same(csv, &out);
        let mut out = Vec::new();
        export::write_parquet(|| open(&record), table, &mut out).unwrap();
        goldens().assert_same(parquet, &out);
    }
}

#[test]
fn whole_run_is_exported_as_before() {
    let record = full_record(2, 2);
    let mut out = Vec::new();
    export::write_json(|| open(&record), &mut out).unwrap();
    goldens().assert_same("export.json", &out);
    let mut out = Vec::new();
    export::write_perfetto(open(&record).unwrap(), &mut out).unwrap();
    goldens().assert_same("perfetto.json", &out);
    let mut out = Vec::new();
    export::write_tensorboard(open(&record).unwrap(), &mut out).unwrap();
    goldens().assert_same("events.out.tfevents", &out);
}
