//! The rows about what a run waited for. What was not measured, and what is nothing, has none.

use sconce_schema::Bytes;

use super::layout::{TextPage, Tone, plain, toned};
use crate::load::LinkTraffic;
use crate::model::RunReport;
use crate::words::{duration, percent};

/// From this share of the time on, waiting is worth a colour.
const MUCH: f64 = 0.1;

pub(super) fn rows(page: &mut TextPage, report: &RunReport) {
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
            Some(toned(format!("{what} {}{of}", percent(share)), tone))
        });
        page.row("waited for", parts);
    }
    if let Some(swap) = load.swap_peak.filter(|swap| swap.0 > 0) {
        page.row("swap", [toned(format!("{swap} at most"), Tone::Warning)]);
    }
    if let Some((received, sent)) = load.network {
        let (received, sent) = (Bytes(received), Bytes(sent));
        page.row(
            "network",
            [
                plain(format!("{received} received")),
                plain(format!("{sent} sent")),
            ],
        );
    }
}

/// The rows about one card's links and errors.
pub(super) fn card(page: &mut TextPage, report: &RunReport, index: u32) {
    if let Some(links) = report.load.links.get(&index) {
        page.row("  links", self::links(links).into_iter().map(plain));
    }
    let xids = report.load.xids.iter().filter(|xid| xid.value.0 == index);
    let words = xids.map(|xid| format!("Xid {} at {}", xid.value.1, duration(xid.t_us)));
    page.row("  errors", words.map(|words| toned(words, Tone::Bad)));
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
