//! Why it is not known whether a run fits, in words.

use sconce_memory::forecast::probe_report::UnreachedEvaluation;
use sconce_memory::forecast::values::{SelectedShare, UnboundedReason, ValuePattern, ValueTrial};
use sconce_memory::forecast::{FitOutcome, GpuForecast, InconclusiveReason};

use super::text::{format_source_line, format_value_read};
use crate::commands::memory::format::{format_bytes, format_count, printable_text};

/// Lines of a list, and shapes of batches, that are named.
const MAX_LISTED: usize = 4;

/// Why it is not known of these cards; what holds for several is said once.
pub(super) fn format_reasons(cards: &[GpuForecast], steps: usize) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for card in cards {
        for one in &card.not_judged {
            for line in reason(card, one, steps) {
                if !said.contains(&line) {
                    said.push(line);
                }
            }
        }
    }
    said
}

fn reason(card: &GpuForecast, one: &InconclusiveReason, steps: usize) -> Vec<String> {
    match one {
        InconclusiveReason::Values { why, lines, with } => {
            let end = if lines.is_empty() { "" } else { ":" };
            let mut said = vec![format!("{}{end}", values(&card.card, why, with))];
            said.extend(
                lines
                    .iter()
                    .take(MAX_LISTED)
                    .map(|line| format!("  {}", format_value_read(line))),
            );
            if lines.len() > MAX_LISTED {
                said.push(format!(
                    "  {} more: --json has them",
                    lines.len() - MAX_LISTED
                ));
            }
            said
        }
        InconclusiveReason::Shapes { largest, shapes } => {
            let some: Vec<String> = shapes
                .iter()
                .take(MAX_LISTED)
                .map(|batch| shape(batch))
                .collect();
            let more = match shapes.len().saturating_sub(MAX_LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            vec![format!(
                "Not known beyond the {} that {} watched: batches have different shapes ({}{more}). The \
                 largest of them, {}, is in the figures; whether a larger one comes is not known. Have the \
                 command give its largest batch first, or all of one size",
                format_count(steps as u64, "step"),
                if steps == 1 { "was" } else { "were" },
                some.join("; "),
                shape(largest)
            )]
        }
        InconclusiveReason::Sizes {
            least_bytes,
            most_bytes,
        } => vec![format!(
            "Not known beyond the {} that were watched: steps ask for different amounts ({} to {} in all). \
             The largest of them is in the figures; whether a larger one comes is not known",
            format_count(steps as u64, "step"),
            format_bytes(*least_bytes),
            format_bytes(*most_bytes)
        )],
        InconclusiveReason::Growth {
            step_bytes,
            steps_left,
        } => vec![format!(
            "{}: not known beyond the {} that were watched: each has {} more than the one before, and if that \
             goes on the card is full after about {}",
            card.card,
            format_count(steps as u64, "step"),
            format_bytes(*step_bytes),
            format_count(*steps_left, "more step")
        )],
        InconclusiveReason::Later { lines } => {
            let what = format!(
                "Not judged: what comes after step {steps}, where the command was ended. It evaluates then, or \
                 computes what no step did, and how much memory that takes was not seen:"
            );
            let lines = lines
                .iter()
                .take(MAX_LISTED)
                .map(|line| format!("  {}", format_evaluation(line)));
            std::iter::once(what).chain(lines).collect()
        }
    }
}

/// The line of an evaluation, and its text.
pub(super) fn format_evaluation(line: &UnreachedEvaluation) -> String {
    match line.code.as_str() {
        "" => format_source_line(&line.at),
        code => format!("{}: {}", format_source_line(&line.at), printable_text(code)),
    }
}

fn shape(batch: &[Vec<u64>]) -> String {
    let shapes = batch.iter().map(|shape| {
        let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
        match sizes.is_empty() {
            true => "one value".to_owned(),
            false => sizes.join(" × "),
        }
    });
    let shapes: Vec<String> = shapes.take(MAX_LISTED).collect();
    shapes.join(", ")
}

fn values(card: &str, why: &UnboundedReason, with: &[ValueTrial]) -> String {
    let because = match why {
        UnboundedReason::Disagree => {
            let tried: Vec<String> = with.iter().map(tried).collect();
            format!("it depends on values of the card ({})", tried.join("; "))
        }
        UnboundedReason::Size => "a size is a value of the card, and nothing bounds it".to_owned(),
        UnboundedReason::Loop => "a loop ends when a value of the card says so".to_owned(),
        UnboundedReason::Fails { kind } if kind.is_empty() => {
            "values of the card decide what it does, and with others than zeros it did not come to its \
             steps"
                .to_owned()
        }
        UnboundedReason::Fails { kind } => format!(
            "values of the card decide what it does, and with others than zeros it failed by itself, with {}",
            printable_text(kind)
        ),
        UnboundedReason::Unanswered => {
            "values of the card are read for which nothing but zeros can be given".to_owned()
        }
        UnboundedReason::OtherThreads => {
            "threads that the script starts read values of the card, and these are not watched".to_owned()
        }
        UnboundedReason::Growth {
            step_bytes,
            steps_left,
        } => format!(
            "something is kept each time that values of the card say so: where they often do it is {} more with each step, and if that goes on the card is full after about {}",
            format_bytes(*step_bytes),
            format_count(*steps_left, "more step")
        ),
    };
    format!("{card}: not known, as {because}")
}

fn tried(one: &ValueTrial) -> String {
    let what = match (one.values.share, one.values.truth, one.values.number) {
        _ if one.values.pattern == ValuePattern::Always => "all true",
        _ if one.values.pattern != ValuePattern::EveryOtherStep => "some true, numbers that differ",
        (SelectedShare::All, ..) => "all selected",
        (SelectedShare::Half, ..) => "half",
        (SelectedShare::None, true, _) => "with true",
        (SelectedShare::None, _, 0) => "none",
        (SelectedShare::None, ..) => "other numbers",
    };
    let fits = match one.verdict {
        FitOutcome::DoesNotFit => "does not fit".to_owned(),
        _ => {
            let reserved = one.reserved_bytes.map_or(String::new(), |bytes| {
                format!(", {} reserved", format_bytes(bytes))
            });
            format!("fits{reserved}")
        }
    };
    format!("{what}: {fits}")
}
