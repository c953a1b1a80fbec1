//! The program that sets a run's container up in Sconce's place: where it is, and which version.

use sconce_run::Engine;
use sconce_schema::Runtime;
use sconce_schema::runtime::RuntimeSummary;

use crate::failure::{CliError, Result};
use crate::limits::helper;

/// What `--runtime` says.
pub(crate) fn runtime(text: &str) -> Result<Runtime, String> {
    text.parse()
}

/// The engine of a run; none where Sconce holds it itself.
pub(crate) fn find(runtime: Runtime) -> Result<Option<Engine>> {
    if matches!(runtime, Runtime::Sconce | Runtime::Docker) {
        return Ok(None);
    }
    let program = helper(runtime.name()).ok_or(CliError::NoRuntime { runtime })?;
    Ok(Some(Engine::ask(runtime, program)?))
}

/// As a record names it.
pub(crate) fn summary(engine: &Engine) -> RuntimeSummary {
    RuntimeSummary {
        name: engine.runtime(),
        version: engine.version().to_owned(),
    }
}
