//! A forecast as text.

use std::fmt::Write as _;

use sconce_base::text::to_printable;
use sconce_memory::analysis::purpose::{PeakInstant, Purpose, PurposeGroup, StepPhase};
use sconce_memory::forecast::probe_report::{SourceLine, ValueRead, ValueUse};
use sconce_memory::forecast::{FitOutcome, Forecast, ForecastCaveat, GpuForecast, PeakBreakdown};

use super::{inconclusive, text_plans};
use crate::commands::memory::format::{
    format_bytes, format_certainty, format_count, format_location, format_percent, printable_text,
};
use crate::table::format_table;
use crate::text_layout::TextLayout;

/// Rows of a list without --all.
const DEFAULT_ROWS: usize = 6;
/// Lines that read values, without --all.
const DEFAULT_READS: usize = 4;
/// Where the words of a list's row begin.
const WORDS: usize = 18;
/// Names of unknown entry points that are listed.
const MAX_LISTED_NAMES: usize = 8;

/// Everything that is said of it.
pub(super) fn render_text(forecast: &Forecast, all: bool, host: bool, page: &TextLayout) -> String {
    let few = if all { usize::MAX } else { DEFAULT_ROWS };
    let mut text = String::new();
    let _ = writeln!(text, "{}\n", format_headline(forecast));
    let rows: Vec<[String; 6]> = forecast.cards.iter().map(row).collect();
    let heads = ["CARD", "MEMORY", "ALLOCATED", "RESERVED", "ON CARD", "FITS"];
    let _ = writeln!(text, "{}\n", format_table(heads, &rows, &page.style));
    for said in format_gpu_notes(&forecast.cards) {
        say(&mut text, page, &said);
    }
    let unknown = inconclusive::format_reasons(&forecast.cards, forecast.steps);
    if !unknown.is_empty() {
        let _ = writeln!(text, "\n{}", page.style.warn("Why it is not known"));
    }
    for said in unknown {
        say(&mut text, page, &said);
    }
    if let Some(made) = &forecast.made {
        peak(&mut text, page, made, few, forecast.cards.len() > 1);
    }
    let run = text_plans::PlanCommand {
        command: &forecast.command,
        host,
    };
    for table in &forecast.plans {
        text.push_str(&text_plans::render_plans(table, &run, page));
    }
    let _ = writeln!(text, "\n{}", page.style.warn("How sure"));
    for doubt in &forecast.doubts {
        say(&mut text, page, &format_caveat(doubt));
    }
    // Those whose tensors are as large as values say come first.
    let reads: Vec<&ValueRead> = forecast.deciding_reads().collect();
    for one in reads
        .iter()
        .take(if all { usize::MAX } else { DEFAULT_READS })
    {
        say(&mut text, page, &format!("  {}", format_value_read(one)));
    }
    if !all && reads.len() > DEFAULT_READS {
        let more = reads.len() - DEFAULT_READS;
        say(&mut text, page, &format!("  {more} more: --all shows them"));
    }
    text
}

/// A line that lets something hang on a value of the card, and its text.
pub(super) fn format_value_read(read: &ValueRead) -> String {
    let by = read.by.as_ref();
    let by = by.map_or(String::new(), |by| {
        format!(" (called at {})", format_source_line(by))
    });
    let done = match read.done {
        ValueUse::Size => "has a size or an index from values of the card, which are 0 here",
        ValueUse::Branch => "branches on a value of the card, which is 0 here",
        ValueUse::Value => "reads a value of the card, which is 0 here",
    };
    let code = match read.code.as_str() {
        "" => String::new(),
        code => format!(": {}", printable_text(code)),
    };
    format!("{}{by} {done}{code}", format_source_line(&read.at))
}

pub(super) fn format_source_line(line: &SourceLine) -> String {
    let installed = line.file.rsplit_once("-packages/").map(|(_, path)| path);
    let file = installed.unwrap_or_else(|| line.file.rsplit('/').next().unwrap_or(&line.file));
    format!("{}:{}", printable_text(file), line.line)
}

