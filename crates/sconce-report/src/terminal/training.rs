//! The part of a report that is about training: steps, where their time went, memory, exchange.

use sconce_schema::training::TrainingSetup;

use super::layout::{TextPage, TextSpan, Tone, plain_span, styled_span};
use super::report::format_or_dash;
use crate::collectives::CollectiveWaits;
use crate::format::{format_count, format_duration, format_percent};
use crate::model::RunReport;
use crate::training::{RankReport, compute_phase_shares};
use crate::verdicts::value::{format_number, format_precise_duration, format_range};

/// Of several ranks, as many are shown in full.
const MAX_FULL_RANKS: usize = 4;

/// What each process that trains did; nothing where none was seen.
pub(super) fn write_rows(page: &mut TextPage, report: &RunReport) {
    if report.training.is_empty() {
        return;
    }
    page.write_blank_line();
    for (n, rank) in report.training.iter().enumerate() {
        let alone = report.training.len() == 1;
        let label = if alone {
            "training".to_owned()
        } else {
            // A group's name may be longer than the column.
            format!("{:<13} ", rank.name())
        };
        // All ranks train the same model; the cells of a notebook need not.
        let tells = n == 0 || rank.cell.is_some() && n < MAX_FULL_RANKS;
        match rank.setup.as_ref().filter(|_| tells) {
            Some(setup) => {
                page.write_row(&label, made_of(setup));
                page.write_row("  steps", steps(rank));
            }
            None => page.write_row(&label, steps(rank)),
        }
        if n < MAX_FULL_RANKS {
            one(page, rank, &report.training);
        }
    }
    if let Some(more) = report.training_left_out {
        let text = format!(
            "and {} that trained: more than are told",
            format_count(more.into(), "process", "processes")
        );
        page.write_row("not told", vec![plain_span(text)]);
    }
}

fn one(page: &mut TextPage, rank: &RankReport, all: &[RankReport]) {
    if rank.steps > 0 {
        bar(page, &rank.phase_shares());
        let mut parts = phases(&rank.phase_shares());
        let all = (rank.step_times)
            .map(|times| format!("of {} on average", format_precise_duration(times.mean_us)));
        parts.extend(all.map(|all| styled_span(all, Tone::Dim)));
        let first = rank
            .steady
            .map(|steady| rank.steps.saturating_sub(steady.steps));
        parts.extend(first.filter(|first| *first > 0).map(|first| {
            let first = format_number(first as f64);
            styled_span(format!("without the first {first} steps"), Tone::Dim)
        }));
        page.write_row("  time", parts);
    }
    if let (Some(card), Some(steps)) = (&rank.on_card, rank.on_card_steps) {
        let mut parts = phases(&compute_phase_shares(card));
        parts.push(styled_span(
            format!("of {}", format_count(steps, "step", "steps")),
            Tone::Dim,
        ));
        page.write_row("  on the card", parts);
    }
    page.write_row("  operations", operations(rank));
    page.write_row("  loader", loader(rank));
    if let Some(evaluation) = rank.evaluation.filter(|evaluation| evaluation.batches > 0) {
        page.write_row(
            "  evaluation",
            [
                plain_span(format!(
                    "{} batches",
                    format_number(evaluation.batches as f64)
                )),
                plain_span(format_duration(evaluation.wall_us)),
            ],
        );
    }
    if let Some(memory) = rank.card_memory {
        let mut parts = vec![
            plain_span(format!("{} allocated at most", memory.allocated_peak)),
            plain_span(format!("{} reserved at most", memory.reserved_peak)),
        ];
        if let Some(context) = rank.context_memory {
            parts.push(plain_span(format!("{context} context and libraries")));
        }
        if memory.retries > 0 {
            let retries = format!(
                "{} with the card full",
                format_count(memory.retries, "retry", "retries")
            );
            parts.push(styled_span(retries, Tone::Warning));
        }
        page.write_row("  card memory", parts);
    }
    page.write_row("  exchange", exchange(rank, all));
}

