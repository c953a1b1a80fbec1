//! The Debian solver against a small archive: its answer is one, and when it says that there is
//! none, trying every set of packages finds none either.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use arbitrary::Unstructured;
use sconce_resolve::debian::index::{DebianIndex, DebianPackage};
use sconce_resolve::debian::relation::{
    Relation, RelationAlternatives, parse_field, parse_request,
};
use sconce_resolve::debian::solve::{self as solver, SolveError};

use crate::bytes::{flag, noise, pick};

/// Names of packages, and of what only provides exist of.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "v", "w"];

pub(crate) fn solve(data: &[u8]) {
    let mut from = Unstructured::new(data);
    let text = archive(&mut from);
    let mut index = DebianIndex::default();
    index
        .add_suite(0, &text, "amd64")
        .expect("the archive is sound");
    let requests: Vec<String> = (0..from.int_in_range(1..=2).unwrap_or(1))
        .map(|_| match flag(&mut from) && flag(&mut from) {
            true => format!("{}={}", pick(&mut from, &NAMES), version(&mut from)),
            false => relation(&mut from),
        })
        .collect();
    let keep: BTreeMap<String, String> = (0..from.int_in_range(0..=2).unwrap_or(0))
        .map(|_| {
            (
                pick(&mut from, &NAMES).to_owned(),
                version(&mut from).to_owned(),
            )
        })
        .collect();
    match solver::solve_dependencies(&index, &requests, &keep) {
        Ok(chosen) => {
            let chosen: Vec<&DebianPackage<'_>> =
                chosen.iter().map(|n| index.package(*n)).collect();
            assert!(chosen.is_sorted_by(|a, b| a.name < b.name), "a name twice");
            let why = wrong(&chosen, &requests);
            assert_eq!(
                why, None,
                "{requests:?} keeping {keep:?} gave {chosen:#?} of\n{text}"
            );
        }
        Err(SolveError::NoSolution { .. }) => {
            let found = search(&index, &requests);
            assert!(
                found.is_none(),
                "{requests:?} has the solution {found:#?} of\n{text}"
            );
        }
        Err(error) => drop(error.to_string()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    noise()
}

fn archive(from: &mut Unstructured<'_>) -> String {
    let mut text = String::new();
    for name in &NAMES[..5] {
        for version in ["1", "2"] {
            if !flag(from) && version == "2" {
                continue;
            }
            let _ = writeln!(
                text,
                "Package: {name}\nVersion: {version}\nArchitecture: all"
            );
            let _ = writeln!(
                text,
                "Filename: pool/{name}\nSize: 1\nSHA256: {}",
                "0".repeat(64)
            );
            for (field, most) in [
                ("Depends", 3),
                ("Pre-Depends", 1),
                ("Conflicts", 1),
                ("Breaks", 1),
            ] {
                let _ = writeln!(
                    text,
                    "{field}: {}",
                    groups(from, most, field.ends_with("Depends"))
                );
            }
            let provided = match pick(from, &[0, 1, 2, 3]) {
                0 => "v",
                1 => "v (= 1), w",
                2 => "w (= 2)",
                _ => "",
            };
            let _ = writeln!(text, "Provides: {provided}\n");
        }
    }
    text
}

fn groups(from: &mut Unstructured<'_>, most: usize, alternatives: bool) -> String {
    let mut groups = Vec::new();
    for _ in 0..from.int_in_range(0..=most).unwrap_or(0) {
        let count = from
            .int_in_range(1..=if alternatives { 3 } else { 1 })
            .unwrap_or(1);
        let group: Vec<String> = (0..count).map(|_| relation(from)).collect();
        groups.push(group.join(" | "));
    }
    groups.join(", ")
}

fn relation(from: &mut Unstructured<'_>) -> String {
    let name = pick(from, &NAMES);
    match pick(from, &["", "", "", "<<", "<=", "=", ">=", ">>"]) {
        "" => name.to_owned(),
        operator => format!("{name} ({operator} {})", version(from)),
    }
}

fn version(from: &mut Unstructured<'_>) -> &'static str {
    pick(from, &["1", "2", "3"])
}

/// What is wrong with these packages standing together, said without the solver's code.
fn wrong(chosen: &[&DebianPackage<'_>], requests: &[String]) -> Option<String> {
    for request in requests {
        let request = parse_request(request).expect("it was made as one");
        if !chosen.iter().any(|package| is(package, &request)) {
            return Some(format!("{request} is not there"));
        }
    }
    for package in chosen {
        for group in [package.pre_depends, package.depends]
            .into_iter()
            .flat_map(read)
        {
            if !group
                .iter()
                .any(|r| chosen.iter().any(|other| is(other, r)))
            {
                return Some(format!("{} lacks {group:?}", package.name));
            }
        }
        for refused in [package.conflicts, package.breaks]
            .into_iter()
            .flat_map(read)
            .flatten()
        {
            let stands =
                |other: &&&DebianPackage<'_>| other.name != package.name && is(other, &refused);
            if let Some(other) = chosen.iter().find(stands) {
                return Some(format!("{} refuses {}", package.name, other.name));
            }
        }
    }
    None
}

fn read(field: &str) -> Vec<RelationAlternatives<'_>> {
    parse_field(field).expect("it was made as one")
}

/// Whether the package is, or provides, what the relation names (Debian Policy 7.5).
fn is(package: &DebianPackage<'_>, relation: &Relation<'_>) -> bool {
    let provides = read(package.provides).concat().iter().any(|provided| {
        provided.name == relation.name
            && match provided.version {
                Some((_, version)) => relation.accepts(version),
                None => relation.version.is_none(),
            }
    });
    provides || (package.name == relation.name && relation.accepts(package.version))
}

/// Every set of candidates: of each name the newest, or the one that is asked for.
fn search<'i>(
    index: &'i DebianIndex<'_>,
    requests: &[String],
) -> Option<Vec<&'i DebianPackage<'i>>> {
    let asked: BTreeMap<&str, &str> = requests.iter().filter_map(|r| exact(r)).collect();
    let candidates: Vec<&DebianPackage<'_>> = NAMES
        .iter()
        .filter_map(|name| {
            let exactly = asked
                .get(name)
                .and_then(|version| index.find_version(name, version));
            exactly
                .or_else(|| index.find_newest(name))
                .map(|number| index.package(number))
        })
        .collect();
    (0..1_u32 << candidates.len()).find_map(|set| {
        let chosen: Vec<&DebianPackage<'_>> = candidates
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, package)| *package)
            .collect();
        wrong(&chosen, requests).is_none().then_some(chosen)
    })
}

fn exact(request: &str) -> Option<(&str, &str)> {
    use sconce_resolve::debian::relation::Operator::Exactly;
    let relation = parse_request(request).ok()?;
    match relation.version {
        Some((Exactly, version)) => Some((relation.name, version)),
        _ => None,
    }
}
