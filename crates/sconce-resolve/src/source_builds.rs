//! Packages that have sources alone: which those are, and the loop in which they are built and resolved
//! by what they then say that they need.
//!
//! uv never looks at sources but of the packages that are named here, and goes by the metadata that it
//! is given for those, so it runs nothing of them. First a package is taken to need nothing; what was
//! built says what it needs, and uv resolves again, until nothing new is to be built.

use std::cell::RefCell;
use std::collections::BTreeMap;

use sconce_schema::Progress;
use sconce_schema::lock::{BuildRequest, Lock, Wheel};
use tracing::info;

use crate::ResolveError;
use crate::build_failure::BuildFailure;
use crate::late_rounds::{describe_limits, list_reasons, meet_limits};
use crate::python::build_settings::BuildSettings;
use crate::python::compile::{Requirements, UvCompile};
use crate::python::compile_error::{CompileError, UnbuiltPackage};
use crate::python::late_limits::{LimitKind, find_limits};
use crate::python::pylock::LockedPackages;
use crate::python::source_package::{SourceMetadata, SourceOrigin, SourcePackage, UnnamedSource};

/// The version that a repository's package has until it is built; uv wants one.
const UNBUILT_VERSION: &str = "0";
/// More rounds are a circle: what is built changes what is to be built.
const MAX_ROUNDS: usize = 8;
/// More packages without wheels are no environment that people wait for.
const MAX_SOURCES: usize = 100;

/// Builds wheels from sources. Their code runs where it can reach nothing but those.
pub trait SourceBuilder: Sync {
    /// Whether these sources want a compiler, or git for their version. Fetches them, and looks at them in
    /// `base`.
    ///
    /// # Errors
    /// They cannot be fetched, or not be read.
    fn needs_build_tools(&self, package: &SourcePackage, base: &Lock)
    -> Result<bool, BuildFailure>;

    /// The wheel that the project itself published for this environment, which is in the store then; its
    /// address and its digest stand in the lock, and nothing of it runs.
    ///
    /// # Errors
    /// There is one, and it cannot be used.
    fn fetch_prebuilt(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<Option<BuiltWheel>, BuildFailure>;

    /// The wheel of these sources, which is in the store then.
    ///
    /// # Errors
    /// They cannot be fetched, what they are built with does not resolve, or the build fails.
    fn build_wheel(
        &self,
        package: &SourcePackage,
        setting: &BuildSetting<'_>,
    ) -> Result<BuiltWheel, BuildFailure>;
}

/// What a package is built in.
pub struct BuildSetting<'a> {
    /// Its system and interpreter, without Python packages; the stage [`sconce_schema::lock::BUILD`] has
    /// a compiler.
    pub base: &'a Lock,
    /// The Python packages of the environment, as far as they are resolved.
    pub installed: &'a [Wheel],
    /// The package's wheel in the previous lock, where its versions are kept.
    pub previous: Option<&'a Wheel>,
    /// What the project asks for beside what its sources say.
    pub asked: &'a BuildRequest,
    /// Resolves build requirements to wheels, of what indexes had on a day.
    pub resolve: ResolveRequirements<'a>,
}

/// Requirements (PEP 508) to wheels, of what indexes had on a day such as `2021-03-25`, or of all.
pub type ResolveRequirements<'a> =
    &'a dyn Fn(&[String], Option<&str>) -> Result<Vec<Wheel>, CompileError>;

/// What a build gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltWheel {
    /// The wheel, with how it was built.
    pub wheel: Wheel,
    /// What it says of itself.
    pub metadata: SourceMetadata,
}

/// The packages that have sources alone.
#[derive(Default)]
pub(crate) struct SourceNames {
    /// What is known of them, by their names.
    packages: RefCell<BTreeMap<String, SourceMetadata>>,
    /// What unnamed sources turned out to be called, by their addresses.
    names: RefCell<BTreeMap<String, String>>,
}

impl SourceNames {
    fn contains(&self, name: &str) -> bool {
        self.packages.borrow().contains_key(name)
    }

