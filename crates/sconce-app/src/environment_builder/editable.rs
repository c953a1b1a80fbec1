//! The wheels of the projects that a spec installs from where they lie.

use std::io::Write as _;

use sconce_base::text::to_printable;
use sconce_formats::normalize_project_name;
use sconce_image::editable_wheel::{EditableWheel, GeneratedModule, UNKNOWN_VERSION};
use sconce_resolve::ProjectBuild;
use sconce_resolve::python::compile::project_of;
use sconce_schema::Lock;
use sconce_schema::lock::Wheel;

use super::EnvironmentBuilder;
use crate::editable_projects::EditableProject;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::project_version::{CommitVersion, version_of_commit};
use crate::source_builds::requirement_of_module;

/// More lists are counted alone.
const MAX_NAMED: usize = 5;

impl EnvironmentBuilder<'_> {
    /// A lock with the wheels of the projects that the spec installs from where they lie, which are in
    /// the store then. An index's package of the same name gives way.
    ///
    /// # Errors
    /// A wheel cannot be written to the store.
    pub fn with_editable_projects(&self, lock: &Lock) -> Result<Lock> {
        let mut lock = lock.clone();
        for project in &self.project.editable {
            let wheel = self.ensure_editable_wheel(project, &lock.target.python)?;
            lock.wheels.retain(|other| other.name != wheel.name);
            lock.wheels.push(wheel);
        }
        lock.wheels.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lock)
    }

    /// The wheel of a project that is read from where it lies, in the store.
    pub(crate) fn ensure_editable_wheel(
        &self,
        project: &EditableProject,
        python: &str,
    ) -> Result<Wheel> {
        let EditableWheel { wheel, bytes } = self.editable_wheel(project)?;
        if self.store.wheel_tree(&wheel, python).is_none() {
            self.install_wheel(&wheel, &bytes, python)?;
        }
        Ok(wheel)
    }

    /// The wheel that has a project read from where it lies.
    fn editable_wheel(&self, project: &EditableProject) -> Result<EditableWheel> {
        let mut metadata = project.metadata.clone();
        let told = || Some(self.commit_version(project)?.version);
        metadata.version = metadata.version.or_else(told);
        let version_module = project.version_module.as_ref();
        let version_module = version_module.map(|(name, file)| GeneratedModule {
            name: name.clone(),
            text: file.render(metadata.version.as_deref().unwrap_or(UNKNOWN_VERSION)),
        });
        let folders = project.package_folders.iter();
        let folders = folders.map(|(name, folder)| GeneratedModule::of_folder(name, folder));
        let generated: Vec<_> = version_module.into_iter().chain(folders).collect();
        let built = EditableWheel::build(
            &metadata,
            &project.module_root,
            &generated,
            &project.scripts,
        );
        Ok(built.map_err(AppError::unreadable(&project.folder))?)
    }

    /// The version that a project's repository tells.
    pub(crate) fn commit_version(&self, project: &EditableProject) -> Option<CommitVersion> {
        let cache = self.store.root().join("cache").join("versions");
        version_of_commit(project, &cache)
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
                 goes into `[python] packages`{}",
                project.metadata.name,
                describe_undecided(&project.undecided)
            ));
        }
        for project in &self.project.editable {
            if let Some(note) = note_compiled(project) {
                self.progress.note(&note);
            }
        }
        let projects = self.project.editable.iter();
        for project in projects.filter(|project| project.metadata.version.is_none()) {
            let name = &project.metadata.name;
            let why = match project.scm {
                Some(_) if self.commit_version(project).is_some() => continue,
                Some(_) => "comes from its git repository, of which none is here that can be read",
                None => "is known to its build backend alone",
            };
            self.progress.note(&format!(
                "the version of {name} {why}: inside it is {UNKNOWN_VERSION}"
            ));
        }
    }
}

/// What of a project's requirements is taken under conditions that are not known.
fn describe_undecided(lists: &[(usize, Vec<String>)]) -> String {
    let named = lists.iter().take(MAX_NAMED);
    let named: Vec<String> = named
        .map(|(line, texts)| format!("{} (setup.py:{line})", to_printable(&texts.join(", "), 200)))
        .collect();
    let more = match lists.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match named.is_empty() {
        true => String::new(),
        false => format!(
            "; taken under conditions that are not known: {}{more}",
            named.join("; ")
        ),
    }
}

/// How a project's wheel is built for an image. `None` for a name that no wheel can have.
pub(super) fn project_build(project: &EditableProject) -> Option<ProjectBuild> {
    let build = &project.build;
    let known = build.imports.iter();
    let known = known.filter_map(|module| requirement_of_module(module, &[]));
    let mut requires = build.requires.clone();
    for requirement in known {
        let is_same = |other: &String| project_of(other) == project_of(&requirement);
        if !requires.iter().any(is_same) {
            requires.push(requirement);
        }
    }
    Some(ProjectBuild {
        name: normalize_project_name(&project.metadata.name)?,
        requires,
        imports: build.imports.clone(),
        compiles: build.compiles.is_some(),
    })
}

/// What is said of a project that compiles something, which nothing does where it is read from its folder.
fn note_compiled(project: &EditableProject) -> Option<String> {
    let (name, build) = (&project.metadata.name, &project.build);
    let who = build.compiles.as_deref()?;
    let how = match who {
        "setup.py" => {
            "`sconce run -- python setup.py build_ext --inplace` compiles them into it, with setuptools in \
             `[python] packages` and `compiler = true` in [system]"
        }
        "pyproject.toml" => {
            "`sconce run -- python -c 'import setuptools; setuptools.setup()' build_ext --inplace` compiles them into \
             it, with setuptools in `[python] packages` and `compiler = true` in [system]"
        }
        _ => "its build backend compiles them into an image alone",
    };
    let cuda = match build.is_cuda {
        true => "; CUDA's code needs nvcc, which stages of images have (`[stage.NAME]`)",
        false => "",
    };
    Some(format!(
        "{name} has extension modules ({who}), which are not compiled where it runs from its folder: {how}{cuda}"
    ))
}
