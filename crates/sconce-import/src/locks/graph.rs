//! A lock of another tool as packages that need each other, and what of it each Python needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sconce_base::text::{redact_git_credentials, without_credentials};
use sconce_formats::tags::{CpuArchitecture, WheelName, WheelTarget};
use sconce_formats::{PinnedFile, PinnedPackage, normalize_project_name};

use crate::marker::{MarkerEnvironment, evaluate_marker};
use crate::requirement::UnsupportedReason;
use crate::specifier::{evaluate_specifiers, parse_numbers};

/// The Pythons that a lock is read for: those of the Debian releases in their versions, of the others
/// the last release of this writing. What is behind the minor version decides few markers.
const PYTHONS: [[u32; 3]; 8] = [
    [3, 8, 20],
    [3, 9, 25],
    [3, 10, 19],
    [3, 11, 2],
    [3, 12, 12],
    [3, 13, 5],
    [3, 14, 2],
    [3, 15, 0],
];
/// The older glibc of the releases, so that a wheel suits both.
const GLIBC_MINOR: u32 = 36;
/// More packages of one name are not told apart.
const MAX_VERSIONS: usize = 64;
/// The most packages and needs of packages, together.
const MAX_ENTRIES: usize = 500_000;
/// The longest requirement.
const MAX_REQUIREMENT_BYTES: usize = 2000;

const MARKER: UnsupportedReason =
    "whether Linux needs it cannot be told from its marker: name it if so";
const FORKS: UnsupportedReason =
    "the lock has several versions of it and none is Linux's alone: name one";
pub(super) const ABSENT: UnsupportedReason = "the lock does not have it";
const UNCLEAR: UnsupportedReason = "neither a version nor an address that is understood";

/// A lock, whatever its format.
#[derive(Debug, Default)]
pub(super) struct LockGraph {
    pub(super) packages: Vec<LockedPackage>,
    /// What is wanted; `None`: every package whose own marker holds.
    pub(super) roots: Option<Vec<LockedNeed>>,
    /// The Pythons that it is for, as PEP 440 has it.
    pub(super) requires_python: Option<String>,
    /// What the marker variable `extra` is.
    pub(super) extras: Vec<String>,
    /// What the marker variable `dependency_groups` has.
    pub(super) groups: Vec<String>,
}

/// A package in one version.
#[derive(Debug, Default)]
pub(super) struct LockedPackage {
    /// As written.
    pub(super) name: String,
    pub(super) version: Option<String>,
    pub(super) origin: LockedOrigin,
    /// What tells it from others of its name and version.
    pub(super) source: String,
    pub(super) files: Vec<PinnedFile>,
    /// Where it is needed at all.
    pub(super) marker: Option<String>,
    /// Of several versions, the one is meant of which a marker holds.
    pub(super) forks: Vec<String>,
    /// The Pythons that it runs on, as PEP 440 has it.
    pub(super) pythons: Option<String>,
    pub(super) needs: Vec<LockedNeed>,
    pub(super) extras: BTreeMap<String, Vec<LockedNeed>>,
}

/// Where a package comes from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum LockedOrigin {
    /// Any index that has the version.
    #[default]
    Index,
    /// An address: a wheel's, an archive's, or a repository's as pip writes it.
    Address(String),
    /// One of these wheels by its address: the version is on another index than the others.
    Wheels(Vec<LockedWheel>),
    /// The project, or a folder of its repository; relative, `None` where nothing is installed of it.
    Folder(Option<String>),
    /// Out of reach.
    Unsupported(UnsupportedReason),
}

/// A wheel at its address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockedWheel {
    pub(super) file: String,
    pub(super) url: String,
    pub(super) sha256: Option<String>,
}

/// That a package needs another.
#[derive(Debug, Default, Clone)]
pub(super) struct LockedNeed {
    pub(super) name: String,
    /// The only version that is meant.
    pub(super) version: Option<String>,
    /// The only source that is meant.
    pub(super) source: Option<String>,
    /// The versions that are meant, as PEP 440 has it.
    pub(super) specifiers: Option<String>,
    pub(super) marker: Option<String>,
    /// The Pythons for which it is needed, as PEP 440 has it.
    pub(super) pythons: Option<String>,
    pub(super) extras: Vec<String>,
}

