//! The report after a run.

use sconce_schema::Bytes;
use sconce_schema::event::{Containment, OomKill};

use super::layout::{TextPage, TextSpan, Tone, plain, toned};
use super::spark::spark;
use super::{TerminalStyle, cards, load, training, verdicts};
use crate::model::{RunEnd, RunReport};
use crate::timeline::Timeline;
use crate::words::{command, count, date, duration, percent, signal};

/// One run's report: what ran, on what, how long, how it ended, and what it used of what it
/// could.
#[must_use]
pub fn report(report: &RunReport, style: TerminalStyle) -> String {
    let mut page = TextPage::new(style);
    page.title(&report.started.id);
    page.gap();
    what_ran(&mut page, report);
    page.gap();
    what_it_used(&mut page, report);
    load::rows(&mut page, report);
    cards::rows(&mut page, report);
    training::rows(&mut page, report);
    verdicts::rows(&mut page, report);
    what_to_know(&mut page, report);
    page.into_text()
}

fn what_ran(page: &mut TextPage, report: &RunReport) {
    let started = &report.started;
    match started.command.is_empty() {
        true => page.row("command", [toned("none: it ran services alone", Tone::Dim)]),
        false => page.row("command", [plain(command(&started.command))]),
    }
    page.row("environment", environment(report));
    if let Some(plan) = &started.plan {
        page.row("plan", [plain(plan)]);
    }

    let host = &started.host;
    let driver = host.driver.as_ref();
    let machine = [
        Some(host.hostname.clone()),
        host.cpu_model.as_deref().map(short_model),
        Some(count(host.cpus.into(), "core", "cores")),
        Some(host.memory.to_string()),
        Some(format!("Linux {}", host.kernel)),
        driver.map(|driver| format!("NVIDIA driver {driver}")),
    ];
    page.row("machine", machine.into_iter().flatten().map(plain));

    let began = format!("{} UTC", date(started.unix_ms));
    let took = match report.end {
        RunEnd::Running => format!("{} so far", duration(report.wall_us)),
        RunEnd::Interrupted => format!("{} until the last reading", duration(report.wall_us)),
        RunEnd::Exited(_) | RunEnd::Signalled(_) => duration(report.wall_us),
    };
    page.row("time", [plain(took), plain(format!("began {began}"))]);
    let (words, tone) = ended(report);
    page.row("ended", [toned(words, tone)]);
    super::services::rows(page, report);
}

/// A CPU's name without the marks of its maker's lawyers.
fn short_model(model: &str) -> String {
    let model = model.replace("(R)", "").replace("(TM)", "");
    model.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn environment(report: &RunReport) -> Vec<TextSpan> {
    let started = &report.started;
    let mut parts: Vec<TextSpan> = started.name.iter().map(plain).collect();
    if let Some(versions) = &started.versions {
        let cuda = versions.cuda.map(|cuda| cuda.to_string());
        let named = [
            ("torch", versions.torch.as_ref()),
            ("CUDA", cuda.as_ref()),
            ("cuDNN", versions.cudnn.as_ref()),
            ("Python", Some(&versions.python)),
        ];
        for (what, version) in named {
            parts.extend(version.map(|version| plain(format!("{what} {version}"))));
        }
    }
    if let Some(runtime) = &started.runtime {
        parts.push(plain(format!("by {} {}", runtime.name, runtime.version)));
    }
    if started.mode == Containment::Host {
        parts.push(plain("the machine's own, no container"));
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
        let processes = count(killed.kills, "process", "processes");
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
            let (name, meaning) = signal(number);
            let how = format!("{meaning} ({name})");
            (
                killed.map_or(how.clone(), |killed| with_kill(&how, killed)),
                Tone::Bad,
            )
        }
        (RunEnd::Exited(0), None) => ("exit code 0".to_owned(), Tone::Good),
        (RunEnd::Exited(code), None) => {
            let failed = super::services::failed(report);
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
            let (name, _) = signal(i32::from(code) - 128);
            format!("exit code {code} (128 + {name})")
        }
        _ => format!("exit code {code}"),
    }
}

fn what_it_used(page: &mut TextPage, report: &RunReport) {
    page.row("CPU", cpu(report));
    graph(page, &report.cpu.timeline, report);
    page.row("memory", memory(report));
    graph(page, &report.memory.timeline, report);

    let limits = &report.started.limits;
    let shm = report.shm_peak.map(|peak| {
        let size = limits.shm.map(|size| format!(" of {size}"));
        plain(format!(
            "{}{} at its peak",
            peak.value,
            size.unwrap_or_default()
        ))
    });
    page.row(
        "/dev/shm",
        [shm.unwrap_or_else(|| not_measured(report, "shm"))],
    );
    page.row("processes", tasks(report));

    let disk = report.disk;
    page.row(
        "disk",
        if disk.read_bytes.is_none() && disk.written_bytes.is_none() {
            vec![not_measured(report, "disk")]
        } else {
            vec![
                plain(format!("{} read", figure(disk.read_bytes.map(Bytes)))),
                plain(format!("{} written", figure(disk.written_bytes.map(Bytes)))),
            ]
        },
    );
}

