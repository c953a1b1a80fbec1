//! `[target.NAME]`: where a job may be handed over, of a spec or of a user's configuration.

use serde::{Deserialize, Serialize};

use super::containment::JobContainment;
use super::parse::{SpecError, is_name, validate_value};
use crate::duration;

/// A scheduler, and what it is told of every job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TargetSpec {
    /// Which scheduler it is.
    pub engine: SchedulerKind,
    /// Slurm's partition; its default where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The quality of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Features that nodes must have, in Slurm's own words: `a100&ib`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// A reservation whose nodes are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Nodes of a job, where its caller says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Cards of each node, where its caller says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u32>,
    /// The kind of card, as the scheduler names it: `a100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// CPUs of each node, where the spec says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_per_node: Option<u32>,
    /// The longest that a job may take (`4h`), where its caller says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// How long nodes of a job wait for each other (`2m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meet_within: Option<String>,
    /// Who starts the ranks, where the caller says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchMode>,
    /// What holds a job's processes on its nodes.
    #[serde(default, skip_serializing_if = "JobContainment::is_own")]
    pub containment: JobContainment,
    /// Whether a job's caller may say that nothing is to hold it (`--uncontained`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_uncontained: bool,
    /// The store that jobs run from, `/lustre/$USER/sconce` with variables of whoever submits: a directory that this
    /// machine and all nodes see. Where it is absent, the usual store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// A directory on each node's own disk, `/scratch/$USER` with variables of the node, that the environment is
    /// unpacked to; `off` has nodes read the store itself. Where it is absent, nodes decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_store: Option<String>,
    /// Another target of the same engine, on whose nodes the environment is made before the job begins; absent where
    /// whoever submits makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_on: Option<String>,
    /// Whether NCCL's network plugins of a node come into its container: `true` all, `false` none. Where it is absent,
    /// those come without which NCCL cannot use the node's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_plugins: Option<bool>,
    /// Options of sbatch, one each, as they are: `--mail-type=END`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sbatch: Vec<String>,
    /// Options of srun, one each, as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub srun: Vec<String>,
    /// Lines of shell that come before: `module load slurm`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
}

impl TargetSpec {
    /// Every key, for files in which others are passed over.
    pub const KEYS: [&str; 22] = [
        "account",
        "allow-uncontained",
        "constraint",
        "containment",
        "cpus-per-node",
        "engine",
        "gpu-type",
        "gpus-per-node",
        "host-plugins",
        "launch",
        "local-store",
        "meet-within",
        "nodes",
        "partition",
        "prepare-on",
        "qos",
        "reservation",
        "sbatch",
        "setup",
        "srun",
        "storage",
        "time",
    ];

    /// A target of which nothing is known but its scheduler.
    #[must_use]
    pub fn new(engine: SchedulerKind) -> Self {
        Self {
            engine,
            partition: None,
            account: None,
            qos: None,
            constraint: None,
            reservation: None,
            nodes: None,
            gpus_per_node: None,
            gpu_type: None,
            cpus_per_node: None,
            time: None,
            meet_within: None,
            launch: None,
            containment: JobContainment::Sconce,
            allow_uncontained: false,
            storage: None,
            local_store: None,
            prepare_on: None,
            host_plugins: None,
            sbatch: Vec::new(),
            srun: Vec::new(),
            setup: Vec::new(),
        }
    }

    /// The rules that a type cannot say, of the target `name`.
    ///
    /// # Errors
    /// Its name is none, a value has several lines, or its time is none.
    pub fn check(&self, name: &str) -> Result<(), SpecError> {
        for (key, name) in [
            ("target", Some(name)),
            ("target.prepare-on", self.prepare_on.as_deref()),
        ] {
            validate_value(
                key,
                name,
                is_name,
                "letters, digits, `.`, `_` and `-`, 63 at most",
            )?;
        }
        for (key, value) in self.one_line_values() {
            validate_value(
                key,
                Some(value),
                |text| !text.trim().is_empty() && !text.chars().any(char::is_control),
                "one line of a script, which is not empty",
            )?;
        }
        validate_value(
            "target.local-store",
            self.local_store.as_deref(),
            |text| text == "off" || text.starts_with(['/', '$']),
            "`off` or a directory of each node, from `/` on or with a variable of the node's at its beginning",
        )?;
        validate_value(
            "target.storage",
            self.storage.as_deref(),
            |text| text.starts_with(['/', '$']),
            "a directory that nodes see, from `/` on or with a variable of yours at its beginning",
        )?;
        validate_value(
            "target.gpu-type",
            self.gpu_type.as_deref(),
            |text| !text.contains([':', ',', '=']) && text.parse::<u32>().is_err(),
            "a kind of card alone, such as `a100`: `gpus-per-node` says how many",
        )?;
        for (key, count) in [
            ("target.cpus-per-node", self.cpus_per_node),
            ("target.nodes", self.nodes),
        ] {
            let count = count.map(|count| count.to_string());
            let is_some = |text: &str| text != "0";
            validate_value(key, count.as_deref(), is_some, "a number of 1 or more")?;
        }
        validate_value(
            "target.time",
            self.time.as_deref(),
            |text| duration::parse_time_limit(text).is_ok_and(|ms| ms > 0),
            "a time such as 30m, 4h or 2d, or as Slurm writes it: 4:00:00",
        )?;
        validate_value(
            "target.meet-within",
            self.meet_within.as_deref(),
            |text| duration::parse_milliseconds(text).is_ok_and(|ms| ms > 0),
            "a time such as 30m, 4h or 2d",
        )?;
        Ok(())
    }

