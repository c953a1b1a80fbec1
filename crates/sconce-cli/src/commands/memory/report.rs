//! `sconce memory report`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::slice;

use clap::Args;
use sconce_memory::analysis::{
    self, DeviceReport, FailedRequest, FragmentationReport, LeakReport, MemoryBreakdown,
    MemoryCategory, OomReason, RetainingBlock, SnapshotReport, TraceSummary, TrendUnit,
};
use sconce_schema::exit;

use super::claim_page;
use super::format::{
    format_bytes, format_category, format_certainty, format_count, format_location, format_percent,
    format_signed_bytes, frame_of, printable_text, read_snapshot,
};
use super::page;
use crate::output;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::outputs;

/// Rows of a list without --all.
const DEFAULT_ROWS: usize = 6;
/// Frames that are shown of a stack.
const MAX_FRAMES: usize = 6;
/// Where what is said begins.
const DETAIL: usize = 2;
/// Stuck memory is a finding from this share of what is reserved.
const MIN_STUCK_SHARE: f64 = 0.1;

#[derive(Debug, Args)]
pub(crate) struct MemoryReportArgs {
    /// What torch.cuda.memory._dump_snapshot wrote.
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,
    /// Show whole lists, each line with a stack.
    #[arg(long)]
    all: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with a timeline of all entries to FILE; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Says what filled the memory.
pub(crate) fn report_snapshot(args: &MemoryReportArgs, context: &AppContext) -> Result<u8> {
    let html = claim_page(
        args.html.as_deref(),
        slice::from_ref(&args.snapshot),
        args.json,
    )?;
    let snapshot = read_snapshot(&args.snapshot)?;
    let report = analysis::analyze_snapshot(&snapshot);
    if let Some(output) = html {
        let name = args.snapshot.file_name().unwrap_or_default();
        let title = format!("Memory of {}", printable_text(&name.to_string_lossy()));
        let said = text(&report, true, &TextLayout::for_file());
        let whole = page::render_page(&title, &snapshot, &said);
        outputs::write(output, whole.as_bytes(), context)?;
        if !args.json {
            return Ok(exit::OK);
        }
    }
    if args.json {
        output::write_data(&serde_json::to_string_pretty(&report).unwrap_or_default())?;
    } else {
        output::write_data(&text(&report, args.all, &TextLayout::for_stdout()))?;
    }
    Ok(exit::OK)
}

fn text(report: &SnapshotReport, all: bool, page: &TextLayout) -> String {
    let mut text = String::new();
    for (number, device) in report.devices.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let grows = report
            .settings
            .as_ref()
            .and_then(|one| one.expandable_segments);
        ReportTextOptions { page, all, grows }.device(&mut text, device);
    }
    if let Some(bytes) = report.pinned_host_bytes {
        let _ = writeln!(text, "\npinned host memory: {}", format_bytes(bytes));
    }
    if report.devices.is_empty() {
        text.push_str("the snapshot says nothing of any card\n");
    }
    text
}

struct ReportTextOptions<'p> {
    page: &'p TextLayout,
    all: bool,
    /// Whether segments can grow.
    grows: Option<bool>,
}