fn cpu(report: &RunReport) -> Vec<TextSpan> {
    let cpu = &report.cpu;
    let limits = &report.started.limits;
    let Some(mean) = cpu.mean_cores else {
        let used = cpu.used_us.map(duration);
        return vec![used.map_or_else(
            || not_measured(report, "cpus"),
            |used| plain(format!("{used} of CPU time")),
        )];
    };
    let of = match limits.cpus {
        Some(cpus) => format!("of {cpus}{}", not_enforced(report, "cpus")),
        None => format!("of the machine's {}", report.started.host.cpus),
    };
    let mut parts = vec![plain(format!("{mean:.2} {of} cores on average"))];
    // The average has the start in it, which no two readings compare.
    if let Some(peak) = cpu.peak_cores.filter(|peak| peak.value >= mean) {
        parts.push(plain(format!(
            "peak {:.2} at {}",
            peak.value,
            duration(peak.t_us)
        )));
    }
    parts.extend(match cpu.throttled_share {
        None => limits.cpus.map(|_| plain("held back: –")),
        Some(share) if share > 0.0 => {
            let text = format!("held back by its limit {} of the time", percent(share));
            Some(toned(
                text,
                if share >= 0.25 {
                    Tone::Warning
                } else {
                    Tone::Plain
                },
            ))
        }
        Some(_) => Some(plain("never held back")),
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
            let at = duration(peak.t_us);
            parts.push(plain(format!(
                "{}{of} charged to it at its peak, at {at}",
                peak.value
            )));
        }
        // Better than nothing, and said below.
        None if memory.largest_process.is_some() => {}
        None => parts.push(not_measured(report, "memory")),
    }
    if let Some(share) = memory.cache_share {
        parts.push(plain(format!("file cache {} of it", percent(share))));
    }
    if let Some(pss) = memory.pss_peak {
        parts.push(plain(format!("{pss} its processes' share (PSS)")));
    } else if let Some(rss) = memory.rss_peak {
        parts.push(plain(format!(
            "{rss} resident, shared pages counted again (RSS)"
        )));
    } else if let Some(largest) = memory.largest_process {
        parts.push(plain(format!("{largest} in its largest process")));
    }
    if limits.memory.is_none() {
        parts.push(plain("no limit"));
    }
    // Two figures of one thing need a word on why they differ.
    if let (Some(peak), Some(pss)) = (memory.peak, memory.pss_peak)
        && pss > peak.value
    {
        parts.push(toned(
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
        plain(format!("{} at most", figure(tasks.processes_peak))),
        plain(match tasks.threads_peak {
            Some(threads) => count(threads.into(), "thread", "threads"),
            None => "– threads".to_owned(),
        }),
    ];
    parts.extend(match tasks.pids_refused {
        Some(0) => Some(plain("none refused")),
        Some(refused) => Some(toned(format!("{refused} refused by the limit"), Tone::Bad)),
        None => report.started.limits.pids.map(|_| plain("refused: –")),
    });
    parts
}

/// A row with a figure over time, where there is enough of it.
pub(super) fn graph(page: &mut TextPage, timeline: &Timeline, report: &RunReport) {
    if let Some(line) = spark(timeline, report, page.room()) {
        page.row("", [toned(line, Tone::Graph)]);
    }
}

fn what_to_know(page: &mut TextPage, report: &RunReport) {
    for limit in &report.unenforced {
        let text = format!("{}: {}", limit.what, limit.why);
        page.row("not enforced", [toned(text, Tone::Warning)]);
    }
    if let Some(lost) = report.lost {
        let lines = count(lost.lines, "line", "lines");
        let text = format!(
            "the disk did not take {lines} of the record and {} of the logs",
            count(lost.log_bytes, "byte", "bytes")
        );
        page.row("missing", [toned(text, Tone::Warning)]);
    }
    if let Some(first) = report.damage.first() {
        let lines = count(report.damaged_lines, "line", "lines");
        let text = format!("{lines} of the record cannot be read; the first is {first}");
        page.row("damaged", [toned(text, Tone::Warning)]);
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
        page.gap();
    }
    for hint in hints {
        page.row("hint", [plain(hint)]);
    }
}

/// "not measured", with the reason where the run gave one for that limit.
fn not_measured(report: &RunReport, what: &str) -> TextSpan {
    let unenforced = report.unenforced.iter().any(|limit| limit.what == what);
    toned(
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
pub(super) fn figure(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}
