//! Packages that somebody asked for, and that come out years old because what their newer versions need has sources
//! alone: uv goes back to the last version whose needs all have wheels, and says nothing of it.

use pep440_rs::Version;
use sconce_schema::lock::Wheel;
use std::str::FromStr as _;
use tracing::info;

use crate::python::compile::{Requirements, UvCompile};
use crate::python::pylock::LockedPackages;
use crate::source_names::SourceNames;

/// Packages that are looked at.
const MAX_PACKAGES: usize = 8;
/// Needs with sources alone of one of them.
const MAX_SOURCES: usize = 8;

/// Looks for them in what was resolved, but for what is as the lock before has it, and takes the sources of what they
/// need. Gives whether there are some, so that resolving again has newer versions.
pub(crate) fn take_hidden_sources(
    names: &SourceNames,
    compile: &UvCompile<'_>,
    requirements: &Requirements,
    packages: &LockedPackages,
) -> bool {
    let requirements = &names.with_names(requirements);
    let sources = names.metadata();
    let kept = compile.keep;
    let compile = UvCompile {
        sources: &sources,
        keep: &[],
        ..*compile
    };
    let Ok(newest) = compile.resolve_without_needs(requirements) else {
        return false;
    };
    let held_back = newest.wheels.iter().filter(|newest| {
        let of = |wheels: &[Wheel]| {
            let wheel = wheels.iter().find(|one| one.name == newest.name)?;
            Some(wheel.version.clone())
        };
        let locked = of(&packages.wheels).filter(|locked| of(kept).as_ref() != Some(locked));
        locked.is_some_and(|locked| is_older_series(&locked, &newest.version))
    });
    let mut is_new = false;
    for package in held_back.take(MAX_PACKAGES) {
        let mut limited = requirements.clone();
        limited
            .packages
            .push(format!("{}=={}", package.name, package.version));
        is_new |= names.take_sources_of(&compile, &limited, MAX_SOURCES);
        info!(package.name, package.version, is_new, "is held back");
    }
    is_new
}

/// Whether a version is of an older series than another one: of a lower first number, or of a lower second one where
/// that is 0 (`0.11.3` and `1.3.2`, `0.4.1` and `0.9.0`).
pub(crate) fn is_older_series(version: &str, other: &str) -> bool {
    let series = |text: &str| {
        let version = Version::from_str(text).ok()?;
        let number = |at: usize| version.release().get(at).copied().unwrap_or_default();
        Some((number(0), if number(0) == 0 { number(1) } else { 0 }))
    };
    series(version) < series(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_told_apart() {
        assert!(is_older_series("0.11.3", "1.3.2"));
        assert!(is_older_series("0.4.1", "0.9.0"));
        assert!(is_older_series("1.26.4", "2.4.0"));
        assert!(!is_older_series("1.3.1", "1.9.0"));
        assert!(!is_older_series("2.0", "1.9"));
    }
}
