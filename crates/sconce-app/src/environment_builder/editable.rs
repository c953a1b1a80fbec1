//! The wheels of the projects that a spec installs from where they lie.

use std::io::Write as _;

use sconce_image::editable_wheel::{EditableWheel, UNKNOWN_VERSION};
use sconce_schema::Lock;
use sconce_schema::lock::Wheel;

use super::EnvironmentBuilder;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

impl EnvironmentBuilder<'_> {
    /// A lock with the wheels of the projects that the spec installs from where they lie, which are in
    /// the store then. An index's package of the same name gives way.
    ///
    /// # Errors
    /// A wheel cannot be written to the store.
    pub fn with_editable_projects(&self, lock: &Lock) -> Result<Lock> {
        let mut lock = lock.clone();
        for project in &self.project.editable {
            let built = EditableWheel::build(&project.metadata, &project.module_root);
            let EditableWheel { wheel, bytes } =
                built.map_err(AppError::unreadable(&project.folder))?;
            if self.store.wheel_tree(&wheel, &lock.target.python).is_none() {
                self.install_wheel(&wheel, &bytes, &lock.target.python)?;
            }
            lock.wheels.retain(|other| other.name != wheel.name);
            lock.wheels.push(wheel);
        }
        lock.wheels.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lock)
    }

    /// Puts a wheel that was made here into the store, by way of a file.
    fn install_wheel(&self, wheel: &Wheel, bytes: &[u8], python: &str) -> Result<()> {
        let folder = &self.places.scratch;
        let failed = |source| AppError::File {
            action: FileAction::Write,
            path: folder.clone(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        let wheel = Wheel {
            url: sconce_fetch::file_url(file.path()),
            ..wheel.clone()
        };
        let (fetcher, progress) = (self.fetcher()?, self.progress);
        self.store
            .ensure_wheels(&fetcher, &[wheel], python, progress)?;
        Ok(())
    }

    /// Says what of the projects is not known: versions, as they will stand in what they tell of themselves,
    /// and what they require.
    pub fn note_unknown_metadata(&self) {
        for project in self
            .project
            .editable
            .iter()
            .filter(|project| project.is_partial)
        {
            self.progress.note(&format!(
                "{} computes some of what it requires, which is not known without running it: what is missing \
                 goes into `[python] packages`",
                project.metadata.name
            ));
        }
        let projects = self.project.editable.iter();
        for project in projects.filter(|project| project.metadata.version.is_none()) {
            self.progress.note(&format!(
                "the version of {} is known to its build backend alone: inside it is {UNKNOWN_VERSION}",
                project.metadata.name
            ));
        }
    }
}
