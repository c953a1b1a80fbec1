//! The direction of dependencies, as ARCHITECTURE.md draws it: every crate may use the schema and the base,
//! only the program may use every stage, and a stage uses another stage only where listed here.

use std::collections::BTreeSet;
use std::path::Path;

/// The exceptions to "a stage never depends on another stage".
const STAGE_EDGES: [(&str, &str); 15] = [
    ("sconce-image", "sconce-fetch"),
    ("sconce-image", "sconce-oci"),
    ("sconce-image", "sconce-registry"),
    ("sconce-image", "sconce-store"),
    ("sconce-import", "sconce-formats"),
    ("sconce-lease", "sconce-host"),
    ("sconce-registry", "sconce-fetch"),
    ("sconce-registry", "sconce-oci"),
    ("sconce-report", "sconce-record"),
    ("sconce-resolve", "sconce-fetch"),
    ("sconce-resolve", "sconce-formats"),
    ("sconce-resolve", "sconce-store"),
    ("sconce-run", "sconce-host"),
    ("sconce-run", "sconce-record"),
    ("sconce-store", "sconce-fetch"),
];

/// What every crate's tests may use, and nothing that is shipped.
const TESTKIT: &str = "sconce-testkit";

/// Crates that the architecture has a room for.
const CRATES: [&str; 21] = [
    "sconce-base",
    "sconce-cli",
    "sconce-compat",
    "sconce-fetch",
    "sconce-formats",
    "sconce-host",
    "sconce-image",
    "sconce-import",
    "sconce-lease",
    "sconce-memory",
    "sconce-oci",
    "sconce-record",
    "sconce-registry",
    "sconce-report",
    "sconce-resolve",
    "sconce-run",
    "sconce-schema",
    "sconce-store",
    "sconce-submit",
    "sconce-testkit",
    "sconce-vgpu",
];

fn may_depend(from: &str, to: &str) -> bool {
    from == "sconce-cli"
        || to == TESTKIT
        || (to == "sconce-schema" && from != "sconce-schema")
        || (to == "sconce-base" && !["sconce-base", "sconce-schema"].contains(&from))
        || STAGE_EDGES.contains(&(from, to))
}

/// Every edge between our crates that a Cargo.toml declares, for builds and for tests.
fn edges(manifest: &toml::Table) -> BTreeSet<String> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|kind| manifest.get(*kind)?.as_table())
        .flat_map(|table| table.keys().cloned())
        .filter(|name| name.starts_with("sconce-"))
        .collect()
}

fn ships_testkit(manifest: &toml::Table) -> bool {
    let kinds = ["dependencies", "build-dependencies"];
    let has = |kind: &&str| {
        manifest
            .get(*kind)
            .is_some_and(|table| table.get(TESTKIT).is_some())
    };
    kinds.iter().any(has)
}

#[test]
fn dependencies_point_one_way() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = 0;
    for entry in crates.read_dir().unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let manifest: toml::Table = toml::from_str(&text).unwrap();
        let name = manifest["package"]["name"].as_str().unwrap();
        assert!(
            CRATES.contains(&name),
            "{name} has no room in the architecture"
        );
        for to in edges(&manifest) {
            assert!(may_depend(name, &to), "{name} must not depend on {to}");
        }
        assert!(!ships_testkit(&manifest), "{name} ships {TESTKIT}");
        seen += 1;
    }
    assert!(seen >= 8, "only {seen} crates were read");
}

#[test]
fn a_wrong_edge_is_seen() {
    let manifest: toml::Table =
        toml::from_str("[dev-dependencies]\nsconce-run = { workspace = true }").unwrap();
    assert_eq!(edges(&manifest), BTreeSet::from(["sconce-run".to_owned()]));
    assert!(!may_depend("sconce-resolve", "sconce-run"));
    assert!(!may_depend("sconce-schema", "sconce-store"));
    assert!(may_depend("sconce-resolve", "sconce-store"));
    let wrong: toml::Table =
        toml::from_str("[dependencies]\nsconce-testkit = { workspace = true }").unwrap();
    assert!(ships_testkit(&wrong) && !ships_testkit(&manifest));
}
