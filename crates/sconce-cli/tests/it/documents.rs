//! What the documents say of the sources: paths and links lead somewhere, and each decision is in the index.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between backticks on a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether it can be nothing but the name of a file or folder.
fn is_path(word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "./_-*".contains(c));
    let named = [".rs", ".py", ".toml", ".txt", ".tsv", ".md"];
    plain && (word.contains('/') || named.iter().any(|end| word.ends_with(end)))
}

fn exists(path: &Path) -> bool {
    // `tables/*.txt` is the folder's matter.
    let starred = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains('*'));
    if starred {
        path.parent().is_some_and(Path::is_dir)
    } else {
        path.exists()
    }
}

/// Names in a row lead on from those before them: `sconce-run/src/lease/`, then `plan.rs`.
fn unresolved(row: &str, top: &Path) -> Vec<String> {
    let crates = top.join("crates");
    let mut known = Vec::new();
    let mut lost = Vec::new();
    for word in quoted(row) {
        if crates.join(word).is_dir() {
            known.push(crates.join(word));
        }
        if !is_path(word) || word == "sconce.toml" {
            continue;
        }
        let mut places = vec![top.to_owned(), crates.clone()];
        for before in &known {
            let inside = before.ancestors().take_while(|place| *place != crates);
            places.extend(inside.flat_map(|place| [place.to_owned(), place.join("src")]));
        }
        let found = places.iter().map(|place| place.join(word));
        match found.into_iter().find(|path| exists(path)) {
            Some(path) => known.push(path),
            None => lost.push(word.to_owned()),
        }
    }
    lost
}

#[test]
fn every_room_that_architecture_names_is_there() {
    let text = read(&top().join("ARCHITECTURE.md"));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 80, "the table of rooms is not read");
    let lost: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            let words = unresolved(row, &top());
            words
                .into_iter()
                .map(move |word| format!("`{word}` in: {row}"))
        })
        .collect();
    assert!(
        lost.is_empty(),
        "ARCHITECTURE.md names what is not there:\n{}",
        lost.join("\n")
    );
}

/// The rows of the walks: a file, and a function in it.
#[test]
fn functions_of_the_walks_are_in_their_files() {
    let text = read(&top().join("ARCHITECTURE.md"));
    let (_, walks) = text.split_once("## Two walks").unwrap();
    let rows: Vec<&str> = walks.lines().filter(|row| row.starts_with("| `")).collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in rows {
        let mut words = quoted(row);
        let (file, function) = (words.next().unwrap(), words.next().unwrap());
        let place = match file.ends_with(".rs") || file.ends_with(".js") {
            true => top().join("crates").join(file),
            false => top().join(file),
        };
        let name = function.rsplit("::").next().unwrap();
        let source = read(&place);
        let forms = [
            format!("fn {name}("),
            format!("fn {name}<"),
            format!("def {name}("),
            format!("  {name}("),
        ];
        let is_there = forms.iter().any(|form| source.contains(form));
        assert!(is_there, "no function {function} in {file}");
    }
}

#[test]
fn a_room_that_is_not_there_is_seen() {
    let top = top();
    let row = "| a lease | `sconce-lease/src/`: `schedule.rs` places, `no-such.rs` decides |";
    assert_eq!(unresolved(row, &top), ["no-such.rs"]);
    assert_eq!(
        unresolved("| x | `sconce-nowhere/src/` |", &top),
        ["sconce-nowhere/src/"]
    );
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/decisions", "bench", "fuzz"] {
        let entries = fs::read_dir(top().join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    found.sort();
    found
}

/// Where the links of a document lead, but for those to other machines and within the page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    ends.map(|(target, _)| target.split('#').next().unwrap_or(target))
        .filter(|target| {
            !target.is_empty() && !target.contains("://") && !target.contains(char::is_whitespace)
        })
}

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    assert!(documents.len() > 80, "the documents are not read");
    let mut lost = Vec::new();
    for document in documents {
        let text = read(&document);
        let folder = document.parent().unwrap();
        let gone = links(&text).filter(|target| !folder.join(target).exists());
        lost.extend(gone.map(|target| format!("{}: {target}", document.display())));
    }
    assert!(
        lost.is_empty(),
        "links that lead nowhere:\n{}",
        lost.join("\n")
    );
}

#[test]
fn every_runtime_is_documented() {
    let page = read(&top().join("docs/runtimes.md"));
    for runtime in sconce_schema::Runtime::ALL {
        let flag = format!("--runtime {runtime}`");
        let in_table = format!("`{runtime}` |");
        assert!(
            page.contains(&in_table) || page.contains(&flag),
            "docs/runtimes.md does not say what `{runtime}` holds"
        );
    }
}

#[test]
fn every_decision_is_in_the_index() {
    let folder = top().join("docs/decisions");
    let index = read(&folder.join("README.md"));
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let times = index.matches(&format!("({name})")).count();
        assert!(
            name == "README.md" || times == 1,
            "docs/decisions/README.md names {name} {times} times, not once"
        );
    }
}
