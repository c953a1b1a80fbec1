//! What a cluster's nodes are, by `scontrol --oneliner show`: a line for each thing, of words `Key=value`.

use std::collections::BTreeSet;

/// The most of a list of nodes that is an argument, bytes (execve(2): 128 KiB each).
const MAX_LIST_BYTES: usize = 64 << 10;

/// The nodes of partitions, in Slurm's notation: of those that `wanted` names, with commas between them, or of the
/// cluster's default.
pub(super) fn nodes_of_partitions(partitions: &str, wanted: Option<&str>) -> String {
    let is_wanted = |line: &&str| match wanted {
        Some(names) => {
            let name = value(line, "PartitionName");
            name.is_some_and(|name| names.split(',').any(|wanted| wanted.trim() == name))
        }
        None => value(line, "Default") == Some("YES"),
    };
    let lines = partitions.lines().filter(is_wanted);
    let nodes = lines.filter_map(|line| value(line, "Nodes").filter(|nodes| *nodes != "(null)"));
    let list = nodes.collect::<Vec<_>>().join(",");
    match list.len() > MAX_LIST_BYTES || list.starts_with('-') {
        true => String::new(),
        false => list,
    }
}

/// The architectures of nodes; one that has never answered has none.
pub(super) fn architectures(nodes: &str) -> BTreeSet<String> {
    let known = nodes.lines().filter_map(|line| value(line, "Arch"));
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    known.filter(is_name).map(str::to_owned).collect()
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As scontrol of 22.05 writes it, shortened.
    const PARTITIONS: &str = "PartitionName=main AllowGroups=ALL Default=YES QoS=N/A Nodes=n[2,10] State=UP\n\
        PartitionName=arm AllowGroups=ALL Default=NO QoS=N/A Nodes=g[1-4] State=UP\n\
        PartitionName=empty Default=NO Nodes=(null) State=UP\n";

    #[test]
    fn nodes_of_a_partition_are_found() {
        assert_eq!(nodes_of_partitions(PARTITIONS, None), "n[2,10]");
        assert_eq!(nodes_of_partitions(PARTITIONS, Some("arm")), "g[1-4]");
        assert_eq!(
            nodes_of_partitions(PARTITIONS, Some("arm,main")),
            "n[2,10],g[1-4]"
        );
        for none in ["empty", "ar", "x"] {
            assert_eq!(nodes_of_partitions(PARTITIONS, Some(none)), "");
        }
        assert_eq!(nodes_of_partitions("slurm_load error: nothing", None), "");
        let hostile = "PartitionName=a Default=YES Nodes=--version";
        assert_eq!(nodes_of_partitions(hostile, None), "");
    }

    #[test]
    fn architectures_of_nodes_are_read() {
        let nodes = "NodeName=g1 Arch=aarch64 CoresPerSocket=1 CPUAlloc=0\nNodeName=g2 CoresPerSocket=1 State=DOWN\n";
        assert_eq!(architectures(nodes), ["aarch64".to_owned()].into());
        assert!(architectures("NodeName=g2 State=DOWN").is_empty());
        assert!(architectures("NodeName=g2 Arch=\u{1b}[1m").is_empty());
    }
}
