//! Limits of what somebody asked for by name, as it is resolved without what it needs itself: a package whose newer
//! versions have no wheels for this Python falls back to an old one that is pure Python, and `setuptools` means a module
//! that it does not have any more.

use std::str::FromStr as _;

use pep440_rs::Version;
use sconce_formats::tags::WheelTarget;
use tracing::info;

use crate::hidden_sources::is_older_series;
use crate::python::compile::{Requirements, UvCompile};
use crate::python::downloads::LOWEST_MINOR;
use crate::python::late_limits::{LateLimit, LimitKind};
use crate::python::pylock::LockedPackages;
use crate::python::source_package::SourceOrigin;
use crate::source_names::{SourceNames, UNBUILT_VERSION};

/// A Python that nearly all that has wheels for some Python has wheels for, so that one more resolution tells.
const WELL_SERVED_MINOR: u32 = 10;
/// setuptools has pkg_resources in 81.0.0 and not in 82.0.0 (their wheels).
const PKG_RESOURCES: &str = "setuptools<82";

/// The limits that `requirements` want, resolved for Python `3.minor`; `allows` has the Pythons that may be taken.
pub(crate) fn find_direct_limits(
    names: &SourceNames,
    compile: &UvCompile<'_>,
    requirements: &Requirements,
    minor: u32,
    allows: &dyn Fn(u32) -> bool,
) -> Vec<LateLimit> {
    let requirements = &names.with_names(requirements);
    let sources = names.metadata();
    let compile = &UvCompile {
        sources: &sources,
        keep: &[],
        ..*compile
    };
    let Ok(here) = compile.resolve_without_needs(requirements) else {
        return Vec::new();
    };
    let mut limits = Vec::from_iter(limit_setuptools(compile, requirements, &here));
    if minor > WELL_SERVED_MINOR && (WELL_SERVED_MINOR..minor).any(allows) {
        limits.extend(limit_python(compile, requirements, &here, minor));
    }
    limits
}

/// The oldest Python, where something is to be compiled that has wheels for yet older ones: its code is of their time.
pub(crate) fn find_limits_of_sources(
    compile: &UvCompile<'_>,
    packages: &LockedPackages,
    minor: u32,
    allows: &dyn Fn(u32) -> bool,
) -> Vec<LateLimit> {
    if minor == LOWEST_MINOR || !allows(LOWEST_MINOR) {
        return Vec::new();
    }
    let archives = packages.sources.iter().filter_map(|package| {
        let is_archive = matches!(package.origin, SourceOrigin::Archive { .. });
        let version = package.version.as_deref().filter(|_| is_archive)?;
        Some((package, version))
    });
    let old = archives.filter(|(package, version)| {
        *version != UNBUILT_VERSION && compile.had_wheels(&format!("{}=={version}", package.name))
    });
    old.map(|(package, version)| LateLimit {
        asks: LimitKind::Python(format!("<3.{}", LOWEST_MINOR + 1)),
        why: format!(
            "{} {version} has wheels for Pythons before 3.{LOWEST_MINOR} alone, and is built for the nearest",
            package.name
        ),
    })
    .collect()
}

/// A setuptools that is asked for in any version is there for its module `pkg_resources`.
fn limit_setuptools(
    compile: &UvCompile<'_>,
    requirements: &Requirements,
    here: &LockedPackages,
) -> Option<LateLimit> {
    let mut wheels = here.wheels.iter();
    let setuptools = wheels.find(|wheel| wheel.name == "setuptools")?;
    let version = Version::from_str(&setuptools.version).ok()?;
    if version < Version::new([82]) {
        return None;
    }
    let mut limited = requirements.clone();
    limited.packages.push(PKG_RESOURCES.to_owned());
    // Where a newer one is named, it is meant.
    compile.resolve_without_needs(&limited).ok()?;
    Some(LateLimit {
        asks: LimitKind::Package(PKG_RESOURCES.to_owned()),
        why: format!(
            "setuptools {version}: what asks for it imports pkg_resources, which it had until 81"
        ),
    })
}

/// An older Python, where a package has newer series for it than for this one.
fn limit_python(
    compile: &UvCompile<'_>,
    requirements: &Requirements,
    here: &LockedPackages,
    minor: u32,
) -> Option<LateLimit> {
    let resolve = |minor: u32| {
        let compile = UvCompile {
            python: &format!("3.{minor}"),
            target: WheelTarget {
                python_minor: minor,
                ..compile.target
            },
            ..*compile
        };
        compile.resolve_without_needs(requirements).ok()
    };
    let (name, old, new) = find_fallback(here, &resolve(WELL_SERVED_MINOR)?)?;
    let mut pythons = (WELL_SERVED_MINOR + 1..minor).rev();
    let highest = pythons.find(|minor| {
        let there = resolve(*minor);
        let mut wheels = there.iter().flat_map(|there| &there.wheels);
        let wheel = wheels.find(|wheel| wheel.name == name);
        wheel.is_some_and(|wheel| is_older_series(&old, &wheel.version))
    });
    let highest = highest.unwrap_or(WELL_SERVED_MINOR);
    info!(name, old, new, highest, "falls back to an old version");
    Some(LateLimit {
        asks: LimitKind::Python(format!("<3.{}", highest + 1)),
        why: format!("{name} has nothing newer than {old} for 3.{minor}, and {new} for older ones"),
    })
}

