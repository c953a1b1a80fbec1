//! A run's log, and the reports made of it: read back from a disk where anything can have
//! happened to it, and holding names that the run chose itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arbitrary::Unstructured;
use sconce_record::RecordReader;
use sconce_report::terminal::TerminalStyle;
use sconce_report::{RunReport, json, terminal};
use sconce_schema::Bytes;
use sconce_schema::event::{
    Containment, ExitStatus, GpuSample, GpuSummary, HostSummary, OomKill, Pressure, ProcessSample,
    RecordEvent, RecordLine, RunEnded, RunStarted, Sample, UnenforcedLimit, WriteLoss,
};
use sconce_schema::runtime::{Runtime, RuntimeSummary};
use sconce_schema::spec::JobContainment;
use sconce_schema::training::{PhaseTimes, TrainingSample, TrainingStep};

use crate::bytes::{fixtures, flag, noise, pick};
use crate::scratch::{Pen, put};

pub(crate) fn record(data: &[u8]) {
    let Ok(record) = RecordReader::new(data, Path::new("fuzz")) else {
        return;
    };
    for line in record.flatten() {
        let written = serde_json::to_string(&line).expect("a line is plain data");
        let again: RecordLine = serde_json::from_str(&written).expect("what is written reads");
        assert_eq!(again, line);
    }
    show(data);
    show_list(data);
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let records = "crates/sconce-report/tests/records";
    let mut seeds = fixtures(&[
        &format!("{records}/digits.jsonl"),
        &format!("{records}/out-of-memory.jsonl"),
        &format!("{records}/throttled.jsonl"),
    ]);
    // One of each kind of line is a better start than all of a long run.
    for seed in &mut seeds {
        let ends: Vec<usize> = (0..seed.len()).filter(|&at| seed[at] == b'\n').collect();
        if let [first, second, third, .., before, _] = ends[..] {
            let tail = seed.split_off(before + 1);
            seed.truncate(third + 1);
            let _ = (first, second);
            seed.extend(tail);
        }
    }
    seeds
}

/// Every form of the report.
fn show(log: &[u8]) {
    let record = RecordReader::new(log, Path::new("fuzz")).expect("it was read before");
    let report = RunReport::from_record(record);
    for width in [0, 80, 300] {
        assert_harmless(&terminal::render_report(
            &report,
            TerminalStyle {
                color: false,
                width,
            },
        ));
    }
    let _ = terminal::render_report(
        &report,
        TerminalStyle {
            color: true,
            width: 80,
        },
    );
    report.hints().iter().for_each(|hint| assert_harmless(hint));
    let text = json::render_report(&report);
    let value: Result<serde_json::Value, _> = serde_json::from_str(&text);
    assert!(value.is_ok(), "{text}");
}

/// The list of a folder with this one run in it.
fn show_list(log: &[u8]) {
    let pen = Pen::new();
    put(&pen.tree.join("run").join(sconce_record::FILE), log);
    let listing = sconce_record::list_runs(&pen.tree).expect("the folder reads");
    assert_harmless(&terminal::render_run_list(
        &listing,
        TerminalStyle {
            color: false,
            width: 80,
        },
    ));
    let text = json::render_run_list(&listing);
    assert!(
        serde_json::from_str::<serde_json::Value>(&text).is_ok(),
        "{text}"
    );
}

/// That a terminal obeys nothing in this text but its line ends.
fn assert_harmless(text: &str) {
    let obeyed = text.chars().find(|&c| c.is_control() && c != '\n');
    assert_eq!(obeyed, None, "{text:?}");
}