    /// Every value that stands in one line of a script, by its key.
    fn one_line_values(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let one = [
            ("target.gpu-type", &self.gpu_type),
            ("target.partition", &self.partition),
            ("target.account", &self.account),
            ("target.qos", &self.qos),
            ("target.constraint", &self.constraint),
            ("target.reservation", &self.reservation),
            ("target.local-store", &self.local_store),
            ("target.storage", &self.storage),
        ];
        let lists = [
            ("target.sbatch", &self.sbatch),
            ("target.srun", &self.srun),
            ("target.setup", &self.setup),
        ];
        let one = one
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let lists = lists
            .into_iter()
            .flat_map(|(key, list)| list.iter().map(move |value| (key, value.as_str())));
        one.chain(lists)
    }
}

/// A scheduler that Sconce hands jobs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// Slurm, by its command line.
    Slurm,
}

impl SchedulerKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
        }
    }
}

/// Who starts the ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchMode {
    /// The environment's torchrun, once a node: one rank a card.
    Torchrun,
    /// The scheduler: one process a card, each in a container of its own.
    TaskPerGpu,
    /// The command itself, started once a node.
    Node,
}

impl LaunchMode {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Torchrun, Self::TaskPerGpu, Self::Node];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::TaskPerGpu => "task-per-gpu",
            Self::Node => "node",
        }
    }
}

impl std::str::FromStr for LaunchMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(|one| format!("`{}`", one.name()));
            format!("it is one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn a_target_is_read_and_written() {
        let text = "[target.lab]\nengine = \"slurm\"\npartition = \"gpu\"\nnodes = 2\ntime = \"4h\"\n\
                    launch = \"task-per-gpu\"\ncontainment = \"none\"\nallow-uncontained = true\nsbatch = [\"--mail-type=END\"]\nsetup = [\"module load slurm\"]\n";
        let spec = Spec::parse(text).unwrap();
        let target = &spec.targets["lab"];
        assert_eq!(target.launch, Some(LaunchMode::TaskPerGpu));
        assert_eq!(target.containment, JobContainment::None);
        assert_eq!(spec.to_text(), text);
    }

    #[test]
    fn names_of_launch_modes_are_read_back() {
        for one in LaunchMode::ALL {
            assert_eq!(one.name().parse(), Ok(one));
        }
        let why = "mpi".parse::<LaunchMode>().unwrap_err();
        assert!(why.contains("`torchrun`"), "{why}");
    }

    #[test]
    fn what_is_no_line_or_no_time_is_refused() {
        for (key, value) in [
            ("partition", "\"a\\nb\""),
            ("account", "\" \""),
            ("time", "\"0s\""),
            ("time", "\"soon\""),
            ("time", "\"4:00h\""),
            ("meet-within", "\"4:00:00\""),
            ("setup", "[\"a\\u0000\"]"),
            ("engine", "\"lsf\""),
            ("launch", "\"mpi\""),
            ("containment", "\"docker\""),
            ("allow-uncontained", "\"yes\""),
            ("partitions", "\"gpu\""),
            ("gpu-type", "\"a100:2\""),
            ("gpu-type", "\"2\""),
            ("cpus-per-node", "0"),
            ("nodes", "0"),
            ("local-store", "\"scratch\""),
            ("storage", "\"lustre\""),
            ("local-store", "\"/a\\nb\""),
            ("prepare-on", "\"a b\""),
            ("prepare-on", "true"),
        ] {
            let text = format!("[target.lab]\n{key} = {value}\nengine = \"slurm\"\n");
            assert!(Spec::parse(&text).is_err(), "{text}");
        }
        assert!(Spec::parse("[target.\"a b\"]\nengine = \"slurm\"\n").is_err());
        assert!(Spec::parse("[target.a]\npartition = \"x\"\n").is_err());
    }
}