/// What was run.
pub(super) fn format_headline(forecast: &Forecast) -> String {
    let cuda = forecast.cuda.as_ref();
    let cuda = cuda.map_or(String::new(), |cuda| {
        format!(", CUDA {}", printable_text(cuda))
    });
    let steps = format_count(forecast.steps as u64, "step");
    let ranks = forecast
        .ranks
        .map_or(String::new(), |ranks| format!(" as rank 0 of {ranks}"));
    format!(
        "{steps} with torch {}{cuda}{ranks}",
        printable_text(&forecast.torch)
    )
}

fn say(text: &mut String, page: &TextLayout, said: &str) {
    let _ = writeln!(text, "  {}", page.wrap_text(said, 2, 2));
}

fn row(card: &GpuForecast) -> [String; 6] {
    let or_none = |bytes: Option<u64>| bytes.map_or("–".to_owned(), format_bytes);
    let amount = card
        .margin_bytes
        .map(|bytes| format_bytes(bytes.unsigned_abs()));
    let fits = match (card.verdict, amount) {
        (FitOutcome::Fits, Some(left)) => format!("yes, {left} left"),
        (FitOutcome::Fits, None) => "yes".to_owned(),
        (FitOutcome::Tight, _) => "just so".to_owned(),
        (FitOutcome::DoesNotFit, Some(missing)) if card.margin_bytes < Some(0) => {
            format!("no, {missing} short")
        }
        // It would, were the memory in one piece, or given back in time.
        (FitOutcome::DoesNotFit, _) => "no".to_owned(),
        (FitOutcome::NotKnown, _) => "not known".to_owned(),
    };
    [
        card.card.clone(),
        format_bytes(card.total_bytes),
        or_none(card.allocated_bytes),
        or_none(card.reserved_bytes),
        or_none(card.on_card_bytes),
        fits,
    ]
}

/// What of "on card" is not PyTorch's allocator, one sentence for cards of which the same is said; and
/// what else there is to say of each.
pub(super) fn format_gpu_notes(cards: &[GpuForecast]) -> Vec<String> {
    let mut said = Vec::new();
    let what = |card: &GpuForecast| {
        (
            card.context_bytes,
            card.context_reported,
            card.nccl.clone(),
            card.libraries_bytes,
        )
    };
    let mut different: Vec<&GpuForecast> = Vec::new();
    for card in cards {
        if !different.iter().any(|known| what(known) == what(card)) {
            different.push(card);
        }
    }
    for card in &different {
        let reported = match card.context_reported {
            true => "as reported for this card",
            false => "the most that is reported of any card",
        };
        let mut one = format!(
            "On card: reserved, and a CUDA context of {}, {reported}",
            format_bytes(card.context_bytes)
        );
        if let Some(nccl) = &card.nccl {
            let _ = write!(
                one,
                ", and {} for NCCL's own buffers: {}, modelled, {} to {} in all",
                format_bytes(nccl.bytes),
                format_count(nccl.communicators, "communicator"),
                format_bytes(nccl.least_bytes),
                format_bytes(nccl.bytes)
            );
        }
        if card.libraries_bytes > 0 {
            let _ = write!(
                one,
                ", and {} of libraries",
                format_bytes(card.libraries_bytes)
            );
        }
        if different.len() > 1 {
            let _ = write!(one, " ({})", card.card);
        }
        said.push(one);
    }
    for card in cards.iter().filter(|card| card.hangs_on_nccl()) {
        said.push(format!(
            "{}: it fits if NCCL's buffers take little; they are taken at their most",
            card.card
        ));
    }
    for card in cards.iter().filter(|card| card.values.is_some()) {
        said.push(format!(
            "{}: values of the card decide how much it takes. The figures are with those that take the most; \
             it fits with the others too",
            card.card
        ));
    }
    for card in cards {
        let Some(varied) = &card.varied else { continue };
        let flag = printable_text(&varied.flag);
        said.push(match varied.largest {
            Some(largest) if card.verdict == FitOutcome::NotKnown => {
                let more = match largest == varied.most {
                    true => "the largest that was asked for",
                    false => "and no larger one",
                };
                format!(
                    "{}: of what was watched {flag} {largest} fits, {more}",
                    card.card
                )
            }
            Some(largest) if largest == varied.most => {
                format!(
                    "{}: {flag} {largest} fits, the largest that was asked for",
                    card.card
                )
            }
            Some(largest) => format!("{}: {flag} {largest} is the largest that fits", card.card),
            None => format!("{}: not even {flag} {} fits", card.card, varied.least),
        });
    }
    for card in cards
        .iter()
        .filter(|card| card.verdict == FitOutcome::Tight)
    {
        said.push(format!(
            "{}: it ran only as PyTorch gave cached memory back ({}); {} failed",
            card.card,
            format_count(card.retries, "time"),
            format_count(card.failed_requests, "request")
        ));
    }
    said
}