/// A sequence of events that no log need ever have held.
pub(crate) fn report(data: &[u8]) {
    let mut from = Unstructured::new(data);
    let started = RecordEvent::Started(Box::new(started(&mut from)));
    let mut lines = vec![RecordLine {
        t_us: 0,
        event: started,
    }];
    while !from.is_empty() && lines.len() < 40 {
        let event = match pick(&mut from, &[0, 0, 0, 0, 1, 2]) {
            0 => RecordEvent::Sample(Box::new(sample(&mut from))),
            1 => RecordEvent::Ended(RunEnded {
                exit: match flag(&mut from) {
                    true => ExitStatus::Signal(from.arbitrary().unwrap_or(9)),
                    false => ExitStatus::Code(from.arbitrary().unwrap_or(0)),
                },
                last: Box::new(sample(&mut from)),
                out_of_memory: flag(&mut from).then(|| OomKill {
                    limit: bytes(&mut from),
                    kills: number(&mut from).unwrap_or(1),
                }),
                largest_process: bytes(&mut from),
                lost: flag(&mut from).then(|| WriteLoss {
                    lines: number(&mut from).unwrap_or(1),
                    log_bytes: number(&mut from).unwrap_or(0),
                }),
            }),
            _ => RecordEvent::Unenforced(UnenforcedLimit {
                what: word(&mut from),
                why: word(&mut from),
                hint: flag(&mut from).then(|| word(&mut from)),
            }),
        };
        let t_us = number(&mut from).unwrap_or(0);
        lines.push(RecordLine { t_us, event });
    }
    let mut log = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut log, &line).expect("a line is plain data");
        log.push(b'\n');
    }
    record(&log);
}

pub(crate) fn report_seeds() -> Vec<Vec<u8>> {
    noise()
}

/// Figures that real runs have, and those at which arithmetic ends.
fn number(from: &mut Unstructured<'_>) -> Option<u64> {
    match pick(from, &[0, 1, 1, 2, 3, 4]) {
        0 => None,
        1 => from.arbitrary::<u16>().ok().map(u64::from),
        2 => from.arbitrary::<u32>().ok().map(|n| u64::from(n) << 8),
        3 => from.arbitrary().ok(),
        _ => Some(u64::MAX),
    }
}

