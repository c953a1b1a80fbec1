//! Views as JSON for a page's script. Figures have five digits: a screen shows no more.

use sconce_schema::event::{ExitStatus, HostSummary, RunStarted};
use sconce_schema::request::RunLimits;
use sconce_schema::training::{GpuAllocatorCounters, GpuOutOfMemory, TrainingSetup};
use serde::{Serialize, Serializer};

use super::{Plot, RecordView, RunSeries, SeriesBucket, SeriesKey, SeriesScope};
use crate::collectives::CollectiveWaits;
use crate::model::{RunEnd, RunReport, ServiceReport};
use crate::training::RankReport;
use crate::verdict::not_judged_yet;
use crate::verdicts::value::{format_number, format_precise_duration, format_range};
use crate::{format, terminal};

/// Columns of the report in words.
const COLUMNS: u16 = 100;
/// On a telephone.
const NARROW: u16 = 46;

#[derive(Serialize)]
struct RunShape<'a> {
    id: &'a str,
    /// `running`, `interrupted`, `exited`, `signalled`.
    state: &'static str,
    /// How it ended, in words.
    end: String,
    wall_us: u64,
    began: String,
    unix_ms: u64,
    command: String,
    folder: String,
    plan: Option<&'a str>,
    host: &'a HostSummary,
    limits: &'a RunLimits,
    /// Names and values, for people.
    figures: Vec<(String, String)>,
    verdicts: Vec<VerdictShape<'a>>,
    processes: Vec<ProcessShape<'a>>,
    card_oom: &'a [GpuOutOfMemory],
    /// Its services as they stand.
    services: Vec<ServiceShape<'a>>,
    /// That there is no verdict, or none yet, where a process trains.
    verdicts_say: Option<String>,
    /// The report in words, and for a narrow screen.
    text: String,
    text_narrow: String,
}

#[derive(Serialize)]
struct VerdictShape<'a> {
    rule: &'a str,
    weight: &'static str,
    title: &'a str,
    evidence: &'a [String],
    gain: Option<&'a str>,
    mends: &'a [String],
}

#[derive(Serialize)]
struct ServiceShape<'a> {
    name: &'a str,
    state: &'static str,
    since_us: u64,
    restarts: u32,
    last_end: Option<String>,
    why: Option<&'a str>,
    open: &'a [String],
}

