//! Reads which top-level modules of a crate use each other: from paths that begin with `crate` or lead there by
//! `super`, in `use` and elsewhere. What only tests compile does not count: a test may look at anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::ShippedFile;
use crate::source::tokens::{Token, starts_with};

/// The edges between modules, each with a file and the path in it that makes it.
pub(crate) type ModuleGraph = BTreeMap<(String, String), String>;

/// Reads the graph of a crate. Its root itself (`lib.rs`, `main.rs`) is no module of it.
pub(crate) fn module_graph(files: &[ShippedFile]) -> ModuleGraph {
    let modules: BTreeSet<String> = files
        .iter()
        .filter_map(|file| module_path(&file.path).into_iter().next())
        .collect();
    let (roots, rest): (Vec<_>, Vec<_>) = files
        .iter()
        .partition(|file| module_path(&file.path).is_empty());
    let mut exports = BTreeMap::new();
    for root in roots {
        exports.extend(root_names(&root.tokens));
    }
    let mut graph = ModuleGraph::new();
    for file in rest {
        let path = module_path(&file.path);
        for used in crate_paths(&file.tokens, &path) {
            let Some(to) = module_behind(&used[0], &modules, &exports) else {
                continue;
            };
            if to != path[0] {
                let seen = format!("{}: crate::{}", file.path.display(), used.join("::"));
                graph.entry((path[0].clone(), to)).or_insert(seen);
            }
        }
    }
    graph
}

/// Returns the path of the module that a file is; empty for the root of a crate.
fn module_path(file: &Path) -> Vec<String> {
    let plain = file.with_extension("");
    let mut parts: Vec<String> = plain
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let is_root = parts == ["lib"] || parts == ["main"];
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// Returns the module that a name in the crate's root stands for; `None` if the root itself has it.
fn module_behind(
    name: &str,
    modules: &BTreeSet<String>,
    exports: &BTreeMap<String, String>,
) -> Option<String> {
    if modules.contains(name) {
        return Some(name.to_owned());
    }
    let module = exports.get(name)?;
    modules.contains(module).then(|| module.clone())
}

/// Reads the names that `use` brings into the crate's root, each with the top-level module it comes from.
fn root_names(tokens: &[Token]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for at in 0..tokens.len() {
        if tokens[at].is_word("use") {
            let mut uses = Vec::new();
            read_tree(tokens, at + 1, Vec::new(), &mut uses);
            for Used { path, name } in uses {
                if let Some(module) = path.first() {
                    names.insert(name, module.clone());
                }
            }
        }
    }
    names
}

/// Lists the paths of a file's code from the crate's root, the root's own name left out.
fn crate_paths(tokens: &[Token], file_module: &[String]) -> Vec<Vec<String>> {
    let mut module = file_module.to_vec();
    // Depths of the braces of inline modules.
    let (mut inline, mut depth) = (Vec::new(), 0);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut next = at + 1;
        match &tokens[at] {
            Token::Sign('{') => depth += 1,
            Token::Sign('}') => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                    module.pop();
                }
            }
            Token::Word(word) if word == "mod" => {
                if let [Token::Word(name), Token::Sign('{'), ..] = &tokens[at + 1..] {
                    module.push(name.clone());
                    inline.push(depth);
                }
            }
            // `pub(crate)` and `pub(super)` are paths to the root or to a module around this one: no edges.
            Token::Word(word) if word == "crate" || word == "super" => {
                let mut uses = Vec::new();
                next = read_tree(tokens, at, module.clone(), &mut uses);
                found.extend(uses.into_iter().map(|used| used.path));
            }
            _ => {}
        }
        at = next;
    }
    found.retain(|path| !path.is_empty());
    found
}

/// A path, and the name that it has after `use`.
#[derive(Debug)]
struct Used {
    path: Vec<String>,
    name: String,
}

