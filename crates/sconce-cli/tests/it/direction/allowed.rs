//! Files that packages take from outside of their own directories, each with its reason.

/// How a file comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// The package's build script names it.
    BuildScript,
    /// `include!`, `include_str!` or `include_bytes!`.
    Include,
    /// A library, program or test of Cargo.toml begins in it.
    Manifest,
    /// `#[path = "…"]` of a module.
    ModulePath,
}

/// Files that a package may take from elsewhere.
#[derive(Debug)]
pub(crate) struct Allowed {
    pub(crate) package: &'static str,
    pub(crate) means: Means,
    /// A file or directory, from the workspace's directory.
    pub(crate) files: &'static str,
    pub(crate) reason: &'static str,
}

const fn row(
    package: &'static str,
    means: Means,
    files: &'static str,
    reason: &'static str,
) -> Allowed {
    Allowed {
        package,
        means,
        files,
        reason,
    }
}

const PRIVATE_PARSER: &str = "its crate keeps the parser private, and bytes from outside reach it";
const PARSER_FIXTURE: &str = "makes the inputs of a parser's tests, which are seeds as well";

/// All that is taken from elsewhere. A row that nothing uses fails.
pub(crate) const ALLOWED: &[Allowed] = &[
    row(
        "sconce-app",
        Means::BuildScript,
        "crates/sconce-vgpu/src",
        "cargo cannot embed another package's shared library: the virtual GPU is compiled by the build script",
    ),
    row(
        "sconce-app",
        Means::Include,
        "python",
        "the program carries the probe",
    ),
    row(
        "sconce-cli",
        Means::Include,
        "crates/sconce-memory/tests/fixtures",
        "a unit test shows a real snapshot",
    ),
    row(
        "sconce-cli",
        Means::Include,
        "crates/sconce-app/src/inspect/testdata",
        "verbs are tested with the lock that their parts are tested with",
    ),
    row(
        "sconce-record",
        Means::Include,
        "crates/sconce-report/tests/records",
        "unit tests read real records",
    ),
    row(
        "sconce-image",
        Means::ModulePath,
        "crates/sconce-registry/tests/it",
        "tests pull from the registry in memory that the client is tested against",
    ),
    row(
        "sconce-testkit",
        Means::Include,
        "scripts",
        "tests and scripts share the lists of programs and of skips",
    ),
    row(
        "sconce-fuzz",
        Means::Include,
        "crates/sconce-memory/tests/fixtures",
        "real snapshots are seeds",
    ),
    row(
        "sconce-fuzz",
        Means::ModulePath,
        "crates/sconce-app/src",
        PRIVATE_PARSER,
    ),
    row(
        "sconce-fuzz",
        Means::ModulePath,
        "crates/sconce-compat/src/binary/testing.rs",
        PARSER_FIXTURE,
    ),
    row(
        "sconce-fuzz",
        Means::ModulePath,
        "crates/sconce-fetch/src",
        PRIVATE_PARSER,
    ),
    row(
        "sconce-fuzz",
        Means::ModulePath,
        "crates/sconce-host/src",
        PRIVATE_PARSER,
    ),
    row(
        "sconce-fuzz",
        Means::ModulePath,
        "crates/sconce-image/src",
        PRIVATE_PARSER,
    ),
];
