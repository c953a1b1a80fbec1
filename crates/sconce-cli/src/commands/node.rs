//! `sconce node`: a node's part of a job. The job's script has it; people do not.

use std::path::PathBuf;

use clap::Args;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::job::node::run_node;
use sconce_app::job::preparation::prepare_job;

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The job's directory.
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
    /// Make its environment, before the job begins.
    #[arg(long)]
    pub(crate) prepare: bool,
}

pub(crate) fn node(args: &NodeArgs, context: &AppContext) -> Result<u8> {
    match args.prepare {
        true => prepare_job(&args.job, context),
        false => run_node(&args.job, context),
    }
}
