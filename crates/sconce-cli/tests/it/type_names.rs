//! Words that say nothing where they stand alone as the name of a type. `scripts/names` has the figures of all names.

use std::collections::BTreeMap;

use crate::source::tokens::Token;
use crate::source::{packages, shipped_files};

/// The words, and how many types have each as their name today. A number may only get smaller.
const TODAY: [(&str, usize); 7] = [
    ("Asked", 9),
    ("Came", 2),
    ("Held", 5),
    ("Laid", 1),
    ("Told", 7),
    ("Wanted", 6),
    ("Went", 1),
];

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
    let wrong = compare(&found, &TODAY);
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