impl ReportTextOptions<'_> {
    fn few(&self) -> usize {
        if self.all { usize::MAX } else { DEFAULT_ROWS }
    }

    fn say(&self, text: &mut String, said: &str) {
        let _ = writeln!(text, "  {}", self.page.wrap_text(said, DETAIL, DETAIL));
    }

    fn more(&self, text: &mut String, count: usize, bytes: u64) {
        if count > 0 {
            let line = format!(
                "{:>10}  in {count} more: --all shows them",
                format_bytes(bytes)
            );
            let _ = writeln!(text, "{}", self.page.style.dim(&line));
        }
    }

    fn device(&self, text: &mut String, device: &DeviceReport) {
        let style = &self.page.style;
        let head = match &device.traced {
            Some(traced) => format!(
                "card {}: {} at its peak, {} reserved",
                device.device,
                format_bytes(traced.peak.filled.bytes),
                format_bytes(traced.peak_reserved_bytes)
            ),
            None => format!(
                "card {}: {} live, {} reserved when the snapshot was taken",
                device.device,
                format_bytes(device.now.bytes),
                format_bytes(device.fragments.reserved_bytes)
            ),
        };
        let _ = writeln!(text, "{}", style.warn(&head));
        match &device.traced {
            Some(traced) => self.traced(text, traced),
            None => {
                self.say(
                    text,
                    "no history was recorded: what was live at the peak is not known \
                     (torch.cuda.memory._record_memory_history() before the run records it)",
                );
                self.filled(text, &device.now, "when the snapshot was taken");
            }
        }
        self.fragments(text, &device.fragments);
    }

    fn traced(&self, text: &mut String, traced: &TraceSummary) {
        let mut said = format!("{} entries of history", traced.entries);
        if let Some(spans) = traced.spans_us {
            let _ = write!(said, " over {}", seconds(spans));
        }
        if let Some(after) = traced.peak.after_us {
            let _ = write!(said, ", the peak after {}", seconds(after));
        }
        self.say(text, &said);
        if traced.live_before_bytes > 0 {
            let before = format_bytes(traced.live_before_bytes);
            self.say(
                text,
                &format!("the history begins within the run: {before} were live before it"),
            );
        }
        if traced.unmatched > 0 {
            let said = format!(
                "{} entries do not fit each other: the figures are about right at best",
                traced.unmatched
            );
            self.say(text, &self.page.style.warn(&said));
        }
        for oom in traced.ooms.iter().rev().take(if self.all { 4 } else { 1 }) {
            self.oom(text, oom, traced.oom_count);
        }
        self.filled(text, &traced.peak.filled, "at the peak");
        if let Some(leaks) = &traced.leaks {
            self.leaks(text, leaks);
        }
    }

    fn head(&self, text: &mut String, head: &str) {
        let _ = writeln!(text, "\n{}", self.page.style.warn(head));
    }

    fn filled(&self, text: &mut String, filled: &MemoryBreakdown, when: &str) {
        self.head(text, &format!("What filled it {when}"));
        for group in &filled.categories {
            let sure = match format_certainty(group.certainty) {
                "" => String::new(),
                sure => format!(" ({sure})"),
            };
            let what = match group.category {
                MemoryCategory::Backward => "backward: gradients and what they need",
                other => format_category(other),
            };
            let share = format_percent(group.bytes, filled.bytes);
            let _ = writeln!(
                text,
                "{:>10}  {share}  {what}{sure}",
                format_bytes(group.bytes)
            );
        }
        self.head(text, "by line");
        let few = self.few();
        for group in filled.places.iter().take(few) {
            let share = format_percent(group.bytes, filled.bytes);
            let what = match group.category {
                MemoryCategory::Other => String::new(),
                other => format!(", {}", format_category(other)),
            };
            let blocks = format_count(group.blocks, "block");
            let said = format!("{} ({blocks}{what})", format_location(group.place.as_ref()));
            let said = self.page.wrap_text(&said, 19, 19);
            let _ = writeln!(text, "{:>10}  {share}  {said}", format_bytes(group.bytes));
            if self.all {
                self.stack(text, &group.stack, 19);
            }
        }
        let rest = filled.places.get(few..).unwrap_or_default();
        self.more(text, rest.len(), sum(rest.iter().map(|one| one.bytes)));
        let named = filled
            .modules
            .iter()
            .filter_map(|one| Some((one.module.as_ref()?, one)));
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            return;
        }
        self.head(text, "by module");
        for (module, group) in named.iter().take(few) {
            let share = format_percent(group.bytes, filled.bytes);
            let said = self.page.wrap_text(&printable_text(module), 19, 19);
            let _ = writeln!(text, "{:>10}  {share}  {said}", format_bytes(group.bytes));
        }
        let rest = named.get(few..).unwrap_or_default();
        self.more(text, rest.len(), sum(rest.iter().map(|(_, one)| one.bytes)));
    }

    fn stack(&self, text: &mut String, stack: &[String], indent: usize) {
        // Every call of a module goes through these.
        let calls = [" _call_impl", " _wrapped_call_impl"];
        let told = |frame: &&String| !calls.iter().any(|call| frame.ends_with(call));
        for frame in stack.iter().filter(told).take(MAX_FRAMES) {
            let line = format!("{:indent$}{}", "", frame_of(frame));
            let _ = writeln!(text, "{}", self.page.style.dim(&line));
        }
    }

    fn leaks(&self, text: &mut String, leaks: &LeakReport) {
        if leaks.places.is_empty() {
            return;
        }
        let unit = match leaks.unit {
            TrendUnit::Step => "step",
            TrendUnit::Window => "window of the history",
        };
        self.head(text, &format!("What grows with each {unit}"));
        for leak in leaks.places.iter().take(self.few()) {
            let grown = leak.last_bytes.saturating_sub(leak.first_bytes);
            let said = format!(
                "{} (+{} in {} {unit}s)",
                format_location(leak.place.as_ref()),
                format_bytes(grown),
                leaks.units
            );
            let said = self.page.wrap_text(&said, 12, 12);
            let rate = format_signed_bytes(leak.bytes_per_unit.into());
            let _ = writeln!(text, "{rate:>10}  {said}");
            self.stack(text, &leak.stack, 12);
        }
    }

    fn oom(&self, text: &mut String, oom: &FailedRequest, count: usize) {
        let times = match count {
            0 | 1 => String::new(),
            count => format!(" ({count} requests failed; this is one of the last)"),
        };
        self.head(text, &format!("Why a request failed{times}"));
        let or_none = |bytes: Option<u64>| bytes.map_or("–".to_owned(), format_bytes);
        let rows = [
            ("asked for", or_none(oom.asked_bytes)),
            ("free on the card", or_none(oom.device_free_bytes)),
            ("reserved", format_bytes(oom.reserved_bytes)),
            ("of it free, for this stream", format_bytes(oom.free_bytes)),
            (
                "the largest free block",
                format_bytes(oom.largest_free_bytes),
            ),
        ];
        for (name, figure) in rows {
            let _ = writeln!(text, "  {name:28}{figure:>10}");
        }
        self.say(
            text,
            &format!("asked at {}", format_location(oom.place.as_ref())),
        );
        let said = match oom.reason {
            OomReason::TooMuch => format!(
                "{} too much: no other order of blocks would have made it fit",
                or_none(oom.short_bytes)
            ),
            OomReason::Fragmented => {
                "enough was free altogether, but in pieces between live blocks".to_owned()
            }
            OomReason::Limited => {
                "the card had as much: the process may not have it (a fraction that \
                 was set), or PyTorch wanted a larger segment for it"
                    .to_owned()
            }
            OomReason::Unknown => "the snapshot does not say what was free".to_owned(),
        };
        self.say(text, &self.page.style.error(&said));
        if oom.reason == OomReason::Fragmented && self.grows == Some(false) {
            let mend = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets segments grow \
                        instead: most of such pieces then are one";
            self.say(text, &self.page.style.hint(mend));
        }
        if let Some(bytes) = oom.in_the_way_bytes.filter(|&bytes| bytes > 0) {
            let said = format!(
                "with {} less in one segment it would have fitted:",
                format_bytes(bytes)
            );
            self.say(text, &said);
            self.pins(text, &oom.in_the_way);
        }
    }

    fn pins(&self, text: &mut String, pins: &[RetainingBlock]) {
        // Blocks of one stack are one row.
        let mut rows: Vec<(&RetainingBlock, u64, u64)> = Vec::new();
        for pin in pins {
            match rows.iter_mut().find(|(first, ..)| first.stack == pin.stack) {
                Some((_, bytes, blocks)) => {
                    *bytes = bytes.saturating_add(pin.size_bytes);
                    *blocks += 1;
                }
                None => rows.push((pin, pin.size_bytes, 1)),
            }
        }
        for (pin, bytes, blocks) in rows.into_iter().take(self.few()) {
            let blocks = format_count(blocks, "block");
            let said = format!("{} ({blocks})", format_location(pin.place.as_ref()));
            let said = self.page.wrap_text(&said, 16, 16);
            let _ = writeln!(text, "{:>14}  {said}", format_bytes(bytes));
            if self.all {
                self.stack(text, &pin.stack, 16);
            }
        }
    }

    fn fragments(&self, text: &mut String, found: &FragmentationReport) {
        self.head(text, "What was reserved when the snapshot was taken");
        let mut rows = vec![
            ("reserved", Some(found.reserved_bytes)),
            ("  in live blocks", Some(found.live_bytes)),
            ("    of it roundings", found.rounding_bytes),
            (
                "  free, for empty_cache() to give back",
                Some(found.returnable_bytes),
            ),
            (
                "  free, kept by live blocks beside it",
                Some(found.stuck_bytes),
            ),
            ("  the largest free block", Some(found.largest_free_bytes)),
        ];
        if found.pending_bytes > 0 {
            rows.insert(
                3,
                (
                    "    of it other streams still use",
                    Some(found.pending_bytes),
                ),
            );
        }
        for (name, bytes) in rows {
            let figure = bytes.map_or("–".to_owned(), format_bytes);
            let _ = writeln!(text, "  {name:40}{figure:>10}");
        }
        let much = found.stuck_bytes as f64 >= found.reserved_bytes as f64 * MIN_STUCK_SHARE;
        if found.stuck_bytes == 0 || !(much || self.all) {
            return;
        }
        self.head(text, "Segments that live blocks keep");
        let few = if self.all { usize::MAX } else { 3 };
        for segment in found.pinned.iter().take(few) {
            let blocks = format_count(segment.live_blocks as u64, "live block");
            let said = format!(
                "{} of {} free, kept by {} in {blocks}:",
                format_bytes(segment.free_bytes),
                format_bytes(segment.total_bytes),
                format_bytes(segment.live_bytes)
            );
            self.say(text, &said);
            self.pins(text, &segment.pins);
        }
        let rest = found.pinned.get(few..).unwrap_or_default();
        self.more(text, rest.len(), sum(rest.iter().map(|one| one.free_bytes)));
    }
}

/// A snapshot may hold any figures.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

fn seconds(us: i64) -> String {
    let seconds = us as f64 / 1e6;
    match us {
        ..1_000 => format!("{us} µs"),
        1_000..100_000 => format!("{:.1} ms", seconds * 1e3),
        100_000..600_000_000 => format!("{seconds:.1} s"),
        _ => format!("{:.1} min", seconds / 60.0),
    }
}
