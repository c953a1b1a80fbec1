//! The record of a run under a steady load of card 0, against what nvidia-smi read meanwhile.

use std::error::Error;
use std::ops::Range;

use sconce_schema::event::{GpuSample, RecordEvent, RecordLine, RunStarted};

use crate::{figure, leave_out, tell};

/// How far a figure may be from nvidia-smi's.
const SHARE: f64 = 0.1;
/// Fewer readings than this say nothing.
const MIN_READINGS: usize = 5;

/// NVML's reasons as bits (`nvmlClocksEventReason…` of nvml.h), and the record's words for them.
const REASONS: [(u64, &str); 8] = [
    (0x02, "applications-clocks-setting"),
    (0x04, "sw-power-cap"),
    (0x08, "hw-slowdown"),
    (0x10, "sync-boost"),
    (0x20, "sw-thermal-slowdown"),
    (0x40, "hw-thermal-slowdown"),
    (0x80, "hw-power-brake-slowdown"),
    (0x100, "display-clock-setting"),
];

/// One line of nvidia-smi's readings of card 0: uuid, utilization.gpu (%), memory.used (MiB),
/// power.draw (W), temperature.gpu (°C), clocks.sm (MHz), reasons (hexadecimal); `[N/A]` is none.
#[derive(Debug, Default)]
struct Reading {
    uuid: String,
    numbers: [Option<f64>; 5],
    reasons: Option<u64>,
}

impl Reading {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [uuid, numbers @ .., reasons] = &fields[..] else {
            return None;
        };
        let numbers: &[&str; 5] = numbers.try_into().ok()?;
        Some(Self {
            uuid: (*uuid).to_owned(),
            numbers: numbers.map(|text| text.parse().ok()),
            reasons: u64::from_str_radix(reasons.trim_start_matches("0x"), 16).ok(),
        })
    }
}