/// What was exchanged in a mean step, what of it nothing hid, and what of that was another rank's doing.
fn exchange(rank: &RankReport, all: &[RankReport]) -> Vec<TextSpan> {
    let (Some(exchange), Some(waits)) = (rank.exchange, CollectiveWaits::for_rank(rank, all))
    else {
        return Vec::new();
    };
    let sharded_steps = crate::collectives::fsdp_counters(rank).unwrap_or(exchange);
    let for_ranks = waits.for_ranks_us.filter(|us| *us > 0.0);
    let parts = [
        exchange
            .communication_us
            .map(|us| format!("{} a step", format_precise_duration(us as f64))),
        exchange
            .exposed_us
            .map(|us| format!("{} of it hidden by nothing", format_precise_duration(us as f64))),
        sharded(
            "all-gather",
            sharded_steps.sharded_steps,
            sharded_steps.all_gather_us,
            sharded_steps.all_gather_exposed_us,
        ),
        sharded(
            "reduce-scatter",
            sharded_steps.sharded_steps,
            sharded_steps.reduce_scatter_us,
            sharded_steps.reduce_scatter_exposed_us,
        ),
        for_ranks.zip(waits.itself_us()).map(|(ranks, itself)| {
            let (ranks, itself) = (format_precise_duration(ranks), format_precise_duration(itself));
            format!("of what nothing hid, {ranks} is waiting for a slower rank, {itself} the exchange itself")
        }),
    ];
    parts.into_iter().flatten().map(plain_span).collect()
}

/// What FSDP exchanged in a mean step.
fn sharded(
    name: &str,
    steps: Option<u64>,
    all_us: Option<u64>,
    exposed_us: Option<u64>,
) -> Option<String> {
    let steps = steps.filter(|steps| *steps > 0)? as f64;
    let mean = |us: u64| format_precise_duration(us as f64 / steps);
    let all = format!("{name} {} a step", mean(all_us?));
    Some(match exposed_us {
        Some(exposed) => format!("{all}, {} of it hidden by nothing", mean(exposed)),
        None => all,
    })
}

/// Operations of a step, where they were asked for: how many, how fast, and what share of the card's
/// peak that is.
fn operations(rank: &RankReport) -> Vec<TextSpan> {
    let Some(setup) = &rank.setup else {
        return Vec::new();
    };
    let Some(flops) = setup.flops_per_step else {
        let why = setup.no_flops.as_ref();
        return why
            .map(|why| styled_span(format!("not counted: {why}"), Tone::Dim))
            .into_iter()
            .collect();
    };
    let least = match setup.flops_without.is_empty() {
        true => "",
        false => "at least ",
    };
    let mut parts = vec![plain_span(format!(
        "{least}{} FLOP a step",
        short(flops as f64)
    ))];
    parts.extend((rank.flops_per_s()).map(|rate| plain_span(format!("{} FLOP/s", short(rate)))));
    if let (Some(share), Some(peak)) = (rank.utilization(), &setup.peak) {
        let text = format!(
            "MFU {}, of {} by its data sheet",
            format_percent(share),
            peak.card
        );
        parts.push(plain_span(text));
    }
    if !setup.flops_without.is_empty() {
        let without = format!("without {}", setup.flops_without.join(", "));
        parts.push(styled_span(without, Tone::Dim));
    }
    parts
}

fn made_of(setup: &TrainingSetup) -> Vec<TextSpan> {
    let parameters = setup
        .parameters
        .map(|n| format!("{} parameters", short(n as f64)));
    let precision = match (&setup.dtype, &setup.autocast) {
        (dtype, Some(autocast)) => Some(format!(
            "{}, autocast {autocast}",
            format_or_dash(dtype.as_ref())
        )),
        (Some(dtype), None) => Some(dtype.clone()),
        (None, None) => None,
    };
    let optimizers = Some(setup.optimizers.join(", ")).filter(|text| !text.is_empty());
    let parts = [
        setup.model.clone(),
        parameters,
        precision,
        optimizers,
        setup
            .compiled
            .filter(|yes| *yes)
            .map(|_| "compiled".to_owned()),
        setup
            .world_size
            .filter(|n| *n > 1)
            .map(|n| format!("{n} ranks")),
        Some(format!("torch {}", setup.torch)).filter(|_| !setup.torch.is_empty()),
    ];
    parts.into_iter().flatten().map(plain_span).collect()
}

