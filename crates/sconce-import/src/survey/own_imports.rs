//! What all of a project's own modules import, and what they use of it, whether or not something that a person
//! starts leads to them.

use std::collections::BTreeSet;

use super::super::python::{ImportStatement, MAX_SOURCE_BYTES, find_attribute_uses, find_imports};
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

/// A name of a module that is used by its dots.
#[derive(Debug)]
pub(super) struct OwnUse {
    pub(super) file: String,
    pub(super) line: usize,
    /// `numpy.float`
    pub(super) path: String,
}

/// What a project's own modules ask of others.
#[derive(Debug, Default)]
pub(super) struct OwnCode {
    pub(super) imports: Vec<OwnImport>,
    /// The files that were read.
    pub(super) files: Vec<String>,
    /// Those that `is_wanted` says, each once, and that no module provides itself.
    pub(super) uses: Vec<OwnUse>,
}

/// The imports of other projects: not those of tests and examples, nor those that something is done without.
pub(super) fn read_own_code(
    folder: &dyn ProjectFolder,
    is_wanted: &dyn Fn(&str) -> bool,
) -> OwnCode {
    let mut code = OwnCode::default();
    let (mut seen, mut provided) = (BTreeSet::new(), BTreeSet::new());
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
            code.files.push(inner.clone());
            let statements = find_imports(&text).into_iter();
            let of_others = statements.filter(|one| one.level == 0 && !one.in_function);
            code.imports.extend(of_others.map(|statement| OwnImport {
                file: inner.clone(),
                statement,
            }));
            for one in find_attribute_uses(&text) {
                if one.is_provided {
                    provided.insert(one.path);
                } else if is_wanted(&one.path) && seen.insert(one.path.clone()) {
                    code.uses.push(OwnUse {
                        file: inner.clone(),
                        line: one.line,
                        path: one.path,
                    });
                }
            }
        }
    }
    code.uses.retain(|one| !provided.contains(&one.path));
    code
}
