//! `sconce node`: a node's part of a job. The job's script has it; people do not.

use std::path::PathBuf;

use clap::Args;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::job::node::run_node;

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The job's folder.
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
}

pub(crate) fn node(args: &NodeArgs, context: &AppContext) -> Result<u8> {
    run_node(&args.job, context)
}
