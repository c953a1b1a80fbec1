use super::*;
use proptest::prelude::*;
use sconce_schema::Hint;

/// An index from lines `name version | depends | provides | conflicts`.
fn index_text(lines: &str) -> String {
    let mut text = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut parts = line.splitn(4, ';').map(str::trim);
        let (name, version) = parts.next().unwrap().split_once(' ').unwrap();
        let [depends, provides, conflicts] = [(); 3].map(|()| parts.next().unwrap_or_default());
        text += &format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nFilename: pool/{name}\nSize: 1\nSHA256: {}\nDepends: {depends}\nProvides: {provides}\nConflicts: {conflicts}\n\n",
            "0".repeat(64)
        );
    }
    text
}

fn solve_keeping(
    lines: &str,
    requests: &[&str],
    keep: &[(&str, &str)],
) -> Result<Vec<String>, SolveError> {
    let text = index_text(lines);
    let mut index = DebianIndex::default();
    index.add_suite(0, &text, "amd64").unwrap();
    let requests: Vec<String> = requests.iter().map(|r| (*r).to_owned()).collect();
    let keep = keep
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect();
    let packages = solve_dependencies(&index, &requests, &keep)?;
    Ok(packages
        .into_iter()
        .map(|number| index.package(number))
        .map(|package| format!("{} {}", package.name, package.version))
        .collect())
}

fn solved(lines: &str, requests: &[&str]) -> Vec<String> {
    solve_keeping(lines, requests, &[]).unwrap()
}

