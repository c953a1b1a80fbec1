//! What every verb works with: the caller's environment and settings, and whoever hears of what happens.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use sconce_base::Env;
use sconce_schema::progress::{NoProgress, Progress};

use crate::reporter::{AppEvent, NoReporter, Reporter};
use crate::worker::WorkerTask;

/// The program as its caller started it, read once.
#[derive(Clone)]
pub struct AppContext {
    /// Whether events that are only for people are left out.
    pub quiet: bool,
    /// Whether the network may not be used.
    pub offline: bool,
    /// The store's directory, where the caller named one.
    pub store: Option<PathBuf>,
    /// What this process does for another one of the program, if it was started for that.
    pub task: Option<WorkerTask>,
    /// The caller's variables.
    pub env: Env,
    /// The caller's arguments, without the program's name: a worker that does a part of the same is started with
    /// them.
    pub arguments: Vec<OsString>,
    /// Hears of what happens.
    pub reporter: Arc<dyn Reporter>,
}

impl Default for AppContext {
    fn default() -> Self {
        Self {
            quiet: false,
            offline: false,
            store: None,
            task: None,
            env: Env::default(),
            arguments: Vec::new(),
            reporter: Arc::new(NoReporter),
        }
    }
}

impl AppContext {
    /// Returns the same for work that says nothing of itself.
    pub fn to_quiet(&self) -> Self {
        Self {
            quiet: true,
            ..self.clone()
        }
    }

    /// Whether this process holds a run in the background; whoever started it waits on its standard input
    /// for the word that the run has begun.
    pub fn holds_run(&self) -> bool {
        self.task == Some(WorkerTask::HoldRun)
    }

    /// Returns what shows the stages of a verb's work.
    pub fn start_progress(&self) -> Box<dyn Progress> {
        match self.quiet {
            true => Box::new(NoProgress),
            false => self.reporter.start_progress(),
        }
    }

    /// Tells the reporter, unless the event is only for people and none of those are wanted.
    pub fn report(&self, event: &AppEvent<'_>) {
        if !self.quiet || event.is_essential() {
            self.reporter.report(event);
        }
    }
}
