//! What other settings would have given, as a page.

use sconce_memory::replay::{DeviceWhatIf, ReplayOutcome, WhatIf};

use super::{AFTER, change, failed, head, in_order, named, stands_on, trust, unmatched, verdict};
use crate::commands::memory::words::{counted, shown, size};
use crate::html::{BarSegment, Html};

/// Settings that are shown.
const ROWS: usize = 200;

/// The page of a snapshot's replay; `name` is the snapshot's.
pub(super) fn page(name: &str, answer: &WhatIf) -> String {
    let mut html = Html::default();
    for device in &answer.devices {
        of_card(&mut html, answer, device);
    }
    html.page(
        &format!("Other settings for {name}"),
        &format!("Played again by the rules of PyTorch {}", answer.torch),
    )
}

fn of_card(html: &mut Html, answer: &WhatIf, device: &DeviceWhatIf) {
    html.within("h2", &head(device));
    html.raw("<p>").text(&verdict(device)).raw("</p>\n");
    if let Some(best) = &device.best {
        html.raw("<pre>PYTORCH_CUDA_ALLOC_CONF=")
            .text(&shown(&best.conf))
            .raw("</pre>\n");
        if best.saved > 0 {
            html.within("p", AFTER);
        }
    }
    let searched = in_order(device);
    let all = device.asked.iter().chain(searched.iter().copied());
    let most = all.clone().map(|one| one.peak_reserved_bytes).max();
    let most = most.unwrap_or(0).max(device.today.peak_reserved_bytes);
    html.raw("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Reserved</th>")
        .raw("<th scope=\"col\" class=\"meter\"></th><th scope=\"col\" class=\"number\">Change</th><th scope=\"col\" class=\"number\">Failed</th>")
        .raw("<th scope=\"col\" class=\"number\">Retries</th><th scope=\"col\">Settings</th></tr></thead>\n<tbody>\n");
    let today = format!("now: {}", named(&device.today.conf));
    row(html, device, most, &device.today, &today);
    for one in all.take(ROWS) {
        row(html, device, most, one, &named(&one.conf));
    }
    html.raw("</tbody></table></div>\n");
    let more = (device.asked.len() + device.searched.len()).saturating_sub(ROWS);
    if more > 0 {
        html.within(
            "p",
            &format!("{} more were tried", counted(more as u64, "setting")),
        );
    }
    html.within("h3", "What this rests on");
    let mut said = vec![trust(device)];
    said.extend(stands_on(answer, device));
    said.extend(unmatched(device));
    html.list(&said);
}

fn row(html: &mut Html, device: &DeviceWhatIf, most: u64, one: &ReplayOutcome, name: &str) {
    let best = device
        .best
        .as_ref()
        .is_some_and(|best| best.conf == one.conf);
    html.raw(if best { "<tr class=\"best\">" } else { "<tr>" });
    let reserved = size(one.peak_reserved_bytes);
    html.raw("<td class=\"number\">")
        .text(&reserved)
        .raw("</td><td class=\"meter\">");
    let part = BarSegment {
        colour: "allocated",
        name: String::new(),
        bytes: one.peak_reserved_bytes,
    };
    html.bar(&[part], most, &format!("{reserved} reserved"));
    let figures = [
        change(one.peak_reserved_bytes, device.today.peak_reserved_bytes),
        failed(one),
        one.retries.to_string(),
    ];
    for figure in figures {
        html.raw("</td><td class=\"number\">").text(&figure);
    }
    html.raw("</td><td><code>")
        .text(name)
        .raw("</code></td></tr>\n");
}
