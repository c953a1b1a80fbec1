//! Work beside a first run: bytecode, and having the disk confirm what was unpacked. A process of
//! its own, stopped while nothing is left over for it ([`cpu_throttle`]). It begins while packages are still fetched,
//! which on most lines leaves the processor idle, and ends with the run; what is not done then is
//! done beside the next one.

mod cpu_throttle;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use sconce_base::Env;
use sconce_image::{Priority, bytecode};
use sconce_run::{Native, RunObserver, RunOptions};
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::event::ExitStatus;
use sconce_schema::request::{Mount, RunRequest, RunRoot};
use sconce_schema::{EnvironmentLayers, Lock, exit};
use sconce_store::{Store, TreeBuildError};

use self::cpu_throttle::IdleThrottle;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;
use crate::project::Project;
use crate::run::{current_exe, internal_run_request};
use crate::sources::PackageSources;
use crate::worker::{WorkerTask, worker_command};

/// Time between two looks at what has arrived.
const ARRIVAL_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The child that does the work, if there is any. Dropping it ends the child.
#[derive(Default)]
pub struct Background(Option<Child>);

impl Background {
    /// Starts the work, unless it is under way. A failure is no one's concern: the run is right
    /// without it, and the next one tries again.
    pub fn start(&mut self, project: &Project, places: &SconceDirs) {
        if self.0.is_some() {
            return;
        }
        let Ok(program) = current_exe() else {
            return;
        };
        let task = WorkerTask::WorkBesideRun {
            spec: project.file.clone().into(),
            store: places.store.clone().into(),
        };
        let Ok(mut command) = worker_command(&program, &task) else {
            return;
        };
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        tracing::debug!(started = child.is_ok(), "work beside the run");
        self.0 = child.ok();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Does all of that work for one project, in a process of its own.
pub fn work_beside_run(spec: &Path, store: &Path) -> Result<u8> {
    let context = &AppContext {
        store: Some(store.to_owned()),
        env: Env::of_process(),
        ..AppContext::default()
    };
    // Ends with the sconce that started it, even if that is killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::process::setpriority_process(None, 19);
    let _ = sconce_run::only_when_idle();
    let opened = CommandContext::open(Project::open(spec)?, context)?;
    let Some(lock) = opened.project.load_lock()? else {
        return Ok(exit::OK);
    };
    let store = &opened.store;
    let workshop = opened.environment_builder(PackageSources::default(), context);
    // Each tree is tried once, so that one that cannot be compiled is not tried forever.
    let mut tried = BTreeSet::new();
    loop {
        // Looked at first: what arrives while the trees are worked on is seen in the next round.
        let complete = sconce_image::find_missing_packages(&lock, store).is_empty();
        if let Some(manifest) = sconce_image::so_far(&lock, store) {
            for job in bytecode::list_missing(&manifest, &lock, store) {
                if !tried.insert(job.source.clone()) {
                    continue;
                }
                // What another process is at is left to it.
                if let Some(work) = job.try_start(store)? {
                    let root = workshop.ensure_interpreter(&lock, Priority::Background)?;
                    let compiler = BytecodeCompiler {
                        root: &root,
                        lock: &lock,
                        store,
                        places: &opened.places,
                    };
                    // A tree that cannot be compiled is passed over.
                    compiler.compile(&job, work, &mut IdleThrottle::default())?;
                }
            }
        }
        if complete {
            break;
        }
        std::thread::sleep(ARRIVAL_POLL_INTERVAL);
    }
    store.sync()?;
    Ok(exit::OK)
}

/// What compiles the trees of an environment.
pub struct BytecodeCompiler<'a> {
    /// The interpreter's own root ([`bytecode::interpreter`]).
    pub root: &'a Path,
    /// The environment's lock.
    pub lock: &'a Lock,
    /// Has its trees.
    pub store: &'a Store,
    /// Where runs work.
    pub places: &'a SconceDirs,
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
        let python = format!("/usr/bin/python{}", self.lock.target.python);
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
            layers: vec![LayerTree {
                name: "interpreter".to_owned(),
                path: self.root.to_owned(),
            }],
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
        let host = sconce_host::HostProfile::read(&sconce_host::Roots::default());
        let options = RunOptions {
            program: current_exe()?,
            state_dir: self.places.scratch.clone(),
            shared: None,
            keep: None,
            sample_every: cpu_throttle::SAMPLE_INTERVAL,
            grace: Duration::ZERO,
            strict: false,
            host: &host,
            ways_out: Vec::new(),
            environment: None,
            control: None,
            waiting: None,
        };
        // A source that is removed or made anew while it is compiled would lack files in its bytecode for good.
        let trees = [self.root, &job.source];
        let _stays = sconce_store::acquire_item_guards(trees.into_iter())?;
        let outcome = sconce_run::run(&request, &Native, &options, watcher)?;
        if outcome.exit.exit_code() != exit::OK {
            return Ok(outcome.exit);
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
        finished.map(|()| outcome.exit)
    }
}
