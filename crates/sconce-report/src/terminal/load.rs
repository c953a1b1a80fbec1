//! The rows about what a run waited for. What was not measured, and what is nothing, has none.

use sconce_schema::Bytes;

use super::layout::{TextPage, Tone, plain_span, styled_span};
use crate::contention::LinkTraffic;
use crate::format::{format_duration, format_percent};
use crate::model::RunReport;

/// From this share of the time on, waiting is worth a colour.
const MUCH: f64 = 0.1;

pub(super) fn write_rows(page: &mut TextPage, report: &RunReport) {
    let load = &report.load;
    if let Some(pressure) = load.pressure {
        let waits = [
            ("CPU", pressure.cpu_some_us),
            ("memory", pressure.memory_some_us),
            ("disks", pressure.io_some_us),
        ];
        let wall_us = report.wall_us.max(1) as f64;
        let parts = waits.into_iter().filter_map(|(what, us)| {
            let share = (us? as f64 / wall_us).min(1.0);
            let tone = if share >= MUCH {
                Tone::Warning
            } else {
                Tone::Plain
            };
            let of = if what == "CPU" { " of the time" } else { "" };
            Some(styled_span(
                format!("{what} {}{of}", format_percent(share)),
                tone,
            ))
        });
        page.write_row("waited for", parts);
    }
    if let Some(swap) = load.swap_peak.filter(|swap| swap.0 > 0) {
        page.write_row(
            "swap",
            [styled_span(format!("{swap} at most"), Tone::Warning)],
        );
    }
    if let Some((received, sent)) = load.network {
        let (received, sent) = (Bytes(received), Bytes(sent));
        page.write_row(
            "network",
            [
                plain_span(format!("{received} received")),
                plain_span(format!("{sent} sent")),
            ],
        );
    }
}

/// The rows about one card's links and errors.
pub(super) fn write_gpu_rows(page: &mut TextPage, report: &RunReport, index: u32) {
    if let Some(links) = report.load.links.get(&index) {
        page.write_row("  links", self::links(links).into_iter().map(plain_span));
    }
    let xids = report.load.xids.iter().filter(|xid| xid.value.0 == index);
    let words = xids.map(|xid| format!("Xid {} at {}", xid.value.1, format_duration(xid.t_us)));
    page.write_row("  errors", words.map(|words| styled_span(words, Tone::Bad)));
}

fn links(links: &LinkTraffic) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some((received, sent)) = links.pcie_peak_per_s {
        let (received, sent) = (Bytes(received), Bytes(sent));
        parts.push(format!("PCIe at most {received}/s to it, {sent}/s from it"));
    }
    if let Some((received, sent)) = links.nvlink.filter(|moved| *moved != (0, 0)) {
        let (received, sent) = (Bytes(received), Bytes(sent));
        parts.push(format!("NVLink {received} received, {sent} sent"));
    }
    parts
}