/// The first package that is of an older series `here` than `there`, with both versions.
fn find_fallback(
    here: &LockedPackages,
    there: &LockedPackages,
) -> Option<(String, String, String)> {
    here.wheels.iter().find_map(|old| {
        let mut wheels = there.wheels.iter();
        let new = wheels.find(|new| new.name == old.name)?;
        let is_fallback = is_older_series(&old.version, &new.version);
        is_fallback.then(|| (old.name.clone(), old.version.clone(), new.version.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_testing::wheel;
    use crate::python::IndexSettings;
    use crate::python::source_package::SourcePackage;
    use sconce_formats::tags::CpuArchitecture;
    use std::os::unix::fs::PermissionsExt as _;

    /// An index of a few lines: torchtext 0.18.0 is for Pythons up to 3.12, setuptools has 81 and 82.
    const UV: &str = concat!(
        "#!/bin/sh\nall=\"$*\"\nwhile [ \"$1\" != --output-file ]; do shift; done\nwanted=$(cat)\nversion=82.0\n",
        "package() { printf \"[[packages]]\\nname = '$1'\\nversion = '$2'\\nwheels = [{ url = 'https://example.org/$1-$2-py3-none-any.whl', hashes = { sha256 = '80b1b5bfe38eb0e9f5ff09f206dcac0a87aadd084230d4a36eea5ec5232c115b' } }]\\n\"; }\n",
        "case \"$wanted:$all\" in docopt*|scipy==1.2.1*python-version*' 3.6 '*) exit 1 ;; esac\n",
        "case \"$wanted\" in *'>=82'*'<82') exit 1 ;; *'<82') version=81.0 ;; esac\n",
        "{ printf \"lock-version = '1.0'\\n\"\n",
        "case \"$wanted\" in *setuptools*) package setuptools $version ;; esac\n",
        "case \"$wanted:$all\" in *torchtext*python-version*3.13*) package torchtext 0.6.0 ;; *torchtext*) package torchtext 0.18.0 ;; esac\n",
        "} > \"$2\"\n",
    );

    fn limits(packages: &[&str], minor: u32) -> Vec<LimitKind> {
        let requirements = Requirements {
            packages: packages.iter().map(|text| (*text).to_owned()).collect(),
            ..Requirements::default()
        };
        let names = SourceNames::default();
        let found = with_compile(minor, |compile| {
            find_direct_limits(&names, compile, &requirements, minor, &|_| true)
        });
        found.into_iter().map(|limit| limit.asks).collect()
    }

    fn with_compile<T>(minor: u32, then: impl FnOnce(&UvCompile<'_>) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let uv = folder.path().join("uv");
        std::fs::write(&uv, UV).unwrap();
        std::fs::set_permissions(&uv, std::fs::Permissions::from_mode(0o755)).unwrap();
        let compile = UvCompile {
            uv: &uv,
            folder: folder.path(),
            cache: folder.path(),
            environment: &[("PATH".into(), "/usr/bin:/bin".into())].into(),
            index: &IndexSettings::default(),
            pip_index: &IndexSettings::default(),
            python: &format!("3.{minor}"),
            target: WheelTarget {
                python_minor: minor,
                glibc_minor: 41,
                machine: CpuArchitecture::X86_64,
            },
            keep: &[],
            takes_prereleases: false,
            as_of: None,
            sources: &[],
        };
        then(&compile)
    }

    #[test]
    fn what_has_wheels_for_yet_older_pythons_is_built_for_the_oldest() {
        let source = |name: &str, version: &str| SourcePackage {
            name: name.to_owned(),
            is_name_guessed: false,
            version: Some(version.to_owned()),
            origin: SourceOrigin::Archive {
                url: String::new(),
                sha256: sconce_schema::Sha256([0; 32]),
                subdirectory: None,
                uploaded: None,
            },
        };
        let found = |name: &str, version: &str, minor: u32, allowed: u32| {
            let packages = LockedPackages {
                sources: vec![source(name, version)],
                ..LockedPackages::default()
            };
            let allows = |minor: u32| minor >= allowed;
            with_compile(minor, |compile| {
                find_limits_of_sources(compile, &packages, minor, &allows)
            })
        };
        let limits = found("scipy", "1.2.1", 13, 8);
        assert_eq!(limits[0].asks, LimitKind::Python("<3.9".to_owned()));
        assert!(limits[0].why.starts_with("scipy 1.2.1 has wheels"));
        for (name, version, minor, allowed) in [
            ("scipy", "1.2.1", 8, 8),
            ("scipy", "1.2.1", 13, 9),
            ("scipy", UNBUILT_VERSION, 13, 8),
            ("docopt", "0.6.2", 13, 8),
        ] {
            assert_eq!(
                found(name, version, minor, allowed),
                [],
                "{name} {minor} {allowed}"
            );
        }
    }

    #[test]
    fn a_package_that_falls_back_wants_the_newest_python_that_it_does_not_for() {
        assert_eq!(
            limits(&["torchtext"], 13),
            [LimitKind::Python("<3.13".to_owned())]
        );
        assert_eq!(limits(&["torchtext"], 12), []);
    }

    #[test]
    fn setuptools_in_any_version_is_one_with_pkg_resources() {
        assert_eq!(
            limits(&["setuptools"], 12),
            [LimitKind::Package(PKG_RESOURCES.to_owned())]
        );
        assert_eq!(limits(&["setuptools>=82"], 12), []);
        assert_eq!(limits(&["torchtext"], 12), []);
    }

    #[test]
    fn a_series_counts_and_no_smaller_step() {
        let packages = |version: &str| LockedPackages {
            wheels: vec![wheel("x", version)],
            ..LockedPackages::default()
        };
        let fallback = |here: &str, there: &str| find_fallback(&packages(here), &packages(there));
        assert!(fallback("0.6.0", "0.18.0").is_some());
        assert_eq!(fallback("2.1.0", "2.4.0"), None);
        assert_eq!(fallback("2.0", "1.26"), None);
    }
}
