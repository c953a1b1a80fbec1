//! The process that works beside a first run ([`crate::background_work`]), as it is seen by the run.

use std::process::{Child, Stdio};

use sconce_store::Store;

use crate::project::Project;
use crate::worker::{WorkerTask, current_exe, worker_command};

/// The child that does the work, if there is any. Dropping it ends the child.
#[derive(Default)]
pub struct Background(Option<Child>);

impl Background {
    /// Starts the work, unless it is under way. A failure is no one's concern: the run is right
    /// without it, and the next one tries again.
    pub fn start(&mut self, project: &Project, store: &Store) {
        // Killed in the middle, as it may be, it would leave what no lock tells from another one's work.
        if self.0.is_some() || !store.is_writable() || !store.has_locks() {
            return;
        }
        let Ok(program) = current_exe() else {
            return;
        };
        let task = WorkerTask::WorkBesideRun {
            spec: project.file.clone().into(),
            store: store.root().into(),
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
