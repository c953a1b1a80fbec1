//! What a node runs: the job's command, or what starts its ranks, and what these are told.

use std::collections::BTreeMap;

use sconce_schema::job::JobLayout;
use sconce_schema::spec::LaunchMode;

use super::meeting::MeetingPoint;
use crate::launcher::find_launcher;

/// A process that the scheduler started, among those of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskPlace {
    /// Of all tasks, from 0.
    pub(super) task: u32,
    /// Of the nodes, from 0.
    pub(super) node: u32,
    /// Of the tasks of its node, from 0.
    pub(super) local: u32,
    /// CPUs of it, where the scheduler says so.
    pub(super) cpus: Option<u32>,
}

/// The command of a task, whole.
///
/// Options are written as torch before 2.0 knows them; later ones know both spellings.
/// The launcher gets the command as it is (`--no_python`), so that every rank runs what was asked for; one that starts
/// ranks itself is not started by another.
pub(super) fn wrap_command(
    layout: &JobLayout,
    place: TaskPlace,
    point: Option<&MeetingPoint>,
    command: &[String],
) -> Vec<String> {
    if layout.launch != LaunchMode::Torchrun || find_launcher(command).is_some() {
        return command.to_vec();
    }
    let mut words = vec![
        "torchrun".to_owned(),
        format!("--nnodes={}", layout.nodes),
        format!("--nproc_per_node={}", layout.node_ranks()),
    ];
    match point {
        Some(point) => words.extend([
            format!("--node_rank={}", place.node),
            format!("--master_addr={}", point.master.ip()),
            format!("--master_port={}", point.master.port()),
        ]),
        // A port of its own: others of the machine may have the usual one.
        None => words.push("--standalone".to_owned()),
    }
    words.push("--no_python".to_owned());
    words.extend(command.iter().cloned());
    words
}

/// The variables by which programs find each other: those of torch.distributed (`init_process_group`, "env://"), of
/// torchrun's own options (`PET_…`, torch/distributed/argparse_util.py) and of Lightning (`NODE_RANK`).
/// `interface` is the network interface that has the node's address.
pub(super) fn rank_variables(
    layout: &JobLayout,
    place: TaskPlace,
    point: Option<&MeetingPoint>,
    interface: Option<&str>,
) -> BTreeMap<String, String> {
    let mut told: Vec<(&str, String)> = Vec::new();
    let ranks = layout.node_ranks();
    let starts_ranks = layout.launch != LaunchMode::TaskPerGpu;
    if let Some(point) = point {
        let (address, port) = (point.master.ip().to_string(), point.master.port());
        told.extend([
            ("MASTER_ADDR", address.clone()),
            ("MASTER_PORT", port.to_string()),
        ]);
        if starts_ranks {
            told.extend([
                ("PET_MASTER_ADDR", address),
                ("PET_MASTER_PORT", port.to_string()),
            ]);
        }
    }
    told.extend([
        ("NODE_RANK", place.node.to_string()),
        ("NNODES", layout.nodes.to_string()),
    ]);
    match starts_ranks {
        true => told.extend([
            ("PET_NNODES", layout.nodes.to_string()),
            ("PET_NODE_RANK", place.node.to_string()),
            ("PET_NPROC_PER_NODE", layout.wished_ranks().to_string()),
        ]),
        false => told.extend([
            ("RANK", place.task.to_string()),
            ("WORLD_SIZE", (layout.nodes * ranks).to_string()),
            ("LOCAL_RANK", place.local.to_string()),
            ("LOCAL_WORLD_SIZE", ranks.to_string()),
            ("GROUP_RANK", place.node.to_string()),
        ]),
    }
    if let Some(name) = interface {
        for library in [
            "GLOO_SOCKET_IFNAME",
            "NCCL_SOCKET_IFNAME",
            "TP_SOCKET_IFNAME",
        ] {
            told.push((library, name.to_owned()));
        }
    }
    // torchrun gives each of several ranks one thread where nobody says more.
    if let Some(cpus) = place.cpus {
        let share = match starts_ranks {
            true => cpus / ranks,
            false => cpus,
        };
        told.push(("OMP_NUM_THREADS", share.max(1).to_string()));
    }
    told.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(launch: LaunchMode) -> JobLayout {
        JobLayout {
            nodes: 2,
            gpus_per_node: Some(4),
            ranks_per_node: None,
            launch,
        }
    }

    const PLACE: TaskPlace = TaskPlace {
        task: 1,
        node: 1,
        local: 0,
        cpus: Some(32),
    };

    fn point() -> MeetingPoint {
        MeetingPoint {
            master: "10.0.0.7:29501".parse().unwrap(),
            own: "10.0.0.8".parse().unwrap(),
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn torchrun_gets_the_command_as_it_is() {
        let wrap = |launch, command: &str| {
            let wrapped = wrap_command(&layout(launch), PLACE, Some(&point()), &words(command));
            wrapped.join(" ")
        };
        assert_eq!(
            wrap(LaunchMode::Torchrun, "python -u train.py --lr 1"),
            "torchrun --nnodes=2 --nproc_per_node=4 --node_rank=1 --master_addr=10.0.0.7 \
             --master_port=29501 --no_python python -u train.py --lr 1"
        );
        for command in ["torchrun train.py", "accelerate launch train.py"] {
            assert_eq!(wrap(LaunchMode::Torchrun, command), command);
        }
        assert_eq!(wrap(LaunchMode::Node, "python train.py"), "python train.py");
        let alone = JobLayout {
            nodes: 1,
            ..layout(LaunchMode::Torchrun)
        };
        let place = TaskPlace { node: 0, ..PLACE };
        let alone = wrap_command(&alone, place, None, &words("python train.py"));
        assert_eq!(
            alone.join(" "),
            "torchrun --nnodes=1 --nproc_per_node=4 --standalone --no_python python train.py"
        );
    }

    #[test]
    fn ranks_are_told_who_they_are_by_whoever_starts_them() {
        let told = |launch| rank_variables(&layout(launch), PLACE, Some(&point()), Some("ib0"));
        let torchrun = told(LaunchMode::Torchrun);
        assert_eq!(torchrun["PET_NODE_RANK"], "1");
        assert_eq!(torchrun["OMP_NUM_THREADS"], "8");
        assert!(!torchrun.contains_key("RANK"));
        let task = told(LaunchMode::TaskPerGpu);
        assert_eq!((&*task["RANK"], &*task["WORLD_SIZE"]), ("1", "8"));
        assert_eq!(task["OMP_NUM_THREADS"], "32");
        assert!(!task.keys().any(|name| name.starts_with("PET_")));
        for told in [torchrun, task] {
            assert_eq!(told["MASTER_ADDR"], "10.0.0.7");
            assert_eq!(told["NCCL_SOCKET_IFNAME"], "ib0");
        }
    }
}
