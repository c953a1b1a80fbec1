//! Words that say nothing where they stand alone as the name of a type: the glossary lists them. `scripts/names` has
//! the figures of all names.

use std::collections::BTreeMap;

use crate::source::tokens::Token;
use crate::source::{packages, shipped_files, workspace_dir};

/// How many types have a word of the glossary as their name today. A number may only get smaller.
const TODAY: [(&str, usize); 34] = [
    ("Cards", 1),
    ("Entry", 7),
    ("Figures", 1),
    ("Files", 1),
    ("Form", 1),
    ("Item", 2),
    ("Job", 3),
    ("Key", 1),
    ("Kind", 1),
    ("Lane", 1),
    ("Line", 6),
    ("List", 5),
    ("Load", 2),
    ("Name", 1),
    ("Number", 1),
    ("Out", 2),
    ("Page", 1),
    ("Part", 5),
    ("Point", 1),
    ("Process", 1),
    ("Range", 1),
    ("Reach", 1),
    ("Rule", 1),
    ("Source", 2),
    ("State", 2),
    ("Subject", 1),
    ("Table", 2),
    ("Target", 1),
    ("Tree", 1),
    ("Turn", 1),
    ("Value", 10),
    ("Waiting", 1),
    ("Whole", 1),
    ("Within", 3),
];

/// Reads the words that docs/glossary.md lists as such that may not stand alone.
fn words() -> Vec<String> {
    let text =
        std::fs::read_to_string(workspace_dir().join("docs/glossary.md")).expect("the glossary");
    let (_, section) = text
        .split_once("\n## Words that may not stand alone\n")
        .expect("its section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lists = section.split("\n- **").skip(1);
    let words = lists.flat_map(|list| {
        list.split_once(':')
            .expect("a list's title")
            .1
            .split([',', '.'])
    });
    words
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Lists the names of the types that some code defines, whoever may see them.
fn type_names(tokens: &[Token]) -> Vec<&str> {
    let keywords = ["enum", "struct", "trait", "type", "union"];
    let names = tokens.windows(2).filter_map(|pair| match pair {
        [keyword, Token::Word(name)] if keywords.iter().any(|word| keyword.is_word(word)) => {
            Some(name.as_str())
        }
        _ => None,
    });
    names.collect()
}

/// Compares where each word is the name of a type with how often it may be; says what is wrong.
fn compare(found: &BTreeMap<String, Vec<String>>, listed: &[(&str, usize)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (word, allowed) in listed {
        let files = found.get(*word).map_or(&[][..], Vec::as_slice);
        if files.len() > *allowed {
            let files = files.join("\n    ");
            wrong.push(format!(
                "`{word}` says nothing as a type's name, and {allowed} have it already:\n    {files}"
            ));
        } else if files.len() < *allowed {
            let count = files.len();
            wrong.push(format!(
                "`{word}` is the name of {count} types only: write that into TODAY"
            ));
        }
    }
    wrong
}

#[test]
fn words_that_say_nothing_name_no_more_types() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        for file in shipped_files(&package) {
            for name in type_names(&file.tokens) {
                let file = package.dir.join("src").join(&file.path);
                found
                    .entry(name.to_owned())
                    .or_default()
                    .push(file.display().to_string());
            }
        }
    }
    assert!(found.len() > 1000, "the types are not read");
    let words = words();
    assert!(words.len() > 200, "the words are not read");
    let allowed = |word: &str| TODAY.iter().find(|(listed, _)| *listed == word);
    let allowed = words
        .iter()
        .map(|word| (word.as_str(), allowed(word).map_or(0, |(_, count)| *count)));
    let wrong = compare(&found, &allowed.collect::<Vec<_>>());
    assert!(wrong.is_empty(), "type_names.rs:\n{}", wrong.join("\n"));
}

#[test]
fn one_more_and_one_less_are_refused() {
    let source = "pub struct Asked<'a>(&'a str); enum Told {} type Told2 = Told; // struct Went;";
    let tokens = crate::source::tokens::tokenize(source);
    assert_eq!(type_names(&tokens), ["Asked", "Told", "Told2"]);
    let found = BTreeMap::from([(
        "Asked".to_owned(),
        vec!["a.rs".to_owned(), "b.rs".to_owned()],
    )]);
    assert!(compare(&found, &[("Asked", 2), ("Told", 0)]).is_empty());
    assert!(compare(&found, &[("Asked", 1)])[0].ends_with("already:\n    a.rs\n    b.rs"));
    assert!(compare(&found, &[("Asked", 3)])[0].contains("2 types only"));
    assert!(compare(&found, &[("Told", 1)])[0].contains("0 types only"));
}
