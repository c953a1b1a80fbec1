//! Slurm, by its command line: sbatch, squeue, sacct and scancel, as of 22.05 and newer.

pub(crate) mod node_list;

use std::time::Duration;

use sconce_base::Env;

/// How long each of Slurm's programs may take where the caller has no other wish: three times what its parts wait for
/// each other (`MessageTimeout` of slurm.conf(5), 10 s).
pub const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// What is given to Slurm's programs.
#[derive(Debug, Clone)]
pub struct SlurmSettings {
    /// The variables of the caller: `PATH` says where the programs are, `SLURM_CONF` which cluster it is. Those that
    /// change what the programs do (`SBATCH_…`, `SQUEUE_…` and others) are not passed on.
    pub env: Env,
    /// Whose jobs they are.
    pub user_id: u32,
    /// How long each program may take.
    pub command_timeout: Duration,
}

/// Slurm's programs on this machine.
#[derive(Debug, Clone)]
pub struct SlurmScheduler {
    settings: SlurmSettings,
}

impl SlurmScheduler {
    /// Takes the settings; no program is looked for until one is needed.
    #[must_use]
    pub fn new(settings: SlurmSettings) -> Self {
        Self { settings }
    }
}
