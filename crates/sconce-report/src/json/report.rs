//! One run's report.

use sconce_schema::event::{Containment, HostSummary, RunStarted, ServiceState, UnenforcedLimit};
use sconce_schema::lock::LockedVersions;
use sconce_schema::runtime::Runtime;
use sconce_schema::spec::JobContainment;
use sconce_schema::{Bytes, Millicores};
use serde::Serialize;

use super::load::LoadShape;
use super::network::NetworkShape;
use super::training::{GpuOutOfMemoryShape, RankShape, VerdictShape};
use super::{EndShape, FORMAT, seconds, text};
use crate::model::{GpuReport, RunEnd, RunReport, ServiceReport, Timestamped};
use crate::timeline::Timeline;
use crate::verdict::SkippedRule;

#[derive(Serialize)]
struct Shape<'a> {
    format: u32,
    run: RunShape<'a>,
    end: OutcomeShape,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    services: Vec<ServiceShape<'a>>,
    environment: Option<EnvironmentShape<'a>>,
    host: HostShape<'a>,
    limits: LimitsShape,
    cpu: CpuShape,
    memory: MemoryShape,
    shm: ShmShape,
    tasks: TasksShape,
    disk: DiskShape,
    load: LoadShape,
    cards: Vec<CardShape<'a>>,
    training: Vec<RankShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    training_left_out: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkShape<'a>>,
    card_out_of_memory: Vec<GpuOutOfMemoryShape<'a>>,
    verdicts: Vec<VerdictShape<'a>>,
    /// Rules that could not be judged: that there is no such verdict says nothing.
    rules_not_judged: Vec<UnjudgedShape<'a>>,
    unenforced: Vec<UnenforcedShape<'a>>,
    samples: u64,
    /// What the disk did not take; `null` where it took all that is known of.
    lost: Option<LostShape>,
    damaged_lines: u64,
    /// The first of them, one sentence each.
    damage: Vec<String>,
    hints: Vec<String>,
}

#[derive(Serialize)]
struct LostShape {
    lines: u64,
    log_bytes: u64,
}

#[derive(Serialize)]
struct RunShape<'a> {
    id: &'a str,
    name: Option<&'a str>,
    command: &'a [String],
    folder: String,
    /// `container` or `host`.
    mode: Containment,
    runtime: RuntimeShape<'a>,
    /// Plans that were applied from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    started_unix_ms: u64,
    wall_seconds: f64,
}

/// What set the container up.
#[derive(Serialize)]
struct RuntimeShape<'a> {
    /// `sconce`, `runc`, `crun`, `podman` or `docker`; `host` where there is no container.
    name: &'static str,
    /// That of another program than Sconce, as it says itself.
    version: Option<&'a str>,
}

#[derive(Serialize)]
struct OutcomeShape {
    #[serde(flatten)]
    end: EndShape,
    /// Null where none is known of.
    out_of_memory: Option<OutOfMemoryShape>,
    /// How many the kernel killed for want of memory; null where its count was not read.
    out_of_memory_kills: Option<u64>,
}

#[derive(Serialize)]
struct OutOfMemoryShape {
    /// The run's own limit that was hit; null when it was not the run's own.
    limit_bytes: Option<Bytes>,
    killed_processes: u64,
}

#[derive(Serialize)]
struct EnvironmentShape<'a> {
    python: &'a str,
    glibc: &'a str,
    torch: Option<&'a str>,
    cuda: Option<String>,
    cudnn: Option<&'a str>,
    nccl: Option<&'a str>,
    triton: Option<&'a str>,
    lowest_driver: Option<String>,
}

#[derive(Serialize)]
struct HostShape<'a> {
    hostname: &'a str,
    kernel: &'a str,
    cpus: u32,
    cpu_model: Option<&'a str>,
    memory_bytes: Bytes,
    driver: Option<&'a str>,
}

#[derive(Serialize)]
struct LimitsShape {
    cpu_cores: Option<Millicores>,
    memory_bytes: Option<Bytes>,
    shm_bytes: Option<Bytes>,
    pids: Option<u64>,
}

#[derive(Serialize)]
struct CpuShape {
    used_seconds: Option<f64>,
    mean_cores: Option<f64>,
    peak_cores: Option<f64>,
    peak_at_seconds: Option<f64>,
    throttled_seconds: Option<f64>,
    throttled_share: Option<f64>,
    machine_busy_cores: Option<f64>,
    timeline_cores: TimelineShape,
}

#[derive(Serialize)]
struct MemoryShape {
    peak_memory_bytes: Option<Bytes>,
    peak_at_seconds: Option<f64>,
    file_cache_share: Option<f64>,
    peak_pss_bytes: Option<Bytes>,
    peak_rss_bytes: Option<Bytes>,
    largest_process_bytes: Option<Bytes>,
    timeline_bytes: TimelineShape,
}

#[derive(Serialize)]
struct ShmShape {
    peak_shm_bytes: Option<Bytes>,
    peak_at_seconds: Option<f64>,
}

