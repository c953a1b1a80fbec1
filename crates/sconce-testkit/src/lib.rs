//! For the tests of every crate: a test that cannot run here says so by name, and is counted; and
//! [`golden_files`] hold what is written.
//!
//! `scripts/test` lists what was left out at its end. Where the variable `CI` is set, a skip that
//! neither `scripts/skips.tsv` nor the variable [`SKIP`] names fails the test.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;

pub mod golden_files;
pub mod source_types;
pub mod table;

/// Variable with the names of skips that are allowed beside the list, with commas between them.
pub const SKIP: &str = "SCONCE_SKIP";
/// Variable with the file to which each skip is added as a line.
pub const SKIPPED_FILE: &str = "SCONCE_SKIPPED_FILE";

/// Leaves a part of a test out: says so, and adds it to the file that [`SKIPPED_FILE`] names.
///
/// `name` says what is missing, the same wherever it is: `linux-6.12`, `program:podman`.
///
/// # Panics
/// Where `CI` is set and the skip is not allowed, and where the file cannot be written.
#[expect(clippy::print_stderr, reason = "what was not tested is said")]
pub fn report_skip(name: &str, why: impl Display) {
    let why = why.to_string().replace(['\n', '\t'], " ");
    eprintln!("skipped: {name}: {why}");
    if let Some(file) = std::env::var_os(SKIPPED_FILE) {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        let line = format!("{name}\t{test}\t{why}\n");
        let opened = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file);
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            panic!("{}: {error}", file.display());
        }
    }
    let named = std::env::var(SKIP).unwrap_or_default();
    assert!(
        std::env::var_os("CI").is_none() || table::is_allowed(name, "ci", &named),
        "skipped in CI: {name}: {why}\nscripts/skips.tsv has no row `{name}` for `ci`; \
         {SKIP}={name} allows it once"
    );
}

/// Where a program is, by `PATH` and the folders of root's programs; the test is skipped where it is
/// nowhere.
///
/// # Panics
/// If `scripts/programs.tsv` does not have it, and as [`report_skip`].
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let package = table::find_package(name).unwrap_or_else(|| {
        panic!("{name} is not in scripts/programs.tsv, by which it is installed")
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let found = std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        report_skip(
            &format!("program:{name}"),
            format!("{name} is not installed (package {package})"),
        );
    }
    found
}

/// Whether all of these are installed; see [`find_program`].
///
/// # Panics
/// As [`find_program`].
#[must_use]
pub fn has_programs(programs: &[&str]) -> bool {
    programs.iter().all(|name| find_program(name).is_some())
}
