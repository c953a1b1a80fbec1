//! What the scheduler tells a process of its place in the job: Slurm's variables (srun(1), "OUTPUT ENVIRONMENT
//! VARIABLES").

use std::net::IpAddr;

use sconce_base::Env;
use sconce_schema::{Hint, exit};
use sconce_submit::{NodeListError, SchedulerJobId, expand_node_list};

use super::launch::TaskPlace;

/// A task's place, and the nodes of its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) place: TaskPlace,
    /// Tasks of the step.
    pub(super) tasks: u32,
    /// The nodes, in the scheduler's order.
    pub(super) nodes: Vec<String>,
    /// What tells this start of the job from others.
    pub(super) start: String,
    /// How often the job was started before.
    pub(super) restarts: u32,
    /// A number that few jobs have in common.
    pub(super) job: u32,
    /// What the scheduler calls the job; of an array's element, as [`SchedulerJobId::element`] has it.
    pub(super) scheduler_id: SchedulerJobId,
    /// Which element of an array this is.
    pub(super) element: Option<u32>,
    /// Where `srun` was called, which is the first node in a script.
    pub(super) launcher: Option<IpAddr>,
    /// Variables that programs may have of the scheduler.
    pub(super) shown: Vec<(String, String)>,
}

/// Why a process has no place in a job.
#[derive(Debug, thiserror::Error)]
pub(super) enum AllocationError {
    /// A variable is missing or is no number.
    #[error("`node` is started by a scheduler, once a node: {0} is not set")]
    NotInJob(&'static str),
    /// A variable says something that it cannot say.
    #[error("{name} is `{value}`")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// The list of nodes cannot be read.
    #[error("SLURM_STEP_NODELIST is `{value}`")]
    Nodes {
        /// What it says.
        value: String,
        /// Why.
        source: NodeListError,
    },
    /// A process in Slurm's container, which cannot be told from others.
    #[error(
        "which of {tasks} tasks on {nodes} this is cannot be told by its machine's name, {host}, alone"
    )]
    TaskInContainer {
        /// The machine's name.
        host: String,
        /// The nodes.
        nodes: String,
        /// All tasks.
        tasks: u32,
    },
    /// The step is another than was asked for.
    #[error(
        "the job is for {asked} tasks on {asked_nodes} nodes, and the scheduler started {tasks} on {nodes}"
    )]
    OtherSize {
        /// Tasks that were asked for.
        asked: u32,
        /// On so many nodes.
        asked_nodes: u32,
        /// Tasks that there are.
        tasks: u32,
        /// On so many nodes.
        nodes: u32,
    },
}

