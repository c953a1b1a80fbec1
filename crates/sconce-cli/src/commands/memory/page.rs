//! A page of a snapshot: one file that opens without a network, with a timeline of every entry.
//!
//! Names in a snapshot come from outside: they reach the page as text of an element or as JSON without
//! a `<`, never as markup, and the page's policy lets it load nothing.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sconce_memory::analysis::{EntryKind, MemoryTimeline, TimelineGroup, build_timeline};
use sconce_memory::snapshot::Snapshot;
use serde::Serialize;

use super::format::{format_category, format_certainty, format_location, frame_of};
use crate::html::{STYLE, escape_html, fill_template};

const PAGE: &str = include_str!("page/page.html");
const CSS: &str = include_str!("page/page.css");
const JS: &str = include_str!("page/page.js");

/// A card, as the page's script reads it.
#[derive(Serialize)]
struct GpuPage {
    device: u64,
    groups: Vec<Line>,
    first_reserved: u64,
    /// How many entries there are.
    length: usize,
    /// The entries ([`encoded`]), by gzip, in Base64.
    packed: String,
}

/// A group of blocks.
#[derive(Serialize)]
struct Line {
    place: String,
    /// The category's key.
    category: sconce_memory::analysis::MemoryCategory,
    /// The category's name.
    kind: &'static str,
    /// The same with how sure it is.
    purpose: String,
    stack: Vec<String>,
    first_bytes: u64,
}

/// The page of a snapshot. `title` names it; `report` is what is said of it in words.
pub(super) fn render_page(title: &str, snapshot: &Snapshot, report: &str) -> String {
    let devices = snapshot.device_numbers().into_iter();
    let cards: Vec<GpuPage> = devices
        .filter_map(|device| Some(card(device, &build_timeline(snapshot, device)?)))
        .filter(|card| card.length > 0)
        .collect();
    // In JSON a `<` can only stand in a text.
    let data = serde_json::to_string(&cards).unwrap_or_else(|_| "[]".to_owned());
    let data = data.replace('<', "\\u003c");
    let style = format!("{STYLE}{CSS}");
    fill_template(
        PAGE,
        &[
            ("TITLE", &escape_html(title)),
            ("CSS", &style),
            ("REPORT", &escape_html(report)),
            ("DATA", &data),
            ("JS", JS),
        ],
    )
}

fn card(device: u64, timeline: &MemoryTimeline) -> GpuPage {
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
    // Writing into memory does not fail.
    let written = packed.write_all(&encoded(timeline));
    let bytes = written.and_then(|()| packed.finish()).unwrap_or_default();
    GpuPage {
        device,
        groups: timeline.groups.iter().map(line).collect(),
        first_reserved: timeline.first_reserved_bytes,
        length: timeline.entries.len(),
        packed: STANDARD.encode(bytes),
    }
}

fn line(group: &TimelineGroup) -> Line {
    let kind = format_category(group.category);
    Line {
        place: format_location(group.place.as_ref()),
        category: group.category,
        kind,
        purpose: match format_certainty(group.certainty) {
            "" => kind.to_owned(),
            sure => format!("{kind}, {sure}"),
        },
        stack: group.stack.iter().map(|frame| frame_of(frame)).collect(),
        first_bytes: group.first_bytes,
    }
}

/// Three numbers an entry, each in groups of 7 bits, the lowest first: microseconds since the entry
/// before it, the group and what is done, bytes.
fn encoded(timeline: &MemoryTimeline) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(timeline.entries.len() * 8);
    let mut put = |mut number: u64| {
        while number >= 0x80 {
            bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        bytes.push(number.to_le_bytes()[0]);
    };
    let mut before = 0;
    for entry in &timeline.entries {
        let does = match entry.does {
            EntryKind::Takes => 0,
            EntryKind::Gives => 1,
            EntryKind::Reserves => 2,
            EntryKind::Returns => 3,
            EntryKind::Fails => 4,
        };
        // Traces of several threads are not in strict order.
        let after = entry.after_us.max(before);
        put(after - before);
        put((entry.group as u64) << 3 | does);
        put(entry.bytes);
        before = after;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_memory::analysis::TimelineEntry;
    use sconce_memory::snapshot::{SnapshotLimits, read};

    fn timeline_of(entries: Vec<TimelineEntry>) -> MemoryTimeline {
        MemoryTimeline {
            groups: Vec::new(),
            entries,
            first_reserved_bytes: 0,
        }
    }

    #[test]
    fn entries_are_three_numbers() {
        let entry = |after_us, does, group, bytes| TimelineEntry {
            after_us,
            does,
            group,
            bytes,
        };
        let entries = vec![
            entry(0, EntryKind::Reserves, 0, 2 << 20),
            entry(300, EntryKind::Takes, 17, 512),
            entry(299, EntryKind::Fails, 1, 0),
        ];
        let wanted = [
            0, 2, 0x80, 0x80, 0x80, 1, 0xac, 2, 0x88, 1, 0x80, 4, 0, 12, 0,
        ];
        assert_eq!(encoded(&timeline_of(entries)), wanted);
    }

    #[test]
    fn nothing_of_a_snapshot_is_markup() {
        let bytes: &[u8] =
            include_bytes!("../../../../sconce-memory/tests/fixtures/torch-2.15-oom.pickle");
        let snapshot = read(bytes, &SnapshotLimits::default()).unwrap();
        let whole = render_page("a</title><script>", &snapshot, "<b>{{JS}} & </pre>");
        assert!(whole.contains("<title>a&lt;/title&gt;&lt;script&gt;</title>"));
        assert!(whole.contains("&lt;b&gt;{{JS}} &amp; &lt;/pre&gt;"));
        let data = whole.split_once("type=\"application/json\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        let cards: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(cards.as_array().unwrap().len(), 1);
        assert!(!data.contains('<') && cards[0]["length"].as_u64() > Some(10));
        // It loads nothing.
        for word in ["http:", "https:", " src=", "@import", "url("] {
            assert!(!whole.contains(word), "{word}");
        }
    }

    #[test]
    fn data_of_the_page_is_as_before() {
        let line = Line {
            place: "train.py step".to_owned(),
            category: sconce_memory::analysis::MemoryCategory::OptimizerState,
            kind: "optimizer state",
            purpose: "optimizer state, likely".to_owned(),
            stack: vec!["train.py:3 step".to_owned()],
            first_bytes: 1,
        };
        let card = GpuPage {
            device: 0,
            groups: vec![line],
            first_reserved: 2,
            length: 3,
            packed: "AA==".to_owned(),
        };
        crate::golden::goldens().assert_values("memory-page.json", &[&card]);
    }
}