fn steps(rank: &RankReport) -> Vec<TextSpan> {
    if rank.steps == 0 {
        return vec![styled_span("no step ended", Tone::Dim)];
    }
    let mut parts = vec![plain_span(if rank.steps == 1 {
        "1 step".to_owned()
    } else {
        format!("{} steps", format_number(rank.steps as f64))
    })];
    if let Some(times) = rank.step_times {
        parts.push(plain_span(format!(
            "median {}",
            format_precise_duration(times.median_us)
        )));
        let (low, high) = (times.lower_quartile_us, times.upper_quartile_us);
        parts.push(plain_span(format!(
            "half of them {}",
            format_range(low, high)
        )));
        parts.push(plain_span(format!(
            "one of twenty over {}",
            format_precise_duration(times.p95_us)
        )));
    }
    let per_s = [
        (rank.steps_per_s(), "steps/s"),
        (rank.samples_per_s(), "samples/s"),
        (rank.tokens_per_s(), "tokens/s"),
    ];
    for (value, what) in per_s {
        parts.extend(value.map(|value| plain_span(format!("{} {what}", rate(value)))));
    }
    parts
}

/// Two digits that count, at the least.
fn rate(value: f64) -> String {
    match value {
        0.0..0.1 => format!("{value:.3}"),
        0.1..10.0 => format!("{value:.2}"),
        _ => format_number(value),
    }
}

/// `11.7 M`.
fn short(n: f64) -> String {
    match n {
        1e15.. => format!("{:.1} P", n / 1e15),
        1e12.. => format!("{:.1} T", n / 1e12),
        1e9.. => format!("{:.1} G", n / 1e9),
        1e6.. => format!("{:.1} M", n / 1e6),
        1e3.. => format!("{:.1} k", n / 1e3),
        _ => format!("{n:.0}"),
    }
}

/// How each phase looks: a letter that tells it apart without colour.
fn look(phase: &str) -> (char, Tone) {
    match phase {
        "data" => ('▚', Tone::Bad),
        "copy" => ('▞', Tone::Warning),
        "forward" => ('█', Tone::Graph),
        "backward" => ('▓', Tone::Graph),
        "optimizer" => ('▒', Tone::Good),
        _ => ('░', Tone::Dim),
    }
}

/// One line of the whole step, each phase as wide as its share.
fn bar(page: &mut TextPage, shares: &[(&str, f64)]) {
    let room = page.available_columns();
    let mut at = 0.0;
    let mut used = 0;
    let mut parts = Vec::new();
    for (name, share) in shares {
        at += share;
        let end = ((at * room as f64).round() as usize).min(room);
        let (letter, tone) = look(name);
        if end > used {
            parts.push(styled_span(letter.to_string().repeat(end - used), tone));
        }
        used = used.max(end);
    }
    page.write_joined_row("", parts);
}

fn phases(shares: &[(&str, f64)]) -> Vec<TextSpan> {
    (shares.iter().filter(|(_, share)| *share > 0.0))
        .map(|(name, share)| {
            let (letter, tone) = look(name);
            styled_span(format!("{letter} {name} {}", format_percent(*share)), tone)
        })
        .collect()
}

fn loader(rank: &RankReport) -> Vec<TextSpan> {
    let mut parts = Vec::new();
    if let Some(loader) = rank.setup.as_ref().and_then(|setup| setup.loader.as_ref()) {
        parts.push(plain_span(match loader.workers {
            0 => "no workers".to_owned(),
            workers => format_count(workers.into(), "worker", "workers"),
        }));
        parts.extend(
            loader
                .batch
                .map(|batch| plain_span(format!("batches of {batch}"))),
        );
        parts.extend((loader.prefetch).map(|ahead| plain_span(format!("{ahead} ahead each"))));
        parts.extend(loader.pinned.then(|| plain_span("pinned")));
        parts.extend(loader.persistent.then(|| plain_span("persistent")));
    }
    if let Some(loader) = rank.loader {
        let share = (loader.empty).filter(|_| loader.batches > 0);
        let share = share.map(|empty| format_percent(empty as f64 / loader.batches as f64));
        parts
            .extend(share.map(|share| plain_span(format!("none stood ready {share} of the time"))));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fsdp_exchanged_is_told_of_a_mean_step() {
        let told = |steps, all, exposed| sharded("all-gather", steps, all, exposed);
        assert_eq!(
            told(Some(4), Some(8000), Some(4000)).unwrap(),
            "all-gather 2.00 ms a step, 1.00 ms of it hidden by nothing"
        );
        assert_eq!(
            told(Some(4), Some(8000), None).unwrap(),
            "all-gather 2.00 ms a step"
        );
        assert_eq!(told(None, Some(8000), None), None);
        assert_eq!(told(Some(0), Some(8000), None), None);
        assert_eq!(told(Some(4), None, Some(1)), None);
    }
}