#[derive(Serialize)]
struct ProcessShape<'a> {
    name: String,
    pid: u32,
    steps: u64,
    /// Of a mean step without the run's beginning, µs.
    phases: Vec<(&'static str, f64)>,
    on_card: Option<Vec<(&'static str, u64)>>,
    card_memory: Option<GpuAllocatorCounters>,
    setup: Option<&'a TrainingSetup>,
}

/// A run, but for its figures over time.
#[must_use]
pub fn render_run(view: &RecordView) -> String {
    let report = &view.report;
    let started = &report.started;
    let style = |width| terminal::TerminalStyle {
        color: false,
        width,
    };
    let (state, end) = state(report);
    let verdicts = report.verdicts.iter().map(|verdict| VerdictShape {
        rule: &verdict.rule,
        weight: verdict.weight.label(),
        title: &verdict.title,
        evidence: &verdict.evidence,
        gain: verdict.gain.as_deref(),
        mends: &verdict.mends,
    });
    text(&RunShape {
        id: &started.id,
        state,
        end,
        wall_us: report.wall_us,
        began: format::format_date_time(started.unix_ms),
        unix_ms: started.unix_ms,
        command: format::printable_text(&format::format_workload(&started.command)),
        folder: format::printable_text(&started.folder.display().to_string()),
        plan: started.plan.as_deref(),
        host: &started.host,
        limits: &started.limits,
        figures: figures(report, started),
        verdicts: verdicts.collect(),
        processes: (report.training.iter())
            .map(|rank| process(rank, &view.series))
            .collect(),
        card_oom: &report.card_oom,
        services: report.services.iter().map(service).collect(),
        verdicts_say: say(report),
        text: terminal::render_report(report, style(COLUMNS)),
        text_narrow: terminal::render_report(report, style(NARROW)),
    })
}

fn state(report: &RunReport) -> (&'static str, String) {
    let (state, end) = match report.end {
        RunEnd::Running => ("running", "running".to_owned()),
        RunEnd::Interrupted => (
            "interrupted",
            "interrupted: the record has no end".to_owned(),
        ),
        RunEnd::Exited(0) => ("exited", "ended well".to_owned()),
        RunEnd::Exited(code) => {
            let failed = terminal::failed_services(report);
            let why = failed.map_or_else(String::new, |why| format!(": {why}"));
            ("exited", format!("ended with exit code {code}{why}"))
        }
        RunEnd::Signalled(number) => {
            let (name, meaning) = format::describe_signal(number);
            ("signalled", format!("{meaning} ({name})"))
        }
    };
    match report.out_of_memory {
        Some(_) => (state, format!("{end}, out of memory")),
        None => (state, end),
    }
}

fn figures(report: &RunReport, started: &RunStarted) -> Vec<(String, String)> {
    let mut figures = Vec::new();
    let mut put = |name: &str, value: Option<String>| {
        figures.push((name.to_owned(), value.unwrap_or_else(|| "–".to_owned())));
    };
    let of = |limit: Option<String>| {
        limit
            .map(|limit| format!(" of {limit}"))
            .unwrap_or_default()
    };
    let share = |share: Option<f64>| share.map(format::format_percent);
    put("Time", Some(format::format_duration(report.wall_us)));
    let limit = of(started.limits.cpus.map(|cpus| cpus.to_string()));
    put(
        "Cores, mean",
        report
            .cpu
            .mean_cores
            .map(|cores| format!("{cores:.2}{limit}")),
    );
    let limit = of(started.limits.memory.map(|memory| memory.to_string()));
    let most = report.memory.leading_memory_figure();
    put(
        "Memory, most",
        most.map(|(bytes, kind)| format!("{bytes}{limit}, {}", kind.label())),
    );
    if let Some(rank) = report.training.iter().find(|rank| rank.steps > 0) {
        let step = rank.step_times.map(|times| {
            let (low, high) = (times.lower_quartile_us, times.upper_quartile_us);
            format!(
                "{}, half {}",
                format_precise_duration(times.median_us),
                format_range(low, high)
            )
        });
        put("A step, median", step);
        // Ranks step together; their samples add up.
        let samples = report.training.iter().filter_map(RankReport::samples_per_s);
        let samples = samples.reduce(|a, b| a + b);
        put("Samples a second", samples.map(format_number));
        if let Some((all, ranks, itself)) = waits(rank, report) {
            let text = format!("{all} of a step: {ranks} for a slower rank, {itself} itself");
            put(
                &format!("Waiting for the exchange, {}", rank.name()),
                Some(text),
            );
        }
    }
    for card in &report.cards {
        let name = format!("Card {}", card.summary.index);
        put(&format!("{name}, in use"), share(card.utilisation_mean));
        let limit = of(card.summary.memory.map(|memory| memory.to_string()));
        let peak = card.memory_peak_run.or(card.memory_peak_all);
        put(
            &format!("{name}, memory"),
            peak.map(|peak| format!("{}{limit}", peak.value)),
        );
    }
    let energy: Vec<f64> = report
        .cards
        .iter()
        .filter_map(|card| Some(card.energy?.watt_hours))
        .collect();
    if !report.cards.is_empty() {
        let sum: f64 = energy.iter().sum();
        put(
            "Energy",
            (energy.len() == report.cards.len()).then(|| format!("{sum:.1} Wh")),
        );
    }
    figures
}

/// What the first rank waits for in the exchange of a mean step, in all and in its two parts.
fn waits(rank: &RankReport, report: &RunReport) -> Option<(String, String, String)> {
    let waits = CollectiveWaits::for_rank(rank, &report.training)?;
    let (all, ranks) = waits.exposed_us.zip(waits.for_ranks_us)?;
    Some((
        format_precise_duration(all),
        format_precise_duration(ranks),
        format_precise_duration(waits.itself_us()?),
    ))
}

/// What there is to say of verdicts that are not there.
fn say(report: &RunReport) -> Option<String> {
    if report.training.is_empty() {
        return None;
    }
    match (report.verdicts.is_empty(), not_judged_yet(&report.unjudged)) {
        (true, None) => Some("Nothing is known to be wrong with this run.".to_owned()),
        (true, Some(waiting)) => Some(format!("Nothing found; not judged: {waiting}.")),
        (false, Some(waiting)) => Some(format!("Not judged: {waiting}.")),
        (false, None) => None,
    }
}

fn service(service: &ServiceReport) -> ServiceShape<'_> {
    let end = service.exit.map(|exit| match exit {
        ExitStatus::Code(code) => format!("exit code {code}"),
        ExitStatus::Signal(number) => format::describe_signal(number).0,
    });
    ServiceShape {
        name: &service.name,
        state: service.state.label(),
        since_us: service.since_us,
        restarts: service.restarts(),
        last_end: end,
        why: service.why.as_deref(),
        open: &service.open,
    }
}

fn process<'a>(rank: &'a RankReport, series: &RunSeries) -> ProcessShape<'a> {
    ProcessShape {
        name: match rank.cell {
            Some(_) => rank.name(),
            None => series.name_of(SeriesScope::Process(rank.pid)),
        },
        pid: rank.pid,
        steps: rank.steps,
        phases: rank.seen_phases(),
        on_card: rank
            .on_card
            .map(|phases| phases.measured_phases().collect()),
        card_memory: rank.card_memory,
        setup: rank.setup.as_ref(),
    }
}

