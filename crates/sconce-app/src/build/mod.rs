//! What images of environments are built from: stages, steps and bytecode.

pub mod projects;
pub mod stages;
pub mod steps;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use sconce_image::Priority;
use sconce_image::build::ImageOptions;
use sconce_image::bytecode::{self, BytecodeJob};
use sconce_image::layer::Compression;
use sconce_image::layer_plan::{DEFAULT_LAYERS, LayerPlan, LayerPlanOptions};
use sconce_image::local_image::LocalImage;
use sconce_run::RunObserver;
use sconce_schema::{EnvironmentLayers, Lock, exit};

use crate::bytecode_compiler::BytecodeCompiler;
use crate::command_context::CommandContext;
use crate::enclosing_job::EnclosingJob;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::{AppError, Failure, Result};

/// The image of an environment alone, without what `[build]` adds: what a run of it has.
pub fn of_environment(
    opened: &CommandContext,
    workshop: &EnvironmentBuilder<'_>,
    lock: &Lock,
    environment: &EnvironmentLayers,
) -> Result<LocalImage> {
    // In the image nobody could write it down later.
    let environment = with_bytecode(workshop, lock, environment)?;
    let options = LayerPlanOptions {
        most_layers: DEFAULT_LAYERS,
        bytecode: true,
    };
    let about = ImageOptions {
        name: opened.project.name.clone(),
        compression: Compression::default(),
        env: BTreeMap::new(),
        command: Vec::new(),
        workdir: None,
        variant: None,
        cards: Vec::new(),
        created: 0,
    };
    let (plan, store) = (LayerPlan::for_lock(lock, options), &opened.store);
    let progress = &*opened.progress;
    Ok(sconce_image::build::build_image(
        &plan,
        lock,
        &environment,
        &about,
        store,
        progress,
    )?)
}

/// The environment with its bytecode, of which what is missing is made now.
///
/// # Errors
/// A tree cannot be compiled, or has left the store.
pub(crate) fn with_bytecode(
    workshop: &EnvironmentBuilder<'_>,
    lock: &Lock,
    environment: &EnvironmentLayers,
) -> Result<EnvironmentLayers> {
    compile_missing_bytecode(workshop, lock, environment)?;
    Ok(sconce_image::load_environment(lock, workshop.store)?)
}

/// Makes the bytecode that is missing, on every core: the image waits for it.
pub(crate) fn compile_missing_bytecode(
    workshop: &EnvironmentBuilder<'_>,
    lock: &Lock,
    environment: &EnvironmentLayers,
) -> Result<()> {
    struct SilentObserver;
    impl RunObserver for SilentObserver {}

    let store = workshop.store;
    let jobs = bytecode::list_missing(environment, lock, store);
    if jobs.is_empty() {
        // The work beside this build was stopped, and another build may have done it since.
        return Ok(bytecode::clear_leftovers(environment, lock, store)?);
    }
    workshop.progress.stage("compile", None);
    let interpreter = workshop.ensure_interpreter(lock, Priority::Foreground)?;
    let compiler = BytecodeCompiler {
        interpreter: &interpreter,
        lock,
        store,
        places: workshop.places,
        in_job: EnclosingJob::find(&workshop.context.env).is_some(),
    };
    // What another process is at comes last: another build has finished it by then, and the work
    // beside a run, which may take as long as the run, is not waited for.
    let left: Mutex<VecDeque<(&BytecodeJob, bool)>> =
        Mutex::new(jobs.iter().map(|j| (j, true)).collect());
    let list = || left.lock().unwrap_or_else(|e| e.into_inner());
    // Whether it was left to another process.
    let one = |job: &BytecodeJob, is_first: bool| -> Result<bool> {
        let work = match is_first {
            true => job.try_start(store)?,
            false => job.begin_beside(store, workshop.progress)?,
        };
        let Some(work) = work else { return Ok(true) };
        let exit = compiler.compile(job, work, &mut SilentObserver)?;
        match exit.exit_code() {
            exit::OK => Ok(false),
            _ => Err(AppError::Compile {
                what: job.name.clone(),
                exit,
            }
            .into()),
        }
    };
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    let work = || {
        loop {
            // The list is not held while the work is done.
            let next = list().pop_front();
            let Some((job, is_first)) = next else { break };
            match one(job, is_first) {
                Ok(true) if is_first => list().push_back((job, false)),
                Ok(_) => {}
                Err(error) => drop(
                    failed
                        .lock()
                        .unwrap_or_else(|e| e.into_inner())
                        .get_or_insert(error),
                ),
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(error) => Err(error),
        None => Ok(bytecode::clear_leftovers(environment, lock, store)?),
    }
}
