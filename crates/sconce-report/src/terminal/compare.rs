//! Two runs side by side.

use sconce_schema::Bytes;

use super::TerminalStyle;
use super::layout::{TextPage, TextSpan, Tone, plain_span, styled_span};
use super::report::format_or_dash;
use crate::compare::{Comparison, SettingChange, StepTimeComparison};
use crate::format::format_percent;
use crate::model::RunReport;
use crate::verdict::Verdict;
use crate::verdicts::value::{format_number, format_precise_duration, format_range};

/// As many packages are named.
const MAX_LISTED_PACKAGES: usize = 12;

/// What was changed between two runs, and what came of it.
#[must_use]
pub fn render_comparison(comparison: &Comparison<'_>, style: TerminalStyle) -> String {
    let mut page = TextPage::new(style);
    let (before, after) = (comparison.before, comparison.after);
    page.write_title(&format!("{} → {}", before.started.id, after.started.id));
    page.write_blank_line();
    changes(&mut page, comparison);
    page.write_blank_line();
    step_time(&mut page, comparison);
    let seen = |(_, a, b): &&(&str, Option<f64>, Option<f64>)| {
        [a, b].into_iter().flatten().any(|us| *us > 0.0)
    };
    for (n, (name, before, after)) in comparison.phases.iter().filter(seen).enumerate() {
        page.write_row(
            if n == 0 { "  of it" } else { "" },
            times(name, *before, *after),
        );
    }
    for (n, (name, before, after)) in comparison.throughput.iter().enumerate() {
        let figures = (before.map(format_number), after.map(format_number));
        let parts = row(name, figures, ratio(*before, *after), None);
        page.write_row(if n == 0 { "throughput" } else { "" }, parts);
    }
    for (n, (name, before, after)) in comparison.memory.iter().enumerate() {
        let float = |bytes: &Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
        let figures = (before.map(|b| b.to_string()), after.map(|b| b.to_string()));
        let parts = row(name, figures, ratio(float(before), float(after)), None);
        page.write_row(if n == 0 { "memory" } else { "" }, parts);
    }
    verdicts(&mut page, comparison);
    page.into_text()
}

fn changes(page: &mut TextPage, comparison: &Comparison<'_>) {
    if comparison.changed.is_empty() {
        page.write_row("changed", [plain_span("nothing that the records tell")]);
    }
    let one = |change: &SettingChange| {
        let (before, after) = (
            format_or_dash(change.before.as_ref()),
            format_or_dash(change.after.as_ref()),
        );
        vec![plain_span(format!("{}: {before} → {after}", change.what))]
    };
    for (n, change) in comparison.changed.iter().enumerate() {
        page.write_row(if n == 0 { "changed" } else { "" }, one(change));
    }
    for (which, id, first) in [
        ("of the first run", &comparison.before.started.id, true),
        ("of the second run", &comparison.after.started.id, false),
    ] {
        let missing = comparison.not_known.iter();
        let missing = missing.filter(|change| change.before.is_none() == first);
        let told: Vec<TextSpan> = missing
            .map(|change| {
                let other = change.before.as_ref().or(change.after.as_ref());
                styled_span(
                    format!("{} ({})", change.what, format_or_dash(other)),
                    Tone::Dim,
                )
            })
            .collect();
        if !told.is_empty() {
            let head = plain_span(format!("{which}, {id}; the other's in brackets"));
            page.write_row("not known", [head]);
            page.write_row("", told);
        }
    }
    let Some(packages) = &comparison.packages else {
        return;
    };
    if packages.is_empty() {
        page.write_row("packages", [plain_span("the same in both locks")]);
    }
    for (n, change) in packages.iter().take(MAX_LISTED_PACKAGES).enumerate() {
        page.write_row(if n == 0 { "packages" } else { "" }, one(change));
    }
    if packages.len() > MAX_LISTED_PACKAGES {
        let more = format!(
            "and {} more: `sconce diff`",
            packages.len() - MAX_LISTED_PACKAGES
        );
        page.write_row("", [styled_span(more, Tone::Dim)]);
    }
}

