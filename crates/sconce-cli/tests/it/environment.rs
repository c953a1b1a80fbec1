//! Who reads the variables of the process: the program once, at its start. Whatever else depends on them is
//! given them, so that it can be called for somebody else, and tested.

use std::path::Path;

use crate::source::tokens::{Token, tokenize};
use crate::source::{packages, shipped_files};

/// Files that read them, each with its reason. One that does so no more fails.
const READERS: [(&str, &str); 2] = [
    (
        "crates/sconce-base/src/env.rs",
        "it is what the program reads them by",
    ),
    (
        "crates/sconce-cli/src/style.rs",
        "colours of the terminal that this process prints on",
    ),
];

/// A library in processes that are not Sconce's.
const LOADED_BY_OTHERS: &str = "sconce-vgpu";

/// Whether some code calls a function of `std::env` that reads variables.
fn reads_variables(tokens: &[Token]) -> bool {
    let functions = ["home_dir", "var", "var_os", "vars", "vars_os"];
    tokens.windows(4).any(|words| match words {
        [module, Token::Sign(':'), Token::Sign(':'), function] => {
            module.is_word("env") && functions.iter().any(|name| function.is_word(name))
        }
        _ => false,
    })
}

#[test]
fn variables_of_the_process_are_read_in_one_place() {
    let mut readers = Vec::new();
    for package in packages() {
        if package.name == LOADED_BY_OTHERS || package.name == "sconce-testkit" {
            continue;
        }
        for file in shipped_files(&package) {
            if reads_variables(&file.tokens) {
                readers.push(package.dir.join("src").join(&file.path));
            }
        }
    }
    readers.sort();
    let allowed = READERS.map(|(file, _)| Path::new(file).to_owned());
    assert_eq!(readers, allowed, "see `sconce_base::Env`");
}

#[test]
fn every_way_to_read_a_variable_is_seen() {
    for (source, reads) in [
        ("std::env::var(\"A\")", true),
        ("env::vars_os().collect()", true),
        ("let home = env::home_dir();", true),
        (
            "env.var(\"A\"); env::args(); env!(\"A\"); var(1) // env::var(2)",
            false,
        ),
    ] {
        assert_eq!(reads_variables(&tokenize(source)), reads, "{source}");
    }
}
