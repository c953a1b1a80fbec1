//! What differs between two snapshots, as a page.

use sconce_memory::analysis::{FunctionChange, ReportDiff};

use super::{cells, figures, settings};
use crate::commands::memory::format::format_count;
use crate::html::{BarSegment, Html};

/// Places that are shown.
const MAX_ROWS: usize = 200;

/// The page of two snapshots with these names.
pub(super) fn render_page(before: &str, after: &str, found: &ReportDiff) -> String {
    let mut html = Html::default();
    if found.is_empty() {
        html.push_element("p", "Nothing differs in what they say.");
    }
    if !found.settings.is_empty() {
        html.push_element("h2", "Settings")
            .push_list(&settings(found));
    }
    for device in &found.devices {
        html.push_element("h2", &format!("Card {}", device.device));
        let rows = figures(device.before.as_ref(), device.after.as_ref());
        html.push_table(["", "#Before", "#After", "#Change"], &rows);
        if device.changes.is_empty() {
            continue;
        }
        html.push_element("h3", "What filled the peak");
        html.push_markup("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Change</th>")
            .push_markup("<th scope=\"col\" class=\"meter\"></th><th scope=\"col\" class=\"number\">Before</th><th scope=\"col\" class=\"number\">After</th>")
            .push_markup("<th scope=\"col\">Where</th></tr></thead>\n<tbody>\n");
        let grown = |change: &FunctionChange| {
            u64::try_from(change.growth_bytes().unsigned_abs()).unwrap_or(u64::MAX)
        };
        let most = device.changes.iter().map(grown).max().unwrap_or(0);
        for change in device.changes.iter().take(MAX_ROWS) {
            let [growth, before, after, place] = cells(change);
            html.push_markup("<tr><td class=\"number\">")
                .push_text(&growth)
                .push_markup("</td><td class=\"meter\">");
            let part = BarSegment {
                colour: if change.growth_bytes() > 0 {
                    "over"
                } else {
                    "saved"
                },
                name: String::new(),
                bytes: grown(change),
            };
            html.push_bar(&[part], most, &growth);
            html.push_markup("</td><td class=\"number\">")
                .push_text(&before);
            html.push_markup("</td><td class=\"number\">")
                .push_text(&after);
            html.push_markup("</td><td><code>")
                .push_text(&place)
                .push_markup("</code></td></tr>\n");
        }
        html.push_markup("</tbody></table></div>\n");
        let more = device.changes.len().saturating_sub(MAX_ROWS);
        if more > 0 {
            html.push_element(
                "p",
                &format!("and {}", format_count(more as u64, "other place")),
            );
        }
    }
    html.render_page("What differs", &format!("From {before} to {after}"))
}
