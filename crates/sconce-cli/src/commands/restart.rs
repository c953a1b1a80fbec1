//! `sconce restart`.

use clap::Args;
use sconce_run::control::Ask;
use sconce_schema::exit;

use crate::args::Global;
use crate::failure::Result;
use crate::live;
use crate::places::Places;

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// An id, its beginning, or the name of an environment.
    pub(crate) run: String,
    /// One of its services; all of them where none is given.
    pub(crate) service: Option<String>,
}

pub(crate) fn restart(args: &RestartArgs, global: &Global) -> Result<u8> {
    let run = live::find(&Places::find(global)?, Some(&args.run))?;
    let service = args.service.clone();
    live::ask(&run, &Ask::Restart { service })?;
    Ok(exit::OK)
}