/// When the peak stands, and where.
pub(super) fn peak_head(made: &PeakBreakdown, several: bool) -> String {
    let phase = match made.moment.phase {
        StepPhase::Forward => "the forward pass",
        StepPhase::Backward => "the backward pass",
        StepPhase::Optimizer => "the optimizer",
        StepPhase::Other => "between them",
    };
    let step = made.moment.step;
    let step = step.map_or(String::new(), |step| format!(" of step {step}"));
    let on = match several {
        true => format!(" on the {}", made.card),
        false => String::new(),
    };
    let bytes = format_bytes(made.moment.filled.bytes);
    format!("The peak{on}: {bytes} at once, in {phase}{step}")
}

fn peak(text: &mut String, page: &TextLayout, made: &PeakBreakdown, few: usize, several: bool) {
    let PeakInstant {
        purposes, filled, ..
    } = &made.moment;
    let head = peak_head(made, several);
    let _ = writeln!(text, "\n{}", page.style.warn(&head));
    let whole = made.reserved_bytes;
    let mut line = |bytes: u64, said: &str| {
        let said = page.wrap_text(said, WORDS, WORDS);
        let _ = writeln!(
            text,
            "{:>10}  {}  {said}",
            format_bytes(bytes),
            format_percent(bytes, whole)
        );
    };
    for group in merge_by_purpose(purposes) {
        let doubt = match format_certainty(group.certainty) {
            "" => String::new(),
            sure => format!(" ({sure})"),
        };
        line(
            group.bytes,
            &format!("{}{doubt}", format_purpose(group.purpose)),
        );
    }
    line(
        made.allocated_bytes.saturating_sub(filled.bytes),
        "lost to rounding of blocks",
    );
    line(
        made.reserved_bytes.saturating_sub(made.allocated_bytes),
        "reserved and not allocated: cached, or in pieces",
    );
    let _ = writeln!(text, "\n{}", page.style.warn("by line"));
    for group in filled.places.iter().take(few) {
        let said = page.wrap_text(&format_location(group.place.as_ref()), WORDS, WORDS);
        let _ = writeln!(
            text,
            "{:>10}  {}  {said}",
            format_bytes(group.bytes),
            format_percent(group.bytes, whole)
        );
    }
    let modules = filled.modules.iter();
    let modules = modules.filter_map(|one| Some((one.module.as_ref()?, one.bytes)));
    let mut modules = modules.take(few).peekable();
    if modules.peek().is_some() {
        let _ = writeln!(text, "\n{}", page.style.warn("by module"));
    }
    for (module, bytes) in modules {
        let said = page.wrap_text(&printable_text(module), WORDS, WORDS);
        let _ = writeln!(
            text,
            "{:>10}  {}  {said}",
            format_bytes(bytes),
            format_percent(bytes, whole)
        );
    }
}

/// One row for a purpose, as sure as most of it.
pub(super) fn merge_by_purpose(groups: &[PurposeGroup]) -> Vec<PurposeGroup> {
    let mut merged: Vec<PurposeGroup> = Vec::new();
    for group in groups {
        match merged.iter_mut().find(|one| one.purpose == group.purpose) {
            // Groups come the largest first.
            Some(one) => {
                one.bytes = one.bytes.saturating_add(group.bytes);
                one.blocks = one.blocks.saturating_add(group.blocks);
            }
            None => merged.push(*group),
        }
    }
    merged.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    merged
}

