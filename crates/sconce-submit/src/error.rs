//! What keeps a job from being handed over, looked for, or cancelled.

use std::io;
use std::time::Duration;

use sconce_schema::{Hint, exit};

/// Why a scheduler could not be used, or did not want a job. What a program of the scheduler said has nothing that a
/// terminal obeys, and is short.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A value that cannot stand in a script.
    #[error("{what} `{value}` is not {wanted}")]
    Value {
        /// What it is for.
        what: &'static str,
        /// The value, as it may be shown.
        value: String,
        /// What would be taken, as the end of the sentence "… is not …".
        wanted: &'static str,
    },
    /// An option of the target that Sconce sets itself.
    #[error("`{option}` of [target] {key} contradicts {ours}, which Sconce sets itself")]
    ConflictingOption {
        /// The key of the target: `sbatch` or `srun`.
        key: &'static str,
        /// The option, as it may be shown.
        option: String,
        /// Sconce's own option.
        ours: &'static str,
        /// Where else the same can be said.
        instead: &'static str,
    },
    /// An option of the target that no job of Sconce can have.
    #[error("`{option}` of [target] {key} is not supported: {why}")]
    UnsupportedOption {
        /// The key of the target: `sbatch` or `srun`.
        key: &'static str,
        /// The option, as it may be shown.
        option: String,
        /// Why not, as a sentence without its end.
        why: &'static str,
    },
    /// An item of the target's options that is none.
    #[error("`{option}` of [target] {key} is not {wanted}")]
    MalformedOption {
        /// The key of the target: `sbatch` or `srun`.
        key: &'static str,
        /// The item, as it may be shown.
        option: String,
        /// What would be taken, as the end of the sentence "… is not …".
        wanted: &'static str,
    },
    /// A program of the scheduler that is not here.
    #[error("{program} is not in PATH")]
    NoProgram {
        /// Its name.
        program: &'static str,
    },
    /// Slurm's containers are not set up, as far as this machine shows.
    #[error(
        "Slurm's oci.conf is not in {searched}, without which nodes would run the job in no container"
    )]
    NoOciConf {
        /// Where it was looked for.
        searched: String,
    },
    /// A program of the scheduler that cannot be started or spoken to.
    #[error("cannot run {program}")]
    Start {
        /// Its name.
        program: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program of the scheduler that did not end.
    #[error("{program} gave no answer within {} s", timeout.as_secs_f64())]
    Timeout {
        /// Its name.
        program: &'static str,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// A program of the scheduler that answered without an end.
    #[error("{program} wrote more than {max_bytes} bytes")]
    TooMuchOutput {
        /// Its name.
        program: &'static str,
        /// The limit.
        max_bytes: usize,
    },
    /// An answer that is none.
    #[error("{program} answered what cannot be read: {said}")]
    Unreadable {
        /// Its name.
        program: &'static str,
        /// Its beginning, or what is wrong with it.
        said: String,
    },
    /// A job that was handed over, and nobody knows whether it was taken.
    #[error("it is not known whether the scheduler took the job with the token {token}")]
    Unanswered {
        /// The job's token.
        token: String,
        /// What kept the answer away.
        #[source]
        source: Box<SubmitError>,
    },
    /// The controller cannot be reached, or the connection broke. Of a hand-over this says that nothing was taken;
    /// where that is not sure it is the cause of [`SubmitError::Unanswered`].
    #[error("Slurm's controller cannot be reached: {said}")]
    Unreachable {
        /// What the program said.
        said: String,
    },
    /// The scheduler does not want it.
    #[error("Slurm refused it: {said}")]
    Rejected {
        /// Why.
        cause: RejectionCause,
        /// What the program said.
        said: String,
    },
    /// A program of the scheduler that failed for a cause that this program does not know.
    #[error("{program} failed: {said}")]
    Failed {
        /// Its name.
        program: &'static str,
        /// What it said.
        said: String,
    },
}

/// Why a scheduler did not want something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectionCause {
    /// There is no such partition, or none was named and there is no default.
    Partition,
    /// No such account, or the user is not of it or not of the partition's.
    Account,
    /// No such quality of service, or the user may not use it.
    Qos,
    /// A limit of the user's association or quality of service.
    Limit,
    /// No node is as it was asked for, or not as many.
    Nodes,
    /// There is no node of this name.
    NodeName,
    /// No such licences, or more than there are.
    License,
    /// The scheduler does not know a job that is to come before.
    Dependency,
    /// No node has such a feature.
    Constraint,
    /// More elements of an array than the cluster takes, or an index above its highest.
    Array,
    /// More time than the partition gives.
    Time,
    /// No such reservation, or it is others'.
    Reservation,
    /// More memory than nodes have.
    Memory,
    /// Others alone may do this.
    Permission,
    /// The job is not there any more.
    NoJob,
    /// An option that this version of the program does not know.
    Option,
    /// The script itself: its first line, its line ends, its size.
    Script,
}

