//! What errors and their hints say, of every crate, as one text to read and to compare.
//!
//! Texts come from `#[error("…")]` and from `impl Hint`, without what only tests compile. A text that a function
//! elsewhere puts together is not among them.

use std::collections::BTreeSet;

use crate::source::tokens::{Token, after_group, starts_with};
use crate::source::{packages, shipped_files};

/// How the file is written anew; it says so itself.
const RENEW: &str = "Written anew by: INSTA_UPDATE=always cargo nextest run -p sconce-cli --test it \
                     -E 'test(error_texts)'. Then read the difference.";

/// Lists the texts of a file, one a line.
fn error_texts(tokens: &[Token]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for at in 0..tokens.len() {
        if starts_with(tokens, at, &["#", "[", "error", "("]) {
            let attribute = &tokens[at..after_group(tokens, at + 1)];
            lines.extend(texts("error", attribute));
        } else if starts_with(tokens, at, &["Hint", "for"]) {
            let block = tokens[at..]
                .iter()
                .position(|token| *token == Token::Sign('{'));
            let block = block.map_or(tokens.len(), |ahead| at + ahead);
            lines.extend(texts("hint", &tokens[at..after_group(tokens, block)]));
        }
    }
    lines
}

/// Lists the strings among some tokens, with what they are for.
fn texts<'a>(kind: &'a str, tokens: &'a [Token]) -> impl Iterator<Item = String> + 'a {
    let texts = tokens.iter().filter_map(Token::text);
    texts.map(move |text| format!("{kind} {text:?}"))
}

/// Returns the words that name a host on the internet; those that are reserved for examples may stand anywhere.
fn hosts(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-'));
    words
        .map(|word| word.trim_matches('.'))
        .filter(|word| match word.rsplit_once('.') {
            Some((name, "com" | "dev" | "io" | "net" | "org")) => !name.ends_with("example"),
            _ => false,
        })
        .collect()
}

#[test]
fn errors_and_hints_say_what_was_read() {
    let lines: BTreeSet<String> = packages()
        .iter()
        .flat_map(shipped_files)
        .flat_map(|file| error_texts(&file.tokens))
        .collect();
    let text: Vec<String> = lines.into_iter().collect();
    let text = text.join("\n");
    assert_eq!(
        hosts(&text),
        [""; 0],
        "a host that somebody else runs is named"
    );
    insta::with_settings!({
        snapshot_path => "golden",
        prepend_module_to_snapshot => false,
        omit_expression => true,
        description => RENEW,
    }, {
        insta::assert_snapshot!("error-texts", text);
    });
}

#[test]
fn texts_of_every_form_are_read() {
    let source = r##"
        #[error("plain {name}")]
        #[error(
            "over \
             two lines\n{}", count(.number, "step"),
        )]
        #[error(transparent)]
        // #[error("a comment")]
        impl<T> sconce_schema::Hint for Failed<T> {
            fn hint(&self) -> Option<String> { Some(r#"a "hint""#.to_owned()) }
        }
        const OTHER: &str = "no hint";
    "##;
    let lines = error_texts(&crate::source::tokens::tokenize(source));
    let lines: Vec<String> = lines.into_iter().collect();
    let expected = [
        r#"error "over two lines\n{}""#,
        r#"error "plain {name}""#,
        r#"error "step""#,
        r#"hint "a \"hint\"""#,
    ];
    assert_eq!(lines, expected);
}

#[test]
fn hosts_are_told_from_files() {
    let text = "see https://registry.somewhere.io/v2, not sconce.toml, 1.5 or mirror.example.org.";
    assert_eq!(hosts(text), ["registry.somewhere.io"]);
}
