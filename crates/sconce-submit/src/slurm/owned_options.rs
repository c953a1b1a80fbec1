//! Which options of sbatch and srun are Sconce's own, and which no job of it can have: sbatch(1) and srun(1) of 22.05,
//! with what newer ones added.

use crate::scheduler::JobScript;

/// How one of the two programs takes options.
pub(super) struct ProgramOptions {
    /// The key of the target that holds its options.
    pub(super) key: &'static str,
    /// Its letters that take no value in the next word; all others do.
    pub(super) flags: &'static str,
}

/// sbatch's, by its `--help`.
pub(super) const SBATCH: ProgramOptions = ProgramOptions {
    key: "sbatch",
    flags: "hHkOQsvVWu",
};

/// srun's; `-I` and `-K` take a value in the same word alone.
pub(super) const SRUN: ProgramOptions = ProgramOptions {
    key: "srun",
    flags: "EhHIkKlOQsuvVXZ",
};

/// An option that Sconce sets itself.
#[derive(Clone, Copy)]
pub(super) struct OwnedOption {
    /// Its long names, and those of options that say the same in another way.
    pub(super) names: &'static [&'static str],
    /// Its letters.
    pub(super) letters: &'static str,
    /// What Sconce says.
    pub(super) ours: &'static str,
    /// Where a person says it, as a hint.
    pub(super) instead: &'static str,
    /// Whether it is Sconce's only where its value names cards.
    pub(super) cards_only: bool,
}

/// An option that no job of Sconce can have.
pub(super) struct UnsupportedOption {
    /// The keys where it is none.
    pub(super) keys: &'static [&'static str],
    pub(super) names: &'static [&'static str],
    pub(super) letters: &'static str,
    /// Values with which it says nothing.
    pub(super) harmless: &'static [&'static str],
    /// Why not, as a sentence without its end.
    pub(super) why: &'static str,
}

const BOTH: &[&str] = &["sbatch", "srun"];

pub(super) const UNSUPPORTED: &[UnsupportedOption] = &[
    UnsupportedOption {
        keys: BOTH,
        names: &["mpi"],
        letters: "",
        harmless: &["none"],
        why: "Slurm would start ranks by MPI (PMIx, PMI-2), whose sockets and files are not in Sconce's containers",
    },
    UnsupportedOption {
        keys: BOTH,
        names: &["het-group", "pack-group"],
        letters: "",
        harmless: &[],
        why: "heterogeneous jobs have nodes of several kinds, and Sconce starts all of them alike",
    },
    UnsupportedOption {
        keys: &["sbatch"],
        names: &["array"],
        letters: "a",
        harmless: &[],
        why: "an array is many jobs, and Sconce follows one: hand each over by itself",
    },
    UnsupportedOption {
        keys: &["sbatch"],
        names: &["wrap"],
        letters: "",
        harmless: &[],
        why: "the script is Sconce's own",
    },
    UnsupportedOption {
        keys: BOTH,
        names: &["container", "container-id"],
        letters: "",
        harmless: &[],
        why: "Sconce brings its own container, and a node without oci.conf would run the script in none",
    },
    UnsupportedOption {
        keys: BOTH,
        names: &["clusters"],
        letters: "M",
        harmless: &[],
        why: "the job would be in another cluster's queue, where Sconce does not look: set SLURM_CONF for that cluster",
    },
    UnsupportedOption {
        keys: &["sbatch"],
        names: &["wait"],
        letters: "W",
        harmless: &[],
        why: "sbatch would wait for the job's end",
    },
    UnsupportedOption {
        keys: BOTH,
        names: &["help", "usage", "version", "test-only"],
        letters: "hV",
        harmless: &[],
        why: "no job would be made",
    },
    UnsupportedOption {
        keys: &["srun"],
        names: &["pty", "multi-prog", "no-allocate", "jobid", "preserve-env"],
        letters: "ZE",
        harmless: &[],
        why: "it changes what is started, on which nodes or how often",
    },
];

/// Says an option that is Sconce's whatever its value.
const fn own(
    names: &'static [&'static str],
    letters: &'static str,
    ours: &'static str,
    instead: &'static str,
) -> OwnedOption {
    OwnedOption {
        names,
        letters,
        ours,
        instead,
        cards_only: false,
    }
}

