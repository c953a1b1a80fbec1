//! What a verb that needs an environment opens before its work.

use sconce_store::Store;

use crate::args::{GlobalArgs, PackageSources};
use crate::dirs::SconceDirs;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::Result;
use crate::progress::TerminalProgress;
use crate::project::Project;

/// A project, the folders to work in, the store, and where progress is drawn.
pub(crate) struct CommandContext {
    pub(crate) project: Project,
    pub(crate) places: SconceDirs,
    pub(crate) store: Store,
    pub(crate) progress: TerminalProgress,
}

impl CommandContext {
    /// Opens the rest for `project`.
    pub(crate) fn open(project: Project, global: &GlobalArgs) -> Result<Self> {
        let places = SconceDirs::find(global)?;
        Ok(Self {
            store: Store::open(&places.store)?,
            project,
            places,
            progress: TerminalProgress::new(global.quiet),
        })
    }

    /// The workshop that locks and assembles it.
    pub(crate) fn environment_builder<'a>(
        &'a self,
        sources: &'a PackageSources,
        global: &'a GlobalArgs,
    ) -> EnvironmentBuilder<'a> {
        EnvironmentBuilder {
            project: &self.project,
            places: &self.places,
            store: &self.store,
            sources,
            global,
            progress: &self.progress,
        }
    }
}