fn small(from: &mut Unstructured<'_>) -> Option<u32> {
    number(from).map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn bytes(from: &mut Unstructured<'_>) -> Option<Bytes> {
    number(from).map(Bytes)
}

fn word(from: &mut Unstructured<'_>) -> String {
    pick(
        from,
        &[
            "",
            "a",
            "memory",
            "a b'c",
            "\x1b[31m",
            "\u{202e}ab",
            "\n\r\t\0",
            "ünï",
            "a-very-long-word-that-does-not-fit-into-a-narrow-terminal-and-goes-on",
        ],
    )
    .to_owned()
}

fn started(from: &mut Unstructured<'_>) -> RunStarted {
    RunStarted {
        format: 1,
        id: word(from),
        name: flag(from).then(|| word(from)),
        unix_ms: number(from).unwrap_or(0),
        command: (0..from.int_in_range(0..=3).unwrap_or(0))
            .map(|_| word(from))
            .collect(),
        folder: PathBuf::from(word(from)),
        mode: pick(from, &[Containment::Container, Containment::Host]),
        sconce_pid: 1,
        limits: sconce_schema::request::RunLimits {
            cpus: small(from)
                .filter(|n| (1..=65_536_000).contains(n))
                .map(sconce_schema::Millicores),
            memory: bytes(from),
            ..Default::default()
        },
        versions: None,
        plan: flag(from).then(|| word(from)),
        near: None,
        network: None,
        way_out: flag(from).then(|| word(from)),
        containment: flag(from).then(|| pick(from, &JobContainment::ALL)),
        node_network: None,
        runtime: flag(from).then(|| RuntimeSummary {
            name: pick(from, &Runtime::ALL),
            version: word(from),
        }),
        host: HostSummary {
            hostname: word(from),
            kernel: word(from),
            cpus: small(from).unwrap_or(0),
            cpu_model: flag(from).then(|| word(from)),
            memory: bytes(from).unwrap_or(Bytes(0)),
            driver: flag(from).then(|| word(from)),
            boot_id: flag(from).then(|| word(from)),
        },
        gpus: (0..from.int_in_range(0..=2).unwrap_or(0))
            .map(|index| GpuSummary {
                index,
                uuid: word(from),
                name: word(from),
                memory: bytes(from),
            })
            .collect(),
    }
}

fn sample(from: &mut Unstructured<'_>) -> Sample {
    Sample {
        cpu_us: number(from),
        throttled_us: number(from),
        memory: bytes(from),
        memory_peak: bytes(from),
        cache: bytes(from),
        pss: bytes(from),
        rss: bytes(from),
        processes: small(from),
        threads: small(from),
        read_bytes: number(from),
        write_bytes: number(from),
        shm: bytes(from),
        oom_kills: number(from),
        pids_refused: number(from),
        pressure: flag(from).then(|| Pressure {
            cpu_some_us: number(from),
            memory_some_us: number(from),
            memory_full_us: number(from),
            io_some_us: number(from),
            io_full_us: number(from),
        }),
        swap: bytes(from),
        cpus_busy_us: number(from).into_iter().collect(),
        received_bytes: number(from),
        sent_bytes: number(from),
        by_process: (0..from.int_in_range(0..=2).unwrap_or(0))
            .map(|pid| ProcessSample {
                pid,
                inner_pid: small(from),
                parent: small(from).unwrap_or(0),
                name: word(from),
                role: flag(from).then(|| word(from)),
                cpu_us: number(from).unwrap_or(0),
                rss: bytes(from).unwrap_or_default(),
                threads: small(from).unwrap_or(0),
            })
            .collect(),
        training_left_out: small(from),
        nccl: Vec::new(),
        training: (0..from.int_in_range(0..=2).unwrap_or(0))
            .map(|pid| training(pid, from))
            .collect(),
        gpus: (0..from.int_in_range(0..=2).unwrap_or(0))
            .map(|index| card(index, from))
            .collect(),
    }
}

fn card(index: u32, from: &mut Unstructured<'_>) -> GpuSample {
    GpuSample {
        index,
        utilisation_percent: small(from),
        memory_utilisation_percent: small(from),
        memory_clock_mhz: small(from),
        pcie_received_bytes_per_s: number(from),
        pcie_sent_bytes_per_s: number(from),
        nvlink_received_bytes: number(from),
        nvlink_sent_bytes: number(from),
        xids: number(from).into_iter().collect(),
        instances: Vec::new(),
        memory_used: bytes(from),
        memory_by_pid: (0..from.int_in_range(0..=3).unwrap_or(0))
            .filter_map(|pid| Some((pid, bytes(from)?)))
            .collect::<BTreeMap<_, _>>(),
        power_mw: small(from),
        energy_mj: number(from),
        temperature_c: small(from),
        sm_clock_mhz: small(from),
        throttle: flag(from).then(|| {
            (0..from.int_in_range(0..=2).unwrap_or(0))
                .map(|_| word(from))
                .collect()
        }),
    }
}

fn training(pid: u32, from: &mut Unstructured<'_>) -> TrainingSample {
    let mut us = || number(from).unwrap_or(0);
    let phases = PhaseTimes {
        data_us: us(),
        copy_us: us(),
        forward_us: us(),
        backward_us: us(),
        optimizer_us: us(),
        other_us: us(),
    };
    let (steps, wall_us) = (us(), us());
    TrainingSample {
        pid,
        rank: small(from),
        group: small(from),
        cell: small(from),
        steps,
        wall_us,
        phases,
        on_card: flag(from).then_some(phases),
        on_card_steps: number(from),
        samples: number(from),
        tokens: number(from),
        flops_per_step: number(from),
        phase: flag(from).then(|| word(from)),
        recent: (0..from.int_in_range(0..=16).unwrap_or(0))
            .map(|_| TrainingStep {
                step: number(from).unwrap_or(0),
                t_us: number(from).unwrap_or(0),
                wall_us: number(from).unwrap_or(0),
                data_us: number(from).unwrap_or(0),
                rss: bytes(from),
                allocated: bytes(from),
                reserved: bytes(from),
                blocks: number(from),
            })
            .collect(),
        heap: (0..from.int_in_range(0..=8).unwrap_or(0))
            .map(|_| (number(from).unwrap_or(0), bytes(from).unwrap_or_default()))
            .collect(),
        ..TrainingSample::default()
    }
}