#[derive(Serialize)]
struct TasksShape {
    peak_processes: Option<u32>,
    peak_threads: Option<u32>,
    pids_refused: Option<u64>,
}

#[derive(Serialize)]
struct DiskShape {
    read_bytes: Option<u64>,
    written_bytes: Option<u64>,
}

#[derive(Serialize)]
struct CardShape<'a> {
    index: u32,
    uuid: Option<&'a str>,
    name: Option<&'a str>,
    memory_bytes: Option<Bytes>,
    samples: u64,
    utilisation_mean_share: Option<f64>,
    idle_share: Option<f64>,
    run_peak_memory_bytes: Option<Bytes>,
    run_peak_at_seconds: Option<f64>,
    all_peak_memory_bytes: Option<Bytes>,
    all_peak_at_seconds: Option<f64>,
    power_mean_w: Option<f64>,
    energy_wh: Option<f64>,
    /// Whether the energy was summed from readings of the power.
    energy_estimated: Option<bool>,
    temperature_peak_c: Option<u32>,
    sm_clock_mean_mhz: Option<f64>,
    throttled: Option<Vec<ThrottleShape<'a>>>,
    timeline_utilisation_share: TimelineShape,
}

#[derive(Serialize)]
struct ThrottleShape<'a> {
    reason: &'a str,
    time_share: f64,
}

#[derive(Serialize)]
struct UnjudgedShape<'a> {
    rule: &'a str,
    why: &'a str,
    /// More of the run would do; else something was not measured.
    too_little: bool,
}

#[derive(Serialize)]
struct ServiceShape<'a> {
    name: &'a str,
    state: ServiceState,
    since_seconds: f64,
    starts: u32,
    /// How its process ended last; null where none has.
    last_exit: Option<EndShape>,
    why: Option<&'a str>,
    /// Where it is reached, without tokens.
    open: &'a [String],
}

#[derive(Serialize)]
struct UnenforcedShape<'a> {
    what: &'a str,
    why: &'a str,
    hint: Option<&'a str>,
}

/// The mean of each of at most 60 equal parts of the run, from its beginning.
#[derive(Serialize)]
struct TimelineShape {
    /// Length of a part; null without any reading.
    step_seconds: Option<f64>,
    means: Vec<f64>,
}

/// One run's report.
///
/// # Panics
/// Never: a report is plain data.
#[must_use]
pub fn render_report(report: &RunReport) -> String {
    let started = &report.started;
    let (cpu, memory) = (&report.cpu, &report.memory);
    text(&Shape {
        format: FORMAT,
        run: RunShape {
            id: &started.id,
            name: started.name.as_deref(),
            command: &started.command,
            folder: started.folder.to_string_lossy().into_owned(),
            mode: started.mode,
            runtime: runtime(started),
            plan: started.plan.as_deref(),
            started_unix_ms: started.unix_ms,
            wall_seconds: seconds(report.wall_us),
        },
        end: OutcomeShape {
            end: report.end.into(),
            out_of_memory: report.out_of_memory.map(|killed| OutOfMemoryShape {
                limit_bytes: killed.limit,
                killed_processes: killed.kills,
            }),
            out_of_memory_kills: report.oom_kill_count(),
        },
        services: report.services.iter().map(service).collect(),
        environment: started.versions.as_ref().map(environment),
        host: host(&started.host),
        limits: LimitsShape {
            cpu_cores: started.limits.cpus,
            memory_bytes: started.limits.memory,
            shm_bytes: started.limits.shm,
            pids: started.limits.pids,
        },
        cpu: CpuShape {
            used_seconds: cpu.used_us.map(seconds),
            mean_cores: cpu.mean_cores,
            peak_cores: value(cpu.peak_cores),
            peak_at_seconds: at(cpu.peak_cores),
            throttled_seconds: cpu.throttled_us.map(seconds),
            throttled_share: cpu.throttled_share,
            machine_busy_cores: cpu.machine_busy_cores,
            timeline_cores: timeline(&cpu.timeline, report),
        },
        memory: MemoryShape {
            peak_memory_bytes: value(memory.peak),
            peak_at_seconds: at(memory.peak),
            file_cache_share: memory.cache_share,
            peak_pss_bytes: memory.pss_peak,
            peak_rss_bytes: memory.rss_peak,
            largest_process_bytes: memory.largest_process,
            timeline_bytes: timeline(&memory.timeline, report),
        },
        shm: ShmShape {
            peak_shm_bytes: value(report.shm_peak),
            peak_at_seconds: at(report.shm_peak),
        },
        tasks: TasksShape {
            peak_processes: report.tasks.processes_peak,
            peak_threads: report.tasks.threads_peak,
            pids_refused: report.tasks.pids_refused,
        },
        disk: DiskShape {
            read_bytes: report.disk.read_bytes,
            written_bytes: report.disk.written_bytes,
        },
        load: (&report.load).into(),
        cards: report.cards.iter().map(|one| card(one, report)).collect(),
        training: (report.training.iter())
            .map(|rank| RankShape::from_rank(rank, &report.training))
            .collect(),
        training_left_out: report.training_left_out,
        network: NetworkShape::from_report(report),
        card_out_of_memory: report
            .card_oom
            .iter()
            .map(GpuOutOfMemoryShape::from_out_of_memory)
            .collect(),
        verdicts: report
            .verdicts
            .iter()
            .map(VerdictShape::from_verdict)
            .collect(),
        rules_not_judged: report.unjudged.iter().map(unjudged).collect(),
        unenforced: report.unenforced.iter().map(unenforced).collect(),
        samples: report.samples,
        lost: report.lost.map(|lost| LostShape {
            lines: lost.lines,
            log_bytes: lost.log_bytes,
        }),
        damaged_lines: report.damaged_lines,
        damage: report.damage.iter().map(ToString::to_string).collect(),
        hints: report.hints(),
    })
}

