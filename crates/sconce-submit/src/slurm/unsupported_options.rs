//! Which options of sbatch and srun no job of Sconce can have: sbatch(1) and srun(1) of 22.05, with what newer ones
//! added and older ones had.

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
        names: &["wrap"],
        letters: "",
        harmless: &[],
        why: "the script is Sconce's own",
    },
    UnsupportedOption {
        keys: BOTH,
        // Those of pyxis begin with `container-` (its README).
        names: &[
            "container",
            "container-id",
            "container-image",
            "container-mounts",
            "container-workdir",
            "container-name",
            "container-save",
            "container-mount-home",
            "no-container-mount-home",
            "container-remap-root",
            "no-container-remap-root",
            "container-entrypoint",
            "container-entrypoint-log",
            "no-container-entrypoint",
            "container-env",
            "container-writable",
            "container-readonly",
        ],
        letters: "",
        harmless: &[],
        why: "Sconce brings the container: `containment = \"slurm\"` of the target has Slurm start one of the job's own environment, `containment = \"pyxis\"` pyxis",
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
