//! The spec's own projects in an image, which has no folder of this machine: a wheel of each, built from its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_formats::normalize_project_name;
use sconce_image::bytecode;
use sconce_image::project::build_file_tree;
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::lock::Wheel;
use sconce_schema::spec::WORKSPACE;
use sconce_schema::{EnvironmentLayers, Lock};
use sconce_store::ItemGuard;

use super::compile_missing_bytecode;
use crate::editable_projects::EditableProject;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::{Failure, Result};
use crate::item_guards::acquire_layer_guards;
use crate::project_files::list_project_files;
use crate::protected_dirs::validate_packed_files;
use crate::source_builds::{OwnProject, SourceBuildError};

/// What an image has of the spec's own projects.
pub struct ProjectLayers {
    /// Their names, and their trees where they are made.
    pub layers: Vec<(String, Option<PathBuf>)>,
    /// Has the trees stay in the store.
    pub guards: Vec<ItemGuard>,
}

/// A project's wheel, or why there is none.
enum OwnWheel {
    Built(Wheel),
    /// It was never built, and is not to be now.
    Unknown,
    /// It is not built, for this reason.
    Refused(String),
}

impl ProjectLayers {
    /// Builds the wheels of the spec's projects; only looks for them where `runs` is false. One that cannot be built
    /// has its folder in [`WORKSPACE`] on the path in its place, as in a run, which is said.
    ///
    /// # Errors
    /// What is built with cannot be fetched, or the store fails.
    pub fn ensure(
        workshop: &EnvironmentBuilder<'_>,
        lock: &Lock,
        runs: bool,
        is_compiled: bool,
    ) -> Result<Self> {
        let (store, python) = (workshop.store, &lock.target.python);
        let mut made = Self {
            layers: Vec::new(),
            guards: Vec::new(),
        };
        for project in &workshop.project.editable {
            let name = project.metadata.name.clone();
            let wheel = match own_wheel(workshop, project, lock, runs)? {
                OwnWheel::Built(wheel) => wheel,
                OwnWheel::Unknown => {
                    made.layers.push((name, None));
                    continue;
                }
                OwnWheel::Refused(reason) => {
                    workshop.progress.note(&format!(
                        "{name} is not built for the image: {reason}\nIts folder is on the path in its place, as in a \
                         run: it can be imported where `[build] files` brings it to {WORKSPACE}"
                    ));
                    workshop.ensure_editable_wheel(project, python)?
                }
            };
            let path = store.wheel_tree(&wheel, python);
            let tree = path.map(|path| LayerTree {
                name: format!("{} {}", wheel.name, wheel.version),
                path,
            });
            let mut own = EnvironmentLayers {
                layers: Vec::from_iter(tree),
                env: BTreeMap::new(),
            };
            if runs && is_compiled {
                compile_missing_bytecode(workshop, lock, &own)?;
            }
            if is_compiled {
                bytecode::add_layers(&mut own, lock, store);
            }
            made.guards.extend(acquire_layer_guards(&own.layers)?);
            let layers = own.layers.into_iter();
            made.layers
                .extend(layers.map(|layer| (layer.name, Some(layer.path))));
        }
        Ok(made)
    }

    /// As far as the names of the layers go, before anything is fetched.
    #[must_use]
    pub fn unknown(projects: &[EditableProject]) -> Self {
        let layers = projects
            .iter()
            .map(|project| (project.metadata.name.clone(), None));
        Self {
            layers: layers.collect(),
            guards: Vec::new(),
        }
    }
}

fn own_wheel(
    workshop: &EnvironmentBuilder<'_>,
    project: &EditableProject,
    lock: &Lock,
    runs: bool,
) -> Result<OwnWheel> {
    let refused = |reason: &str| Ok(OwnWheel::Refused(reason.to_owned()));
    if workshop.project.spec.python.build_sources == Some(false) {
        return refused("`[python] build-sources` is false");
    }
    let name = normalize_project_name(&project.metadata.name).unwrap_or_default();
    if lock.project_build(&name).is_none() {
        return refused(
            "the lock does not have what it is built with, which `sconce lock` resolves",
        );
    }
    let spec = workshop.project;
    // The spec and its lock say what is around the project.
    let around = match spec.script {
        Some(_) => vec![spec.lock_file()],
        None => vec![spec.file.clone(), spec.lock_file()],
    };
    let files = match list_project_files(&project.folder, &around) {
        Ok(files) => files,
        Err(error) => return refused(&with_hint(&error.into())),
    };
    // Nothing of the store gets into an image, by whatever way.
    if let Err(failure) = validate_packed_files(&files, &project.folder, workshop.places) {
        return refused(&with_hint(&failure));
    }
    let tree = build_file_tree(&project.folder, &files, workshop.store)?;
    let _stays = acquire_layer_guards(&[LayerTree {
        name: name.clone(),
        path: tree.clone(),
    }])?;
    let found = project
        .metadata
        .version
        .is_none()
        .then(|| workshop.commit_version(project));
    // The key of the item, which is made of the files.
    let key = tree.parent().and_then(Path::file_name).unwrap_or_default();
    let own = OwnProject {
        name,
        source: &tree.join(WORKSPACE.trim_start_matches('/')),
        digest: key.to_string_lossy().into_owned(),
        scm: project.scm.as_ref().zip(found),
        compiles: project.build.compiles.is_some(),
    };
    let fetcher = workshop.fetcher()?;
    let builder = workshop.contained_builder(&fetcher);
    match builder.build_own_project(&own, lock, runs) {
        Ok(Some(built)) => Ok(OwnWheel::Built(built.wheel)),
        Ok(None) => Ok(OwnWheel::Unknown),
        Err(failure) if failure.is::<SourceBuildError>() => refused(&with_hint(&failure)),
        Err(failure) => Err(failure),
    }
}

/// A failure in one text.
fn with_hint(failure: &Failure) -> String {
    match failure.hint() {
        Some(hint) => format!("{}\n{hint}", failure.message()),
        None => failure.message(),
    }
}
