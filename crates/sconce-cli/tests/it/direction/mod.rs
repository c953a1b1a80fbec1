//! The direction of dependencies: which package uses which, by every way in which one can, and which modules of a
//! package use each other.

mod allowed;
mod borrowed;
mod circles;
mod manifest;
mod modules;
mod rooms;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use allowed::{ALLOWED, Means};
use borrowed::NamedFile;
use manifest::{Dependency, Purpose};
use rooms::{FOR_TESTS, TODAY};

use crate::source::{Package, normalize, packages, read_manifest, rust_files, workspace_dir};

/// Says what is wrong with an edge that a Cargo.toml declares.
fn refuse_edge(from: &str, to: &Dependency) -> Option<String> {
    let Dependency { package, purpose } = to;
    let for_tests = FOR_TESTS.contains(&package.as_str());
    if for_tests && *purpose != Purpose::Dev {
        return Some(format!("{from} ships {package}"));
    }
    let is_listed = TODAY
        .iter()
        .any(|(one, other, _)| (*one, *other) == (from, package));
    let is_allowed = package == FOR_TESTS[0] || rooms::is_in_graph(from, package) || is_listed;
    (!is_allowed).then(|| format!("{from} must not depend on {package}"))
}

#[test]
fn dependencies_point_one_way() {
    let workspace = read_manifest(Path::new("Cargo.toml"));
    let mut wrong = Vec::new();
    let mut edges = BTreeSet::new();
    for Package { name, manifest, .. } in packages() {
        assert!(
            rooms::has_room(&name),
            "{name} has no row in direction/rooms.rs"
        );
        for to in manifest::dependencies(&manifest, &workspace) {
            wrong.extend(refuse_edge(&name, &to));
            edges.insert((name.clone(), to.package));
        }
    }
    for (from, to, reason) in TODAY {
        assert!(!reason.is_empty());
        if !edges.contains(&(from.to_string(), to.to_string())) || rooms::is_in_graph(from, to) {
            wrong.push(format!(
                "{from} to {to} is no exception any more: take it out of TODAY"
            ));
        }
    }
    assert!(edges.len() > 20, "the edges are not read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn edges_against_the_direction_are_refused() {
    let refuse = |from: &str, package: &str, purpose| {
        let package = package.to_owned();
        refuse_edge(from, &Dependency { package, purpose })
    };
    let wrong = refuse("sconce-resolve", "sconce-run", Purpose::Dev);
    assert_eq!(
        wrong.unwrap(),
        "sconce-resolve must not depend on sconce-run"
    );
    let shipped = refuse("sconce-run", "sconce-testkit", Purpose::Build);
    assert_eq!(shipped.unwrap(), "sconce-run ships sconce-testkit");
    assert!(refuse("sconce-run", "sconce-fuzz", Purpose::Dev).is_some());
    assert!(refuse("sconce-run", "sconce-testkit", Purpose::Dev).is_none());
    assert!(refuse("sconce-resolve", "sconce-store", Purpose::Normal).is_none());
    assert!(refuse("sconce-cli", "sconce-run", Purpose::Normal).is_none());
}

/// Lists what a package takes from outside of its directory, with the file that says so.
fn borrowed_files(package: &Package, all: &[(&str, &Path)]) -> Vec<(PathBuf, NamedFile)> {
    let mut found = Vec::new();
    for (file, source) in rust_files(&package.dir) {
        let named = borrowed::outside_files(&package.dir, &file, &source);
        found.extend(named.into_iter().map(|named| (file.clone(), named)));
    }
    let manifest = package.dir.join("Cargo.toml");
    for path in manifest::source_paths(&package.manifest) {
        let path = normalize(&package.dir.join(path));
        if !path.starts_with(&package.dir) {
            let named = NamedFile {
                means: Means::Manifest,
                path: Some(path),
            };
            found.push((manifest.clone(), named));
        }
    }
    let declared = package.manifest["package"].get("build");
    let script = declared.and_then(toml::Value::as_str).unwrap_or("build.rs");
    let script = normalize(&package.dir.join(script));
    if let Ok(source) = std::fs::read_to_string(workspace_dir().join(&script)) {
        let named = borrowed::build_script_files(&package.dir, &source, all);
        found.extend(named.into_iter().map(|named| (script.clone(), named)));
    }
    found
}

#[test]
fn files_from_other_directories_are_listed_with_their_reason() {
    let packages = packages();
    let all: Vec<(&str, &Path)> = packages
        .iter()
        .map(|package| (package.name.as_str(), package.dir.as_path()))
        .collect();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for package in &packages {
        for (file, named) in borrowed_files(package, &all) {
            match borrowed::allowing_row(&package.name, &named) {
                Some(row) => {
                    used.insert(row);
                }
                None => wrong.push(format!("{}: {named:?} is not listed", file.display())),
            }
        }
    }
    for (row, allowed) in ALLOWED.iter().enumerate() {
        assert!(!allowed.reason.is_empty());
        if !used.contains(&row) {
            wrong.push(format!(
                "nothing does this any more, take it out: {allowed:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "direction/allowed.rs:\n{}",
        wrong.join("\n")
    );
}
