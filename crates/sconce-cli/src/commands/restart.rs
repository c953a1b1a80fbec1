//! `sconce restart`.

use clap::Args;
use sconce_run::control::ControlRequest;
use sconce_schema::exit;

use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::run_lookup::{self, LiveError};

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// An id, its beginning, or the name of an environment.
    pub(crate) run: String,
    /// One of its services; all of them where none is given.
    pub(crate) service: Option<String>,
}

pub(crate) fn restart(args: &RestartArgs, context: &AppContext) -> Result<u8> {
    let run = run_lookup::find_live(&SconceDirs::find(context)?, Some(&args.run))?;
    let service = args.service.clone();
    if let (Some(name), Some(state)) = (&service, run_lookup::request_status(&run)) {
        let known: Vec<String> = state.services.into_iter().map(|it| it.name).collect();
        if !known.is_empty() && !known.contains(name) {
            return Err(LiveError::NoService {
                id: run.started.id,
                name: name.clone(),
                known,
            }
            .into());
        }
    }
    run_lookup::send_request(&run, &ControlRequest::Restart { service })?;
    Ok(exit::OK)
}
