//! Python's bytecode for a tree of an environment, compiled in a container by the environment's own interpreter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sconce_image::bytecode;
use sconce_run::RunObserver;
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::event::ExitStatus;
use sconce_schema::request::{Mount, RunRequest, RunRoot};
use sconce_schema::{EnvironmentLayers, Lock, exit};
use sconce_store::{Store, TreeBuildError};

use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;
use crate::internal_run::{InternalRun, internal_run_request};

/// How often the observer of a compilation is called.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// What compiles the trees of an environment.
pub struct BytecodeCompiler<'a> {
    /// The trees of the interpreter's own root ([`bytecode::interpreter`]), lowest first.
    pub interpreter: &'a [PathBuf],
    /// The environment's lock.
    pub lock: &'a Lock,
    /// Has its trees.
    pub store: &'a Store,
    /// Where runs work.
    pub places: &'a SconceDirs,
    /// Whether this process is in a scheduler's job.
    pub in_job: bool,
}

impl BytecodeCompiler<'_> {
    /// Makes the bytecode of one tree, and tells how the compiler ended: it makes none unless it succeeds.
    pub fn compile(
        &self,
        job: &bytecode::BytecodeJob,
        work: bytecode::BytecodeBuild,
        watcher: &mut dyn RunObserver,
    ) -> Result<ExitStatus> {
        let bind = |source: PathBuf, target: &str, read_only| Mount {
            source,
            target: target.into(),
            read_only,
        };
        let output = work.output_dir();
        let mounts = vec![
            bind(job.source.clone(), "/source", true),
            bind(output.clone(), "/output", false),
        ];
        let python = self.lock.python_program();
        let command = [
            &python,
            "-I",
            "-S",
            "-B",
            "-c",
            bytecode::SCRIPT,
            "/source",
            "/output",
        ];
        let root = RunRoot::Image(EnvironmentLayers {
            layers: self
                .interpreter
                .iter()
                .map(|path| LayerTree {
                    name: "interpreter".to_owned(),
                    path: path.clone(),
                })
                .collect(),
            env: BTreeMap::new(),
        });
        let request = RunRequest {
            env: bytecode::compile_variables(),
            ..internal_run_request(
                root,
                "bytecode",
                command.iter().map(ToString::to_string).collect(),
                mounts,
            )
        };
        let internal = InternalRun {
            scratch: &self.places.scratch,
            keep: None,
            in_job: self.in_job,
            sample_every: SAMPLE_INTERVAL,
            grace: Duration::ZERO,
        };
        // A source that is removed or made anew while it is compiled would lack files in its bytecode for good.
        let trees = self.interpreter.iter().chain([&job.source]);
        let _stays = sconce_store::acquire_item_guards(trees.map(PathBuf::as_path))?;
        let ended = internal.execute(&request, watcher)?;
        if ended.exit_code() != exit::OK {
            return Ok(ended);
        }
        let finished = work.finish(self.store).map_err(|error| match error {
            TreeBuildError::Store(error) => Failure::from(error),
            TreeBuildError::Build(source) => AppError::File {
                action: FileAction::Move,
                path: output,
                source,
            }
            .into(),
        });
        finished.map(|()| ended)
    }
}
