//! What differs between two snapshots, as a page.

use sconce_memory::analysis::{FunctionChange, ReportDiff};

use super::{cells, figures, settings};
use crate::commands::memory::words::counted;
use crate::html::{BarSegment, Html};

/// Places that are shown.
const ROWS: usize = 200;

/// The page of two snapshots with these names.
pub(super) fn page(before: &str, after: &str, found: &ReportDiff) -> String {
    let mut html = Html::default();
    if found.is_empty() {
        html.within("p", "Nothing differs in what they say.");
    }
    if !found.settings.is_empty() {
        html.within("h2", "Settings").list(&settings(found));
    }
    for device in &found.devices {
        html.within("h2", &format!("Card {}", device.device));
        let rows = figures(device.before.as_ref(), device.after.as_ref());
        html.table(["", "#Before", "#After", "#Change"], &rows);
        if device.changes.is_empty() {
            continue;
        }
        html.within("h3", "What filled the peak");
        html.raw("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Change</th>")
            .raw("<th scope=\"col\" class=\"meter\"></th><th scope=\"col\" class=\"number\">Before</th><th scope=\"col\" class=\"number\">After</th>")
            .raw("<th scope=\"col\">Where</th></tr></thead>\n<tbody>\n");
        let grown = |change: &FunctionChange| {
            u64::try_from(change.growth_bytes().unsigned_abs()).unwrap_or(u64::MAX)
        };
        let most = device.changes.iter().map(grown).max().unwrap_or(0);
        for change in device.changes.iter().take(ROWS) {
            let [growth, before, after, place] = cells(change);
            html.raw("<tr><td class=\"number\">")
                .text(&growth)
                .raw("</td><td class=\"meter\">");
            let part = BarSegment {
                colour: if change.growth_bytes() > 0 {
                    "over"
                } else {
                    "saved"
                },
                name: String::new(),
                bytes: grown(change),
            };
            html.bar(&[part], most, &growth);
            html.raw("</td><td class=\"number\">").text(&before);
            html.raw("</td><td class=\"number\">").text(&after);
            html.raw("</td><td><code>")
                .text(&place)
                .raw("</code></td></tr>\n");
        }
        html.raw("</tbody></table></div>\n");
        let more = device.changes.len().saturating_sub(ROWS);
        if more > 0 {
            html.within("p", &format!("and {}", counted(more as u64, "other place")));
        }
    }
    html.page("What differs", &format!("From {before} to {after}"))
}