const NODES: OwnedOption = own(
    &["nodes"],
    "N",
    "--nodes",
    "say it as `nodes` of the target",
);
const TASKS: OwnedOption = own(
    &[
        "ntasks",
        "ntasks-per-node",
        "ntasks-per-core",
        "ntasks-per-socket",
        "ntasks-per-gpu",
        "tasks-per-node",
    ],
    "n",
    "--ntasks-per-node",
    "say it as `launch` of the target: it decides how many processes are started on each node",
);
const CPUS: OwnedOption = own(
    &["cpus-per-task", "cpus-per-gpu"],
    "c",
    "--cpus-per-task",
    "say it as `cpus-per-node` of the target",
);
const GPUS: OwnedOption = own(
    &[
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "tres-per-job",
        "tres-per-node",
        "tres-per-socket",
        "tres-per-task",
    ],
    "G",
    "--gpus-per-node",
    "say it as `gpus-per-node` of the target",
);
const GRES: OwnedOption = OwnedOption {
    names: &["gres"],
    letters: "",
    ours: "--gpus-per-node",
    instead: "say it as `gpus-per-node` of the target",
    cards_only: true,
};
const EXPORT: OwnedOption = own(
    &["export", "export-file"],
    "",
    "--export",
    "say variables in `[run]`: they travel in the job's own file, not in the scheduler's",
);
const OUTPUT: OwnedOption = own(
    &["output", "error"],
    "oe",
    "--output",
    "the log of the scheduler lies in the job's directory",
);
const CHDIR: OwnedOption = own(
    &["chdir", "workdir"],
    "D",
    "--chdir",
    "say it as `workdir` of `[run]`",
);

/// Lists what Sconce says to sbatch of a job.
pub(super) fn owned_of_sbatch(job: &JobScript<'_>) -> Vec<OwnedOption> {
    let mut owned = vec![
        NODES,
        TASKS,
        CPUS,
        GPUS,
        GRES,
        EXPORT,
        OUTPUT,
        CHDIR,
        own(
            &["job-name"],
            "J",
            "--job-name",
            "the name is the environment's",
        ),
        own(
            &["comment"],
            "",
            "--comment",
            "the job is found by its comment",
        ),
        own(
            &["open-mode"],
            "",
            "--open-mode",
            "a job that is started again goes on with its log",
        ),
        own(
            &["parsable"],
            "",
            "--parsable",
            "sbatch's answer is read by Sconce",
        ),
    ];
    let target = job.target;
    let optional = [
        (
            target.partition.is_some(),
            own(
                &["partition"],
                "p",
                "--partition",
                "say it once: as `partition` of the target",
            ),
        ),
        (
            target.account.is_some(),
            own(
                &["account"],
                "A",
                "--account",
                "say it once: as `account` of the target",
            ),
        ),
        (
            target.qos.is_some(),
            own(
                &["qos"],
                "q",
                "--qos",
                "say it once: as `qos` of the target",
            ),
        ),
        (
            target.constraint.is_some(),
            own(
                &["constraint"],
                "C",
                "--constraint",
                "say it once: as `constraint` of the target",
            ),
        ),
        (
            target.reservation.is_some(),
            own(
                &["reservation"],
                "",
                "--reservation",
                "say it once: as `reservation` of the target",
            ),
        ),
        (
            job.time_limit.is_some(),
            own(
                &["time"],
                "t",
                "--time",
                "say it once: as `time` of the target, or with the job",
            ),
        ),
        (
            job.memory_per_node.is_some(),
            own(
                &["mem", "mem-per-cpu", "mem-per-gpu"],
                "",
                "--mem",
                "say it once: as `memory` of `[run]`",
            ),
        ),
    ];
    owned.extend(
        optional
            .into_iter()
            .filter_map(|(is_said, one)| is_said.then_some(one)),
    );
    owned
}

/// Lists what Sconce says to srun.
pub(super) fn owned_of_srun() -> Vec<OwnedOption> {
    vec![
        NODES,
        own(
            &["relative"],
            "r",
            "--nodes",
            "the job is started on all of its nodes",
        ),
        TASKS,
        CPUS,
        GPUS,
        GRES,
        EXPORT,
        OUTPUT,
        CHDIR,
        own(
            &["kill-on-bad-exit"],
            "K",
            "--kill-on-bad-exit",
            "one rank that fails ends the others",
        ),
    ]
}
