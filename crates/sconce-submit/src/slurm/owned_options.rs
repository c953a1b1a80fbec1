//! Which options of sbatch and srun are Sconce's own: sbatch(1) and srun(1) of 22.05, with what newer ones added.

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

/// Says an option that is Sconce's where the key of its name stands in the target.
macro_rules! of_key {
    ($name:literal, $letters:literal) => {
        own(
            &[$name],
            $letters,
            concat!("--", $name),
            concat!("say it once: as `", $name, "` of the target"),
        )
    };
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
const CARDS_OF_NODES: &str = "say it as `gpus-per-node` of the target";
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
    CARDS_OF_NODES,
);
const GRES: OwnedOption = OwnedOption {
    cards_only: true,
    ..own(&["gres"], "", "--gpus-per-node", CARDS_OF_NODES)
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
            "say it with the job: `--job-name`; where nobody does, it is the environment's",
        ),
        own(
            &["array"],
            "a",
            "--array",
            "say it with the job: `--array`, or `--sweep`",
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
        (target.partition.is_some(), of_key!("partition", "p")),
        (target.account.is_some(), of_key!("account", "A")),
        (target.qos.is_some(), of_key!("qos", "q")),
        (target.constraint.is_some(), of_key!("constraint", "C")),
        (target.reservation.is_some(), of_key!("reservation", "")),
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
            job.is_prepared || !job.after.is_empty(),
            own(
                &["dependency", "kill-on-invalid-dep"],
                "d",
                "--dependency",
                "say it once: jobs of Sconce's with `--after`",
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