fn step_time(page: &mut TextPage, comparison: &Comparison<'_>) {
    let told = |report: &RunReport| {
        let times = report.training.first()?.step_times?;
        let (low, high) = (times.lower_quartile_us, times.upper_quartile_us);
        let median = format_precise_duration(times.median_us);
        Some(format!("median {median}, half {}", format_range(low, high)))
    };
    let (before, after) = (told(comparison.before), told(comparison.after));
    if before.is_none() && after.is_none() {
        page.write_row(
            "step",
            [styled_span("no training was seen in either run", Tone::Dim)],
        );
        return;
    }
    page.write_row(
        "step",
        [plain_span(format!(
            "{} → {}",
            format_or_dash(before.as_ref()),
            format_or_dash(after.as_ref())
        ))],
    );
    match comparison.step_time {
        StepTimeComparison::TooFew => {
            let why = match (before, after) {
                (None, _) => "no step of the first run is on record",
                (_, None) => "no step of the second run is on record",
                _ => "too few steps to tell a difference from chance",
            };
            page.write_row("", [styled_span(why, Tone::Dim)]);
        }
        StepTimeComparison::Compared(shift) => {
            let between = format!("{} to {} (95 %)", signed(shift.low), signed(shift.high));
            let (words, tone) = match shift.is_real() {
                true if shift.share < 0.0 => ("shorter", Tone::Good),
                true => ("longer", Tone::Warning),
                false => ("no difference that chance does not make", Tone::Plain),
            };
            let head = match shift.is_real() {
                true => format!(
                    "{} {words}: the difference is real",
                    format_percent(shift.share.abs())
                ),
                false => words.to_owned(),
            };
            let blocks = format!(
                "{} and {} blocks of {} and {} steps",
                shift.blocks.0, shift.blocks.1, shift.block_steps.0, shift.block_steps.1
            );
            page.write_row(
                "",
                [
                    styled_span(head, tone),
                    plain_span(between),
                    styled_span(blocks, Tone::Dim),
                ],
            );
        }
    }
}

fn times(name: &str, before: Option<f64>, after: Option<f64>) -> Vec<TextSpan> {
    let difference = before.zip(after).map(|(before, after)| after - before);
    let difference = difference.map(|us| {
        let sign = if us < 0.0 { "−" } else { "+" };
        format!("{sign}{}", format_precise_duration(us.abs()))
    });
    row(
        name,
        (
            before.map(format_precise_duration),
            after.map(format_precise_duration),
        ),
        ratio(before, after),
        difference,
    )
}

/// `data          21.4 ms →  0.3 ms   −99 %   −21.1 ms`
fn row(
    name: &str,
    figures: (Option<String>, Option<String>),
    ratio: Option<f64>,
    difference: Option<String>,
) -> Vec<TextSpan> {
    let (before, after) = (format_or_dash(figures.0), format_or_dash(figures.1));
    let ratio = ratio.map_or_else(String::new, signed);
    let difference = difference.unwrap_or_default();
    let text = format!("{name:20}{before:>10} → {after:>10}  {ratio:>7}  {difference:>10}");
    vec![plain_span(text.trim_end())]
}

/// By which share the second is more.
fn ratio(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    let (before, after) = (before.filter(|before| *before > 0.0)?, after?);
    Some(after / before - 1.0)
}

fn signed(share: f64) -> String {
    let percent = (share * 100.0).round();
    match percent {
        0.0 => "±0 %".to_owned(),
        percent if percent < 0.0 => format!("−{:.0} %", -percent),
        percent => format!("+{percent:.0} %"),
    }
}

fn verdicts(page: &mut TextPage, comparison: &Comparison<'_>) {
    let groups: [(&str, &[&Verdict], Tone); 3] = [
        ("gone", &comparison.gone, Tone::Good),
        ("still", &comparison.stayed, Tone::Warning),
        ("new", &comparison.new, Tone::Bad),
    ];
    let not_judged = &comparison.not_judged;
    if groups.iter().any(|(_, verdicts, _)| !verdicts.is_empty()) || !not_judged.is_empty() {
        page.write_blank_line();
    }
    for (label, verdicts, tone) in groups {
        for (n, verdict) in verdicts.iter().enumerate() {
            page.write_row(
                if n == 0 { label } else { "" },
                [styled_span(&verdict.title, tone)],
            );
        }
    }
    for (n, one) in not_judged.iter().enumerate() {
        let label = if n == 0 { "not judged" } else { "" };
        let (has, other) = match one.of_after {
            true => ("first", "second"),
            false => ("second", "first"),
        };
        let title = format!("of the {has} run: {}", one.verdict.title);
        page.write_row(label, [styled_span(title, Tone::Warning)]);
        let why = format!("of the {other} run nobody can tell: {}", one.why);
        page.write_row("", [plain_span(why)]);
    }
}