    fn insert(&self, metadata: SourceMetadata) {
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
        };
        for _ in 0..=limit {
            let sources = trial.metadata();
            let compile = UvCompile {
                sources: &sources,
                ..*compile
            };
            let Err(error) = compile.resolve_packages(requirements) else {
                let is_new = trial.packages.borrow().len() > self.packages.borrow().len();
                self.packages.swap(&trial.packages);
                return is_new;
            };
            let Some(package) = trial.find_unbuilt(&compile, &error) else {
                return false;
            };
            trial.insert_unbuilt(package);
        }
        false
    }

    /// What an error says to have sources alone, and is not known yet. A package that has wheels for an older
    /// Python is never compiled for a newer one.
    fn find_unbuilt(
        &self,
        compile: &UvCompile<'_>,
        error: &CompileError,
    ) -> Option<UnbuiltPackage> {
        error.unbuilt_package().filter(|package| {
            let has_wheels = |pin: &str| compile.has_wheels(pin);
            !self.contains(&package.name) && !package.pin.as_deref().is_some_and(has_wheels)
        })
    }

    fn insert_unbuilt(&self, package: UnbuiltPackage) {
        let pin = package.pin.as_deref();
        info!(package.name, pin, "has sources alone");
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
    fn rename(&self, guess: &str, name: &str, requirements: &Requirements) {
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
        loop {
            let sources = self.metadata();
            let compile = UvCompile {
                sources: &sources,
                takes_prereleases,
                ..*compile
            };
            let error = match compile.resolve_packages(requirements) {
                Ok(mut packages) => {
                    for package in &mut packages.sources {
                        package.is_name_guessed = guessed.contains(&package.name);
                    }
                    return Ok(packages);
                }
                Err(error) => error,
            };
            let may_build = may_build && sources.len() < MAX_SOURCES;
            let package = match may_build {
                true => self.find_unbuilt(&compile, &error),
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

/// Builds what an environment needs of sources.
pub(crate) struct SourceBuilds<'a> {
    pub(crate) builder: &'a dyn SourceBuilder,
    pub(crate) names: &'a SourceNames,
    pub(crate) compile: &'a UvCompile<'a>,
    pub(crate) requirements: &'a Requirements,
    /// What the project says of single builds.
    pub(crate) settings: &'a BuildSettings,
    /// The lock whose versions are kept.
    pub(crate) previous: Option<&'a Lock>,
    pub(crate) progress: &'a dyn Progress,
}

impl SourceBuilds<'_> {
    /// Whether a compiler or git is wanted for some of these packages.
    ///
    /// # Errors
    /// Sources cannot be fetched.
    pub(crate) fn need_tools(
        &self,
        packages: &LockedPackages,
        base: &Lock,
    ) -> Result<bool, ResolveError> {
        let mut needed = false;
        for package in &packages.sources {
            if self
                .fetch_prebuilt(package, &packages.wheels, base)?
                .is_none()
            {
                needed |= (self.builder)
                    .needs_build_tools(package, base)
                    .map_err(|failure| failed(package, failure))?;
            }
        }
        Ok(needed)
    }

    fn fetch_prebuilt(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<Option<BuiltWheel>, ResolveError> {
        let found = self.builder.fetch_prebuilt(package, installed, base);
        found.map_err(|failure| failed(package, failure))
    }

    /// All wheels of the environment: those of `packages`, and those of its sources, which are built;
    /// what they need is resolved with them.
    ///
    /// # Errors
    /// A build fails, or what was built needs what does not resolve.
    pub(crate) fn build_all(
        &self,
        mut packages: LockedPackages,
        base: &Lock,
    ) -> Result<Vec<Wheel>, ResolveError> {
        let mut requirements = self.requirements.clone();
        let mut built: BTreeMap<String, (SourceOrigin, BuiltWheel)> = BTreeMap::new();
        for _ in 0..MAX_ROUNDS {
            let mut is_new = false;
            for package in &packages.sources {
                let known = built.get(&package.name);
                if known.is_some_and(|(origin, _)| origin.is_same(&package.origin)) {
                    continue;
                }
                let wheel = match self.fetch_prebuilt(package, &packages.wheels, base)? {
                    Some(wheel) => {
                        self.progress.note(&format!(
                            "{} has no wheel on the index: the one of its release is taken, {}",
                            label(package),
                            wheel.wheel.url
                        ));
                        wheel
                    }
                    None => {
                        self.progress.note(&format!(
                            "{} has no wheel: it is built from {}, which runs its code, in a container without \
                             network (`[python] build-sources = false` refuses)",
                            label(package),
                            described(&package.origin),
                        ));
                        self.build_one(package, &packages.wheels, base)?
                    }
                };
                for unread in &wheel.metadata.unread {
                    self.progress.note(&format!(
                        "{} asks for `{unread}`, which cannot be read: what of it is wrong does not count",
                        label(package)
                    ));
                }
                let name = wheel.metadata.name.clone();
                if name != package.name {
                    self.names.rename(&package.name, &name, self.requirements);
                }
                self.names.insert(wheel.metadata.clone());
                built.insert(name, (package.origin.clone(), wheel));
                is_new = true;
            }
            if !is_new {
                let of = |package: &SourcePackage| built.get(&package.name);
                let from_sources = packages.sources.iter().filter_map(of);
                let mut wheels = packages.wheels;
                wheels.extend(from_sources.map(|(_, built)| built.wheel.clone()));
                wheels.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(wheels);
            }
            packages = self.resolve_again(&mut requirements, base)?;
        }
        Err(ResolveError::BuildCircle {
            packages: built.into_keys().collect(),
        })
    }

    /// Resolves by what was built, with what its packages do not say of themselves.
    fn resolve_again(
        &self,
        requirements: &mut Requirements,
        base: &Lock,
    ) -> Result<LockedPackages, ResolveError> {
        let resolve = |all: &Requirements| self.names.resolve_packages(self.compile, all, true);
        let packages = resolve(requirements)?;
        let minor = base.target.python.strip_prefix("3.");
        let Some(minor) = minor.and_then(|minor| minor.parse().ok()) else {
            return Ok(packages);
        };
        // What a repository has locked is what runs.
        if !requirements.pinned.is_empty() {
            return Ok(packages);
        }
        let mut limits = find_limits(&packages, minor);
        limits.retain(|limit| match &limit.asks {
            LimitKind::Package(text) => !requirements.packages.contains(text),
            LimitKind::Python(_) => false,
        });
        if limits.is_empty() {
            return Ok(packages);
        }
        let met = meet_limits(limits, |limits| {
            let mut limited = requirements.clone();
            for limit in limits {
                if let LimitKind::Package(text) = &limit.asks {
                    limited.packages.push(text.clone());
                }
            }
            Some((resolve(&limited).ok()?, limited))
        });
        if !met.refused.is_empty() {
            self.progress.note(&format!(
                "this may not work, and nothing else resolves: {}",
                list_reasons(&met.refused)
            ));
        }
        let Some((taken, (packages_then, limited))) = met.taken else {
            return Ok(packages);
        };
        for note in describe_limits(&taken) {
            self.progress.note(&note);
        }
        *requirements = limited;
        Ok(packages_then)
    }

    fn build_one(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<BuiltWheel, ResolveError> {
        let resolve = |packages: &[String], as_of: Option<&str>| {
            let compile = UvCompile {
                sources: &[],
                keep: installed,
                as_of: as_of.or(self.compile.as_of),
                ..*self.compile
            };
            compile.resolve_wheels(&Requirements {
                packages: packages.to_vec(),
                ..Requirements::default()
            })
        };
        let before = self.previous.map_or(&[][..], |lock| &lock.wheels);
        let settings_of = |name: &str| {
            let asked = self.settings.for_package(name, installed);
            asked.map_err(|source| ResolveError::BuildSetting {
                package: label(package),
                source,
            })
        };
        let build = |asked: &BuildRequest| {
            if !asked.is_empty() {
                self.progress.note(&describe_request(package, asked));
            }
            let setting = BuildSetting {
                base,
                installed,
                previous: before
                    .iter()
                    .find(|wheel| wheel.name == package.name && wheel.build.is_some()),
                asked,
                resolve: &resolve,
            };
            let built = self.builder.build_wheel(package, &setting);
            built.map_err(|failure| failed(package, failure))
        };
        let asked = settings_of(&package.name)?;
        let mut built = build(&asked)?;
        // What was guessed to be called otherwise may have settings under its own name.
        let own = settings_of(&built.metadata.name)?;
        if built.metadata.name != package.name && !own.is_empty() && own != asked {
            built = build(&own)?;
        }
        let asked = built.metadata.requires_dist.iter();
        if let Some(requirement) = asked.into_iter().find(|text| names_local_file(text)) {
            return Err(ResolveError::LocalRequirement {
                package: label(package),
                requirement: requirement.clone(),
            });
        }
        Ok(built)
    }
}

/// Whether a requirement is an address of this machine, which a package of others has no business with.
fn names_local_file(requirement: &str) -> bool {
    let (_, address) = requirement.split_once('@').unwrap_or_default();
    let address = address.trim_start().to_ascii_lowercase();
    let address = address.strip_prefix("git+").unwrap_or(&address);
    let schemes = ["https://", "http://", "ssh://", "git://"];
    !address.is_empty() && !schemes.iter().any(|scheme| address.starts_with(scheme))
}

fn failed(package: &SourcePackage, failure: BuildFailure) -> ResolveError {
    ResolveError::Build {
        package: label(package),
        source: failure,
    }
}

fn label(package: &SourcePackage) -> String {
    match &package.version {
        Some(version) if version != UNBUILT_VERSION => format!("{} {version}", package.name),
        _ => package.name.clone(),
    }
}

/// In words, what is asked for beside what the sources of a package say.
fn describe_request(package: &SourcePackage, asked: &BuildRequest) -> String {
    let mut parts = asked.requires.clone();
    parts.extend(
        asked
            .variables
            .keys()
            .map(|name| format!("the variable {name}")),
    );
    if asked.sees_environment {
        parts.push("the environment's own packages (no build isolation)".to_owned());
    }
    format!(
        "{} is built with {}, as it is set",
        label(package),
        parts.join(", ")
    )
}

fn described(origin: &SourceOrigin) -> String {
    match origin {
        SourceOrigin::Archive { .. } => "its sources".to_owned(),
        SourceOrigin::Git { url, commit, .. } => format!("{url} at {}", &commit[..12]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known() {
        for (requirement, expected) in [
            ("numpy>=1.18", false),
            ("x @ https://example.org/x.zip", false),
            ("x @ git+https://example.org/x", false),
            ("x@git+ssh://git@example.org/x", false),
            ("x @ file:///home/me/private", true),
            ("x @ git+file:///home/me/private", true),
            ("x @ GIT+FILE:///home/me/private", true),
            ("x @ ../private", true),
            ("x @ git+ext::sh", true),
        ] {
            assert_eq!(names_local_file(requirement), expected, "{requirement}");
        }
    }
}