/// What a lock pins.
#[derive(Debug, Default)]
pub(super) struct CollectedPins {
    pub(super) packages: Vec<PinnedPackage>,
    /// Folders of projects.
    pub(super) folders: BTreeSet<String>,
    /// What was not taken, with the reason.
    pub(super) left_out: BTreeMap<String, UnsupportedReason>,
}

/// What one Python needs.
#[derive(Default)]
struct NeededPackages {
    /// Places in the lock.
    places: BTreeSet<usize>,
    left_out: BTreeMap<String, UnsupportedReason>,
}

impl LockGraph {
    /// Whether there is more in it than is read.
    pub(super) fn is_too_large(&self) -> bool {
        let needs = |package: &LockedPackage| {
            let extras: usize = package.extras.values().map(Vec::len).sum();
            1 + package.needs.len() + extras
        };
        self.packages.iter().map(needs).sum::<usize>() > MAX_ENTRIES
    }

    /// Whether a package is wanted for itself.
    pub(super) fn wants(&self, name: &str) -> bool {
        let mut roots = self.roots.iter().flatten();
        roots.any(|need| need.name == name)
    }

    /// Names what is needed for each Python that the lock allows.
    pub(super) fn collect_pins(&self, machine: CpuArchitecture) -> CollectedPins {
        let requires = self.requires_python.as_deref().unwrap_or_default();
        let allowed = |python: &&[u32; 3]| evaluate_specifiers(*python, requires) == Some(true);
        let mut pythons: Vec<&[u32; 3]> = PYTHONS.iter().filter(allowed).collect();
        if pythons.is_empty() {
            pythons = PYTHONS.iter().collect();
        }
        let mut pins = CollectedPins::default();
        let mut minors: BTreeMap<(usize, String), BTreeSet<u32>> = BTreeMap::new();
        for python in &pythons {
            let environment = MarkerEnvironment {
                python: **python,
                machine: machine.name(),
                extras: self.extras.clone(),
                groups: self.groups.clone(),
            };
            let needed = GraphSearch::new(self, &environment).find_needed();
            pins.left_out.extend(needed.left_out);
            for place in needed.places {
                let package = &self.packages[place];
                match package.requirement(python[1], machine) {
                    Ok(requirement) => {
                        let key = (place, requirement);
                        minors.entry(key).or_default().insert(python[1]);
                    }
                    Err(None) => {
                        if let LockedOrigin::Folder(Some(folder)) = &package.origin {
                            pins.folders.insert(folder.clone());
                        }
                    }
                    Err(Some(why)) => {
                        pins.left_out.insert(package.name.clone(), why);
                    }
                }
            }
        }
        let all: Vec<u32> = pythons.iter().map(|python| python[1]).collect();
        for ((place, mut requirement), minors) in minors {
            let package = &self.packages[place];
            if let Some(marker) = write_python_marker(&minors, &all) {
                requirement = format!("{requirement} ; {marker}");
            }
            let Some(name) = normalize_project_name(&package.name) else {
                continue;
            };
            pins.packages.push(PinnedPackage {
                name,
                requirement,
                files: package.files.clone(),
            });
        }
        pins
    }
}

impl LockedPackage {
    /// The package as a requirement without a marker; `Err(None)` where nothing is required.
    fn requirement(
        &self,
        python_minor: u32,
        machine: CpuArchitecture,
    ) -> Result<String, Option<UnsupportedReason>> {
        let name = normalize_project_name(&self.name).ok_or(Some(UNCLEAR))?;
        let exact = || {
            let version = self.version.as_deref().filter(|v| is_plain_version(v));
            version
                .map(|version| format!("{name}=={version}"))
                .ok_or(Some(UNCLEAR))
        };
        match &self.origin {
            LockedOrigin::Index => exact(),
            LockedOrigin::Address(address) => {
                let address = clean_address(address).ok_or(Some(UNCLEAR))?;
                Ok(format!("{name} @ {address}"))
            }
            LockedOrigin::Wheels(wheels) => {
                let target = WheelTarget {
                    python_minor,
                    glibc_minor: GLIBC_MINOR,
                    machine,
                };
                let suited = wheels.iter().filter_map(|wheel| {
                    let priority = WheelName::parse(&wheel.file)?.tag_priority(target)?;
                    Some((priority, wheel))
                });
                let Some((_, wheel)) = suited.max_by_key(|(priority, _)| *priority) else {
                    return exact();
                };
                let url = clean_address(&wheel.url).ok_or(Some(UNCLEAR))?;
                let url = url.split('#').next().unwrap_or_default();
                // With it, uv need not fetch the wheel to know its digest.
                Ok(match &wheel.sha256 {
                    Some(sha256) => format!("{name} @ {url}#sha256={sha256}"),
                    None => format!("{name} @ {url}"),
                })
            }
            LockedOrigin::Folder(_) => Err(None),
            LockedOrigin::Unsupported(why) => Err(Some(why)),
        }
    }
}

