//! Work beside a first run: bytecode, and having the disk confirm what was unpacked. A process of
//! its own, stopped while nothing is left over for it ([`cpu_throttle`]). It begins while packages are still fetched,
//! which on most lines leaves the processor idle, and ends with the run; what is not done then is
//! done beside the next one.

mod cpu_throttle;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sconce_base::Env;
use sconce_image::{Priority, bytecode};
use sconce_schema::exit;

use self::cpu_throttle::IdleThrottle;
use crate::bytecode_compiler::BytecodeCompiler;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::failure::Result;
use crate::project::Project;
use crate::sources::PackageSources;

/// Time between two looks at what has arrived.
const ARRIVAL_POLL_INTERVAL: Duration = Duration::from_millis(200);

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
                    let interpreter = workshop.ensure_interpreter(&lock, Priority::Background)?;
                    let compiler = BytecodeCompiler {
                        interpreter: &interpreter,
                        lock: &lock,
                        store,
                        places: &opened.places,
                        in_job: opened.in_job,
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
