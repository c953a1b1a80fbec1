//! Leaves out what only tests compile: items under `#[cfg(test)]`, and modules of tests in files of their own.

use super::tokens::{Token, after_group, starts_with};

/// A module that only tests compile, in another file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestModule {
    pub(crate) name: String,
    /// Of its `#[path]`.
    pub(crate) path: Option<String>,
}

/// A file without its tests.
#[derive(Debug, Default)]
pub(crate) struct ShippedCode {
    pub(crate) tokens: Vec<Token>,
    pub(crate) test_modules: Vec<TestModule>,
}

/// Words with which an item can begin, whose end is a `;` or a block.
const ITEM_WORDS: [&str; 16] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "unsafe",
    "use",
];

/// Leaves the tests out. `None`: the file has nothing else, by `#![cfg(test)]`.
pub(crate) fn leave_out(tokens: &[Token]) -> Option<ShippedCode> {
    let mut code = ShippedCode::default();
    let mut at = 0;
    while at < tokens.len() {
        let is_attribute = tokens[at] == Token::Sign('#');
        if is_attribute && starts_with(tokens, at + 1, &["!"]) && is_cfg_test(tokens, at + 2) {
            return None;
        }
        if is_attribute && is_cfg_test(tokens, at + 1) {
            let (end, module) = test_item(tokens, after_group(tokens, at + 1));
            code.test_modules.extend(module);
            at = end;
        } else {
            code.tokens.push(tokens[at].clone());
            at += 1;
        }
    }
    Some(code)
}

/// Whether the brackets at `at` say `cfg(test)`, or `cfg(all(test, …))`.
fn is_cfg_test(tokens: &[Token], at: usize) -> bool {
    starts_with(tokens, at, &["[", "cfg", "(", "test", ")"])
        || starts_with(tokens, at, &["[", "cfg", "(", "all", "(", "test"])
}

/// Returns where an item, a field or an arm ends, and the module whose file it declares.
fn test_item(tokens: &[Token], mut at: usize) -> (usize, Option<TestModule>) {
    let mut path = None;
    while starts_with(tokens, at, &["#", "["]) {
        let end = after_group(tokens, at + 1);
        if starts_with(tokens, at + 2, &["path", "="]) {
            path = tokens[at + 4].text().map(str::to_owned);
        }
        at = end;
    }
    let is_item = tokens[at]
        .word()
        .is_some_and(|word| ITEM_WORDS.contains(&word));
    let first = at;
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Sign('{') => return (after_group(tokens, at), None),
            Token::Sign(';') => {
                let name = module_name(&tokens[first..at]);
                return (at + 1, name.map(|name| TestModule { name, path }));
            }
            Token::Sign(',') if !is_item => return (at + 1, None),
            token if token.is_close() => break,
            token if token.is_open() => at = after_group(tokens, at),
            _ => at += 1,
        }
    }
    (at, None)
}

/// Returns the name of `mod name`, with or without a visibility before it.
fn module_name(item: &[Token]) -> Option<String> {
    let [.., keyword, Token::Word(name)] = item else {
        return None;
    };
    keyword.is_word("mod").then(|| name.clone())
}

#[test]
fn tests_are_left_out_and_all_else_stays() {
    let source = r#"
        use a::b;
        #[cfg(test)]
        use c::{d, e};
        struct S { #[cfg(test)] left: u8, kept: u8 }
        #[cfg(test)]
        #[path = "s_tests.rs"]
        mod tests;
        #[cfg(all(test, unix))]
        fn helper<A, B>(a: [A; 2]) -> B { if x { y } }
        fn stays() { match z { #[cfg(test)] One => two, Three => four } }
        #[cfg(test)]
        pub(crate) mod testing;
        #[cfg(not(test))]
        fn last() {}
    "#;
    let code = leave_out(&super::tokens::tokenize(source)).unwrap();
    let words: Vec<&str> = code.tokens.iter().filter_map(Token::word).collect();
    assert_eq!(
        words.join(" "),
        "use a b struct S kept u8 fn stays match z Three four cfg not test fn last"
    );
    let modules: Vec<_> = code
        .test_modules
        .iter()
        .map(|one| (one.name.as_str(), one.path.as_deref()))
        .collect();
    assert_eq!(modules, [("tests", Some("s_tests.rs")), ("testing", None)]);
    assert!(leave_out(&super::tokens::tokenize("#![cfg(test)]\nfn f() {}")).is_none());
}
