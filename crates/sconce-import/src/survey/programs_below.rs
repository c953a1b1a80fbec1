//! Programs that lie deeper than where a person looks for one first, and what is said of them.

use std::collections::BTreeSet;

use super::programs::{
    ChosenFiles, NOTEBOOK, ProgramNeeds, ProgramReader, is_aside, is_program, is_program_name,
    is_project, join,
};
use super::{FolderSurvey, NoteKind};

/// Levels of folders that are looked into.
const MAX_DEPTH: usize = 6;
/// Folders that are looked into.
const MAX_FOLDERS: usize = 1000;
/// Notebooks that are read.
const MAX_NOTEBOOKS: usize = 20;
/// Programs that are told of by name.
const MAX_TOLD: usize = 3;

impl ProgramReader<'_> {
    /// The programs below the project's folder, but for what is a project of its own.
    pub(super) fn queue_below(&mut self, chosen: ChosenFiles) -> Vec<String> {
        let before = self.seen.clone();
        for folder in self.folders_below() {
            self.queue_folder(&folder, chosen);
        }
        self.seen.difference(&before).cloned().collect()
    }

    /// A program that the README runs, of this project.
    pub(super) fn queue_program_of_readme(&mut self, path: &str) -> bool {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_own = |folder: &str| folder.is_empty() || !is_project(self.folder, folder);
        is_own(folder) && self.queue_file(path, folder)
    }

    /// All modules of a package that says nowhere what it needs.
    pub(super) fn queue_modules(&mut self, path: &str, root: &str, depth: usize) {
        for entry in self.folder.list(path).iter() {
            let inner = join(path, &entry.name);
            if !entry.is_dir && is_program(&entry.name) {
                self.queue_file(&inner, root);
            } else if entry.is_dir && depth < MAX_DEPTH && !is_aside(&entry.name) {
                self.queue_modules(&inner, root, depth + 1);
            }
        }
    }

    /// The notebooks at the top, or else those in its folders.
    pub(super) fn queue_notebooks(&mut self) {
        let entries = self.folder.list("");
        let folders = entries
            .iter()
            .filter(|entry| entry.is_dir && !entry.name.starts_with('.'));
        let mut groups = vec![vec![String::new()]];
        groups.push(folders.map(|entry| entry.name.clone()).take(50).collect());
        for group in groups {
            let is_own = |folder: &String| folder.is_empty() || !is_project(self.folder, folder);
            let own: Vec<String> = group.into_iter().filter(is_own).collect();
            for folder in own {
                for entry in self.folder.list(&folder).iter() {
                    let path = join(&folder, &entry.name);
                    if !entry.is_dir && path.ends_with(NOTEBOOK) && self.seen.len() < MAX_NOTEBOOKS
                    {
                        self.queue_file(&path, &folder);
                    }
                }
            }
            if !self.seen.is_empty() {
                return;
            }
        }
    }

    /// Programs by their names that were not read.
    pub(super) fn find_unread(&self) -> Vec<String> {
        let mut unread = Vec::new();
        for folder in self.folders_below() {
            for entry in self.folder.list(&folder).iter() {
                let path = join(&folder, &entry.name);
                let is_such = is_program(&entry.name) && is_program_name(&entry.name);
                if !entry.is_dir && is_such && !self.seen.contains(&path) {
                    unread.push(path);
                }
            }
        }
        unread
    }

    /// Whether a module or a folder is called so, at any level.
    pub(super) fn has_module_below(&mut self, name: &str) -> bool {
        if self.modules.is_none() {
            let mut modules = BTreeSet::new();
            for folder in self.folders_below() {
                modules.extend(folder.rsplit('/').next().map(str::to_owned));
                let entries = self.folder.list(&folder);
                let files = entries.iter().filter(|entry| !entry.is_dir);
                let stems = files.filter_map(|entry| entry.name.strip_suffix(".py"));
                modules.extend(stems.map(str::to_owned));
            }
            self.modules = Some(modules);
        }
        self.modules
            .as_ref()
            .is_some_and(|modules| modules.contains(name))
    }

    /// The folders of the project, those above first.
    fn folders_below(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut level = vec![String::new()];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for above in &level {
                for entry in self.folder.list(above).iter().filter(|entry| entry.is_dir) {
                    let path = join(above, &entry.name);
                    let is_other = is_aside(&entry.name) || is_project(self.folder, &path);
                    if !is_other && found.len() + next.len() < MAX_FOLDERS {
                        next.push(path);
                    }
                }
            }
            found.extend(next.iter().cloned());
            level = next;
        }
        found
    }
}

impl FolderSurvey<'_> {
    /// Says which programs count beside those at the top, and which do not.
    pub(super) fn note_programs(&mut self, programs: &ProgramNeeds) {
        self.note_list(
            &programs.below,
            "read for what is imported, as nothing at the top is a program",
        );
        self.note_list(
            &programs.unread,
            "not read for what is imported: it lies below the first level, and the README does not run it",
        );
    }

    /// Says which folders say themselves what they need, where nothing else does.
    pub(super) fn note_projects_below(&mut self) {
        let entries = self.folder.list("");
        let folders = entries
            .iter()
            .filter(|entry| entry.is_dir && !is_aside(&entry.name));
        let projects: Vec<String> = folders
            .filter(|entry| is_project(self.folder, &entry.name))
            .map(|entry| entry.name.clone())
            .collect();
        let why = "a project of its own: `sconce init FOLDER` writes a spec into it";
        self.note_list(&projects, why);
    }

    fn note_list(&mut self, paths: &[String], why: &str) {
        let (told, more) = paths.split_at(paths.len().min(MAX_TOLD));
        for path in told {
            self.note(NoteKind::Decided, path, why);
        }
        if !more.is_empty() {
            self.note(NoteKind::Decided, &format!("{} more", more.len()), why);
        }
    }
}
