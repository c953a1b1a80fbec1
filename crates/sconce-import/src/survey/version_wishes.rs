//! Versions that the code asks for by what it uses, whatever its author wrote down.

use super::own_imports::{self, OwnCode, OwnImport};
use super::{FolderSurvey, NoteKind, removed_from_python, removed_modules};
use crate::project_files::requirements::RequirementsScan;
use crate::project_files::static_project::StaticProject;
use crate::requirement::{self, Requirement};
use crate::{PackageOrigin, is_lock_format};

/// What compiles extensions of torch when they are loaded; it imports setuptools itself, older ones pkg_resources too.
const CPP_EXTENSION: &str = "torch.utils.cpp_extension";
const EXTENSION_TOOLS: &str = "setuptools<81";

impl FolderSurvey<'_> {
    /// What the project's own modules ask of others. A lock has all versions, whatever they are.
    pub(super) fn read_own_code(&mut self) -> OwnCode {
        if self.format.is_some_and(is_lock_format) {
            return OwnCode::default();
        }
        let is_removed =
            |path: &str| removed_modules::is_removed(path) || removed_from_python::is_removed(path);
        let code = own_imports::read_own_code(self.folder, &is_removed);
        self.python_bound = removed_from_python::find_python_bound(&code, &|module| {
            code.files.iter().any(|file| {
                let name = file.rsplit('/').next().unwrap_or_default();
                name.strip_suffix(".py") == Some(module)
                    || file.starts_with(&format!("{module}/"))
                    || file.contains(&format!("/{module}/"))
            })
        });
        self.add_torch_family(&code.imports);
        code
    }

    /// The versions that have the modules which the code imports, of projects that are required.
    pub(super) fn add_version_wishes(&mut self, code: &OwnCode) {
        self.add_extension_tools(code);
        let declared = self.declared_requirements();
        for wish in removed_modules::find_version_wishes(code) {
            let Ok(one) = requirement::parse(wish.requirement) else {
                continue;
            };
            // setuptools was in every environment once, and nobody wrote it down.
            if !self.has_project(&one.name) && one.name != "setuptools" {
                continue;
            }
            // The author says otherwise: what is used there is not what counts.
            let is_decided = |said: &Requirement| {
                let pinned = said.name == one.name && said.pinned_version().is_some();
                pinned || said.conflicts_with(&one)
            };
            if declared.iter().any(is_decided) {
                continue;
            }
            let place = format!("{}:{}", wish.file, wish.line);
            if let Some(said) = (wish.newest_python()).and_then(|newest| self.newer_python(newest))
            {
                let why = format!(
                    "{} is gone from later versions, and the project is for {said}, which no older version has wheels for",
                    wish.removed
                );
                self.note(NoteKind::LeftOut, &format!("{} ({place})", one.text), &why);
                continue;
            }
            self.add_bound(one, place, wish.removed);
        }
    }

    /// Adds a requirement with a bound, in place of one without that an import asked for.
    fn add_bound(&mut self, one: Requirement, place: String, removed: &'static str) {
        let packages = &mut self.imported.spec.python.packages;
        if packages.contains(&one.text) {
            return;
        }
        let origins = &mut self.imported.origins;
        if origins.iter().any(|origin| origin.package == one.name) {
            packages.retain(|package| *package != one.name);
            origins.retain(|origin| origin.package != one.name);
        }
        packages.push(one.text.clone());
        self.imported.provided.insert(one.name);
        origins.push(PackageOrigin {
            package: one.text,
            place,
            removed: Some(removed),
        });
    }

    /// setuptools, which torch does not bring for every Python.
    fn add_extension_tools(&mut self, code: &OwnCode) {
        let is_such = |one: &&OwnImport| {
            let module = &one.statement.module;
            let mut names = one.statement.names.iter();
            let is_named = names.any(|name| format!("{module}.{name}") == CPP_EXTENSION);
            one.file != "setup.py" && (module == CPP_EXTENSION || is_named)
        };
        if let Some(one) = code.imports.iter().find(is_such)
            && let Ok(tools) = requirement::parse(EXTENSION_TOOLS)
        {
            let place = format!("{}:{}", one.file, one.statement.line);
            self.add_package(&tools, format!("{place}, as {CPP_EXTENSION} imports it"));
        }
    }

    /// What the spec, the files that it refers to and the project itself require.
    fn declared_requirements(&self) -> Vec<Requirement> {
        let beside = |path: &str| self.folder.read_text(path);
        let python = &self.spec().python;
        let mut texts = python.packages.clone();
        if let Some(project) = StaticProject::read(self.folder.name(), &beside) {
            texts.extend(project.requirements_of_extras(&python.extras));
            texts.extend(project.metadata.dependencies);
        }
        let parsed = texts
            .iter()
            .filter_map(|text| requirement::parse(text).ok());
        let mut all: Vec<Requirement> = parsed.collect();
        if let Some(path) = &python.requirements
            && let Some(text) = beside(path)
        {
            let scan = RequirementsScan::scan_file(path, &text, &beside);
            all.extend(scan.requirements.into_iter().map(|(_, one)| one));
        }
        all
    }
}
