//! The report after a run.

use sconce_schema::Bytes;
use sconce_schema::event::OomKill;

use super::layout::{TextPage, TextSpan, Tone, plain_span, styled_span};
use super::spark::render_sparkline;
use super::{TerminalStyle, gpus, load, network, training, verdicts};
use crate::format::{
    containment_label, describe_signal, format_command, format_count, format_date_time,
    format_duration, format_percent,
};
use crate::model::{RunEnd, RunReport};
use crate::timeline::Timeline;

/// One run's report: what ran, on what, how long, how it ended, and what it used of what it
/// could.
#[must_use]
pub fn render_report(report: &RunReport, style: TerminalStyle) -> String {
    let mut page = TextPage::new(style);
    page.write_title(&report.started.id);
    page.write_blank_line();
    what_ran(&mut page, report);
    page.write_blank_line();
    what_it_used(&mut page, report);
    load::write_rows(&mut page, report);
    gpus::write_rows(&mut page, report);
    training::write_rows(&mut page, report);
    network::write_rows(&mut page, report);
    verdicts::write_rows(&mut page, report);
    what_to_know(&mut page, report);
    page.into_text()
}

fn what_ran(page: &mut TextPage, report: &RunReport) {
    let started = &report.started;
    match started.command.is_empty() {
        true => page.write_row(
            "command",
            [styled_span("none: it ran services alone", Tone::Dim)],
        ),
        false => page.write_row("command", [plain_span(format_command(&started.command))]),
    }
    page.write_row("environment", environment(report));
    if let Some(plan) = &started.plan {
        page.write_row("plan", [plain_span(plan)]);
    }

    let host = &started.host;
    let driver = host.driver.as_ref();
    let machine = [
        Some(host.hostname.clone()),
        host.cpu_model.as_deref().map(short_model),
        Some(format_count(host.cpus.into(), "core", "cores")),
        Some(host.memory.to_string()),
        Some(format!("Linux {}", host.kernel)),
        driver.map(|driver| format!("NVIDIA driver {driver}")),
    ];
    page.write_row("machine", machine.into_iter().flatten().map(plain_span));

    let began = format!("{} UTC", format_date_time(started.unix_ms));
    let took = match report.end {
        RunEnd::Running => format!("{} so far", format_duration(report.wall_us)),
        RunEnd::Interrupted => {
            format!("{} until the last reading", format_duration(report.wall_us))
        }
        RunEnd::Exited(_) | RunEnd::Signalled(_) => format_duration(report.wall_us),
    };
    page.write_row(
        "time",
        [plain_span(took), plain_span(format!("began {began}"))],
    );
    let (words, tone) = ended(report);
    page.write_row("ended", [styled_span(words, tone)]);
    super::services::write_rows(page, report);
}