impl Hint for AllocationError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotInJob(_) => "`sconce submit` hands a job over".to_owned(),
            Self::Value { .. } | Self::Nodes { .. } => {
                "start it by `srun`, as the job's script does".to_owned()
            }
            Self::TaskInContainer { .. } => {
                "nodes whose names are not their machines' need another `containment` than `slurm`"
                    .to_owned()
            }
            Self::OtherSize { .. } => {
                "start it by the job's script, which has `--nodes` and `--ntasks-per-node`"
                    .to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// What of Slurm's variables a program may see: who counts tasks by the others would start a world of its own.
const SHOWN: [&str; 7] = [
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_RESTART_COUNT",
];

/// The number of the node that a process is on, where Slurm started it in a container; `None` where it did not. In one,
/// 22.05 leaves out what tells tasks from each other, and what the script had of these variables is there instead (tried):
/// each node would be the first.
fn node_in_container(
    env: &Env,
    nodes: &[String],
    tasks: u32,
    host_name: &str,
) -> Result<Option<u32>, AllocationError> {
    if env.var("SLURM_CONTAINER").is_none() {
        return Ok(None);
    }
    let short = host_name.split('.').next().unwrap_or(host_name);
    let is_here = |node: &String| node == host_name || node == short;
    let position = nodes.iter().position(is_here);
    let position = position.filter(|_| usize::try_from(tasks) == Ok(nodes.len()));
    let node = position.and_then(|position| u32::try_from(position).ok());
    node.map(Some)
        .ok_or_else(|| AllocationError::TaskInContainer {
            host: host_name.to_owned(),
            nodes: nodes.join(", "),
            tasks,
        })
}

impl Allocation {
    /// Of a process that `srun` started.
    ///
    /// # Errors
    /// It was started by nobody of the kind.
    pub(super) fn from_env(env: &Env, host_name: &str) -> Result<Self, AllocationError> {
        let text = |name| env.var(name).ok_or(AllocationError::NotInJob(name));
        let number = |name| {
            let value = text(name)?;
            value.parse::<u32>().map_err(|_| AllocationError::Value {
                name,
                value: value.to_owned(),
            })
        };
        let list = text("SLURM_STEP_NODELIST").or_else(|_| text("SLURM_JOB_NODELIST"))?;
        let nodes = expand_node_list(list).map_err(|source| AllocationError::Nodes {
            value: list.to_owned(),
            source,
        })?;
        let tasks = number("SLURM_STEP_NUM_TASKS").or_else(|_| number("SLURM_NTASKS"))?;
        let job = number("SLURM_JOB_ID")?;
        let in_container = node_in_container(env, &nodes, tasks, host_name)?;
        let restarts = env.var("SLURM_RESTART_COUNT");
        let restarts = restarts.and_then(|count| count.parse().ok()).unwrap_or(0);
        let step = env.var("SLURM_STEP_ID").unwrap_or("0");
        let element = env
            .var("SLURM_ARRAY_TASK_ID")
            .map(|_| number("SLURM_ARRAY_TASK_ID"));
        let element = element.transpose()?;
        let scheduler_id = match element {
            Some(index) => SchedulerJobId::from(number("SLURM_ARRAY_JOB_ID")?).element(index),
            None => SchedulerJobId::from(job),
        };
        let cpus = ["SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"];
        Ok(Self {
            place: TaskPlace {
                task: in_container.map_or_else(|| number("SLURM_PROCID"), Ok)?,
                node: in_container.map_or_else(|| number("SLURM_NODEID"), Ok)?,
                local: in_container.map_or_else(|| number("SLURM_LOCALID"), |_| Ok(0))?,
                cpus: (cpus.into_iter()).find_map(|name| env.var(name)?.parse().ok()),
            },
            tasks,
            nodes,
            start: format!("{job}.{restarts}.{step}"),
            restarts,
            job,
            scheduler_id,
            element,
            launcher: env
                .var("SLURM_LAUNCH_NODE_IPADDR")
                .and_then(|address| address.parse().ok()),
            shown: SHOWN
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), env.var(name)?.to_owned())))
                .collect(),
        })
    }

    /// The node of a task, where every node has as many.
    pub(super) fn node_of(&self, task: u32) -> &str {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1);
        let node = usize::try_from(task / (self.tasks / nodes).max(1)).unwrap_or(usize::MAX);
        self.nodes.get(node).map_or("?", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(more: &[(&str, &str)]) -> Env {
        let usual = [
            ("SLURM_JOB_ID", "17"),
            ("SLURM_STEP_NODELIST", "n[2,10]"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_PROCID", "2"),
            ("SLURM_NODEID", "1"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_CPUS_ON_NODE", "16"),
            ("SLURM_NTASKS", "9"),
        ];
        let mut all = std::collections::BTreeMap::from(usual);
        all.extend(more.iter().copied());
        Env::from_variables(all.into_iter().filter(|(_, value)| !value.is_empty()))
    }

    #[test]
    fn a_tasks_place_is_read() {
        let read = |more: &[(&str, &str)]| Allocation::from_env(&env(more), "n10").unwrap();
        let allocation = read(&[("SLURM_RESTART_COUNT", "3")]);
        assert_eq!(allocation.nodes, ["n2", "n10"]);
        assert_eq!(allocation.start, "17.3.0");
        assert_eq!((allocation.tasks, allocation.place.cpus), (4, Some(16)));
        assert_eq!(
            (allocation.element, allocation.scheduler_id.as_str()),
            (None, "17")
        );
        let element = read(&[("SLURM_ARRAY_JOB_ID", "15"), ("SLURM_ARRAY_TASK_ID", "2")]);
        assert_eq!(
            (element.element, element.scheduler_id.as_str()),
            (Some(2), "15_2")
        );
        let nodes: Vec<_> = (0..4).map(|task| allocation.node_of(task)).collect();
        assert_eq!(nodes, ["n2", "n2", "n10", "n10"]);
        let shown = [("SLURM_JOB_ID", "17"), ("SLURM_RESTART_COUNT", "3")];
        assert_eq!(
            allocation.shown,
            shown.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn in_slurms_container_a_task_is_known_by_its_node() {
        let place = |tasks, host_name| {
            let env = env(&[
                ("SLURM_CONTAINER", "/jobs/x/bundle"),
                ("SLURM_STEP_NUM_TASKS", tasks),
                // The script's.
                ("SLURM_PROCID", "0"),
                ("SLURM_NODEID", "0"),
            ]);
            let allocation = Allocation::from_env(&env, host_name).ok()?;
            let place = allocation.place;
            Some((place.task, place.node, place.local))
        };
        assert_eq!(place("2", "n2"), Some((0, 0, 0)));
        assert_eq!(place("2", "n10.cluster"), Some((1, 1, 0)));
        assert_eq!(place("2", "other"), None);
        // Which of several tasks of a node it is, nobody knows.
        assert_eq!(place("4", "n2"), None);
    }

    #[test]
    fn outside_of_a_job_there_is_no_place() {
        for (name, value) in [
            ("SLURM_PROCID", ""),
            ("SLURM_PROCID", "-1"),
            ("SLURM_STEP_NODELIST", "n[1-"),
            ("SLURM_JOB_ID", "x"),
        ] {
            assert!(
                Allocation::from_env(&env(&[(name, value)]), "n10").is_err(),
                "{name} {value}"
            );
        }
    }
}
