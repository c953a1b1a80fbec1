//! `sconce wait`.

use clap::Args;
use sconce_schema::exit;

use crate::args::Global;
use crate::failure::Result;
use crate::live::{self, End};
use crate::output;
use crate::places::Places;

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// An id, its beginning, or the name of an environment; the only run in the background where
    /// none is given.
    pub(crate) run: Option<String>,
}

pub(crate) fn wait(args: &WaitArgs, global: &Global) -> Result<u8> {
    let run = live::find_any(&Places::find(global)?, args.run.as_deref())?;
    let run = live::until_ended(&run)?;
    let end = End::of(&run, live::boot_id().as_deref());
    if let Some(end @ (End::WithTheMachine | End::Killed)) = end {
        output::say(&format!("run {}: {}", run.started.id, end.text()));
    }
    Ok(end.map_or(exit::OK, End::code))
}
