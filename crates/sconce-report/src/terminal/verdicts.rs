//! Verdicts, each with what it stands on and what to change.

use super::TerminalStyle;
use super::layout::{TextPage, Tone, plain, toned};
use crate::model::RunReport;
use crate::verdict::{Verdict, VerdictSeverity, not_judged_yet};
use sconce_schema::training::GpuOutOfMemory;

/// As many mends are shown, and how many more there are.
const MENDS: usize = 4;

pub(super) fn rows(page: &mut TextPage, report: &RunReport) {
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
            page.gap();
            page.row("verdicts", [plain("none: nothing is known to be wrong")]);
        }
        (none, Some(waiting)) => {
            page.gap();
            let words = match none {
                true => format!("nothing found; not judged: {waiting}"),
                false => format!("not judged: {waiting}"),
            };
            page.row("verdicts", [toned(words, Tone::Dim)]);
        }
        (false, None) => {}
    }
}

/// Verdicts by themselves, as a report has them.
#[must_use]
pub(crate) fn text(
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
        page.gap();
        let tone = match verdict.weight {
            VerdictSeverity::Fatal => Tone::Bad,
            VerdictSeverity::Costly => Tone::Warning,
            VerdictSeverity::Note => Tone::Strong,
        };
        page.row(verdict.weight.word(), [toned(&verdict.title, tone)]);
        for evidence in &verdict.evidence {
            page.row("", [toned(evidence, Tone::Dim)]);
        }
        if let Some(gain) = &verdict.gain {
            page.row("  gain", [plain(gain)]);
        }
        for (n, mend) in verdict.mends.iter().take(MENDS).enumerate() {
            page.row(if n == 0 { "  change" } else { "" }, [plain(mend)]);
        }
        let more = verdict.mends.len().saturating_sub(MENDS);
        if more > 0 {
            let text = format!("and {more} more: `sconce report --json` has all");
            page.row("", [toned(text, Tone::Dim)]);
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
    const MOST: usize = 5;
    for (n, holder) in told.holders.iter().take(MOST).enumerate() {
        let who = holder.stack.first().or(holder.tensor.as_ref());
        let who = who.map_or("–", String::as_str);
        let blocks = crate::words::count(holder.blocks, "block", "blocks");
        let label = if n == 0 { "  held by" } else { "" };
        page.row(
            label,
            [plain(holder.bytes.to_string()), plain(blocks), plain(who)],
        );
    }
    if let Some(why) = &told.no_snapshot {
        page.row("  snapshot", [toned(format!("none: {why}"), Tone::Dim)]);
    }
}
