//! A job: a run that a scheduler starts on nodes that nobody knows yet. What was wished travels to them; each node
//! makes its own [`RunRequest`](crate::RunRequest) of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::request::Mount;
use crate::spec::{JobContainment, LaunchMode, RunSpec, SchedulerKind};
use crate::units::Sha256;

/// The format that this program writes and reads.
pub const FORMAT: u32 = 1;

/// The name of the file in a job's folder.
pub const FILE_NAME: &str = "job.json";

/// What was handed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobRequest {
    /// Format of the file.
    pub format: u32,
    /// Unique in the world: by it the scheduler's job is found, and nodes know each other.
    pub token: String,
    /// The environment's name.
    pub name: String,
    /// The spec's file when the job was handed over, whose folder nodes mount; absolute.
    pub spec: PathBuf,
    /// `[run]` of the spec, with what the caller said laid over it: `command` is what is run.
    pub run: RunSpec,
    /// Variables of whoever handed it over that say where Sconce's folders are, which a node has in no login:
    /// `HOME`, `XDG_STATE_HOME`.
    pub directories: BTreeMap<String, String>,
    /// Digest of the lock's text.
    pub lock: Sha256,
    /// Debian's name of the processors that the lock is for, `amd64`.
    pub architecture: String,
    /// On what it is started.
    pub layout: JobLayout,
    /// Whether its command starts its ranks itself, as far as whoever handed it over found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_own_ranks: bool,
    /// Its elements, where it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<JobArray>,
    /// What holds its processes on nodes.
    #[serde(default, skip_serializing_if = "JobContainment::is_own")]
    pub containment: JobContainment,
    /// Whether it does not start on a node whose fast network its ranks would not use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// To whom it was handed.
    pub engine: SchedulerKind,
    /// How long nodes wait for each other, in milliseconds.
    pub meet_within_ms: u64,
    /// That each node unpacks the environment to a disk of its own; absent where all read the one store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_store: Option<LocalStoreRequest>,
    /// The job that makes its environment before it begins; absent where whoever handed it over made that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<PreparationRequest>,
    /// Whether network plugins of nodes come into its containers, as the target says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_plugins: Option<bool>,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
}

impl JobRequest {
    /// The job of one element of its array: a token of its own, the element's words at the end of the command or where
    /// the command says [`PLACEHOLDER`]. `None` where the array has no such element.
    #[must_use]
    pub fn element(&self, index: u32) -> Option<Self> {
        let array = self.array.as_ref()?;
        let at = array.indices.binary_search(&index).ok()?;
        let mut run = self.run.clone();
        if let Some(words) = array.arguments.get(at) {
            run.command = with_arguments(&run.command, words);
        }
        Some(Self {
            token: element_token(&self.token, index),
            run,
            array: None,
            ..self.clone()
        })
    }
}

/// What makes the environment of a job: a job of its own, of one node without cards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PreparationRequest {
    /// The target whose node it is made on.
    pub target: String,
    /// Unique in the world: by it the scheduler's job is found.
    pub token: String,
    /// `local-store` of the job's own target, by which it is decided whether nodes unpack the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_store: Option<String>,
    /// What of the machine is in the container that the scheduler starts the job in; empty where it starts none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

/// What a preparation has made, beside the items of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PreparedEnvironment {
    /// Format of the file: [`FORMAT`].
    pub format: u32,
    /// What each node unpacks to a disk of its own; absent where all read the one store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_store: Option<LocalStoreRequest>,
}

/// The token of the job that makes the environment of another.
#[must_use]
pub fn preparation_token(token: &str) -> String {
    format!("{token}.prepare")
}

/// The token of an element, as Slurm writes it: `TOKEN_3`.
#[must_use]
pub fn element_token(token: &str, index: u32) -> String {
    format!("{token}_{index}")
}

/// The word of a command that stands for the words of an element, each time that it is there.
pub const PLACEHOLDER: &str = "{}";

fn with_arguments(command: &[String], words: &[String]) -> Vec<String> {
    if !command.iter().any(|word| word == PLACEHOLDER) {
        return [command, words].concat();
    }
    let of_word = |word: &String| match word == PLACEHOLDER {
        true => words.to_vec(),
        false => vec![word.clone()],
    };
    command.iter().flat_map(of_word).collect()
}

/// A job's elements: its command started once for each, independent of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobArray {
    /// Their indices, ascending, each once.
    pub indices: Vec<u32>,
    /// How many may run at once; absent where the scheduler decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// What each one's command has beside, in the order of the indices; empty where all run the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Vec<String>>,
}

/// The most elements of an array: by default Slurm takes 1,000 (`MaxArraySize` of slurm.conf(5)).
pub const MAX_ELEMENTS: usize = 10_000;

