//! A trace for ui.perfetto.dev and chrome://tracing, in the Trace Event Format's JSON object form:
//! steps and phases as slices, every other figure as a counter.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use sconce_record::RecordReader;
use sconce_schema::event::{RecordEvent, RecordLine, RunStarted, Sample};
use sconce_schema::training::{PhaseTimes, TrainingSample};
use serde_json::{Value, json};

use super::json::separator;
use super::rates::DerivedRates;
use super::{ExportError, ExportSummary, flat, walk};

/// The tracks of the run itself; others are numbered behind it.
const RUN: u64 = 1;
const STEPS: u64 = 1;
const PHASES: u64 = 2;
/// Of a hostile record, no more groups of tracks than this.
const MAX_TRACK_GROUPS: usize = 4096;

/// Writes a record as a trace.
///
/// # Errors
/// [`ExportError`].
pub fn write_perfetto<R: BufRead>(
    record: RecordReader<R>,
    out: &mut impl Write,
) -> Result<ExportSummary, ExportError> {
    let started = record.started.clone();
    let mut trace = Trace {
        out,
        first: true,
        events: 0,
        groups: BTreeMap::new(),
        phases: BTreeMap::new(),
        rates: DerivedRates::default(),
        last_t_us: 0,
    };
    trace
        .out
        .write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    trace.name("process_name", RUN, 0, &format!("run {}", started.id))?;
    let (_, damaged_lines) = walk(record, u64::MAX, |line| trace.line(&started, line))?;
    let rows = trace.events;
    out.write_all(b"\n]}\n")?;
    Ok(ExportSummary {
        rows,
        damaged_lines,
        columns_left_out: 0,
    })
}

struct Trace<'a, W> {
    out: &'a mut W,
    first: bool,
    events: u64,
    /// Numbers of the groups of tracks: a card's, a training process's.
    groups: BTreeMap<String, u64>,
    /// Steps and phases of each training process at its last reading.
    phases: BTreeMap<String, (u64, PhaseTimes)>,
    rates: DerivedRates,
    last_t_us: u64,
}

impl<W: Write> Trace<'_, W> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.events += 1;
        self.out.write_all(separator(&mut self.first))?;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }

    fn name(&mut self, what: &str, group: u64, track: u64, name: &str) -> io::Result<()> {
        self.event(
            &json!({"ph": "M", "name": what, "pid": group, "tid": track, "args": {"name": name}}),
        )
    }

    /// The number of a group; `named` says what it is called when it is new.
    fn group(&mut self, key: &str, named: impl FnOnce() -> String) -> io::Result<Option<u64>> {
        if let Some(number) = self.groups.get(key) {
            return Ok(Some(*number));
        }
        if self.groups.len() == MAX_TRACK_GROUPS {
            return Ok(None);
        }
        let number = RUN + 1 + self.groups.len() as u64;
        self.groups.insert(key.to_owned(), number);
        self.name("process_name", number, 0, &named())?;
        if key.starts_with("training.") {
            self.name("thread_name", number, STEPS, "steps")?;
            let phases = "phases: sums of each reading's steps, not their order";
            self.name("thread_name", number, PHASES, phases)?;
        }
        Ok(Some(number))
    }

    fn line(&mut self, started: &RunStarted, line: &RecordLine) -> io::Result<()> {
        if let Some(sample) = flat::sample_of_line(line) {
            for training in &sample.training {
                self.training(line.t_us, training)?;
            }
            self.counters(started, line.t_us, sample)?;
        }
        let instant = match &line.event {
            RecordEvent::CardOutOfMemory(it) => format!("card {} out of memory", it.device),
            RecordEvent::Ended(_) => "ended".to_owned(),
            _ => return Ok(()),
        };
        self.event(&json!({
            "ph": "i", "s": "g", "name": instant, "pid": RUN, "tid": 0, "ts": line.t_us,
        }))
    }

    fn training(&mut self, t_us: u64, training: &TrainingSample) -> io::Result<()> {
        let who = flat::process_label(training);
        let named = || match training.rank {
            Some(_) => format!("{} (process {})", training.process_label(), training.pid),
            None => training.process_label(),
        };
        let Some(group) = self.group(&format!("training.{who}"), named)? else {
            return Ok(());
        };
        for step in &training.recent {
            let wall_us = step.wall_us.min(step.t_us);
            let begin = step.t_us - wall_us;
            let mut slice = |name: &str, dur: u64, args: Value| {
                self.event(&json!({
                    "ph": "X", "name": name, "cat": "step", "pid": group, "tid": STEPS,
                    "ts": begin, "dur": dur, "args": args,
                }))
            };
            slice("step", wall_us, json!({"step": step.step}))?;
            // A step begins with its waiting for data, where it waits.
            if step.data_us > 0 {
                slice(
                    "data",
                    step.data_us.min(wall_us),
                    json!({"step": step.step}),
                )?;
            }
        }

        let now = (training.steps, training.phases);
        let before = self.phases.insert(who, now).unwrap_or_default();
        let steps = training.steps.saturating_sub(before.0);
        let more: Vec<(&str, u64)> = (training.phases.by_name().into_iter())
            .zip(before.1.by_name())
            .map(|((name, now), (_, before))| (name, now.saturating_sub(before)))
            .collect();
        let sum = more
            .iter()
            .fold(0_u64, |sum, (_, us)| sum.saturating_add(*us));
        // They end where the reading is.
        let room = t_us.saturating_sub(self.last_t_us);
        let mut begin = t_us.saturating_sub(sum.min(room));
        for (name, us) in more {
            // Steps that ended in this reading may have begun before the last one.
            let dur = if sum > room && sum > 0 {
                (us as f64 * room as f64 / sum as f64) as u64
            } else {
                us
            };
            if dur > 0 {
                self.event(&json!({
                    "ph": "X", "name": name, "cat": "phase", "pid": group, "tid": PHASES,
                    "ts": begin, "dur": dur, "args": {"us": us, "steps": steps},
                }))?;
            }
            begin += dur;
        }
        Ok(())
    }

    fn counters(&mut self, started: &RunStarted, t_us: u64, sample: &Sample) -> io::Result<()> {
        self.rates.start_sample(t_us);
        flat::write_sample_figures(sample, &mut self.rates);
        for (name, value) in self.rates.current_figures().to_vec() {
            let mut parts = name.splitn(3, '.');
            let (group, name) = match (parts.next(), parts.next(), parts.next()) {
                (Some(kind @ ("card" | "training")), Some(which), Some(rest)) => {
                    let named = || {
                        let card = started
                            .gpus
                            .iter()
                            .find(|card| card.index.to_string() == which);
                        let card = card.map_or(String::new(), |card| format!(", {}", card.name));
                        format!("card {which}{card}")
                    };
                    let Some(group) = self.group(&format!("{kind}.{which}"), named)? else {
                        continue;
                    };
                    (group, rest.to_owned())
                }
                _ => (RUN, name.clone()),
            };
            if group != RUN && name == "pid" {
                continue;
            }
            self.event(&json!({
                "ph": "C", "name": name, "pid": group, "tid": 0, "ts": t_us,
                "args": {"value": value},
            }))?;
        }
        self.last_t_us = t_us;
        Ok(())
    }
}
