//! The part of a report that is about cards.

use super::layout::{TextPage, TextSpan, Tone, plain, toned};
use super::report::{figure, graph};
use crate::model::{GpuReport, RunReport};
use crate::words::{duration, percent};

/// A row for each card and the rows below it; without cards, a row that says so.
pub(super) fn rows(page: &mut TextPage, report: &RunReport) {
    if report.cards.is_empty() {
        let mut parts = vec![plain("none")];
        if report.started.host.driver.is_none() {
            parts.push(plain("no NVIDIA driver here"));
        }
        page.row("cards", parts);
    }
    for card in &report.cards {
        page.row(&format!("card {}", card.summary.index), head(card));
        graph(page, &card.timeline, report);
        if card.samples > 0 {
            page.row("  memory", memory(card));
            page.row("  power", power(card));
            page.row("  held back", held_back(card));
            super::load::card(page, report, card.summary.index);
        }
    }
}

fn head(card: &GpuReport) -> Vec<TextSpan> {
    let name = match card.summary.name.as_str() {
        "" => "–",
        name => name,
    };
    let busy = match card.utilisation_mean {
        _ if card.samples == 0 => toned("not measured", Tone::Dim),
        Some(share) => plain(format!("busy {} of the time", percent(share))),
        None => plain("busy: –"),
    };
    let clock = card.sm_clock_mean_mhz;
    let clock = clock.map(|mhz| plain(format!("{mhz:.0} MHz on average")));
    [plain(name), busy].into_iter().chain(clock).collect()
}

fn memory(card: &GpuReport) -> Vec<TextSpan> {
    let of = card.summary.memory.map(|all| format!(" of {all}"));
    let ours = match card.memory_peak_run {
        Some(peak) => format!(
            "this run {} at its peak, at {}",
            peak.value,
            duration(peak.t_us)
        ),
        None => "this run: –".to_owned(),
    };
    let all = figure(card.memory_peak_all.map(|peak| peak.value));
    vec![
        plain(ours),
        plain(format!("in all {all}{}", of.unwrap_or_default())),
    ]
}

fn power(card: &GpuReport) -> Vec<TextSpan> {
    let mean = (card.power_mean_w).map(|watts| format!("{watts:.0} W on average"));
    let energy = card.energy.map(|energy| {
        let about = if energy.estimated { "about " } else { "" };
        let digits = if energy.watt_hours < 10.0 { 2 } else { 0 };
        format!("{about}{:.digits$} Wh", energy.watt_hours)
    });
    let temperature = (card.temperature_peak_c).map(|celsius| format!("{celsius} °C at most"));
    [
        ("draw", mean),
        ("energy", energy),
        ("temperature", temperature),
    ]
    .map(|(what, figure)| plain(figure.unwrap_or_else(|| format!("{what}: –"))))
    .into()
}

fn held_back(card: &GpuReport) -> Vec<TextSpan> {
    let Some(throttled) = &card.throttled else {
        return vec![plain("–")];
    };
    if throttled.is_empty() {
        return vec![plain("no reason seen")];
    }
    (throttled.iter())
        .map(|(reason, share)| {
            let words = match reason.split_once('-') {
                Some(("sw", rest)) => format!("software {rest}"),
                Some(("hw", rest)) => format!("hardware {rest}"),
                _ => reason.clone(),
            };
            let text = format!(
                "{} {} of the time",
                words.replace('-', " "),
                percent(*share)
            );
            toned(text, Tone::Warning)
        })
        .collect()
}
