//! The network of a job's ranks: what is said of it, and when it is a finding.

use std::collections::BTreeMap;

use crate::made::{Made, Rank, WIDE, rules};
use sconce_report::compare::Comparison;
use sconce_report::{json, terminal};
use sconce_schema::network::{HostPlugin, NcclNetwork, NodeNetwork};

fn chosen(pid: u32, network: &str, devices: &[&str]) -> NcclNetwork {
    NcclNetwork {
        inner_pid: pid,
        rank: Some(pid),
        ranks: Some(16),
        version: Some("2.27.7+cuda12.9".into()),
        network: network.into(),
        devices: devices.iter().map(|name| (*name).into()).collect(),
        gpu_direct: Some(network != "Socket"),
        ..NcclNetwork::default()
    }
}

/// A node of two, whose port is up.
fn job(nccl: Vec<NcclNetwork>) -> Made {
    let ranks = vec![Rank::healthy().of(0, 2), Rank::healthy().of(1, 2)];
    Made {
        node_network: Some(NodeNetwork {
            nodes: 2,
            active_ports: vec!["mlx5_0/1".into()],
            host_plugins: Vec::new(),
        }),
        nccl,
        ..Made::of(ranks)
    }
}

#[test]
fn what_ranks_use_is_said() {
    let mut made = job(vec![
        chosen(1, "IB", &["mlx5_0:1/RoCE"]),
        chosen(2, "IB", &["mlx5_0:1/RoCE"]),
    ]);
    made.node_network.as_mut().unwrap().host_plugins = vec![HostPlugin {
        name: "aws-ofi-nccl".into(),
        directory: "/opt/amazon/ofi-nccl".into(),
        obstacle: Some("the environment has no libhwloc.so.15".into()),
    }];
    let text = terminal::render_report(&made.report(), WIDE);
    for part in [
        "IB (mlx5_0:1/RoCE)",
        "2 processes",
        "GPU Direct RDMA",
        "version 2.27.7+cuda12.9",
        "/opt/amazon/ofi-nccl, not of the lock",
        "the environment has no libhwloc.so.15",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(rules(&made.report()), [""; 0]);
    let told: serde_json::Value =
        serde_json::from_str(&json::render_report(&made.report())).unwrap();
    assert_eq!(told["network"]["nccl"][0]["network"], "IB");
    assert_eq!(told["network"]["active_ports"][0], "mlx5_0/1");
    // A run that is no part of a job says nothing of it.
    let alone = Made::of(vec![Rank::healthy()]).report();
    assert!(!terminal::render_report(&alone, WIDE).contains("NCCL"));
    assert!(!json::render_report(&alone).contains("\"network\""));
}

#[test]
fn sockets_are_a_finding_where_a_port_is_up() {
    let sockets = || {
        let mut refused = chosen(2, "Socket", &["eth0"]);
        refused.settings = BTreeMap::from([("NCCL_IB_DISABLE".into(), "1".into())]);
        job(vec![chosen(1, "Socket", &["eth0"]), refused])
    };
    let report = sockets().report();
    assert_eq!(rules(&report), ["sockets-beside-fabric"]);
    let verdict = &report.verdicts[0];
    assert_eq!(
        verdict.title,
        "NCCL took TCP in 2 of 2 processes, and port mlx5_0/1 of the node was up"
    );
    assert!(verdict.mends[0].contains("NCCL_IB_DISABLE=1"));
    let not_found = |change: &dyn Fn(&mut Made)| {
        let mut made = sockets();
        change(&mut made);
        assert_eq!(rules(&made.report()), [""; 0]);
        made.report()
    };
    // One node, no port, nodes that NVLink joins, ranks that NCCL does not serve.
    not_found(&|made| made.node_network.as_mut().unwrap().nodes = 1);
    not_found(&|made| made.node_network.as_mut().unwrap().active_ports.clear());
    not_found(&|made| made.node_network = None);
    not_found(&|made| {
        let all = made.nccl.iter_mut();
        all.for_each(|one| one.multi_node_nvlink = Some(true));
    });
    let silent = not_found(&|made| made.nccl.clear());
    let skipped = |report: &sconce_report::RunReport| {
        let rules = report.unjudged.iter();
        rules
            .filter(|one| one.rule == "sockets-beside-fabric")
            .count()
    };
    assert_eq!(skipped(&silent), 1);
    assert_eq!(skipped(&Made::of(vec![Rank::healthy()]).report()), 0);
}

#[test]
fn compare_names_another_network() {
    let fabric = job(vec![chosen(1, "IB", &["mlx5_0:1/RoCE"])]).report();
    let sockets = job(vec![chosen(1, "Socket", &["eth0"])]).report();
    let told = json::render_comparison(&Comparison::from_reports(&fabric, &sockets));
    for part in [
        "network of ranks",
        "IB (mlx5_0:1/RoCE), GPU Direct RDMA",
        "Socket (eth0)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