fn reasons(lines: &str, requests: &[&str]) -> Vec<String> {
    match solve_keeping(lines, requests, &[]) {
        Err(SolveError::NoSolution { reasons }) => reasons,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_closure_and_nothing_else() {
    let lines = "a 1; b, c (>= 2)\nb 1; c\nc 2\nc 1\nd 1";
    assert_eq!(solved(lines, &["a"]), ["a 1", "b 1", "c 2"]);
}

#[test]
fn a_circle_ends() {
    assert_eq!(solved("a 1; b\nb 1; a", &["a"]), ["a 1", "b 1"]);
}

#[test]
fn the_first_alternative_unless_another_is_there_already() {
    let lines = "a 1; x | y\nb 1; y\nx 1\ny 1";
    assert_eq!(solved(lines, &["a"]), ["a 1", "x 1"]);
    // Whatever the order of asking: choices come last.
    assert_eq!(solved(lines, &["a", "b"]), ["a 1", "b 1", "y 1"]);
    assert_eq!(solved(lines, &["b", "a"]), ["a 1", "b 1", "y 1"]);
}

#[test]
fn an_alternative_that_cannot_be_had_is_passed_over() {
    assert_eq!(solved("a 1; x | y\nx 1; gone\ny 1", &["a"]), ["a 1", "y 1"]);
    assert_eq!(
        solved("a 1; x (>= 2) | y\nx 1\ny 1", &["a"]),
        ["a 1", "y 1"]
    );
    assert_eq!(
        solved("a 1; x | y\nb 1; z\nz 1; ; ; x\nx 1\ny 1", &["a", "b"]),
        ["a 1", "b 1", "y 1", "z 1"]
    );
}

#[test]
fn choices_are_taken_back_in_turn() {
    // Whichever provider of `p` comes first stands against what the second choice needs.
    let lines = "a 1; p1 | p2, q1 | q2\np1 1\np2 1\nq1 1; ; ; p1\nq2 1; gone";
    assert_eq!(solved(lines, &["a"]), ["a 1", "p2 1", "q1 1"]);
}

#[test]
fn virtual_packages() {
    let lines = "a 1; awk\nmawk 1; ; awk\ngawk 1; ; awk (= 3)\nb 1; awk (>= 2)\nc 1; awk (>= 4)";
    assert_eq!(solved(lines, &["a"]), ["a 1", "gawk 1"]);
    assert_eq!(solved(lines, &["a", "mawk"]), ["a 1", "mawk 1"]);
    assert_eq!(solved(lines, &["b"]), ["b 1", "gawk 1"]);
    assert_eq!(solved(lines, &["awk"]), ["gawk 1"]);
    assert_eq!(
        reasons(lines, &["c"]),
        ["c needs awk (>= 4), but there is no package awk"]
    );
}

#[test]
fn a_package_may_refuse_what_it_provides_itself() {
    let lines = "a 1; ; mta; mta\nb 1; ; mta; mta";
    assert_eq!(solved(lines, &["a"]), ["a 1"]);
    assert_eq!(
        reasons(lines, &["a", "b"]),
        [
            "the request needs b 1, which cannot stand beside a 1 (it says `mta`), and the request needs that one"
        ]
    );
}

#[test]
fn qualifiers() {
    assert_eq!(
        solved("a 1; p:any, n:native\np 1\nn 1", &["a"]),
        ["a 1", "n 1", "p 1"]
    );
    assert!(solve_keeping("a 1; p:armhf\np 1", &["a"], &[]).is_err());
}

#[test]
fn dropped_packages_come_only_when_asked_for() {
    let lines = "a 1; debconf (>= 9) | debconf-2.0, ucf\nucf 1; debconf\ndebconf 1; perl\nperl 1";
    assert_eq!(solved(lines, &["a"]), ["a 1"]);
    assert_eq!(solved(lines, &["a", "ucf"]), ["a 1", "ucf 1"]);
}

#[test]
fn reasons_are_said_as_a_chain() {
    let lines = "a 1; b\nb 1; c (>= 2)\nc 1.0";
    assert_eq!(
        reasons(lines, &["a"]),
        ["a needs b, b needs c (>= 2), but c 1.0 is the newest"]
    );
    assert_eq!(
        reasons(lines, &["c=3"]),
        ["the request needs c (= 3), but c 1.0 is the newest"]
    );
    let lines = "a 1; x | y\nx 1; gone1\ny 1; gone2";
    assert_eq!(
        reasons(lines, &["a"]),
        [
            "a needs x, x needs gone1, but there is no package gone1",
            "a needs y, y needs gone2, but there is no package gone2"
        ]
    );
}

#[test]
fn names_that_are_not_there() {
    let lines = "git 1\nlibssl3t64 1\npython3-numpy 1";
    for (name, hint) in [
        ("gti", "did you mean git?"),
        ("libssl", "did you mean libssl3t64?"),
        ("python-numpy", "did you mean python3-numpy?"),
        ("zzz", "look the name up with `apt-cache search`"),
    ] {
        let error = solve_keeping(lines, &[name], &[]).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some(hint));
    }
}

#[test]
fn an_older_version_can_be_asked_for() {
    assert_eq!(solved("a 2\na 1\nb 1; a", &["a=1", "b"]), ["a 1", "b 1"]);
}

#[test]
fn kept_versions() {
    let lines = "a 1; b\nb 2\nb 1\nc 1; b (>= 2)";
    assert_eq!(
        solve_keeping(lines, &["a"], &[("b", "1")]).unwrap(),
        ["a 1", "b 1"]
    );
    assert_eq!(
        solve_keeping(lines, &["a"], &[("b", "0.9")]).unwrap(),
        ["a 1", "b 2"]
    );
    // What is kept must not stand in the way.
    assert_eq!(
        solve_keeping(lines, &["a", "c"], &[("b", "1")]).unwrap(),
        ["a 1", "b 2", "c 1"]
    );
}

#[test]
fn a_hostile_index_does_not_take_for_ever() {
    // 24 choices of two, the last of which can never be satisfied: 2^24 ways to fail.
    let mut lines = String::from("a 1; ");
    for n in 0..24 {
        lines += &format!("x{n} | y{n}, ");
    }
    lines += "x | y\nx 1; gone\ny 1; gone\n";
    for n in 0..24 {
        lines += &format!("x{n} 1\ny{n} 1\n");
    }
    assert!(matches!(
        solve_keeping(&lines, &["a"], &[]),
        Err(SolveError::TooHard)
    ));
}

/// Name, groups of alternatives, conflicts.
type Line = (String, Vec<Vec<String>>, Vec<String>);

/// A closure is complete when each dependency of each member is met, and no two members refuse
/// each other. Checked against random indexes, by a plain reading of the rules.
fn is_complete(lines: &[Line], chosen: &[String]) -> bool {
    let has = |name: &String| chosen.contains(&format!("{name} 1"));
    lines
        .iter()
        .filter(|(name, ..)| has(name))
        .all(|(_, depends, conflicts)| {
            depends.iter().all(|group| group.iter().any(has)) && !conflicts.iter().any(has)
        })
}

proptest! {
    #[test]
    fn random_closures_are_complete_and_found_when_there_are_any(
        raw in proptest::collection::vec(
            (proptest::collection::vec(proptest::collection::vec(0..6_usize, 1..3), 0..3), proptest::collection::vec(0..6_usize, 0..2)),
            6,
        )
    ) {
        let name = |n: &usize| format!("p{n}");
        let lines: Vec<Line> = raw
            .iter()
            .enumerate()
            .map(|(n, (depends, conflicts))| {
                let depends = depends.iter().map(|g| g.iter().map(name).collect()).collect();
                (name(&n), depends, conflicts.iter().filter(|c| **c != n).map(name).collect())
            })
            .collect();
        let text: Vec<String> = lines
            .iter()
            .map(|(name, depends, conflicts)| {
                let depends: Vec<String> = depends.iter().map(|g| g.join(" | ")).collect();
                format!("{name} 1; {}; ; {}", depends.join(", "), conflicts.join(", "))
            })
            .collect();
        // Every subset with p0 in it, tried one by one.
        let subsets = (0..64_u32).filter(|bits| bits & 1 == 1).map(|bits| {
            (0..6).filter(|n| bits >> n & 1 == 1).map(|n| format!("p{n} 1")).collect::<Vec<_>>()
        });
        let exists = subsets.into_iter().any(|subset| is_complete(&lines, &subset));
        match solve_keeping(&text.join("\n"), &["p0"], &[]) {
            Ok(chosen) => {
                prop_assert!(chosen.contains(&"p0 1".to_owned()));
                prop_assert!(is_complete(&lines, &chosen), "{chosen:?}");
            }
            Err(error) => prop_assert!(!exists, "{error}"),
        }
    }
}