/// The readings of card 0 between two moments, with their times in µs.
fn of_card(
    lines: &[RecordLine],
    started: &RunStarted,
    window: &Range<u64>,
) -> Vec<(u64, GpuSample)> {
    lines
        .iter()
        .filter(|line| window.contains(&(started.unix_ms + line.t_us / 1000)))
        .filter_map(|line| match &line.event {
            RecordEvent::Sample(sample) => {
                let card = sample.gpus.iter().find(|card| card.index == 0)?;
                Some((line.t_us, card.clone()))
            }
            _ => None,
        })
        .collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn compare(
    events: &str,
    readings: &str,
    window: Range<u64>,
) -> Result<(), Box<dyn Error>> {
    let lines: Vec<RecordLine> = events
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let Some(RecordEvent::Started(started)) = lines.first().map(|line| &line.event) else {
        return Err("the record has no first line".into());
    };
    let theirs: Vec<Reading> = readings.lines().filter_map(Reading::parse).collect();
    let ours = of_card(&lines, started, &window);
    let seen = format!(
        "{} in the record, {} of nvidia-smi",
        ours.len(),
        theirs.len()
    );
    let enough = ours.len() >= MIN_READINGS && theirs.len() >= MIN_READINGS;
    tell(enough, "readings of the card under load", &seen);
    if !enough {
        return Ok(());
    }

    let uuid = &theirs[0].uuid;
    let given = started.gpus.iter().find(|card| card.index == 0);
    let seen = given.map(|card| format!("{} {} {:?}", card.name, card.uuid, card.memory));
    tell(
        given.is_some_and(|card| card.uuid == *uuid && card.memory.is_some()),
        "the record names the card by its UUID, with its memory",
        &seen.unwrap_or_else(|| "no card 0".to_owned()),
    );

    type Read = fn(&GpuSample) -> Option<f64>;
    // Name, our figure, lowest and highest that make sense under load, slack beside the share.
    let figures: [(&str, Read, Range<f64>, f64); 5] = [
        (
            "utilisation, %",
            |s| s.utilisation_percent.map(f64::from),
            50.0..100.1,
            0.0,
        ),
        (
            "memory used, MiB",
            |s| s.memory_used.map(|b| b.0 as f64 / 1048576.0),
            256.0..1e7,
            0.0,
        ),
        (
            "power, W",
            |s| s.power_mw.map(|mw| f64::from(mw) / 1e3),
            5.0..3000.0,
            0.0,
        ),
        (
            "temperature, °C",
            |s| s.temperature_c.map(f64::from),
            10.0..110.0,
            2.0,
        ),
        (
            "SM clock, MHz",
            |s| s.sm_clock_mhz.map(f64::from),
            100.0..5000.0,
            0.0,
        ),
    ];
    for (at, (name, read, sane, slack)) in figures.into_iter().enumerate() {
        let theirs = median(theirs.iter().filter_map(|r| r.numbers[at]).collect());
        let ours = median(ours.iter().filter_map(|(_, s)| read(s)).collect());
        match (ours, theirs) {
            (None, None) => leave_out(name, "neither NVML nor nvidia-smi tells it of this card"),
            (Some(ours), Some(theirs)) => {
                figure(name, ours);
                let close = (ours - theirs).abs() <= SHARE * theirs.abs() + slack;
                let seen = format!("{ours:.1}; nvidia-smi {theirs:.1} (medians)");
                tell(close && sane.contains(&ours), name, &seen);
            }
            (ours, theirs) => tell(false, name, &format!("{ours:?}; nvidia-smi {theirs:?}")),
        }
    }
    energy(&of_card(&lines, started, &(0..u64::MAX)));
    by_process(&ours);
    throttle(&ours, &theirs);
    Ok(())
}

/// Energy is a counter: over time it is the mean draw. It is read every ten seconds, so that all of the record
/// is looked at, not the window alone.
fn energy(ours: &[(u64, GpuSample)]) {
    let name = "energy over time is the mean power, W";
    let read: Vec<(u64, u64)> = ours
        .iter()
        .filter_map(|(t_us, sample)| Some((*t_us, sample.energy_mj?)))
        .collect();
    let (Some(first), Some(last)) = (read.first(), read.last()) else {
        return leave_out(name, "this card has no energy counter");
    };
    if first.0 == last.0 {
        return tell(false, name, "one reading in the whole record");
    }
    let draws: Vec<f64> = ours
        .iter()
        .filter(|(t_us, _)| (first.0..=last.0).contains(t_us))
        .filter_map(|(_, sample)| sample.power_mw.map(|mw| f64::from(mw) / 1e3))
        .collect();
    let grows = read.is_sorted_by_key(|(_, energy)| energy);
    // mJ / µs is kW.
    let watts = last.1.saturating_sub(first.1) as f64 / (last.0 - first.0).max(1) as f64 * 1e3;
    let draw = mean(&draws);
    figure(name, watts);
    tell(
        grows && (watts - draw).abs() <= SHARE * draw,
        name,
        &format!("{watts:.1}; mean of the readings {draw:.1}"),
    );
}

/// The memory of the run's own processes, by the host's process ids.
fn by_process(ours: &[(u64, GpuSample)]) {
    let most = ours
        .iter()
        .map(|(_, sample)| sample.memory_by_pid.values().map(|b| b.0).sum::<u64>())
        .max()
        .unwrap_or(0);
    let used = ours.iter().filter_map(|(_, sample)| sample.memory_used);
    let used = used.map(|bytes| bytes.0).max().unwrap_or(0);
    figure(
        "memory of the run's processes, MiB",
        most as f64 / 1048576.0,
    );
    tell(
        most > 0 && most <= used,
        "memory of the run's processes",
        &format!("{} MiB of {} MiB in use", most >> 20, used >> 20),
    );
}

/// A reason that held nearly always must be seen by both.
fn throttle(ours: &[(u64, GpuSample)], theirs: &[Reading]) {
    let name = "reasons for held back clocks";
    let told: Vec<u64> = theirs.iter().filter_map(|r| r.reasons).collect();
    if told.is_empty() {
        return leave_out(name, "nvidia-smi does not tell them of this card");
    }
    let mut seen = Vec::new();
    let mut agree = true;
    for (bit, word) in REASONS {
        let has = |s: &GpuSample| s.throttle.iter().flatten().any(|known| known == word);
        let here = ours.iter().filter(|(_, s)| has(s)).count() as f64 / ours.len() as f64;
        let there = told.iter().filter(|&&bits| bits & bit != 0).count() as f64;
        let there = there / told.len() as f64;
        agree &= !(here > 0.8 && there == 0.0 || there > 0.8 && here == 0.0);
        if here > 0.0 || there > 0.0 {
            seen.push(format!("{word} {here:.2}; nvidia-smi {there:.2}"));
        }
    }
    let seen = match seen.is_empty() {
        true => "none".to_owned(),
        false => seen.join(", "),
    };
    tell(agree, name, &seen);
}
