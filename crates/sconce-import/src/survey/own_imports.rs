//! What all of a project's own modules import, whether or not something that a person starts leads to them.

use super::super::python::{ImportStatement, MAX_SOURCE_BYTES, find_imports};
use super::ProjectFolder;
use super::programs::{MAX_BYTES, MAX_FILES, is_aside, is_program, join};

/// Folders in folders that are looked into.
const MAX_DEPTH: usize = 8;

/// An import that is made when its module is.
#[derive(Debug)]
pub(super) struct OwnImport {
    pub(super) file: String,
    pub(super) statement: ImportStatement,
}

/// The imports of other projects: not those of tests and examples, nor those that something is done without.
pub(super) fn find_own_imports(folder: &dyn ProjectFolder) -> Vec<OwnImport> {
    let mut imports = Vec::new();
    let (mut files, mut bytes) = (0, 0);
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        for entry in folder.list(&path).iter() {
            let inner = join(&path, &entry.name);
            if entry.is_dir {
                if !is_aside(&entry.name) && inner.split('/').count() < MAX_DEPTH {
                    open.push(inner);
                }
                continue;
            }
            if !is_program(&entry.name) || files >= MAX_FILES || bytes >= MAX_BYTES {
                continue;
            }
            let Some(text) = folder.read_text(&inner) else {
                continue;
            };
            files += 1;
            bytes += text.len();
            if text.len() > MAX_SOURCE_BYTES {
                continue;
            }
            let statements = find_imports(&text).into_iter();
            let of_others = statements.filter(|one| one.level == 0 && !one.in_function);
            imports.extend(of_others.map(|statement| OwnImport {
                file: inner.clone(),
                statement,
            }));
        }
    }
    imports
}
