//! What other settings would have given, as a page.

use sconce_memory::replay::{DeviceWhatIf, ReplayOutcome, WhatIf};

use super::{
    LATER_REQUESTS_NOTE, change, failed, head, in_order, named, stands_on, trust, unmatched,
    verdict,
};
use crate::commands::memory::format::{format_bytes, format_count, printable_text};
use crate::html::{BarSegment, Html};

/// Settings that are shown.
const MAX_ROWS: usize = 200;

/// The page of a snapshot's replay; `name` is the snapshot's.
pub(super) fn render_page(name: &str, answer: &WhatIf) -> String {
    let mut html = Html::default();
    for device in &answer.devices {
        of_card(&mut html, answer, device);
    }
    html.render_page(
        &format!("Other settings for {name}"),
        &format!("Played again by the rules of PyTorch {}", answer.torch),
    )
}

fn of_card(html: &mut Html, answer: &WhatIf, device: &DeviceWhatIf) {
    html.push_element("h2", &head(device));
    html.push_markup("<p>")
        .push_text(&verdict(device))
        .push_markup("</p>\n");
    if let Some(best) = &device.best {
        html.push_markup("<pre>PYTORCH_CUDA_ALLOC_CONF=")
            .push_text(&printable_text(&best.conf))
            .push_markup("</pre>\n");
        if best.saved > 0 {
            html.push_element("p", LATER_REQUESTS_NOTE);
        }
    }
    let searched = in_order(device);
    let all = device.asked.iter().chain(searched.iter().copied());
    let most = all.clone().map(|one| one.peak_reserved_bytes).max();
    let most = most.unwrap_or(0).max(device.today.peak_reserved_bytes);
    html.push_markup("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Reserved</th>")
        .push_markup("<th scope=\"col\" class=\"meter\"></th><th scope=\"col\" class=\"number\">Change</th><th scope=\"col\" class=\"number\">Failed</th>")
        .push_markup("<th scope=\"col\" class=\"number\">Retries</th><th scope=\"col\">Settings</th></tr></thead>\n<tbody>\n");
    let today = format!("now: {}", named(&device.today.conf));
    row(html, device, most, &device.today, &today);
    for one in all.take(MAX_ROWS) {
        row(html, device, most, one, &named(&one.conf));
    }
    html.push_markup("</tbody></table></div>\n");
    let more = (device.asked.len() + device.searched.len()).saturating_sub(MAX_ROWS);
    if more > 0 {
        html.push_element(
            "p",
            &format!("{} more were tried", format_count(more as u64, "setting")),
        );
    }
    html.push_element("h3", "What this rests on");
    let mut said = vec![trust(device)];
    said.extend(stands_on(answer, device));
    said.extend(unmatched(device));
    html.push_list(&said);
}

fn row(html: &mut Html, device: &DeviceWhatIf, most: u64, one: &ReplayOutcome, name: &str) {
    let best = device
        .best
        .as_ref()
        .is_some_and(|best| best.conf == one.conf);
    html.push_markup(if best { "<tr class=\"best\">" } else { "<tr>" });
    let reserved = format_bytes(one.peak_reserved_bytes);
    html.push_markup("<td class=\"number\">")
        .push_text(&reserved)
        .push_markup("</td><td class=\"meter\">");
    let part = BarSegment {
        colour: "allocated",
        name: String::new(),
        bytes: one.peak_reserved_bytes,
    };
    html.push_bar(&[part], most, &format!("{reserved} reserved"));
    let figures = [
        change(one.peak_reserved_bytes, device.today.peak_reserved_bytes),
        failed(one),
        one.retries.to_string(),
    ];
    for figure in figures {
        html.push_markup("</td><td class=\"number\">")
            .push_text(&figure);
    }
    html.push_markup("</td><td><code>")
        .push_text(name)
        .push_markup("</code></td></tr>\n");
}