/// Reads a path, or a tree of them as in `use`, that continues `prefix`; returns the position after it.
fn read_tree(
    tokens: &[Token],
    mut at: usize,
    mut prefix: Vec<String>,
    found: &mut Vec<Used>,
) -> usize {
    loop {
        match tokens.get(at) {
            Some(Token::Word(word)) => match word.as_str() {
                "crate" => prefix.clear(),
                "super" => {
                    prefix.pop();
                }
                "self" => {}
                name => prefix.push(name.to_owned()),
            },
            Some(Token::Sign('*')) => prefix.push("*".to_owned()),
            Some(Token::Sign('{')) => {
                at += 1;
                while at < tokens.len() && !starts_with(tokens, at, &["}"]) {
                    at = match starts_with(tokens, at, &[","]) {
                        true => at + 1,
                        false => read_tree(tokens, at, prefix.clone(), found).max(at + 1),
                    };
                }
                return at + 1;
            }
            // Of `crate::a::<T>`, or of a macro's `$name`.
            _ => break,
        }
        at += 1;
        if !starts_with(tokens, at, &[":", ":"]) {
            break;
        }
        at += 2;
    }
    let mut name = prefix.last().cloned().unwrap_or_default();
    if starts_with(tokens, at, &["as"]) {
        name = tokens
            .get(at + 1)
            .and_then(Token::word)
            .unwrap_or_default()
            .to_owned();
        at += 2;
    }
    found.push(Used { path: prefix, name });
    at
}

/// Reads a made-up crate: files with their source.
pub(crate) fn graph_of(files: &[(&str, &str)]) -> ModuleGraph {
    let files = files.iter().map(|(path, source)| ShippedFile {
        path: path.into(),
        tokens: crate::source::tokens::tokenize(source),
    });
    module_graph(&files.collect::<Vec<_>>())
}

mod tests {
    use super::*;

    /// The edges of `src/a.rs` or `src/a/b.rs` in a crate with the modules `a`, `b` and `c`.
    fn edges_of(path: &str, source: &str) -> String {
        let root = "mod a; mod b; mod c; pub use b::{Thing, deep::Other as Renamed}; fn own() {}";
        let files = [
            ("lib.rs", root),
            ("a.rs", ""),
            ("b/mod.rs", ""),
            ("c.rs", ""),
        ];
        let files: Vec<_> = files.into_iter().filter(|file| file.0 != path).collect();
        let graph = graph_of(&[files, vec![(path, source)]].concat());
        let edges: Vec<String> = graph
            .keys()
            .map(|(from, to)| format!("{from}{to}"))
            .collect();
        edges.join(" ")
    }

    #[test]
    fn uses_and_paths_are_edges() {
        assert_eq!(edges_of("a.rs", "use crate::b::Thing;"), "ab");
        assert_eq!(edges_of("a.rs", "fn f() -> crate::b::Thing<T> { x }"), "ab");
        assert_eq!(edges_of("a.rs", "use crate::{own, b, c::{d, e}};"), "ab ac");
        assert_eq!(edges_of("a/x/y.rs", "fn f() { crate::c::g::<T>() }"), "ac");
        assert_eq!(
            edges_of("a.rs", "macro_rules! m { () => { $crate::b::f() } }"),
            "ab"
        );
    }

    #[test]
    fn super_that_reaches_the_root_is_an_edge() {
        assert_eq!(edges_of("a.rs", "use super::b;"), "ab");
        assert_eq!(edges_of("a/mod.rs", "use super::{b::Thing, c};"), "ab ac");
        assert_eq!(edges_of("a/x.rs", "use super::super::c;"), "ac");
        assert_eq!(edges_of("a/x.rs", "use super::{super::c, b};"), "ac");
        assert_eq!(
            edges_of(
                "a.rs",
                "mod inside { use super::b; use super::super::c; } use super::b;"
            ),
            "ab ac"
        );
        assert_eq!(
            edges_of("a.rs", "mod inside { use super::c; } use super::b;"),
            "ab"
        );
    }

    #[test]
    fn names_that_the_root_exports_are_edges() {
        assert_eq!(edges_of("a.rs", "use crate::Thing;"), "ab");
        assert_eq!(edges_of("a.rs", "fn f(x: crate::Renamed) {}"), "ab");
        assert_eq!(edges_of("c.rs", "use super::{Thing, own};"), "cb");
    }

    #[test]
    fn what_leads_nowhere_else_is_no_edge() {
        assert_eq!(
            edges_of(
                "a.rs",
                "pub(crate) fn f() { crate::own() } use crate::a::g;"
            ),
            ""
        );
        assert_eq!(
            edges_of(
                "a/x.rs",
                "use super::b; // crate::c\nconst X: &str = \"crate::b\";"
            ),
            ""
        );
    }
}
