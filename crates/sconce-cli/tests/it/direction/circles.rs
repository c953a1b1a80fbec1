//! Circles of top-level modules within a crate. Those that are there today are listed, and the list may only get
//! shorter: what is to become a crate of its own must be in none.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{ModuleGraph, module_graph};
use crate::source::{packages, shipped_files};

/// The circles of today: a package, and modules of which each reaches each.
const TODAY: &[(&str, &str)] = &[
    ("sconce-cli", "args commands"),
    ("sconce-compat", "matrix rules tables"),
    ("sconce-host", "cdi facts host_profile nvidia nvml"),
    ("sconce-image", "assemble bytecode"),
    ("sconce-image", "docker_archive layout"),
    ("sconce-lease", "clock types"),
    ("sconce-lease", "error wait_reason"),
    ("sconce-record", "read segments write"),
    ("sconce-registry", "auth client"),
    ("sconce-report", "contention fold model verdict verdicts"),
    ("sconce-resolve", "compiler stages"),
    ("sconce-resolve", "documents http_cache"),
    (
        "sconce-run",
        "engine error init init_config prepare pty rlimits",
    ),
    ("sconce-schema", "request service"),
    (
        "sconce-store",
        "blob error item item_access lock store wheel",
    ),
    (
        "sconce-vgpu",
        "abi clock control libraries machine runtime unknown",
    ),
];

/// Returns the sets of modules of which each reaches each, without those of one.
fn circles(graph: &ModuleGraph) -> BTreeSet<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in graph.keys() {
        next.entry(from).or_default().push(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|from| (*from, reached_from(from, &next)))
        .collect();
    let mut found = BTreeSet::new();
    for (from, there) in &reached {
        let back = |to: &&str| reached.get(to).is_some_and(|there| there.contains(from));
        let circle: BTreeSet<&str> = there.iter().copied().filter(back).collect();
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    found
}

fn reached_from<'a>(from: &str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = vec![from];
    while let Some(module) = left.pop() {
        for to in next.get(module).into_iter().flatten() {
            if reached.insert(*to) {
                left.push(to);
            }
        }
    }
    reached
}

/// Compares the circles of a package with those that are listed; says what is wrong.
fn compare(package: &str, graph: &ModuleGraph, listed: &[(&str, &str)]) -> Vec<String> {
    let listed: BTreeSet<BTreeSet<&str>> = listed
        .iter()
        .filter(|(of, _)| *of == package)
        .map(|(_, modules)| modules.split_whitespace().collect())
        .collect();
    let found = circles(graph);
    let mut wrong = Vec::new();
    for circle in found.difference(&listed) {
        let is_smaller = listed.iter().any(|before| before.is_superset(circle));
        let what = match is_smaller {
            true => "is smaller than the one in TODAY: shorten that",
            false => "is new",
        };
        let names = circle.iter().copied().collect::<Vec<_>>().join(", ");
        let edges = graph.iter().filter(|((from, to), _)| {
            circle.contains(from.as_str()) && circle.contains(to.as_str())
        });
        let edges: Vec<String> = edges
            .map(|((from, to), seen)| format!("\n    {from} -> {to} ({seen})"))
            .collect();
        wrong.push(format!(
            "{package}: the circle of {names} {what}{}",
            edges.concat()
        ));
    }
    for circle in listed.difference(&found) {
        wrong.push(format!(
            "{package}: {circle:?} is no circle any more: take it out of TODAY, or shorten it"
        ));
    }
    wrong
}

#[test]
fn modules_have_no_circles_but_those_of_today() {
    let packages = packages();
    let mut wrong = Vec::new();
    let mut edges = 0;
    for package in &packages {
        let graph = module_graph(&shipped_files(package));
        edges += graph.len();
        wrong.extend(compare(&package.name, &graph, TODAY));
    }
    for (package, _) in TODAY {
        let is_there = packages.iter().any(|one| one.name == *package);
        assert!(is_there, "TODAY names {package}, which is no package");
    }
    assert!(edges > 100, "the modules are not read");
    assert!(
        wrong.is_empty(),
        "direction/circles.rs:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn new_smaller_and_broken_circles_are_refused() {
    let graph = super::modules::graph_of(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::f; use crate::d;"),
        ("b.rs", "use crate::c::f;"),
        ("c.rs", "use crate::a::f;"),
        ("d.rs", "use crate::e::f;"),
        ("e.rs", ""),
    ]);
    let exact = [("x", "a b c")];
    assert!(compare("x", &graph, &exact).is_empty());
    let new = compare("x", &graph, &[]);
    assert!(
        new[0].starts_with("x: the circle of a, b, c is new\n    a -> b (a.rs: crate::b::f)"),
        "{new:?}"
    );
    assert!(!new[0].contains("a -> d"), "{new:?}");
    let smaller = compare("x", &graph, &[("x", "a b c d")]);
    assert!(
        smaller[0].contains("is smaller") && smaller[1].contains("take it out"),
        "{smaller:?}"
    );
    let broken = compare("x", &graph, &[exact[0], ("x", "d e")]);
    assert!(
        broken[0].contains("{\"d\", \"e\"} is no circle any more"),
        "{broken:?}"
    );
    assert_eq!(compare("other", &graph, &exact).len(), 1);
}
