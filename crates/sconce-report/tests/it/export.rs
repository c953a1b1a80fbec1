//! Exports of records. What readers of each format make of them is in `scripts/test.d/export`.

use std::path::Path;

use insta::assert_snapshot;
use proptest::prelude::*;
use sconce_record::{RecordError, RecordReader};
use sconce_report::export::{
    ExportSummary, ExportTable, write_csv, write_json, write_parquet, write_perfetto,
    write_tensorboard,
};

const RANKS: &str = include_str!("../records/ranks-made-by-hand.jsonl");
const OUT_OF_MEMORY: &str = include_str!("../records/out-of-memory.jsonl");
const TABLES: [ExportTable; 3] = [
    ExportTable::Readings,
    ExportTable::Steps,
    ExportTable::Processes,
];

fn open(text: &[u8]) -> Result<RecordReader<&[u8]>, RecordError> {
    RecordReader::new(text, Path::new("events.jsonl"))
}

fn as_csv(text: &str, table: ExportTable) -> (String, ExportSummary) {
    let mut out = Vec::new();
    let written = write_csv(|| open(text.as_bytes()), table, &mut out).expect("nothing fails");
    (String::from_utf8(out).expect("text"), written)
}

#[test]
fn readings_as_csv() {
    let (text, written) = as_csv(OUT_OF_MEMORY, ExportTable::Readings);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(written.rows, rows.len() as u64 - 1);
    assert_snapshot!(rows[..3].join("\n"));
}

#[test]
fn steps_and_processes_as_csv() {
    let (steps, written) = as_csv(RANKS, ExportTable::Steps);
    assert_eq!(written.rows, 16);
    let (processes, written) = as_csv(RANKS, ExportTable::Processes);
    assert_eq!(written.rows, 20);
    let rows = steps.lines().take(3).chain(processes.lines().take(4));
    assert_snapshot!(rows.collect::<Vec<_>>().join("\n"));
}

#[test]
fn every_figure_has_a_name_of_its_own() {
    let (text, _) = as_csv(RANKS, ExportTable::Readings);
    let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
    assert_eq!(names.len(), distinct.len());
    assert_snapshot!(names.join("\n"));
}

#[test]
fn everything_as_json() {
    let mut out = Vec::new();
    let written = write_json(|| open(RANKS.as_bytes()), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let count = |name: &str| value[name].as_array().unwrap().len();
    assert_eq!(value["run"]["id"], "resnet-20261121-0034-7f3a");
    assert_eq!(
        (count("readings"), count("steps"), count("processes")),
        (5, 16, 20)
    );
    assert_eq!(written.rows, 41);
    assert_eq!(value["readings"][0]["disk.read_bytes"], 1 << 26);
    assert!(value["readings"][0]["memory.swap_bytes"].is_null());
    let events = value["events"].as_array().unwrap();
    let events: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["unenforced", "setup", "ended"]);
}

#[test]
fn phases_fill_the_time_of_their_steps() {
    let mut out = Vec::new();
    write_perfetto(open(RANKS.as_bytes()).unwrap(), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let sum = |category: &str, names: &[&str]| -> u64 {
        let of = |event: &&serde_json::Value| {
            event["cat"] == category && names.iter().any(|name| event["name"] == *name)
        };
        events
            .iter()
            .filter(of)
            .map(|event| event["dur"].as_u64().unwrap())
            .sum()
    };
    let phases = ["data", "copy", "forward", "backward", "optimizer", "other"];
    assert_eq!(sum("phase", &phases), sum("step", &["step"]));
    assert_eq!(sum("phase", &["data"]), sum("step", &["data"]));
}

#[test]
fn tables_of_a_hostile_width_are_cut_and_said_to_be() {
    let started = RANKS.lines().next().unwrap();
    let busy = vec!["1"; 5000].join(",");
    let text =
        format!("{started}\n{{\"t_us\":1,\"event\":\"sample\",\"cpus-busy-us\":[{busy}]}}\n");
    let (table, written) = as_csv(&text, ExportTable::Readings);
    assert_eq!(table.lines().next().unwrap().split(',').count(), 4096);
    assert!(written.columns_left_out > 900);
}

#[test]
fn a_record_that_cannot_be_read_is_not_exported() {
    let mut out = Vec::new();
    assert!(write_csv(|| open(b"{}"), ExportTable::Readings, &mut out).is_err());
    assert!(out.is_empty());
}

/// Every export of a record, as far as it can be opened.
fn all(text: &[u8]) {
    let mut out = Vec::new();
    for table in TABLES {
        let _ = write_csv(|| open(text), table, &mut out);
        let _ = write_parquet(|| open(text), table, &mut out);
    }
    let _ = write_json(|| open(text), &mut out);
    if let Ok(record) = open(text) {
        let _ = write_tensorboard(record, &mut out);
    }
    if let Ok(record) = open(text) {
        let _ = write_perfetto(record, &mut out);
    }
}

#[test]
fn figures_beyond_all_measure_are_written() {
    for digits in ["18446744073709551615", "9223372036854775808"] {
        for key in [
            "t_us", "wall-us", "t-us", "steps", "cpu-us", "memory", "unix-ms", "data-us",
        ] {
            let parts: Vec<&str> = RANKS.split(&format!("\"{key}\":")).collect();
            let text: Vec<String> = (parts.iter().enumerate())
                .map(|(n, part)| match n {
                    0 => (*part).to_owned(),
                    _ => digits.to_owned() + part.trim_start_matches(|c: char| c.is_ascii_digit()),
                })
                .collect();
            all(text.join(&format!("\"{key}\":")).as_bytes());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_damage_panics(at in 0_usize..20_000, bytes: Vec<u8>, cut in 0_usize..20) {
        let mut text = RANKS.as_bytes().to_vec();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, bytes);
        all(&text);
    }
}