/// A CPU's name without the marks of its maker's lawyers.
fn short_model(model: &str) -> String {
    let model = model.replace("(R)", "").replace("(TM)", "");
    model.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn environment(report: &RunReport) -> Vec<TextSpan> {
    let started = &report.started;
    let mut parts: Vec<TextSpan> = started.name.iter().map(plain_span).collect();
    if let Some(versions) = &started.versions {
        let cuda = versions.cuda.map(|cuda| cuda.to_string());
        let named = [
            ("torch", versions.torch.as_ref()),
            ("CUDA", cuda.as_ref()),
            ("cuDNN", versions.cudnn.as_ref()),
            ("Python", Some(&versions.python)),
        ];
        for (what, version) in named {
            parts.extend(version.map(|version| plain_span(format!("{what} {version}"))));
        }
    }
    if let Some(runtime) = &started.runtime {
        parts.push(plain_span(format!(
            "by {} {}",
            runtime.name, runtime.version
        )));
    }
    if let Some(containment) = containment_label(started) {
        parts.push(plain_span(containment));
    }
    parts
}

/// How it ended, in one sentence.
fn ended(report: &RunReport) -> (String, Tone) {
    let by_kernel = |killed: OomKill| {
        let whose = match killed.limit {
            Some(limit) => format!("the run's own limit of {limit} was hit"),
            None => "not by the run's own limit".to_owned(),
        };
        let processes = format_count(killed.kills, "process", "processes");
        (format!("out of memory, {whose}"), processes)
    };
    let with_kill = |how: &str, killed: OomKill| {
        let (why, processes) = by_kernel(killed);
        format!("{how} after the kernel killed {processes}: {why}")
    };
    match (report.end, report.out_of_memory) {
        (RunEnd::Signalled(9), Some(killed)) => {
            let (why, processes) = by_kernel(killed);
            (
                format!("killed by the kernel: {why} ({processes} killed)"),
                Tone::Bad,
            )
        }
        (RunEnd::Signalled(number), killed) => {
            let (name, meaning) = describe_signal(number);
            let how = format!("{meaning} ({name})");
            (
                killed.map_or(how.clone(), |killed| with_kill(&how, killed)),
                Tone::Bad,
            )
        }
        (RunEnd::Exited(0), None) => ("exit code 0".to_owned(), Tone::Good),
        (RunEnd::Exited(code), None) => {
            let failed = super::services::describe_failed_services(report);
            let why = failed.map_or_else(String::new, |why| format!(": {why}"));
            (format!("{}{why}", exit_code(code)), Tone::Bad)
        }
        (RunEnd::Exited(code), Some(killed)) => (with_kill(&exit_code(code), killed), Tone::Bad),
        (RunEnd::Interrupted, killed) => {
            let how =
                "not known: Sconce was killed before the command ended, or the machine went down";
            let also = killed.map(|killed| {
                let (why, processes) = by_kernel(killed);
                format!("; before that the kernel killed {processes}: {why}")
            });
            (format!("{how}{}", also.unwrap_or_default()), Tone::Bad)
        }
        (RunEnd::Running, None) => ("still running".to_owned(), Tone::Plain),
        (RunEnd::Running, Some(killed)) => (with_kill("still running", killed), Tone::Bad),
    }
}

/// An exit code; one that a shell made from a signal is named as such.
fn exit_code(code: u8) -> String {
    match code {
        129..=159 => {
            let (name, _) = describe_signal(i32::from(code) - 128);
            format!("exit code {code} (128 + {name})")
        }
        _ => format!("exit code {code}"),
    }
}

fn what_it_used(page: &mut TextPage, report: &RunReport) {
    page.write_row("CPU", cpu(report));
    write_graph_row(page, &report.cpu.timeline, report);
    page.write_row("memory", memory(report));
    write_graph_row(page, &report.memory.timeline, report);

    let limits = &report.started.limits;
    let shm = report.shm_peak.map(|peak| {
        let size = limits.shm.map(|size| format!(" of {size}"));
        plain_span(format!(
            "{}{} at its peak",
            peak.value,
            size.unwrap_or_default()
        ))
    });
    page.write_row(
        "/dev/shm",
        [shm.unwrap_or_else(|| not_measured(report, "shm"))],
    );
    page.write_row("processes", tasks(report));

    let disk = report.disk;
    page.write_row(
        "disk",
        if disk.read_bytes.is_none() && disk.written_bytes.is_none() {
            vec![not_measured(report, "disk")]
        } else {
            vec![
                plain_span(format!(
                    "{} read",
                    format_or_dash(disk.read_bytes.map(Bytes))
                )),
                plain_span(format!(
                    "{} written",
                    format_or_dash(disk.written_bytes.map(Bytes))
                )),
            ]
        },
    );
}

fn cpu(report: &RunReport) -> Vec<TextSpan> {
    let cpu = &report.cpu;
    let limits = &report.started.limits;
    let Some(mean) = cpu.mean_cores else {
        let used = cpu.used_us.map(format_duration);
        return vec![used.map_or_else(
            || not_measured(report, "cpus"),
            |used| plain_span(format!("{used} of CPU time")),
        )];
    };
    let of = match limits.cpus {
        Some(cpus) => format!("of {cpus}{}", not_enforced(report, "cpus")),
        None => format!("of the machine's {}", report.started.host.cpus),
    };
    let mut parts = vec![plain_span(format!("{mean:.2} {of} cores on average"))];
    // The average has the start in it, which no two readings compare.
    if let Some(peak) = cpu.peak_cores.filter(|peak| peak.value >= mean) {
        parts.push(plain_span(format!(
            "peak {:.2} at {}",
            peak.value,
            format_duration(peak.t_us)
        )));
    }
    parts.extend(match cpu.throttled_share {
        None => limits.cpus.map(|_| plain_span("held back: –")),
        Some(share) if share > 0.0 => {
            let text = format!(
                "held back by its limit {} of the time",
                format_percent(share)
            );
            Some(styled_span(
                text,
                if share >= 0.25 {
                    Tone::Warning
                } else {
                    Tone::Plain
                },
            ))
        }
        Some(_) => Some(plain_span("never held back")),
    });
    parts
}

fn memory(report: &RunReport) -> Vec<TextSpan> {
    let memory = &report.memory;
    let limits = &report.started.limits;
    let mut parts = Vec::new();
    match memory.peak {
        Some(peak) => {
            let of = match limits.memory {
                Some(limit) => format!(" of {limit}{}", not_enforced(report, "memory")),
                None => String::new(),
            };
            let at = format_duration(peak.t_us);
            parts.push(plain_span(format!(
                "{}{of} charged to it at its peak, at {at}",
                peak.value
            )));
        }
        // Better than nothing, and said below.
        None if memory.largest_process.is_some() => {}
        None => parts.push(not_measured(report, "memory")),
    }
    if let Some(share) = memory.cache_share {
        parts.push(plain_span(format!(
            "file cache {} of it",
            format_percent(share)
        )));
    }
    if let Some(pss) = memory.pss_peak {
        parts.push(plain_span(format!("{pss} its processes' share (PSS)")));
    } else if let Some(rss) = memory.rss_peak {
        parts.push(plain_span(format!(
            "{rss} resident, shared pages counted again (RSS)"
        )));
    } else if let Some(largest) = memory.largest_process {
        parts.push(plain_span(format!("{largest} in its largest process")));
    }
    if limits.memory.is_none() {
        parts.push(plain_span("no limit"));
    }
    // Two figures of one thing need a word on why they differ.
    if let (Some(peak), Some(pss)) = (memory.peak, memory.pss_peak)
        && pss > peak.value
    {
        parts.push(styled_span(
            "PSS also has files' pages that others read first; they are not charged to this run",
            Tone::Dim,
        ));
    }
    parts
}

fn tasks(report: &RunReport) -> Vec<TextSpan> {
    let tasks = report.tasks;
    if tasks.processes_peak.is_none() && tasks.threads_peak.is_none() {
        return vec![not_measured(report, "pids")];
    }
    let mut parts = vec![
        plain_span(format!("{} at most", format_or_dash(tasks.processes_peak))),
        plain_span(match tasks.threads_peak {
            Some(threads) => format_count(threads.into(), "thread", "threads"),
            None => "– threads".to_owned(),
        }),
    ];
    parts.extend(match tasks.pids_refused {
        Some(0) => Some(plain_span("none refused")),
        Some(refused) => Some(styled_span(
            format!("{refused} refused by the limit"),
            Tone::Bad,
        )),
        None => report.started.limits.pids.map(|_| plain_span("refused: –")),
    });
    parts
}

/// A row with a figure over time, where there is enough of it.
pub(super) fn write_graph_row(page: &mut TextPage, timeline: &Timeline, report: &RunReport) {
    if let Some(line) = render_sparkline(timeline, report, page.available_columns()) {
        page.write_row("", [styled_span(line, Tone::Graph)]);
    }
}

fn what_to_know(page: &mut TextPage, report: &RunReport) {
    for limit in &report.unenforced {
        let text = format!("{}: {}", limit.what, limit.why);
        page.write_row("not enforced", [styled_span(text, Tone::Warning)]);
    }
    if let Some(lost) = report.lost {
        let lines = format_count(lost.lines, "line", "lines");
        let text = format!(
            "the disk did not take {lines} of the record and {} of the logs",
            format_count(lost.log_bytes, "byte", "bytes")
        );
        page.write_row("missing", [styled_span(text, Tone::Warning)]);
    }
    if let Some(first) = report.damage.first() {
        let lines = format_count(report.damaged_lines, "line", "lines");
        let text = format!("{lines} of the record cannot be read; the first is {first}");
        page.write_row("damaged", [styled_span(text, Tone::Warning)]);
    }
    // What keeps one limit from being enforced mostly keeps them all.
    let mut hints: Vec<String> = Vec::new();
    for hint in report
        .unenforced
        .iter()
        .filter_map(|limit| limit.hint.clone())
    {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints.extend(report.hints());
    if !hints.is_empty() {
        page.write_blank_line();
    }
    for hint in hints {
        page.write_row("hint", [plain_span(hint)]);
    }
}

/// "not measured", with the reason where the run gave one for that limit.
fn not_measured(report: &RunReport, what: &str) -> TextSpan {
    let unenforced = report.unenforced.iter().any(|limit| limit.what == what);
    styled_span(
        match unenforced {
            // Why that is so is said below, where it belongs to the limit.
            true => "not measured: the run has no cgroup for it".to_owned(),
            false if report.samples == 0 => {
                "not measured: it ended before the first reading".to_owned()
            }
            false => "not measured".to_owned(),
        },
        Tone::Dim,
    )
}

fn not_enforced(report: &RunReport, what: &str) -> &'static str {
    if report.unenforced.iter().any(|limit| limit.what == what) {
        " (not enforced)"
    } else {
        ""
    }
}

/// A figure, or a dash.
pub(super) fn format_or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}
