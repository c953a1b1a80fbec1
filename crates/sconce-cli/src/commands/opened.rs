//! What a verb that needs an environment opens before its work.

use sconce_store::Store;

use crate::args::{Global, Sources};
use crate::failure::Result;
use crate::places::Places;
use crate::prepare::Workshop;
use crate::progress::Drawn;
use crate::project::Project;

/// A project, the folders to work in, the store, and where progress is drawn.
pub(crate) struct Opened {
    pub(crate) project: Project,
    pub(crate) places: Places,
    pub(crate) store: Store,
    pub(crate) progress: Drawn,
}

impl Opened {
    /// Opens the rest for `project`.
    pub(crate) fn with(project: Project, global: &Global) -> Result<Self> {
        let places = Places::find(global)?;
        Ok(Self {
            store: Store::open(&places.store)?,
            project,
            places,
            progress: Drawn::new(global.quiet),
        })
    }

    /// The workshop that locks and assembles it.
    pub(crate) fn workshop<'a>(&'a self, sources: &'a Sources, global: &'a Global) -> Workshop<'a> {
        Workshop {
            project: &self.project,
            places: &self.places,
            store: &self.store,
            sources,
            global,
            progress: &self.progress,
        }
    }
}
