//! Files that a repository neither tracks nor ignores (gitignore(5)). Patterns that the user's configuration names do
//! not count: no configuration is read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use sconce_base::input::read_regular;
use sconce_formats::fits_glob;
use sconce_schema::Bytes;

use super::Repository;

/// No list of patterns is longer; no more patterns of one list count.
const MAX_LIST_BYTES: Bytes = Bytes::from_kib(512);
const MAX_PATTERNS: usize = 5000;
/// Folders in each other.
const MAX_DEPTH: usize = 64;

/// One line of a `.gitignore`.
#[derive(Debug, PartialEq, Eq)]
struct Pattern {
    /// Between slashes. One alone fits a name in any folder below.
    parts: Vec<String>,
    is_anywhere: bool,
    /// It takes folders alone.
    is_folder: bool,
    /// What it fits is not ignored.
    is_kept: bool,
}

/// The patterns of one folder, and where that is, below the working tree.
struct PatternList {
    folder: PathBuf,
    patterns: Vec<Pattern>,
}

impl Repository {
    /// The files below a folder of the working tree that its patterns do not ignore, tracked or not, relative to
    /// that folder. What is in a `.git` is none, nor what `is_left_out` names. Not more than `most` and one.
    pub(crate) fn unignored_files(
        &self,
        folder: &Path,
        most: usize,
        is_left_out: &dyn Fn(&OsStr) -> bool,
    ) -> Vec<PathBuf> {
        let below = folder
            .strip_prefix(&self.work_tree)
            .unwrap_or(Path::new(""));
        let mut lists = vec![PatternList {
            folder: PathBuf::new(),
            patterns: read_patterns(&self.common_dir.join("info/exclude")),
        }];
        // Those of the folders above count below.
        let mut above: Vec<&Path> = below.ancestors().skip(1).collect();
        above.reverse();
        for folder in above {
            lists.push(self.list_of(folder));
        }
        let mut walk = Walk {
            repository: self,
            start: below,
            most,
            is_left_out,
            found: Vec::new(),
        };
        walk.enter(below, &mut lists, 0);
        walk.found
    }

    fn list_of(&self, folder: &Path) -> PatternList {
        PatternList {
            patterns: read_patterns(&self.work_tree.join(folder).join(".gitignore")),
            folder: folder.to_owned(),
        }
    }
}

struct Walk<'a> {
    repository: &'a Repository,
    start: &'a Path,
    most: usize,
    is_left_out: &'a dyn Fn(&OsStr) -> bool,
    found: Vec<PathBuf>,
}

impl Walk<'_> {
    fn enter(&mut self, folder: &Path, lists: &mut Vec<PatternList>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        lists.push(self.repository.list_of(folder));
        let real = self.repository.work_tree.join(folder);
        let entries = std::fs::read_dir(real).into_iter().flatten().flatten();
        for entry in entries {
            if self.found.len() > self.most {
                break;
            }
            let name = entry.file_name();
            let path = folder.join(&name);
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if name == ".git"
                || (self.is_left_out)(&name)
                || is_ignored(&path, kind.is_dir(), lists)
            {
                continue;
            }
            if kind.is_dir() {
                self.enter(&path, lists, depth + 1);
            } else if kind.is_file() || kind.is_symlink() {
                let below = path.strip_prefix(self.start).unwrap_or(&path);
                self.found.push(below.to_owned());
            }
        }
        lists.pop();
    }
}

fn read_patterns(file: &Path) -> Vec<Pattern> {
    let text = read_regular(file, MAX_LIST_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .filter_map(parse_pattern)
        .take(MAX_PATTERNS)
        .collect()
}

fn parse_pattern(line: &str) -> Option<Pattern> {
    let line = line.trim_end_matches('\r');
    if line.starts_with('#') {
        return None;
    }
    let trimmed = line.trim_end_matches(' ');
    // A space behind a `\` counts.
    let line = match trimmed.ends_with('\\') && trimmed.len() < line.len() {
        true => &line[..=trimmed.len()],
        false => trimmed,
    };
    let (is_kept, line) = match line.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (is_folder, line) = match line.strip_suffix('/') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let is_anywhere = !line.contains('/');
    let parts = line.trim_start_matches('/').split('/').map(str::to_owned);
    let is_empty = line.trim_matches('/').is_empty();
    (!is_empty).then(|| Pattern {
        parts: parts.collect(),
        is_anywhere,
        is_folder,
        is_kept,
    })
}

/// The last pattern that fits decides, of the deepest folder that has one.
fn is_ignored(path: &Path, is_folder: bool, lists: &[PatternList]) -> bool {
    let verdict = lists.iter().rev().find_map(|list| {
        let below = path.strip_prefix(&list.folder).ok()?;
        let names: Vec<String> = below
            .iter()
            .map(|n| n.to_string_lossy().into_owned())
            .collect();
        let fits = |pattern: &&Pattern| {
            let names = match pattern.is_anywhere {
                true => &names[names.len().saturating_sub(1)..],
                false => &names[..],
            };
            (is_folder || !pattern.is_folder) && fit_parts(&pattern.parts, names)
        };
        list.patterns.iter().rev().find(fits)
    });
    verdict.is_some_and(|pattern| !pattern.is_kept)
}

/// Whether the names of a path fit those of a pattern, of which `**` stands for any number.
fn fit_parts(parts: &[String], names: &[String]) -> bool {
    // Which numbers of names the parts so far fit.
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        let mut next = vec![false; names.len() + 1];
        for at in 0..=names.len() {
            if !reached[at] {
                continue;
            }
            if part == "**" {
                // At the end it is what lies in the folder, not the folder itself.
                let from = at + usize::from(is_last && number > 0);
                next.iter_mut().skip(from).for_each(|one| *one = true);
            } else if names.get(at).is_some_and(|name| fits_glob(part, name)) {
                next[at + 1] = true;
            }
        }
        reached = next;
    }
    reached[names.len()]
}
