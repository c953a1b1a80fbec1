//! Packages that have sources alone, and how they become known.
//!
//! uv never looks at sources but of the packages that are named here, and goes by the metadata that it
//! is given for those, so it runs nothing of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tracing::info;

use crate::python::compile::{Requirements, UvCompile};
use crate::python::compile_error::{CompileError, UnbuiltPackage};
use crate::python::pylock::LockedPackages;
use crate::python::source_package::{SourceMetadata, SourcePackage, UnnamedSource};

/// The version that a repository's package has until it is built; uv wants one.
pub(crate) const UNBUILT_VERSION: &str = "0";
/// More packages without wheels are no environment that people wait for.
const MAX_SOURCES: usize = 100;

/// The packages that have sources alone.
#[derive(Default)]
pub(crate) struct SourceNames {
    /// What is known of them, by their names.
    packages: RefCell<BTreeMap<String, SourceMetadata>>,
    /// What unnamed sources turned out to be called, by their addresses.
    names: RefCell<BTreeMap<String, String>>,
    /// Those of an index, where other versions may have wheels.
    of_index: RefCell<BTreeSet<String>>,
    /// Whether a version has a wheel for a Python, as far as that was looked up.
    wheels_known: RefCell<BTreeMap<(String, String), bool>>,
}

impl SourceNames {
    fn contains(&self, name: &str) -> bool {
        self.packages.borrow().contains_key(name)
    }

    pub(crate) fn insert(&self, metadata: SourceMetadata) {
        let mut packages = self.packages.borrow_mut();
        packages.insert(metadata.name.clone(), metadata);
    }

    /// Takes the sources of what `requirements` need and has sources alone, where they resolve with it; gives
    /// whether there is some.
    pub(crate) fn take_sources_of(
        &self,
        compile: &UvCompile<'_>,
        requirements: &Requirements,
        limit: usize,
    ) -> bool {
        let trial = Self {
            packages: self.packages.clone(),
            names: self.names.clone(),
            of_index: self.of_index.clone(),
            wheels_known: self.wheels_known.clone(),
        };
        let mut refused = BTreeSet::new();
        for _ in 0..=limit {
            let sources = trial.metadata();
            let compile = UvCompile {
                sources: &sources,
                ..*compile
            };
            let error = match compile.resolve_packages(requirements) {
                Ok(packages) if trial.drop_those_with_wheels(&compile, &packages, &mut refused) => {
                    continue;
                }
                Ok(_) => {
                    let is_new = trial.packages.borrow().len() > self.packages.borrow().len();
                    self.packages.swap(&trial.packages);
                    self.of_index.swap(&trial.of_index);
                    return is_new;
                }
                Err(error) if trial.drop_one_without_sources(&error, &mut refused) => continue,
                Err(error) => error,
            };
            let Some(package) = trial.find_unbuilt(&compile, &error, &refused) else {
                return false;
            };
            trial.insert_unbuilt(package);
        }
        false
    }

    /// What an error says to have sources alone, and is neither known yet nor `refused`. A package that has wheels
    /// for an older Python is never compiled for a newer one.
    fn find_unbuilt(
        &self,
        compile: &UvCompile<'_>,
        error: &CompileError,
        refused: &BTreeSet<String>,
    ) -> Option<UnbuiltPackage> {
        error.unbuilt_packages().into_iter().find(|package| {
            let has_wheels = |pin: &str| compile.has_wheels(pin);
            !self.contains(&package.name)
                && !refused.contains(&package.name)
                && !package.pin.as_deref().is_some_and(has_wheels)
        })
    }