impl JobArray {
    /// Reads indices as sbatch takes them (sbatch(1), `--array`): `0-7`, `1,3,5`, `0-15:4`, and how many may run at
    /// once behind a `%`.
    ///
    /// # Errors
    /// It is none of these, or more than [`MAX_ELEMENTS`]; the text says what it should be.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str =
            "indices such as 0-7, 1,3,5 or 0-15:4, with `%2` where 2 may run at once";
        let (list, at_once) = match text.split_once('%') {
            Some((list, count)) => (
                list,
                Some(
                    parse_number(count)
                        .filter(|count| *count > 0)
                        .ok_or(WANTED)?,
                ),
            ),
            None => (text, None),
        };
        let mut indices = BTreeSet::new();
        for item in list.split(',') {
            let (range, step) = item.split_once(':').unwrap_or((item, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let [first, last, step] = [first, last, step].map(parse_number);
            let (Some(first), Some(last), Some(step @ 1..)) = (first, last, step) else {
                return Err(WANTED);
            };
            if first > last {
                return Err(WANTED);
            }
            let range = (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
            indices.extend(range.take(MAX_ELEMENTS + 1));
            if indices.len() > MAX_ELEMENTS {
                return Err("10,000 indices at most");
            }
        }
        Ok(Self {
            indices: indices.into_iter().collect(),
            at_once,
            arguments: Vec::new(),
        })
    }
}

fn parse_number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// An environment that nodes unpack to disks of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LocalStoreRequest {
    /// Where, as the target says it, with variables of the node; absent where the node chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// What is unpacked.
    pub environment: ItemPack,
}

/// Items of a store in one file, which is read once from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ItemPack {
    /// The file, absolute.
    pub file: PathBuf,
    /// Digest of its bytes.
    pub sha256: Sha256,
    /// How many it has.
    pub size_bytes: u64,
    /// What is in it, sorted.
    pub items: Vec<PackedItem>,
}

/// An item of a store in a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackedItem {
    /// Its kind, `wheel`.
    pub kind: String,
    /// Its key.
    pub key: String,
    /// What it takes on a disk that gives files blocks of 4 KiB.
    pub disk_bytes: u64,
}

/// The nodes of a job, and who starts its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobLayout {
    /// Nodes, at least 1.
    pub nodes: u32,
    /// Cards of each; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u32>,
    /// Ranks of each, where that is not one a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<u32>,
    /// Who starts the ranks.
    pub launch: LaunchMode,
}

impl JobLayout {
    /// Ranks that are started on each node: one a card where nobody says how many, and one where there is no card.
    #[must_use]
    pub fn node_ranks(&self) -> u32 {
        match self.launch {
            LaunchMode::Node => 1,
            LaunchMode::Torchrun | LaunchMode::TaskPerGpu => self.wished_ranks(),
        }
    }

    /// As [`Self::node_ranks`], for a command that starts its ranks itself.
    #[must_use]
    pub fn wished_ranks(&self) -> u32 {
        self.ranks_per_node
            .or(self.gpus_per_node)
            .unwrap_or(1)
            .max(1)
    }

    /// Processes that the scheduler starts on each node.
    #[must_use]
    pub fn tasks_per_node(&self) -> u32 {
        match self.launch {
            LaunchMode::TaskPerGpu => self.node_ranks(),
            LaunchMode::Torchrun | LaunchMode::Node => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elements_words_are_in_its_command() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        for (command, whole) in [
            ("python train.py", "python train.py --lr 1"),
            (
                "python train.py {} --out x",
                "python train.py --lr 1 --out x",
            ),
            ("echo {} {}", "echo --lr 1 --lr 1"),
            ("echo a{}", "echo a{} --lr 1"),
        ] {
            assert_eq!(
                with_arguments(&words(command), &words("--lr 1")),
                words(whole)
            );
        }
        assert_eq!(element_token("demo-1", 12), "demo-1_12");
        assert_eq!(preparation_token("demo-1"), "demo-1.prepare");
    }

    #[test]
    fn indices_are_read_as_sbatch_reads_them() {
        for (text, indices, at_once) in [
            ("0-3", &[0, 1, 2, 3][..], None),
            ("5,1,3-4,4", &[1, 3, 4, 5], None),
            ("0-9:4%2", &[0, 4, 8], Some(2)),
            ("7%1", &[7], Some(1)),
        ] {
            let array = JobArray::parse(text).unwrap();
            assert_eq!(
                (&*array.indices, array.at_once),
                (indices, at_once),
                "{text}"
            );
        }
        for text in [
            "",
            "a",
            "3-1",
            "1-",
            "-1",
            "1,,2",
            "0-3%0",
            "0-3%",
            "0-3:0",
            "+1",
            "0-4294967295",
            "4294967296",
        ] {
            assert!(JobArray::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_rank_a_card_but_where_the_command_starts_its_own() {
        let layout = |launch, gpus_per_node| JobLayout {
            nodes: 2,
            gpus_per_node,
            ranks_per_node: None,
            launch,
        };
        for (launch, gpus, ranks, tasks) in [
            (LaunchMode::Torchrun, Some(8), 8, 1),
            (LaunchMode::Torchrun, None, 1, 1),
            (LaunchMode::TaskPerGpu, Some(4), 4, 4),
            (LaunchMode::TaskPerGpu, Some(0), 1, 1),
            (LaunchMode::Node, Some(8), 1, 1),
        ] {
            let layout = layout(launch, gpus);
            assert_eq!(
                (layout.node_ranks(), layout.tasks_per_node()),
                (ranks, tasks)
            );
        }
        let more = JobLayout {
            ranks_per_node: Some(16),
            ..layout(LaunchMode::TaskPerGpu, Some(8))
        };
        assert_eq!((more.node_ranks(), more.tasks_per_node()), (16, 16));
    }
}
