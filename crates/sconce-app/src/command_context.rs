//! What a verb that needs an environment opens before its work.

use std::sync::Arc;

use sconce_schema::Progress;
use sconce_store::Store;

use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::enclosing_job::EnclosingJob;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::Result;
use crate::project::Project;
use crate::reporter::Reporter;
use crate::sources::PackageSources;

/// A project, the folders to work in, the store, and where progress is drawn.
pub struct CommandContext {
    /// The project.
    pub project: Project,
    /// The directories to work in.
    pub places: SconceDirs,
    /// The store.
    pub store: Store,
    /// Whether this process is in a scheduler's job.
    pub in_job: bool,
    /// Shows the stages of the work.
    pub progress: Box<dyn Progress>,
    /// Hears of what happens.
    pub reporter: Arc<dyn Reporter>,
}

impl CommandContext {
    /// Opens the rest for `project`.
    pub fn open(project: Project, context: &AppContext) -> Result<Self> {
        let places = SconceDirs::find(context)?;
        Ok(Self {
            store: Store::open(&places.store)?,
            in_job: EnclosingJob::find(&context.env).is_some(),
            project,
            places,
            progress: context.start_progress(),
            reporter: Arc::clone(&context.reporter),
        })
    }

    /// The workshop that locks and assembles it.
    pub fn environment_builder<'a>(
        &'a self,
        sources: PackageSources,
        context: &'a AppContext,
    ) -> EnvironmentBuilder<'a> {
        EnvironmentBuilder {
            project: &self.project,
            places: &self.places,
            store: &self.store,
            sources,
            context,
            progress: &*self.progress,
        }
    }
}
