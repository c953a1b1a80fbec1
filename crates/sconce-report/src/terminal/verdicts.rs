//! Verdicts, each with what it stands on and what to change.

use super::TerminalStyle;
use super::layout::{TextPage, Tone, plain_span, styled_span};
use crate::model::RunReport;
use crate::verdict::{Verdict, VerdictSeverity, not_judged_yet};
use sconce_schema::training::GpuOutOfMemory;

/// As many mends are shown, and how many more there are.
const MAX_LISTED_MENDS: usize = 4;

pub(super) fn write_rows(page: &mut TextPage, report: &RunReport) {
    said(page, &report.verdicts, &report.card_oom);
    not_judged(page, report);
}

/// Of a run that trained: that nothing is wrong, or that it cannot be told yet.
fn not_judged(page: &mut TextPage, report: &RunReport) {
    if report.training.is_empty() {
        return;
    }
    let waiting = not_judged_yet(&report.unjudged);
    match (report.verdicts.is_empty(), waiting) {
        (true, None) => {
            page.write_blank_line();
            page.write_row(
                "verdicts",
                [plain_span("none: nothing is known to be wrong")],
            );
        }
        (none, Some(waiting)) => {
            page.write_blank_line();
            let words = match none {
                true => format!("nothing found; not judged: {waiting}"),
                false => format!("not judged: {waiting}"),
            };
            page.write_row("verdicts", [styled_span(words, Tone::Dim)]);
        }
        (false, None) => {}
    }
}

/// Verdicts by themselves, as a report has them.
#[must_use]
pub(crate) fn render_verdicts(
    verdicts: &[Verdict],
    card_oom: &[GpuOutOfMemory],
    style: TerminalStyle,
) -> String {
    let mut page = TextPage::new(style);
    said(&mut page, verdicts, card_oom);
    page.into_text()
}

fn said(page: &mut TextPage, verdicts: &[Verdict], card_oom: &[GpuOutOfMemory]) {
    for verdict in verdicts {
        page.write_blank_line();
        let tone = match verdict.weight {
            VerdictSeverity::Fatal => Tone::Bad,
            VerdictSeverity::Costly => Tone::Warning,
            VerdictSeverity::Note => Tone::Strong,
        };
        page.write_row(verdict.weight.label(), [styled_span(&verdict.title, tone)]);
        for evidence in &verdict.evidence {
            page.write_row("", [styled_span(evidence, Tone::Dim)]);
        }
        if let Some(gain) = &verdict.gain {
            page.write_row("  gain", [plain_span(gain)]);
        }
        for (n, mend) in verdict.mends.iter().take(MAX_LISTED_MENDS).enumerate() {
            page.write_row(if n == 0 { "  change" } else { "" }, [plain_span(mend)]);
        }
        let more = verdict.mends.len().saturating_sub(MAX_LISTED_MENDS);
        if more > 0 {
            let text = format!("and {more} more: `sconce report --json` has all");
            page.write_row("", [styled_span(text, Tone::Dim)]);
        }
        if verdict.rule == "card-out-of-memory"
            && let Some(told) = card_oom.first()
        {
            holders(page, told);
        }
    }
}

/// Who held the card's memory when it ran out.
fn holders(page: &mut TextPage, told: &GpuOutOfMemory) {
    const MAX_LISTED_HOLDERS: usize = 5;
    for (n, holder) in told.holders.iter().take(MAX_LISTED_HOLDERS).enumerate() {
        let who = holder.stack.first().or(holder.tensor.as_ref());
        let who = who.map_or("–", String::as_str);
        let blocks = crate::format::format_count(holder.blocks, "block", "blocks");
        let label = if n == 0 { "  held by" } else { "" };
        page.write_row(
            label,
            [
                plain_span(holder.bytes.to_string()),
                plain_span(blocks),
                plain_span(who),
            ],
        );
    }
    if let Some(why) = &told.no_snapshot {
        page.write_row(
            "  snapshot",
            [styled_span(format!("none: {why}"), Tone::Dim)],
        );
    }
}
