//! Figures of the run as a whole.

use sconce_schema::Bytes;
use sconce_schema::network::NcclNetwork;

use super::{FigureSet, RuleSubject, of};
use crate::model::RunReport;
use crate::network::slow_processes;

/// A longer command is not written out in a sentence.
const MAX_COMMAND_CHARS: usize = 160;

pub(super) fn compute_figures(report: &RunReport) -> FigureSet {
    let mut run = FigureSet::new(RuleSubject::Run);
    let wall_us = report.wall_us as f64;
    let float = |bytes: Bytes| bytes.0 as f64;
    run.time("wall", Some(wall_us));
    run.count("ranks", Some(report.training.len() as f64));

    let limit = report.started.limits.cpus.map(|cpus| cpus.as_cores());
    let machine = Some(f64::from(report.started.host.cpus)).filter(|cpus| *cpus > 0.0);
    let cpus = match (limit, machine) {
        (Some(limit), Some(machine)) => Some(limit.min(machine)),
        (limit, machine) => limit.or(machine),
    };
    run.count("cpus", cpus);
    run.count("cpu-limit", limit);
    run.count("cores-used", report.cpu.mean_cores);
    // On a shared machine the CPUs that this run left free may be others'.
    let own = (cpus.zip(report.cpu.mean_cores)).map(|(cpus, used)| (cpus - used).max(0.0));
    let idle =
        (machine.zip(report.cpu.machine_busy_cores)).map(|(all, busy)| (all - busy).max(0.0));
    let free = match (own, idle) {
        (Some(own), Some(idle)) => Some(own.min(idle)),
        (own, _) => own,
    };
    run.count("machine-cpus", machine);
    // What others used of the machine, where that is what leaves less than one CPU free.
    let others = (report.cpu.machine_busy_cores.zip(report.cpu.mean_cores))
        .map(|(busy, used)| (busy - used).max(0.0));
    let own_left = own.is_some_and(|own| own >= 1.0);
    run.count(
        "cores-others",
        others.filter(|others| own_left && *others >= 0.5),
    );
    run.count("cores-own-free", own.map(|own| (own * 10.0).floor() / 10.0));
    let command = crate::format::format_command(&report.started.command);
    let short = command.chars().count() <= MAX_COMMAND_CHARS;
    run.text("command", Some(command.as_str()).filter(|_| short));
    // As it is told, so that no sentence speaks of one CPU and another of less than one.
    run.count("cores-free", free.map(|free| (free * 10.0).floor() / 10.0));
    run.share("throttled-share", report.cpu.throttled_share);

    let limit = memory_limit(report);
    let peak = (report.memory.leading_memory_figure()).map(|(bytes, _)| float(bytes));
    run.bytes("memory-limit", limit);
    run.bytes("memory-peak", peak);
    run.share(
        "memory-share",
        peak.zip(limit).and_then(|(peak, limit)| of(peak, limit)),
    );
    run.share("cache-share", report.memory.cache_share);
    run.bytes("swap-peak", report.load.swap_peak.map(float));
    let stall = |us: Option<u64>| {
        us.and_then(|us| of(us as f64, wall_us))
            .map(|share| share.min(1.0))
    };
    run.share(
        "memory-stall-share",
        stall(report.load.pressure.and_then(|p| p.memory_some_us)),
    );
    run.share(
        "io-stall-share",
        stall(report.load.pressure.and_then(|p| p.io_some_us)),
    );
    run.count(
        "oom-kills",
        report.oom_kill_count().map(|kills| kills as f64),
    );
    let hit = report.out_of_memory.and_then(|killed| killed.limit);
    run.bytes("oom-limit", hit.map(float));
    let double = hit.map(|limit| {
        Bytes(limit.0.saturating_mul(2))
            .to_string()
            .replace(' ', "")
    });
    run.text("memory-double", double.as_deref());
    let loaders = report
        .training
        .iter()
        .filter_map(|rank| rank.setup.as_ref()?.loader.as_ref());
    run.count(
        "loader-workers",
        loaders
            .map(|loader| f64::from(loader.workers))
            .reduce(f64::max),
    );
    run.bytes("largest-process", report.memory.largest_process.map(float));
    run.bytes("shm-size", report.started.limits.shm.map(float));
    add_network(&mut run, report);
    run
}

fn add_network(run: &mut FigureSet, report: &RunReport) {
    let node = report.started.node_network.as_ref();
    // A run that is no part of a job sends to nobody.
    run.count(
        "job-nodes",
        Some(node.map_or(1.0, |node| f64::from(node.nodes))),
    );
    let ports = node.map(|node| &node.active_ports);
    run.count("active-ports", ports.map(|ports| ports.len() as f64));
    run.text(
        "active-port",
        ports.and_then(|ports| ports.first()).map(String::as_str),
    );
    let said = Some(report.nccl.len()).filter(|count| *count > 0);
    run.count("nccl-processes", said.map(|count| count as f64));
    let slow = said.map(|_| slow_processes(&report.started, &report.nccl).count());
    run.count("socket-processes", slow.map(|count| count as f64));
    let settings =
        slow_processes(&report.started, &report.nccl).map(NcclNetwork::refusing_settings);
    let settings = settings.max_by_key(Vec::len).unwrap_or_default();
    run.text("nccl-settings", Some(settings.join(", ").as_str()));
}

/// Its limit where that is enforced, else the machine's memory.
pub(super) fn memory_limit(report: &RunReport) -> Option<f64> {
    let enforced = !report.unenforced.iter().any(|limit| limit.what == "memory");
    let machine = Some(report.started.host.memory).filter(|memory| memory.0 > 0);
    (report.started.limits.memory.filter(|_| enforced))
        .or(machine)
        .map(|bytes| bytes.0 as f64)
}