impl Hint for SubmitError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Value { .. } => return None,
            Self::ConflictingOption { instead, .. } => instead,
            Self::UnsupportedOption { .. } => "take it out of the target",
            Self::MalformedOption { .. } => {
                "each item is one option as the program takes it: `--mail-type=END`"
            }
            Self::NoProgram { .. } => {
                "hand jobs over from a login node of the cluster, with Slurm's programs in PATH (often `module load slurm`)"
            }
            Self::NoOciConf { .. } => {
                "ask whoever runs the cluster whether its nodes have one (oci.conf(5)); SLURM_CONF says where this machine's is; or take another `containment`"
            }
            Self::Start { .. } | Self::Failed { .. } => {
                "try the same program by hand on this machine"
            }
            Self::Timeout { .. } | Self::Unreachable { .. } => {
                "the controller may be busy or restarting: `scontrol ping` says how it is; try again later"
            }
            Self::TooMuchOutput { .. } | Self::Unreadable { .. } => {
                "is it Slurm's own program, or a script of the site in its place?"
            }
            Self::Unanswered { .. } => {
                "submit the same again: the job is looked for by its token first, and taken up where it is there"
            }
            Self::Rejected { cause, .. } => cause.hint(),
        };
        Some(hint.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Value { .. }
            | Self::ConflictingOption { .. }
            | Self::UnsupportedOption { .. }
            | Self::MalformedOption { .. }
            | Self::NoOciConf { .. }
            | Self::Rejected { .. } => exit::BAD_INPUT,
            Self::Timeout { .. } | Self::Unanswered { .. } | Self::Unreachable { .. } => {
                exit::FETCH
            }
            Self::NoProgram { .. }
            | Self::Start { .. }
            | Self::TooMuchOutput { .. }
            | Self::Unreadable { .. }
            | Self::Failed { .. } => exit::RUN,
        }
    }
}

impl RejectionCause {
    /// What to do about it.
    fn hint(self) -> &'static str {
        match self {
            Self::Partition => {
                "`sinfo -s` lists the partitions: name one by `--partition`, or as the target's `partition`"
            }
            Self::Account => {
                "`sacctmgr show associations user=$USER format=account,partition,qos` lists what you may use: name one by `--account`, or as the target's `account`"
            }
            Self::Qos => {
                "`sacctmgr show associations user=$USER format=account,qos` lists what you may use: name one by `--qos`, or as the target's `qos`"
            }
            Self::Limit => {
                "ask for less, or wait until other jobs of yours end; `scontrol show assoc_mgr users=$USER` has the limits"
            }
            Self::Nodes => {
                "`sinfo -o '%P %D %c %m %G %f'` lists what nodes have: ask for no more of each"
            }
            Self::NodeName => "`sinfo -N -h -o %N` lists the names of nodes",
            Self::License => {
                "`scontrol show licenses` lists them: ask for no others, and for no more of each"
            }
            Self::Dependency => {
                "a job that is to come before is not in Slurm's queue any more: leave its `--after` out"
            }
            Self::Constraint => "`sinfo -o '%P %f'` lists the features of nodes",
            Self::Array => {
                "every index has to be below MaxArraySize (`scontrol show config | grep MaxArraySize`): hand over lower ones, or a sweep in parts"
            }
            Self::Time => "`sinfo -o '%P %l'` lists the longest time of each partition",
            Self::Reservation => "`scontrol show reservation` lists them, and for whom they are",
            Self::Memory => "`sinfo -o '%P %m'` lists the memory of nodes in MB: ask for less",
            Self::Permission => "ask whoever runs the cluster, or whose job it is",
            Self::NoJob => "it ended some time ago: its own files say how",
            Self::Option => {
                "take it out of the target: `sbatch --help` lists what this version knows"
            }
            Self::Script => {
                "look at the script that would be handed over, and at the target's `setup`"
            }
        }
    }
}
