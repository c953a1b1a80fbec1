//! Slurm, by its command line: sbatch, squeue, sacct and scancel, as of 22.05 and newer.
//!
//! [`script`] renders what sbatch is given, by the options that [`options`] let through; [`process`] runs one program,
//! [`said`] makes errors of its words, [`state`] and [`reason`] read its tables, [`step_log`] what it
//! writes into a job's logs; [`node_list`] is for nodes themselves.

mod commands;
mod inventory;
pub(crate) mod node_list;
mod oci_conf;
mod options;
mod owned_options;
mod process;
mod reason;
mod said;
pub(crate) mod script;
pub(crate) mod state;
mod step;
mod step_log;
mod unsupported_options;

pub use commands::{DEFAULT_COMMAND_TIMEOUT, SlurmScheduler, SlurmSettings};
pub use oci_conf::find_oci_conf;