/// A record names other programs alone: without one, the container was Sconce's own.
fn runtime(started: &RunStarted) -> RuntimeShape<'_> {
    let name = match (started.mode, &started.runtime) {
        // `none` has the lock's own Python, and `host` the machine's.
        _ if started.containment.is_some() => started.containment.map_or("", JobContainment::name),
        (Containment::Host, _) => "host",
        (Containment::Container, Some(runtime)) => runtime.name.name(),
        (Containment::Container, None) => Runtime::Sconce.name(),
    };
    let version = started.runtime.as_ref();
    RuntimeShape {
        name,
        version: version.map(|runtime| runtime.version.as_str()),
    }
}

fn environment(versions: &LockedVersions) -> EnvironmentShape<'_> {
    EnvironmentShape {
        python: &versions.python,
        glibc: &versions.glibc,
        torch: versions.torch.as_deref(),
        cuda: versions.cuda.map(|cuda| cuda.to_string()),
        cudnn: versions.cudnn.as_deref(),
        nccl: versions.nccl.as_deref(),
        triton: versions.triton.as_deref(),
        lowest_driver: versions.lowest_driver.map(|driver| driver.to_string()),
    }
}

fn host(host: &HostSummary) -> HostShape<'_> {
    HostShape {
        hostname: &host.hostname,
        kernel: &host.kernel,
        cpus: host.cpus,
        cpu_model: host.cpu_model.as_deref(),
        memory_bytes: host.memory,
        driver: host.driver.as_deref(),
    }
}

fn card<'a>(card: &'a GpuReport, report: &RunReport) -> CardShape<'a> {
    let known = |text| Some(text).filter(|text: &&str| !text.is_empty());
    CardShape {
        index: card.summary.index,
        uuid: known(&card.summary.uuid),
        name: known(&card.summary.name),
        memory_bytes: card.summary.memory,
        samples: card.samples,
        utilisation_mean_share: card.utilisation_mean,
        idle_share: card.idle_share,
        run_peak_memory_bytes: value(card.memory_peak_run),
        run_peak_at_seconds: at(card.memory_peak_run),
        all_peak_memory_bytes: value(card.memory_peak_all),
        all_peak_at_seconds: at(card.memory_peak_all),
        power_mean_w: card.power_mean_w,
        energy_wh: card.energy.map(|energy| energy.watt_hours),
        energy_estimated: card.energy.map(|energy| energy.estimated),
        temperature_peak_c: card.temperature_peak_c,
        sm_clock_mean_mhz: card.sm_clock_mean_mhz,
        throttled: card.throttled.as_ref().map(|reasons| {
            let shape = |(reason, time_share): &'a (String, f64)| ThrottleShape {
                reason,
                time_share: *time_share,
            };
            reasons.iter().map(shape).collect()
        }),
        timeline_utilisation_share: timeline(&card.timeline, report),
    }
}

fn unjudged(one: &SkippedRule) -> UnjudgedShape<'_> {
    UnjudgedShape {
        rule: &one.rule,
        why: &one.why,
        too_little: one.too_little,
    }
}

fn service(service: &ServiceReport) -> ServiceShape<'_> {
    ServiceShape {
        name: &service.name,
        state: service.state,
        since_seconds: seconds(service.since_us),
        starts: service.starts,
        last_exit: service.exit.map(|exit| RunEnd::from(exit).into()),
        why: service.why.as_deref(),
        open: &service.open,
    }
}

fn unenforced(limit: &UnenforcedLimit) -> UnenforcedShape<'_> {
    UnenforcedShape {
        what: &limit.what,
        why: &limit.why,
        hint: limit.hint.as_deref(),
    }
}

fn timeline(timeline: &Timeline, report: &RunReport) -> TimelineShape {
    const MAX_TIMELINE_COLUMNS: u64 = 60;
    let means = timeline.column_means(
        report.samples.min(MAX_TIMELINE_COLUMNS) as usize,
        report.wall_us,
    );
    TimelineShape {
        step_seconds: (!means.is_empty()).then(|| seconds(report.wall_us) / means.len() as f64),
        means,
    }
}

fn value<T: Copy>(peak: Option<Timestamped<T>>) -> Option<T> {
    peak.map(|peak| peak.value)
}

fn at<T>(peak: Option<Timestamped<T>>) -> Option<f64> {
    peak.map(|peak| seconds(peak.t_us))
}
