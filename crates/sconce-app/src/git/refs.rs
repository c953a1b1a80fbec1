//! References: which commit is checked out, and what tags name.

use std::path::Path;

use super::objects::{ObjectDatabase, ObjectKind, parse_tag};
use super::{MAX_LINE_FILE, MAX_LIST_FILE, ObjectId, Repository, read_text};

/// References that name each other.
const MAX_SYMBOLIC_REFS: usize = 5;
/// Tags that are read, and folders of them in each other.
const MAX_TAGS: usize = 20_000;
const MAX_TAG_DEPTH: usize = 8;

/// A tag of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Without `refs/tags/`.
    pub(crate) name: String,
    /// What the reference names: a tag's object, or the commit itself.
    pub(super) target: ObjectId,
    /// The commit, where the list of references tells it.
    pub(super) peeled: Option<ObjectId>,
}

impl Repository {
    /// The commit that is checked out. `None` before the first one.
    pub(crate) fn head(&self) -> Option<ObjectId> {
        let mut text = read_text(&self.git_dir.join("HEAD"), MAX_LINE_FILE)?;
        for _ in 0..MAX_SYMBOLIC_REFS {
            let Some(name) = text.strip_prefix("ref:").map(str::trim) else {
                return ObjectId::parse(text.trim());
            };
            let is_below = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
            if !name.starts_with("refs/") || !is_below {
                return None;
            }
            let mut folders = [&self.git_dir, &self.common_dir].into_iter();
            let loose = folders.find_map(|folder| read_text(&folder.join(name), MAX_LINE_FILE));
            text = loose.or_else(|| {
                let packed = self.packed_refs();
                let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
                Some(lines.find(|(_, other)| *other == name)?.0.to_owned())
            })?;
        }
        None
    }

    fn packed_refs(&self) -> String {
        read_text(&self.common_dir.join("packed-refs"), MAX_LIST_FILE).unwrap_or_default()
    }

    /// All tags, sorted by name. One that lies in a file of its own goes before the list's.
    pub(crate) fn tags(&self) -> Vec<Tag> {
        let mut tags: Vec<Tag> = Vec::new();
        let folder = self.common_dir.join("refs/tags");
        collect_loose(&folder, "", 0, &mut tags);
        let mut is_last = false;
        let packed = self.packed_refs();
        // Where the list says so, what it tells no commit of is no annotated tag.
        let first = packed.lines().next().unwrap_or_default();
        let is_peeled = first.starts_with('#') && first.contains(" fully-peeled");
        for line in packed.lines() {
            if let Some(peeled) = line.strip_prefix('^') {
                if let Some(tag) = tags.last_mut().filter(|_| is_last) {
                    tag.peeled = ObjectId::parse(peeled);
                }
                continue;
            }
            let parts = line.split_once(" refs/tags/");
            let target = parts.and_then(|(id, name)| Some((ObjectId::parse(id)?, name)));
            is_last = target.is_some() && tags.len() < MAX_TAGS;
            if let Some((target, name)) = target.filter(|_| is_last) {
                tags.push(Tag {
                    name: name.to_owned(),
                    target,
                    peeled: is_peeled.then_some(target),
                });
            }
        }
        // Stable: of two that have one name, the file's comes first.
        tags.sort_by(|a, b| a.name.cmp(&b.name));
        tags.dedup_by(|later, first| later.name == first.name);
        tags
    }

    /// The commits from which history is cut off, in a clone that does not have all of it.
    pub(crate) fn shallow(&self) -> Vec<ObjectId> {
        let text = read_text(&self.common_dir.join("shallow"), MAX_LIST_FILE);
        let text = text.unwrap_or_default();
        text.lines().filter_map(ObjectId::parse).collect()
    }
}

impl Tag {
    /// The commit that it names, and when it was made, where it is an annotated one.
    pub(super) fn resolve(&self, objects: &ObjectDatabase) -> Option<(ObjectId, Option<i64>)> {
        let mut target = self.target;
        let mut made = None;
        for _ in 0..MAX_SYMBOLIC_REFS {
            match objects.read(target)? {
                (ObjectKind::Commit, _) => return Some((target, made)),
                (ObjectKind::Tag, bytes) => {
                    let (next, time) = parse_tag(&bytes)?;
                    made = made.or(Some(time));
                    target = next;
                }
                (ObjectKind::Other, _) => return None,
            }
        }
        None
    }
}

fn collect_loose(folder: &Path, prefix: &str, depth: usize, tags: &mut Vec<Tag>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let Some(name) = entry
            .file_name()
            .to_str()
            .map(|name| format!("{prefix}{name}"))
        else {
            continue;
        };
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if tags.len() >= MAX_TAGS {
            return;
        }
        if is_folder && depth < MAX_TAG_DEPTH {
            collect_loose(&entry.path(), &format!("{name}/"), depth + 1, tags);
        } else if !is_folder {
            let text = read_text(&entry.path(), MAX_LINE_FILE);
            let target = text.and_then(|text| ObjectId::parse(text.trim()));
            tags.extend(target.map(|target| Tag {
                name,
                target,
                peeled: None,
            }));
        }
    }
}
