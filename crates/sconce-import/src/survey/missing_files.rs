//! What a clone has not fetched: submodules (gitmodules(5)) and files of Git LFS.

use super::{FolderSurvey, NoteKind};

/// Files whose first bytes are looked at.
const MAX_FILES: usize = 3000;
/// Pointers that are told of by name.
const MAX_TOLD: usize = 5;
/// What a pointer file begins with (Git LFS specification).
const POINTER: &[u8] = b"version https://git-lfs";

impl FolderSurvey<'_> {
    pub(super) fn note_missing_files(&mut self) {
        let modules = self.folder.read_text(".gitmodules").unwrap_or_default();
        let paths = modules.lines().take(2000).filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "path").then(|| super::super::inside(value.trim()))?
        });
        let empty: Vec<String> = paths
            .filter(|path| self.folder.list(path).is_empty())
            .collect();
        for path in empty.into_iter().take(20) {
            self.note(
                NoteKind::LeftOut,
                &path,
                "the submodule is empty: `git submodule update --init --recursive` fills it",
            );
        }
        let tracked = self.folder.read_text(".gitattributes").unwrap_or_default();
        if !tracked.contains("filter=lfs") {
            return;
        }
        let mut folders = vec![(String::new(), 0)];
        let (mut seen, mut pointers) = (0, Vec::new());
        while let Some((folder, depth)) = folders.pop() {
            for entry in self.folder.list(&folder).iter() {
                let path = match folder.as_str() {
                    "" => entry.name.clone(),
                    folder => format!("{folder}/{}", entry.name),
                };
                if entry.is_dir && depth < 6 && !entry.name.starts_with('.') {
                    folders.push((path, depth + 1));
                } else if !entry.is_dir && seen < MAX_FILES {
                    seen += 1;
                    if self.folder.read_start(&path).starts_with(POINTER) {
                        pointers.push(path);
                    }
                }
            }
            if seen >= MAX_FILES || folders.len() > MAX_FILES {
                break;
            }
        }
        let more = pointers.len().saturating_sub(MAX_TOLD);
        pointers.truncate(MAX_TOLD);
        if more > 0 {
            // Not all files are looked at.
            let least = if seen >= MAX_FILES { "at least " } else { "" };
            pointers.push(format!("{least}{more} more"));
        }
        for path in pointers {
            self.note(
                NoteKind::LeftOut,
                &path,
                "a pointer of Git LFS stands there in place of the file: `git lfs pull` fetches it",
            );
        }
    }
}
