//! Processor, memory and cards as bars.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use sconce_schema::Bytes;
use sconce_schema::event::GpuSample;

use super::super::LiveRun;
use super::super::run::memory_in_use;
use super::{BAD, DASH, DIM, GOOD, WARN, fit_to_width};

/// From this share on, a bar is yellow, and from the next, red.
const HIGH: f64 = 0.75;
const FULL: f64 = 0.95;

pub(super) fn draw(run: &LiveRun, area: Rect, frame: &mut Frame<'_>) {
    let cards = run.latest_sample().map_or(&[][..], |now| &now.gpus);
    let share = if cards.is_empty() { 100 } else { 50 };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(share), Constraint::Fill(1)]).areas(area);
    let left_width = left.width.min(60) - left.width.min(1);
    frame.render_widget(Paragraph::new(machine(run, left_width.into())), left);

    let room = usize::from(area.height);
    let shown = if cards.len() > room {
        room.saturating_sub(1)
    } else {
        cards.len()
    };
    let mut lines: Vec<Line<'_>> = cards[..shown]
        .iter()
        .map(|gpu| card(run, gpu, right.width.into()))
        .collect();
    if cards.len() > shown {
        lines.push(Line::styled(
            format!("and {} more cards", cards.len() - shown),
            DIM,
        ));
    }
    frame.render_widget(Paragraph::new(lines), right);
}

fn machine(run: &LiveRun, width: usize) -> Vec<Line<'static>> {
    let started = run.start_event();
    let now = run.latest_sample();
    let limit = started.limits;
    let cores = run.cores();
    let all = limit.cpus.map_or(f64::from(started.host.cpus), |cpus| {
        f64::from(cpus.0) / 1000.0
    });
    let used = cores.map_or(DASH.to_owned(), |cores| format!("{cores:.1}"));
    let cpu = bar(
        "CPU",
        cores.map(|cores| cores / all),
        &format!("{used}/{all} cores"),
        width,
    );

    let size = |size: Option<Bytes>| size.map_or(DASH.to_owned(), |size| size.to_string());
    let held = now.and_then(memory_in_use);
    let most = limit.memory.unwrap_or(started.host.memory);
    let text = format!("{}/{most}", size(held));
    let mem = bar("Mem", held.map(|held| share(held, most)), &text, width);

    let shm = now.and_then(|now| now.shm);
    let text = match limit.shm {
        Some(most) => format!("{}/{most}", size(shm)),
        None => size(shm),
    };
    let shm = bar(
        "Shm",
        shm.zip(limit.shm).map(|(shm, most)| share(shm, most)),
        &text,
        width,
    );

    let rate = |rate: Option<Bytes>| rate.map_or(DASH.to_owned(), |rate| format!("{rate}/s"));
    let count = |count: Option<u32>| count.map_or(DASH.to_owned(), |count| count.to_string());
    let tasks = format!(
        "Tasks {}/{}  R {}  W {}",
        count(now.and_then(|now| now.processes)),
        count(now.and_then(|now| now.threads)),
        rate(run.per_second(|sample| sample.read_bytes)),
        rate(run.per_second(|sample| sample.write_bytes)),
    );
    vec![cpu, mem, shm, Line::raw(tasks)]
}

fn card(run: &LiveRun, gpu: &GpuSample, width: usize) -> Line<'static> {
    let memory = run
        .start_event()
        .gpus
        .iter()
        .find(|card| card.index == gpu.index);
    let memory = memory.and_then(|card| card.memory);
    let used = gpu.memory_used.or_else(|| {
        let held = gpu.memory_by_pid.values().map(|bytes| bytes.0);
        held.reduce(u64::saturating_add).map(Bytes)
    });
    let gib = |size: Option<Bytes>| {
        size.map_or(DASH.to_owned(), |size| {
            format!("{:.0}", size.0 as f64 / f64::from(1 << 30))
        })
    };
    let figure = |value: Option<u32>, unit: &str| {
        value.map_or(DASH.to_owned(), |value| format!("{value}{unit}"))
    };
    let watts = gpu.power_mw.map(|mw| mw / 1000);
    let held_down = gpu
        .throttle
        .as_ref()
        .is_some_and(|reasons| !reasons.is_empty());
    let tail = format!(
        " {:>3}/{}G {:>4} {}{}",
        gib(used),
        gib(memory),
        figure(watts, "W"),
        figure(gpu.temperature_c, "°"),
        if held_down { "!" } else { " " },
    );
    let name = format!("Card {}", gpu.index);
    let text = figure(gpu.utilisation_percent, "%");
    let share = gpu
        .utilisation_percent
        .map(|percent| f64::from(percent) / 100.0);
    let room = width.saturating_sub(Line::from(tail.as_str()).width());
    let mut line = bar_of(&name, share, &text, room, |_| GOOD);
    line.spans.push(if held_down {
        Span::styled(tail, WARN)
    } else {
        Span::raw(tail)
    });
    line
}

fn share(part: Bytes, whole: Bytes) -> f64 {
    if whole.0 == 0 {
        0.0
    } else {
        part.0 as f64 / whole.0 as f64
    }
}

fn bar(name: &str, share: Option<f64>, text: &str, width: usize) -> Line<'static> {
    bar_of(name, share, text, width, |share| match share {
        FULL.. => BAD,
        HIGH.. => WARN,
        _ => GOOD,
    })
}

/// `Name[||||     text]`, as htop draws it.
fn bar_of(
    name: &str,
    share: Option<f64>,
    text: &str,
    width: usize,
    style: impl Fn(f64) -> ratatui::style::Style,
) -> Line<'static> {
    let inside = width.saturating_sub(name.len() + 2);
    let text = fit_to_width(text, text.chars().count().min(inside));
    let full = share.unwrap_or(0.0).clamp(0.0, 1.0);
    let strokes = (full * inside as f64).round() as usize;
    let gap = inside - text.chars().count();
    let drawn = "|".repeat(strokes.min(gap)) + &" ".repeat(gap.saturating_sub(strokes)) + &text;
    // What the strokes would cover of the text is coloured with them.
    let split = drawn
        .char_indices()
        .nth(strokes)
        .map_or(drawn.len(), |(at, _)| at);
    let (on, off) = drawn.split_at(split);
    Line::from(vec![
        Span::raw(format!("{name}[")),
        Span::styled(on.to_owned(), style(full)),
        Span::raw(off.to_owned()),
        Span::raw("]"),
    ])
}
