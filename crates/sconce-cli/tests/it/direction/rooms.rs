//! Which package may use which: the graph of the architecture, with packages that are still to come.

/// What a package may use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Uses {
    /// These and nothing else.
    Only(&'static [&'static str]),
    /// These, and what [`COMMON`] names.
    Stage(&'static [&'static str]),
    /// Every package that is [`Uses::Only`] or a [`Uses::Stage`].
    Everything,
}

/// What every stage may use.
pub(crate) const COMMON: [&str; 2] = ["sconce-schema", "sconce-base"];

/// Packages that only tests may use, and nothing that is shipped. Every package's tests may use the first.
pub(crate) const FOR_TESTS: [&str; 2] = ["sconce-testkit", "sconce-fuzz"];

/// The graph. A row may be here before its package is; a package without a row fails.
pub(crate) const ROOMS: &[(&str, Uses)] = &[
    // Written types, and what knows nothing of Sconce.
    ("sconce-schema", Uses::Only(&[])),
    ("sconce-base", Uses::Only(&["sconce-schema"])),
    ("sconce-oci", Uses::Only(&["sconce-schema"])),
    ("sconce-formats", Uses::Only(&[])),
    ("sconce-memory", Uses::Only(&["sconce-schema"])),
    ("sconce-vgpu", Uses::Only(&[])),
    // Stages.
    ("sconce-fetch", Uses::Stage(&[])),
    ("sconce-record", Uses::Stage(&[])),
    ("sconce-host", Uses::Stage(&["sconce-formats"])),
    ("sconce-lease", Uses::Stage(&["sconce-host"])),
    (
        "sconce-store",
        Uses::Stage(&["sconce-fetch", "sconce-formats"]),
    ),
    (
        "sconce-registry",
        Uses::Stage(&["sconce-oci", "sconce-fetch"]),
    ),
    ("sconce-import", Uses::Stage(&["sconce-formats"])),
    (
        "sconce-resolve",
        Uses::Stage(&["sconce-store", "sconce-fetch", "sconce-formats"]),
    ),
    (
        "sconce-image",
        Uses::Stage(&[
            "sconce-oci",
            "sconce-fetch",
            "sconce-store",
            "sconce-registry",
            "sconce-formats",
        ]),
    ),
    ("sconce-compat", Uses::Stage(&["sconce-formats"])),
    ("sconce-run", Uses::Stage(&["sconce-host"])),
    ("sconce-submit", Uses::Stage(&[])),
    ("sconce-report", Uses::Stage(&["sconce-record"])),
    // The program.
    ("sconce-app", Uses::Everything),
    (
        "sconce-web",
        Uses::Stage(&[
            "sconce-report",
            "sconce-memory",
            "sconce-record",
            "sconce-host",
            "sconce-fetch",
        ]),
    ),
    ("sconce-cli", Uses::Stage(&["sconce-app", "sconce-web"])),
    // For tests alone.
    (
        "sconce-testkit",
        Uses::Stage(&["sconce-host", "sconce-run"]),
    ),
    ("sconce-fuzz", Uses::Everything),
];

/// Why the program uses stages today.
const VERBS: &str =
    "verbs that show what a stage answers are in the program until they are in sconce-app";

/// Edges that are not in the graph and are there today. The list may only get shorter.
pub(crate) const TODAY: &[(&str, &str, &str)] = &[
    ("sconce-cli", "sconce-compat", VERBS),
    ("sconce-cli", "sconce-fetch", VERBS),
    ("sconce-cli", "sconce-host", VERBS),
    ("sconce-cli", "sconce-image", VERBS),
    ("sconce-cli", "sconce-import", VERBS),
    ("sconce-cli", "sconce-lease", VERBS),
    ("sconce-cli", "sconce-memory", VERBS),
    ("sconce-cli", "sconce-oci", VERBS),
    ("sconce-cli", "sconce-record", VERBS),
    ("sconce-cli", "sconce-registry", VERBS),
    ("sconce-cli", "sconce-report", VERBS),
    ("sconce-cli", "sconce-resolve", VERBS),
    ("sconce-cli", "sconce-run", VERBS),
    ("sconce-cli", "sconce-store", VERBS),
];

/// Returns what a package may use; `None` if it has no row.
fn uses(package: &str) -> Option<Uses> {
    let row = ROOMS.iter().find(|(name, _)| *name == package);
    row.map(|(_, uses)| *uses)
}

/// Whether the architecture has a room for a package.
pub(crate) fn has_room(package: &str) -> bool {
    uses(package).is_some()
}

/// Whether the graph itself has an edge, the exceptions of today aside.
pub(crate) fn is_in_graph(from: &str, to: &str) -> bool {
    let of_program = ["sconce-app", "sconce-web", "sconce-cli"];
    match uses(from) {
        Some(Uses::Only(names)) => names.contains(&to),
        Some(Uses::Stage(names)) => names.contains(&to) || COMMON.contains(&to),
        Some(Uses::Everything) => {
            has_room(to) && !of_program.contains(&to) && !FOR_TESTS.contains(&to)
        }
        None => false,
    }
}

#[test]
fn every_room_that_a_row_names_has_a_row() {
    for (package, uses) in ROOMS {
        let names = match uses {
            Uses::Only(names) | Uses::Stage(names) => *names,
            Uses::Everything => &[],
        };
        for name in names.iter().chain(&COMMON) {
            assert!(has_room(name), "{package} may use {name}, which has no row");
        }
        let rows = ROOMS.iter().filter(|(name, _)| name == package);
        assert_eq!(rows.count(), 1, "{package} has one row");
    }
}

#[test]
fn rooms_have_no_circle() {
    let mut left: Vec<&str> = ROOMS.iter().map(|(package, _)| *package).collect();
    loop {
        let before = left.len();
        let users = left.clone();
        left.retain(|from| users.iter().any(|to| is_in_graph(from, to)));
        if left.len() == before {
            break;
        }
    }
    assert!(
        left.is_empty(),
        "these use each other in a circle: {left:?}"
    );
}

#[test]
fn wrong_edges_are_not_in_the_graph() {
    assert!(!is_in_graph("sconce-resolve", "sconce-run"));
    assert!(!is_in_graph("sconce-schema", "sconce-store"));
    assert!(!is_in_graph("sconce-schema", "sconce-schema"));
    assert!(!is_in_graph("sconce-app", "sconce-cli"));
    assert!(!is_in_graph("sconce-nowhere", "sconce-schema"));
    assert!(is_in_graph("sconce-resolve", "sconce-store"));
    assert!(is_in_graph("sconce-run", "sconce-schema"));
    assert!(is_in_graph("sconce-app", "sconce-run"));
}