/// Goes from the roots to all that they need, for one Python.
struct GraphSearch<'a> {
    graph: &'a LockGraph,
    environment: &'a MarkerEnvironment,
    by_name: BTreeMap<String, Vec<usize>>,
    /// Markers that were decided: a lock has the same few thousands of times.
    markers: HashMap<&'a str, Option<bool>>,
}

impl<'a> GraphSearch<'a> {
    fn new(graph: &'a LockGraph, environment: &'a MarkerEnvironment) -> Self {
        let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, package) in graph.packages.iter().enumerate() {
            if let Some(name) = normalize_project_name(&package.name) {
                by_name.entry(name).or_default().push(place);
            }
        }
        Self {
            graph,
            environment,
            by_name,
            markers: HashMap::new(),
        }
    }

    fn find_needed(mut self) -> NeededPackages {
        let graph = self.graph;
        let mut needed = NeededPackages::default();
        let Some(roots) = &graph.roots else {
            for (place, package) in graph.packages.iter().enumerate() {
                match self.suits(package) {
                    Some(true) => drop(needed.places.insert(place)),
                    Some(false) => {}
                    None => drop(needed.left_out.insert(package.name.clone(), MARKER)),
                }
            }
            return needed;
        };
        let mut seen: BTreeSet<(usize, &str)> = BTreeSet::new();
        let mut open: Vec<&'a LockedNeed> = roots.iter().collect();
        while let Some(need) = open.pop() {
            match self.applies(need) {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    let marker = need.marker.as_deref().unwrap_or_default();
                    let what = format!("{} ; {marker}", need.name);
                    needed.left_out.insert(what, MARKER);
                    continue;
                }
            }
            let place = match self.choose(need) {
                Ok(Some(place)) => place,
                Ok(None) => continue,
                Err(why) => {
                    needed.left_out.insert(need.name.clone(), why);
                    continue;
                }
            };
            let package = &graph.packages[place];
            needed.places.insert(place);
            if seen.insert((place, "")) {
                open.extend(&package.needs);
            }
            for extra in &need.extras {
                let of_extra = package.extras.iter().find(|(name, _)| {
                    *name == extra || normalize_project_name(name) == normalize_project_name(extra)
                });
                if let Some((extra, more)) = of_extra
                    && seen.insert((place, extra))
                {
                    open.extend(more);
                }
            }
        }
        needed
    }

    fn holds(&mut self, marker: &'a str) -> Option<bool> {
        let environment = self.environment;
        *self
            .markers
            .entry(marker)
            .or_insert_with(|| evaluate_marker(marker, environment))
    }

    fn has_python(&self, specifiers: Option<&str>) -> bool {
        let python = &self.environment.python;
        specifiers.is_none_or(|text| evaluate_specifiers(python, text) != Some(false))
    }

    fn applies(&mut self, need: &'a LockedNeed) -> Option<bool> {
        if !self.has_python(need.pythons.as_deref()) {
            return Some(false);
        }
        match need.marker.as_deref() {
            Some(marker) => self.holds(marker),
            None => Some(true),
        }
    }

    fn suits(&mut self, package: &'a LockedPackage) -> Option<bool> {
        if !self.has_python(package.pythons.as_deref()) {
            return Some(false);
        }
        match package.marker.as_deref() {
            Some(marker) => self.holds(marker),
            None => Some(true),
        }
    }

    /// Which of the packages of one name is meant; `None` for one that this Python does not need.
    fn choose(&mut self, need: &LockedNeed) -> Result<Option<usize>, UnsupportedReason> {
        let graph = self.graph;
        let name = normalize_project_name(&need.name).ok_or(ABSENT)?;
        let places = self.by_name.get(&name).cloned().unwrap_or_default();
        if places.len() > MAX_VERSIONS {
            return Err(FORKS);
        }
        let mut fit: Vec<usize> = places
            .iter()
            .copied()
            .filter(|&place| {
                let package = &graph.packages[place];
                let is_version = need.version.is_none() || need.version == package.version;
                let is_source = need.source.as_ref().is_none_or(|s| *s == package.source);
                is_version && is_source
            })
            .collect();
        if fit.len() > 1 {
            fit.retain(|&place| {
                let package = &graph.packages[place];
                let numbers = package.version.as_deref().and_then(parse_numbers);
                let within = need.specifiers.as_deref().zip(numbers);
                let within = within.is_none_or(|(text, numbers)| {
                    evaluate_specifiers(&numbers, text) != Some(false)
                });
                let forks = &package.forks;
                within
                    && self.suits(package) == Some(true)
                    && (forks.is_empty() || forks.iter().any(|m| self.holds(m) == Some(true)))
            });
        }
        match fit.as_slice() {
            [place] if self.suits(&graph.packages[*place]) == Some(false) => Ok(None),
            [place] => Ok(Some(*place)),
            [] if places.is_empty() => Err(ABSENT),
            _ => Err(FORKS),
        }
    }
}