    /// Takes the sources of no version that has a wheel: uv's error may name an old version that has none, and what is
    /// then resolved is a newer one that has. Those are `refused` from then on; gives whether there are some.
    fn drop_those_with_wheels(
        &self,
        compile: &UvCompile<'_>,
        packages: &LockedPackages,
        refused: &mut BTreeSet<String>,
    ) -> bool {
        let has_wheel = |package: &&SourcePackage| {
            let is_of_index = self.of_index.borrow().contains(&package.name);
            let version = package.version.as_deref().filter(|_| is_of_index);
            version.is_some_and(|version| {
                let pin = format!("{}=={version}", package.name);
                let key = (pin.clone(), compile.python.to_owned());
                let mut known = self.wheels_known.borrow_mut();
                *known
                    .entry(key)
                    .or_insert_with(|| compile.has_wheels_here(&pin))
            })
        };
        let mut is_some = false;
        for package in packages.sources.iter().filter(has_wheel) {
            info!(package.name, package.version, "has a wheel after all");
            self.packages.borrow_mut().remove(&package.name);
            self.of_index.borrow_mut().remove(&package.name);
            refused.insert(package.name.clone());
            is_some = true;
        }
        is_some
    }

    /// Takes no sources of what has wheels for another system alone: uv then says so, and not that it lacks sources.
    /// Gives whether an error is of such a package.
    fn drop_one_without_sources(
        &self,
        error: &CompileError,
        refused: &mut BTreeSet<String>,
    ) -> bool {
        let named = error.package_without_sources();
        let Some(name) = named.filter(|name| self.of_index.borrow().contains(name)) else {
            return false;
        };
        info!(name, "has no sources either");
        self.packages.borrow_mut().remove(&name);
        self.of_index.borrow_mut().remove(&name);
        refused.insert(name)
    }

    fn insert_unbuilt(&self, package: UnbuiltPackage) {
        let pin = package.pin.as_deref();
        info!(package.name, pin, "has sources alone");
        if pin.is_some() {
            self.of_index.borrow_mut().insert(package.name.clone());
        }
        self.insert(SourceMetadata {
            version: pin.is_none().then(|| UNBUILT_VERSION.to_owned()),
            name: package.name,
            ..SourceMetadata::default()
        });
    }

    /// What uv is to know of them.
    pub(crate) fn metadata(&self) -> Vec<SourceMetadata> {
        self.packages.borrow().values().cloned().collect()
    }

    /// The name of an unnamed source, and whether it is guessed.
    fn name_of(&self, source: &UnnamedSource) -> (String, bool) {
        match self.names.borrow().get(&source.url) {
            Some(name) => (name.clone(), false),
            None => (source.guess_name(), true),
        }
    }

    /// The unnamed sources that are called so by a guess, which was wrong.
    pub(crate) fn rename(&self, guess: &str, name: &str, requirements: &Requirements) {
        for source in &requirements.unnamed {
            if self.name_of(source) == (guess.to_owned(), true) {
                let mut names = self.names.borrow_mut();
                names.insert(source.url.clone(), name.to_owned());
            }
        }
        self.packages.borrow_mut().remove(guess);
    }

    /// Requirements whose sources all have a name.
    pub(crate) fn with_names(&self, requirements: &Requirements) -> Requirements {
        let mut named = requirements.clone();
        for source in named.unnamed.drain(..) {
            let (name, _) = self.name_of(&source);
            named
                .packages
                .push(format!("{name} @ {}{}", source.url, source.marker));
        }
        named
    }

