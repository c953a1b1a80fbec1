//! Work that waits for a first run to be under way: bytecode, and having the disk confirm what was
//! unpacked. A process of its own, at the lowest priority, which ends with the run; what is not
//! done then is done beside the next one.

use std::process::{Child, Command, Stdio};

use sconce_image::bytecode;
use sconce_run::{RunOptions, Watcher};
use sconce_schema::request::{Mount, Root};
use sconce_schema::{ImageManifest, Lock, exit};
use sconce_store::{BuildError, Store};

use crate::args::{ChoresArgs, Global};
use crate::failure::{CliError, Failure, Result};
use crate::places::Places;
use crate::project::Project;

/// The child that does the work, if there is any. Dropping it ends the child.
#[derive(Default)]
pub(crate) struct Background(Option<Child>);

impl Background {
    /// Starts the work unless nothing is left to do. A failure is no one's concern: the run is
    /// right without it, and the next one tries again.
    pub(crate) fn start(
        &mut self,
        project: &Project,
        places: &Places,
        lock: &Lock,
        manifest: &ImageManifest,
        store: &Store,
    ) {
        if bytecode::missing(manifest, lock, store).is_empty() {
            return;
        }
        let Ok(program) = super::commands::run::program() else {
            return;
        };
        let child = Command::new(program)
            .arg("--store")
            .arg(&places.store)
            .arg("chores")
            .arg(&project.file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
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

/// `sconce chores`: all of that work, for one project.
pub(crate) fn chores(args: &ChoresArgs, global: &Global) -> Result<u8> {
    // Ends with the sconce that started it, even if that is killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::process::setpriority_process(None, 19);
    let project = Project::open(&args.spec)?;
    let places = Places::find(global)?;
    let store = Store::open(&places.store)?;
    if let Some(lock) = project
        .lock()?
        .filter(|lock| sconce_image::needs(lock, &store).is_empty())
    {
        let manifest = sconce_image::ready(&lock, &store)?;
        compile(&lock, &manifest, &store, &places)?;
    }
    store.sync()?;
    Ok(exit::OK)
}

/// Makes the bytecode that is missing, in the environment itself.
fn compile(lock: &Lock, manifest: &ImageManifest, store: &Store, places: &Places) -> Result<()> {
    for job in bytecode::missing(manifest, lock, store) {
        let failed = |source| CliError::File {
            action: "write",
            path: job.output.clone(),
            source,
        };
        job.begin().map_err(failed)?;
        let bind = |source: &std::path::Path, target: &str, read_only| Mount {
            source: source.to_owned(),
            target: target.into(),
            read_only,
        };
        let mounts = vec![
            bind(&job.source, "/source", true),
            bind(&job.output, "/output", false),
        ];
        let python = format!("/usr/bin/python{}", lock.target.python);
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
        let root = Root::Image(ImageManifest {
            layers: manifest.layers[..1].to_vec(),
            env: manifest.env.clone(),
        });
        let request = super::commands::run::chore(
            root,
            "bytecode",
            command.iter().map(ToString::to_string).collect(),
            mounts,
        );
        let host = sconce_host::HostFacts::read(&sconce_host::Roots::default());
        let options = RunOptions {
            program: super::commands::run::program()?,
            state_dir: places.scratch.clone(),
            sample_every: std::time::Duration::from_secs(3600),
            grace: std::time::Duration::ZERO,
            strict: false,
            host: &host,
            environment: &[],
        };
        let outcome = sconce_run::run(&request, &options, &mut Nobody)?;
        if outcome.exit.code() != exit::OK {
            continue;
        }
        job.finish(store).map_err(|error| match error {
            BuildError::Store(error) => Failure::from(error),
            BuildError::Build(source) => failed(source).into(),
        })?;
    }
    Ok(())
}

/// Watches nothing: a chore is not a run of the user's.
struct Nobody;

impl Watcher for Nobody {}