/// `python_version >= '3.12'`, where not `all` of the Pythons are meant.
fn write_python_marker(minors: &BTreeSet<u32>, all: &[u32]) -> Option<String> {
    if all.iter().all(|minor| minors.contains(minor)) {
        return None;
    }
    let beginning = all.iter().take_while(|minor| minors.contains(*minor));
    let beginning = beginning.count();
    if beginning == minors.len() {
        return Some(format!("python_version < '3.{}'", all[beginning]));
    }
    let end = all.iter().rev().take_while(|minor| minors.contains(*minor));
    let end = end.count();
    if end == minors.len() {
        return Some(format!("python_version >= '3.{}'", all[all.len() - end]));
    }
    let each = minors
        .iter()
        .map(|minor| format!("python_version == '3.{minor}'"));
    Some(each.collect::<Vec<_>>().join(" or "))
}

fn is_plain_version(version: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".+!-_".contains(&b);
    !version.is_empty() && version.len() < 200 && version.bytes().all(plain)
}

/// An address that can stand in a requirement, without a login.
fn clean_address(address: &str) -> Option<String> {
    let schemes = [
        "https://",
        "http://",
        "git+https://",
        "git+http://",
        "git+ssh://",
        "git+file://",
    ];
    let known = schemes.iter().any(|scheme| address.starts_with(scheme));
    let odd = |c: char| c.is_control() || c.is_whitespace() || "\"'`$;\\".contains(c);
    if !known || address.len() > MAX_REQUIREMENT_BYTES || address.contains(odd) {
        return None;
    }
    if address.starts_with("git+") {
        return Some(redact_git_credentials(address));
    }
    let fragment = address.split_once('#').map(|(_, fragment)| fragment);
    let clean = without_credentials(address);
    Some(match fragment {
        Some(fragment) if !clean.contains('#') => format!("{clean}#{fragment}"),
        _ => clean,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pythons_become_a_short_marker() {
        let all = [10, 11, 12, 13];
        let marker = |minors: &[u32]| write_python_marker(&minors.iter().copied().collect(), &all);
        assert_eq!(marker(&all), None);
        for (minors, expected) in [
            (&[10, 11][..], "python_version < '3.12'"),
            (&[13], "python_version >= '3.13'"),
            (
                &[10, 12],
                "python_version == '3.10' or python_version == '3.12'",
            ),
            (&[11], "python_version == '3.11'"),
        ] {
            assert_eq!(marker(minors).as_deref(), Some(expected));
        }
    }

    #[test]
    fn addresses_are_clean() {
        for (address, clean) in [
            (
                "https://me:secret@a.example.org/x-1-py3-none-any.whl",
                Some("https://a.example.org/x-1-py3-none-any.whl"),
            ),
            ("ftp://a.example.org/x", None),
            ("https://a.example.org/x y", None),
            ("https://a.example.org/x ; os_name == 'x'", None),
            (
                "git+https://git.example.org/x@0123#subdirectory=y",
                Some("git+https://git.example.org/x@0123#subdirectory=y"),
            ),
            (
                "git+ssh://git:secret@git.example.org/x@0123",
                Some("git+ssh://git@git.example.org/x@0123"),
            ),
            (
                "git+file:///home/me/x@0123",
                Some("git+file:///home/me/x@0123"),
            ),
            ("git+ext::sh -c x", None),
        ] {
            assert_eq!(clean_address(address).as_deref(), clean, "{address}");
        }
    }
}