pub(super) fn format_purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Parameters => "parameters",
        Purpose::Buffers => "buffers of modules",
        Purpose::Gradients => "gradients",
        Purpose::OptimizerState => "optimizer state",
        Purpose::Activations => "activations",
        Purpose::Temporary => "temporary: backward pass and optimizer",
        Purpose::Communication => "communication",
        Purpose::Workspace => "workspaces",
        Purpose::Other => "other: batches, and what the script keeps",
    }
}

pub(super) fn format_caveat(doubt: &ForecastCaveat) -> String {
    match doubt {
        ForecastCaveat::Workspaces {
            largest_bytes,
            modelled,
        } => {
            let largest = match largest_bytes {
                0 => "none".to_owned(),
                bytes => format!("{} the largest", format_bytes(*bytes)),
            };
            let whence = match modelled {
                false => {
                    "are what the environment's own cuDNN answered for this card without one. With \
                     `cudnn.benchmark` the plan with the most is taken for the fastest"
                }
                true => {
                    "are modelled, as cuDNN before 9.8 answers nothing without a card: of most \
                     convolutions rather too much, of some too little, seldom by hundreds of MiB"
                }
            };
            format!("Workspaces of cuDNN ({largest}) {whence}.")
        }
        ForecastCaveat::Recurrent => {
            "Reserves and workspaces of recurrent layers are a guess.".to_owned()
        }
        ForecastCaveat::Context => {
            "A CUDA context takes 250 to 775 MiB, and grows as kernels are loaded.".to_owned()
        }
        ForecastCaveat::Values => {
            "Kernels do nothing and values are zeros: what the script decides by values, \
             zeros decided."
                .to_owned()
        }
        ForecastCaveat::Unknown { names } => {
            let shown: Vec<String> = names
                .iter()
                .take(MAX_LISTED_NAMES)
                .map(|name| to_printable(name, 60))
                .collect();
            format!("The virtual card does not know {}.", shown.join(", "))
        }
        ForecastCaveat::Evaluation { lines } => {
            let lines: Vec<String> = lines.iter().map(inconclusive::format_evaluation).collect();
            format!(
                "An evaluation that comes later was not watched. By its code it records no gradients, keeps \
                 nothing, has batches that are no larger, and makes nothing larger of them: it is taken to need \
                 no more than a step. {}",
                lines.join("; ")
            )
        }
        ForecastCaveat::Release { torch } => format!(
            "The virtual card is tested with PyTorch 2.6 to 2.15, and this is {}.",
            to_printable(torch, 60)
        ),
        ForecastCaveat::FewSteps { seen } => {
            let steps = format_count(*seen as u64, "step");
            format!("The command ended after {steps}: memory may grow later.")
        }
        ForecastCaveat::NothingCompared => {
            "No two steps were compared: whether later ones take more was not seen \
             (`--steps 3` or more tells)."
                .to_owned()
        }
        ForecastCaveat::LaterSteps { watched } => {
            let steps = match watched {
                1 => "the one that was watched".to_owned(),
                watched => format!("the {watched} that were watched"),
            };
            format!(
                "Later steps are taken to be like {steps}: batches, sequences or a model that grow after \
                 them are not in the figures."
            )
        }
        ForecastCaveat::Ranks { ranks, pairs } => {
            let pairs = match pairs {
                true => {
                    " Single ranks were sent to, or all to all: NCCL's buffers for that are not in the \
                     figures, 3 GiB are reported for 8 H100."
                }
                false => "",
            };
            format!(
                "One rank of {ranks}: the others send what this one sends. Ranks that hold other parts, \
                 as in pipelines, take more or less. When memory that two streams use is free again is \
                 a model of time.{pairs}"
            )
        }
        ForecastCaveat::Processes { count } => {
            format!("{count} processes used cards: this is of the one that had the most.")
        }
    }
}