#[derive(Serialize)]
struct SeriesShape {
    from_us: u64,
    to_us: u64,
    /// What lies nearer together than this cannot be told apart.
    width_us: u64,
    plots: Vec<PlotShape>,
}

#[derive(Serialize)]
struct PlotShape {
    plot: String,
    title: String,
    unit: &'static str,
    stacked: bool,
    lines: Vec<LineShape>,
    limits: Vec<LimitShape>,
}

/// Where a plot's figures end.
#[derive(Serialize)]
pub(super) struct LimitShape {
    name: String,
    value: Figure,
}

#[derive(Serialize)]
struct LineShape {
    name: String,
    mean: Vec<Option<Figure>>,
    /// The least and the most, where they are not the mean.
    least: Option<Vec<Option<Figure>>>,
    most: Option<Vec<Option<Figure>>>,
}

/// Every figure over time in a window of `count` parts; plots without a reading are left out.
#[must_use]
pub fn render_series(series: &RunSeries, from_us: u64, to_us: u64, count: usize) -> String {
    let mut plots: Vec<PlotShape> = Vec::new();
    for (key, parts) in series.buckets_in_range(from_us, to_us, count) {
        let (plot, title) = name(key, series);
        if plots.last().is_none_or(|last| last.plot != plot) {
            plots.push(PlotShape {
                plot,
                title,
                unit: key.plot.name_title_unit().2.label(),
                stacked: key.plot.is_stacked(),
                lines: Vec::new(),
                limits: limits(key.plot, series),
            });
        }
        if let Some(last) = plots.last_mut() {
            last.lines.push(line(key, series, &parts));
        }
    }
    text(&SeriesShape {
        from_us,
        to_us,
        width_us: series.width_us(),
        plots,
    })
}

/// Cards of one size have one limit.
pub(super) fn limits(plot: Plot, series: &RunSeries) -> Vec<LimitShape> {
    let word = match plot {
        Plot::CardMemory => "total",
        Plot::Shm => "size",
        _ => "limit",
    };
    let found = series.limits.iter().filter(|((of, _), _)| *of == plot);
    let found: Vec<(SeriesScope, f64)> = found.map(|((_, of), limit)| (*of, *limit)).collect();
    let alike = found.iter().all(|one| one.1 == found[0].1);
    (found.iter())
        .take(if alike { 1 } else { found.len() })
        .map(|(of, limit)| LimitShape {
            name: match series.name_of(*of) {
                name if alike || name.is_empty() => word.to_owned(),
                name => format!("{name}, {word}"),
            },
            value: Figure(*limit),
        })
        .collect()
}

/// A stack is of one process; other plots show all of them.
fn name(key: &SeriesKey, series: &RunSeries) -> (String, String) {
    let (plot, title, _) = key.plot.name_title_unit();
    match key.plot {
        Plot::Phases => {
            let of = series.name_of(key.of);
            (format!("{plot} {of}"), format!("{title}: {of}"))
        }
        _ => (plot.to_owned(), title.to_owned()),
    }
}

fn line(key: &SeriesKey, series: &RunSeries, parts: &[SeriesBucket]) -> LineShape {
    let of = if key.plot.is_stacked() {
        String::new()
    } else {
        series.name_of(key.of)
    };
    let words = [of.as_str(), key.which.1];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let kept = |pick: fn(&SeriesBucket) -> f64| -> Vec<Option<Figure>> {
        (parts.iter())
            .map(|part| (part.readings > 0).then(|| Figure(pick(part))))
            .collect()
    };
    let banded = !key.plot.is_stacked()
        && parts
            .iter()
            .any(|part| part.readings > 1 && part.least < part.most);
    LineShape {
        name: words.join(", "),
        mean: kept(|part| part.mean().unwrap_or(0.0)),
        least: banded.then(|| kept(|part| part.least)),
        most: banded.then(|| kept(|part| part.most)),
    }
}

/// A number of five digits.
struct Figure(f64);

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let size = self.0.abs();
        if (10_000.0..1e18).contains(&size) {
            let unit = 10_f64.powf(size.log10().floor() - 4.0);
            return serializer.serialize_i64(((self.0 / unit).round() * unit) as i64);
        }
        let digits = if size < 1e-9 {
            0.0
        } else {
            4.0 - size.log10().floor()
        };
        let scale = 10_f64.powf(digits);
        let rounded = (self.0 * scale).round() / scale;
        if rounded.fract() == 0.0 && size < 1e18 {
            return serializer.serialize_i64(rounded as i64);
        }
        serializer.serialize_f64(rounded)
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data with text keys is JSON")
}
