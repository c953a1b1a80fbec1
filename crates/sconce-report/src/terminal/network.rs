//! The rows about the network of a job's ranks.

use super::layout::{TextPage, TextSpan, Tone, plain_span, styled_span};
use crate::format::format_count;
use crate::model::RunReport;
use crate::network::{NetworkGroup, group_networks, slow_processes};

/// A row for each choice that NCCL made, and one for each plugin that came from the node.
pub(super) fn write_rows(page: &mut TextPage, report: &RunReport) {
    let is_slow = slow_processes(&report.started, &report.nccl)
        .next()
        .is_some();
    for (n, group) in group_networks(&report.nccl).into_iter().enumerate() {
        let name = if n == 0 { "NCCL" } else { "" };
        page.write_row(name, network(&group, is_slow));
    }
    let node = report.started.node_network.iter();
    for plugin in node.flat_map(|node| &node.host_plugins) {
        let mut parts = vec![
            plain_span(&plugin.name),
            plain_span(format!("{}, not of the lock", plugin.directory)),
        ];
        parts.extend((plugin.obstacle.as_ref()).map(|why| styled_span(why, Tone::Warning)));
        page.write_row("of the node", parts);
    }
}

fn network(group: &NetworkGroup<'_>, is_slow: bool) -> Vec<TextSpan> {
    let first = group.first;
    let tone = match is_slow && first.uses_sockets() {
        true => Tone::Warning,
        false => Tone::Plain,
    };
    let mut parts = vec![
        styled_span(first.label(), tone),
        plain_span(format_count(group.processes as u64, "process", "processes")),
    ];
    parts.extend(first.gpu_direct.map(|direct| {
        plain_span(match direct {
            true => "GPU Direct RDMA",
            false => "no GPU Direct RDMA",
        })
    }));
    if first.multi_node_nvlink == Some(true) {
        parts.push(plain_span("NVLink between nodes"));
    }
    let version = first.version.as_ref();
    parts.extend(version.map(|version| plain_span(format!("version {version}"))));
    parts
}
