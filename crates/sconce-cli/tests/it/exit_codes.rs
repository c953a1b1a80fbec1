//! An error says by its kind what the program exits with: a new kind that a `_` catches gets a code that nobody chose.

use std::collections::BTreeSet;

use crate::source::tokens::{Token, after_group, starts_with};
use crate::source::{packages, shipped_files};

/// Files where a `_` chooses an exit code. None is left, and none may come.
const TODAY: &[&str] = &[];

/// Whether a method `exit_code` has a `_ =>`.
fn chooses_by_wildcard(tokens: &[Token]) -> bool {
    (0..tokens.len()).any(|at| {
        if !starts_with(tokens, at, &["fn", "exit_code", "(", "&", "self"]) {
            return false;
        }
        let block = tokens[at..]
            .iter()
            .position(|token| *token == Token::Sign('{'));
        let Some(block) = block.map(|ahead| at + ahead) else {
            return false;
        };
        let body = block..after_group(tokens, block);
        body.into_iter()
            .any(|at| starts_with(tokens, at, &["_", "=", ">"]))
    })
}

#[test]
fn every_kind_of_error_has_an_exit_code_of_its_own_choice() {
    let mut found = BTreeSet::new();
    for package in packages() {
        for file in shipped_files(&package) {
            if chooses_by_wildcard(&file.tokens) {
                let path = package.dir.join("src").join(&file.path);
                found.insert(path.display().to_string());
            }
        }
    }
    let listed: BTreeSet<String> = TODAY.iter().map(|path| (*path).to_owned()).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "name the kinds instead of `_`: {new:?}");
    let done: Vec<_> = listed.difference(&found).collect();
    assert!(done.is_empty(), "no more: take it from TODAY: {done:?}");
}

#[test]
fn wildcards_are_seen() {
    let sees = |body: &str| {
        let text = format!(
            "fn exit_code(&self) -> u8 {{ match self {{ {body} }} }} fn other() {{ match x {{ _ => 1 }} }}"
        );
        chooses_by_wildcard(&crate::source::tokens::tokenize(&text))
    };
    assert!(sees("Self::A => 1, _ => 2"));
    assert!(sees("Self::A(x) => match x { 1 => 1, _ => 2 }"));
    assert!(!sees("Self::A => 1, Self::B(_) => 2"));
}
