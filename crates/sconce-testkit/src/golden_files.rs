//! Golden files: what a crate writes or sends, byte for byte, in its `tests/golden`.
//!
//! A name in the code may change; a golden file may not, unless a format is meant to change.
//! `UPDATE_GOLDEN=1 cargo nextest run …` writes the files anew.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::source_types::{self, SourceType};

/// Variable that has golden files written in place of compared.
pub const UPDATE: &str = "UPDATE_GOLDEN";

/// What keeps the written form of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBy {
    /// A golden file, in which each of the type's fields and variants stands by the name that serde
    /// gives it.
    Golden(&'static str),
    /// Another file of the repository, from the crate's folder on: a test that holds the form, or a
    /// snapshot.
    File(&'static str),
    /// Nothing, because the type is not written; the reason.
    Nothing(&'static str),
}

/// A value of any type that serde writes.
pub trait JsonLine {
    /// Returns it as a line of JSON.
    ///
    /// # Panics
    /// If it cannot be written.
    fn to_json_line(&self) -> String;
}

impl<T: Serialize> JsonLine for T {
    fn to_json_line(&self) -> String {
        match serde_json::to_string(self) {
            Ok(line) => line + "\n",
            Err(error) => panic!("{error}"),
        }
    }
}

/// The golden files of a crate.
#[derive(Debug)]
pub struct Goldens {
    crate_dir: PathBuf,
}

impl Goldens {
    /// Takes the folder of a crate: `env!("CARGO_MANIFEST_DIR")`.
    #[must_use]
    pub fn new(crate_dir: &str) -> Self {
        Self {
            crate_dir: crate_dir.into(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.crate_dir.join("tests/golden").join(name)
    }

    /// Reads a golden file.
    ///
    /// # Panics
    /// If it cannot be read as text.
    #[must_use]
    pub fn read_text(&self, name: &str) -> String {
        read(&self.path(name))
    }

    /// Compares values, one a line as JSON, with a golden file, and reads that again.
    ///
    /// # Panics
    /// If a line differs, or is not read as the value that wrote it.
    pub fn assert_lines<T: Serialize + DeserializeOwned + PartialEq + Debug>(
        &self,
        name: &str,
        values: &[T],
    ) {
        let lines = values.iter().map(JsonLine::to_json_line);
        self.assert_same(name, lines.collect::<String>());
        let text = self.read_text(name);
        let read: Result<Vec<T>, _> = text.lines().map(serde_json::from_str).collect();
        match read {
            Ok(read) => assert_eq!(read, values, "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// Compares values of any types, one a line as JSON, with a golden file.
    ///
    /// # Panics
    /// If a line differs.
    pub fn assert_values(&self, name: &str, values: &[&dyn JsonLine]) {
        let lines = values.iter().map(|value| value.to_json_line());
        self.assert_same(name, lines.collect::<String>());
    }

    /// Compares `written` with a golden file.
    ///
    /// # Panics
    /// If they differ; the message has the first line that does.
    pub fn assert_same(&self, name: &str, written: impl AsRef<[u8]>) {
        let (path, written) = (self.path(name), written.as_ref());
        if std::env::var_os(UPDATE).is_some() {
            let folder = path.parent().unwrap_or(&path);
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&path, written))
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            return;
        }
        let golden =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Some((line, golden, written)) = first_difference(&golden, written) {
            panic!(
                "{} line {line}\n golden: {golden}\nwritten: {written}\n\
                 {UPDATE}=1 writes it, where the format is meant to change",
                path.display()
            );
        }
    }

    /// Compares the types below `src` that derive `Serialize` with a list of what holds each, named
    /// `folder/file::Type`.
    ///
    /// # Panics
    /// If a type is missing in the list or in `src`, if a file is not there, and if a golden file
    /// has not every field and variant of a type.
    pub fn assert_every_type_is_held(&self, list: &[(&str, HeldBy)]) {
        let types = source_types::read(&self.crate_dir.join("src"));
        let problems = problems(&types, list, |held| match held {
            HeldBy::Golden(name) => Some(self.read_text(name)),
            HeldBy::File(name) => Some(read(&self.crate_dir.join(name))),
            HeldBy::Nothing(_) => None,
        });
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

/// The number of the first line that differs, and both forms of it around the first difference.
fn first_difference(golden: &[u8], written: &[u8]) -> Option<(usize, String, String)> {
    if golden == written {
        return None;
    }
    let equal = golden.iter().zip(written);
    let equal = equal.take_while(|(old, new)| old == new).count();
    let before = &golden[..equal];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n');
    let start = start.map_or(0, |at| at + 1).max(equal.saturating_sub(60));
    let around = |bytes: &[u8]| {
        let end = bytes.len().min(equal + 100);
        format!("{:?}", String::from_utf8_lossy(&bytes[start..end]))
    };
    Some((line, around(golden), around(written)))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn problems(
    types: &[SourceType],
    list: &[(&str, HeldBy)],
    text_of: impl Fn(HeldBy) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, _) in list {
        let rows = list.iter().filter(|(other, _)| other == name).count();
        if rows > 1 || !types.iter().any(|one| one.name == *name) {
            problems.push(format!(
                "{name} is listed, {rows} times, and src may not have it"
            ));
        }
    }
    for one in types {
        let Some((_, held)) = list.iter().find(|(name, _)| *name == one.name) else {
            problems.push(format!(
                "{} is written, and nothing is said to hold it",
                one.name
            ));
            continue;
        };
        let text = text_of(*held);
        if let (HeldBy::Golden(file), Some(text)) = (held, text) {
            let missing = one.written_names.iter().filter(|name| !has(&text, name));
            problems.extend(missing.map(|name| format!("{file} lacks {name} of {}", one.name)));
        }
    }
    problems
}

/// Whether a name stands alone somewhere in a text.
fn has(text: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(of_name) && !text[at + name.len()..].starts_with(of_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> Vec<SourceType> {
        let written_names = ["user-id", "name"].map(str::to_owned).to_vec();
        let name = "a::Person".to_owned();
        vec![SourceType {
            name,
            written_names,
        }]
    }

    fn found(list: &[(&str, HeldBy)], text: &str) -> Vec<String> {
        problems(&types(), list, |_| Some(text.to_owned()))
    }

    #[test]
    fn type_without_a_golden_field_or_row_is_named() {
        let golden = [("a::Person", HeldBy::Golden("a.json"))];
        assert!(found(&golden, r#"{"user-id":1,"name":"a"}"#).is_empty());
        let renamed = found(&golden, r#"{"user-id-2":1,"name":"a"}"#);
        assert_eq!(renamed, ["a.json lacks user-id of a::Person"]);
        assert_eq!(found(&[], "").len(), 1);
        let file = ("a::Person", HeldBy::File("b"));
        assert!(found(&[file], "").is_empty());
        assert_eq!(found(&[file, file], "").len(), 2);
        assert_eq!(
            found(&[file, ("a::Gone", HeldBy::Nothing("x"))], "").len(),
            1
        );
    }

    #[test]
    fn changed_line_is_shown() {
        assert_eq!(first_difference(b"a\nb\n", b"a\nb\n"), None);
        let shown = |line, old: &str, new: &str| Some((line, old.to_owned(), new.to_owned()));
        let found = first_difference(b"a\nxb\n", b"a\nxc\n");
        assert_eq!(found, shown(2, r#""xb\n""#, r#""xc\n""#));
        let found = first_difference(b"a\n", b"a");
        assert_eq!(found, shown(1, r#""a\n""#, r#""a""#));
        let found = first_difference(b"a\n", b"a\nb");
        assert_eq!(found, shown(2, r#""""#, r#""b""#));
    }
}
