//! Which of the folder's files the README installs from.

use super::super::project_table::is_for_developers;
use super::super::readme::InstallLines;
use super::super::release::{BaseRelease, PYTHONS};
use super::super::{ImportFormat, import_spec};
use super::{FolderSurvey, NoteKind};

impl FolderSurvey<'_> {
    /// Takes the requirements file, or conda's file, that the README names, where the project's own files say
    /// less. pip comes before conda.
    pub(super) fn choose_source(&mut self, readme: &str, installs: &InstallLines) {
        let is_package = matches!(
            self.format,
            Some(ImportFormat::Pyproject | ImportFormat::Setup)
        );
        let exists = |path: &str| self.folder.read_text(path).is_some();
        let file = installs
            .files
            .iter()
            .find(|(_, path, _)| exists(path))
            .cloned();
        let environment = installs
            .environments
            .iter()
            .find(|(_, path)| exists(path))
            .cloned();
        match (self.format, file) {
            (Some(ImportFormat::UvLock), _) => {}
            (_, Some((line, path, block))) => {
                let pyproject = self.spec().python.pyproject.is_some();
                let other = self.spec().python.requirements.as_ref() != Some(&path);
                if other && !pyproject && self.format != Some(ImportFormat::Requirements) {
                    self.refer_to_requirements(&path, is_package);
                    self.say_choice(&path, readme, line);
                }
                let source = self.spec().python.requirements.clone().unwrap_or(path);
                self.copy_further_files(&source, block, readme, installs);
            }
            (format, None) => {
                let less = is_package || format.is_none();
                // What pip installs after it is beside the environment, or another way to the same.
                let is_first = |line: usize| installs.first_pip_line().is_none_or(|pip| line < pip);
                match environment {
                    Some((line, path)) if less && is_first(line) => {
                        self.take_environment(&path, readme, line);
                    }
                    Some((line, path)) if self.source != path => {
                        let why = format!(
                            "{readme}:{line} makes an environment of it; {} is taken, as pip's way goes before conda's",
                            self.source
                        );
                        self.note(NoteKind::Decided, &path, &why);
                    }
                    _ => {}
                }
            }
        }
    }

    fn say_choice(&mut self, path: &str, readme: &str, line: usize) {
        let why = format!("{readme}:{line} installs from it");
        self.note(NoteKind::Decided, path, &why);
    }

    /// The requirements file stands beside the project itself, or instead of another source.
    fn refer_to_requirements(&mut self, path: &str, beside_project: bool) {
        let Some(text) = self.folder.read_text(path) else {
            return;
        };
        let beside = |path: &str| self.folder.read_text(path);
        let Ok(imported) = import_spec(ImportFormat::Requirements, path, &text, &beside) else {
            return;
        };
        if beside_project {
            let own = &mut self.imported;
            own.spec.python.requirements = imported.spec.python.requirements;
            own.spec
                .python
                .packages
                .extend(imported.spec.python.packages);
            for folder in imported.spec.python.editable {
                if !own.spec.python.editable.contains(&folder) {
                    own.spec.python.editable.push(folder);
                }
            }
            own.provided.extend(imported.provided);
            own.notes.extend(imported.notes);
            return;
        }
        self.imported = imported;
        self.format = Some(ImportFormat::Requirements);
        self.source = path.to_owned();
        self.declared = true;
    }

    /// Says what becomes of the Python that the README has conda install.
    pub(super) fn note_python(&mut self, readme: &str, installs: &InstallLines) {
        let Some((line, version)) = &installs.python else {
            return;
        };
        if self.spec().python.version.is_some() {
            return;
        }
        let what = format!("Python {version}");
        match BaseRelease::with_python(version) {
            Some(_) => {
                let why = format!(
                    "{readme}:{line} names it; `lock` takes the newest that everything resolves for, unless `version` in [python] has it"
                );
                self.note(NoteKind::Decided, &what, &why);
            }
            None => {
                let why = format!("{readme}:{line} names it, and it is out of reach: {PYTHONS}");
                self.note(NoteKind::LeftOut, &what, &why);
            }
        }
    }

    /// A requirements file that a notebook installs from.
    pub(super) fn add_notebook_file(&mut self, path: &str, place: &str) {
        let why = format!("{place} installs from it");
        if self.folder.read_text(path).is_none() {
            let why = format!("{why}, and it is not there");
            self.note(NoteKind::LeftOut, path, &why);
        } else if self.spec().python.requirements.is_none() {
            self.refer_to_requirements(path, self.format.is_some());
            self.note(NoteKind::Decided, path, &why);
        } else {
            self.copy_file(path);
        }
    }

    /// Adds what a further requirements file names.
    fn copy_file(&mut self, path: &str) {
        let Some(text) = self.folder.read_text(path) else {
            return;
        };
        let beside = |path: &str| self.folder.read_text(path);
        let scan =
            crate::project_files::requirements::RequirementsScan::scan_file(path, &text, &beside);
        for (at, one) in scan.requirements {
            let place = at.map_or(path.to_owned(), |at| format!("{path}:{at}"));
            self.add_package(&one, place);
        }
    }

    /// Files that are installed from in the same breath.
    fn copy_further_files(
        &mut self,
        first: &str,
        block: usize,
        readme: &str,
        installs: &InstallLines,
    ) {
        let further: Vec<(usize, String)> = installs
            .files
            .iter()
            .filter(|(_, path, of)| *of == block && path != first && !is_for_developers(path))
            .map(|(line, path, _)| (*line, path.clone()))
            .collect();
        // Many at once are one to choose from.
        if further.len() > 2 {
            return;
        }
        for (line, path) in further {
            if self.folder.read_text(&path).is_some() {
                self.say_choice(&path, readme, line);
                self.copy_file(&path);
            }
        }
    }

    fn take_environment(&mut self, path: &str, readme: &str, line: usize) {
        let Some(text) = self.folder.read_text(path) else {
            return;
        };
        let beside = |path: &str| self.folder.read_text(path);
        let Ok(mut imported) = import_spec(ImportFormat::Conda, path, &text, &beside) else {
            return;
        };
        if let Some(name) = self.imported.spec.name.take() {
            imported.spec.name = Some(name);
        }
        self.imported = imported;
        self.format = Some(ImportFormat::Conda);
        self.source = path.to_owned();
        self.declared = true;
        self.say_choice(path, readme, line);
    }
}
