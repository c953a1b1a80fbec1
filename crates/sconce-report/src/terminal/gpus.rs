//! The part of a report that is about cards.

use super::layout::{TextPage, TextSpan, Tone, plain_span, styled_span};
use super::report::{format_or_dash, write_graph_row};
use crate::format::{format_duration, format_percent};
use crate::model::{GpuReport, RunReport};

/// A row for each card and the rows below it; without cards, a row that says so.
pub(super) fn write_rows(page: &mut TextPage, report: &RunReport) {
    if report.cards.is_empty() {
        let mut parts = vec![plain_span("none")];
        if report.started.host.driver.is_none() {
            parts.push(plain_span("no NVIDIA driver here"));
        }
        page.write_row("cards", parts);
    }
    for card in &report.cards {
        page.write_row(&format!("card {}", card.summary.index), head(card));
        write_graph_row(page, &card.timeline, report);
        if card.samples > 0 {
            page.write_row("  memory", memory(card));
            page.write_row("  power", power(card));
            page.write_row("  held back", held_back(card));
            super::load::write_gpu_rows(page, report, card.summary.index);
        }
    }
}

fn head(card: &GpuReport) -> Vec<TextSpan> {
    let name = match card.summary.name.as_str() {
        "" => "–",
        name => name,
    };
    let busy = match card.utilisation_mean {
        _ if card.samples == 0 => styled_span("not measured", Tone::Dim),
        Some(share) => plain_span(format!("busy {} of the time", format_percent(share))),
        None => plain_span("busy: –"),
    };
    let clock = card.sm_clock_mean_mhz;
    let clock = clock.map(|mhz| plain_span(format!("{mhz:.0} MHz on average")));
    [plain_span(name), busy].into_iter().chain(clock).collect()
}

fn memory(card: &GpuReport) -> Vec<TextSpan> {
    let of = card.summary.memory.map(|all| format!(" of {all}"));
    let ours = match card.memory_peak_run {
        Some(peak) => format!(
            "this run {} at its peak, at {}",
            peak.value,
            format_duration(peak.t_us)
        ),
        None => "this run: –".to_owned(),
    };
    let all = format_or_dash(card.memory_peak_all.map(|peak| peak.value));
    vec![
        plain_span(ours),
        plain_span(format!("in all {all}{}", of.unwrap_or_default())),
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
    .map(|(what, figure)| plain_span(figure.unwrap_or_else(|| format!("{what}: –"))))
    .into()
}

fn held_back(card: &GpuReport) -> Vec<TextSpan> {
    let Some(throttled) = &card.throttled else {
        return vec![plain_span("–")];
    };
    if throttled.is_empty() {
        return vec![plain_span("no reason seen")];
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
                format_percent(*share)
            );
            styled_span(text, Tone::Warning)
        })
        .collect()
}