    /// Resolves, taking sources of what has no wheel for any Python: a package that has some for an
    /// older one is never compiled for a newer one. A stable version that has to be built goes before a
    /// pre-release with a wheel, which counts where nothing else resolves.
    ///
    /// # Errors
    /// Those of [`UvCompile::resolve_packages`].
    pub(crate) fn resolve_packages(
        &self,
        compile: &UvCompile<'_>,
        requirements: &Requirements,
        may_build: bool,
    ) -> Result<LockedPackages, CompileError> {
        let guessed: Vec<String> = (requirements.unnamed.iter())
            .map(|source| self.name_of(source))
            .filter_map(|(name, is_guessed)| is_guessed.then_some(name))
            .collect();
        let requirements = &self.with_names(requirements);
        let mut takes_prereleases = false;
        let mut refused = BTreeSet::new();
        loop {
            let sources = self.metadata();
            let compile = UvCompile {
                sources: &sources,
                takes_prereleases,
                ..*compile
            };
            let error = match compile.resolve_packages(requirements) {
                Ok(packages) if self.drop_those_with_wheels(&compile, &packages, &mut refused) => {
                    continue;
                }
                Ok(mut packages) => {
                    for package in &mut packages.sources {
                        package.is_name_guessed = guessed.contains(&package.name);
                    }
                    return Ok(packages);
                }
                Err(error) if self.drop_one_without_sources(&error, &mut refused) => continue,
                Err(error) => error,
            };
            let may_build = may_build && sources.len() < MAX_SOURCES;
            let package = match may_build {
                true => self.find_unbuilt(&compile, &error, &refused),
                false => None,
            };
            let Some(package) = package else {
                if !takes_prereleases && error.speaks_of_prereleases() {
                    takes_prereleases = true;
                    continue;
                }
                return Err(error);
            };
            self.insert_unbuilt(package);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::IndexSettings;
    use sconce_formats::tags::{CpuArchitecture, WheelTarget};
    use std::os::unix::fs::PermissionsExt as _;

    /// An index of a few lines: `part` has a wheel of 2.0, which does not go with the rest, and sources of 1.0 and 2.0.
    const UV: &str = concat!(
        "#!/bin/sh\nall=\"$*\"\nwhile [ \"$1\" != --output-file ]; do shift; done\nwanted=$(cat)\n",
        "case \"$all $wanted\" in\n",
        "*--no-deps*'part==2.0') printf \"lock-version = '1.0'\\n\" > \"$2\" ;;\n",
        "*windows*) case \"$all\" in *'--no-binary windows'*) echo 'error: No solution found\n  cause: Because windows==1 has no source distribution and' >&2 ;;\n",
        "*) echo 'error: No solution found\n  cause: Because windows==1 has no wheels with a matching platform tag (e.g., `x`) and' >&2 ;; esac; exit 1 ;;\n",
        "*) case \"$all\" in *'--no-binary part'*)\n",
        "cat > \"$2\" <<EOF\nlock-version = '1.0'\n[[packages]]\nname = 'part'\nversion = '$VERSION'\n",
        "sdist = { url = 'https://example.org/part-$VERSION.tar.gz', hashes = { sha256 = '80b1b5bfe38eb0e9f5ff09f206dcac0a87aadd084230d4a36eea5ec5232c115b' } }\nEOF\n",
        ";; *) echo 'error: No solution found\n  cause: Because part==1.0 has no usable wheels and you require part' >&2; exit 1 ;; esac ;;\nesac\n",
    );

    /// What is resolved where uv takes sources of this version.
    fn resolve(version: &str) -> Result<LockedPackages, CompileError> {
        resolve_package("part", version)
    }

    fn resolve_package(package: &str, version: &str) -> Result<LockedPackages, CompileError> {
        let folder = tempfile::tempdir().unwrap();
        let uv = folder.path().join("uv");
        std::fs::write(&uv, UV).unwrap();
        std::fs::set_permissions(&uv, std::fs::Permissions::from_mode(0o755)).unwrap();
        let environment = [("PATH", "/usr/bin:/bin"), ("VERSION", version)];
        let compile = UvCompile {
            uv: &uv,
            folder: folder.path(),
            cache: folder.path(),
            environment: &environment
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            index: &IndexSettings::default(),
            pip_index: &IndexSettings::default(),
            python: "3.13.5",
            target: WheelTarget {
                python_minor: 13,
                glibc_minor: 41,
                machine: CpuArchitecture::X86_64,
            },
            keep: &[],
            takes_prereleases: false,
            as_of: None,
            sources: &[],
        };
        let requirements = Requirements {
            packages: vec![package.to_owned()],
            ..Requirements::default()
        };
        SourceNames::default().resolve_packages(&compile, &requirements, true)
    }

    #[test]
    fn what_has_neither_sources_nor_wheels_for_linux_is_told_by_its_wheels() {
        let error = resolve_package("windows", "").unwrap_err();
        assert!(
            error.to_string().contains("matching platform tag"),
            "{error}"
        );
    }

    #[test]
    fn sources_are_taken_of_a_version_without_wheels_alone() {
        let sources = resolve("1.0").unwrap().sources;
        assert_eq!(sources[0].version.as_deref(), Some("1.0"));
        let error = resolve("2.0").unwrap_err();
        assert!(error.to_string().contains("part==1.0"), "{error}");
    }
}
