//! Locks of other tools. A spec refers to one, so that what it says after a `git pull` is what runs; `lock` has its
//! packages from [`read_pinned_lock`], with their digests.

mod conda_lock;
mod differences;
mod disagreement;
mod graph;
mod pdm;
mod pipfile;
mod pixi;
mod poetry;
mod pylock;
#[cfg(test)]
mod tests;
mod uv;
mod yaml_blocks;

use std::collections::{BTreeMap, BTreeSet};

use sconce_formats::tags::CpuArchitecture;
use sconce_formats::{PinnedPackage, normalize_project_name};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use self::graph::{CollectedPins, LockGraph, LockedNeed};
use crate::conda;
use crate::draft::Draft;
use crate::note::ImportNote;
use crate::project_table::{array_strings, list_choices, toml_table};
use crate::requirement::UnsupportedReason;
use crate::{ImportError, ImportFormat, ImportSource, ImportedSpec, SiblingFiles};

pub use self::differences::{VersionDifference, describe_differences, find_version_differences};

const LOCAL: UnsupportedReason =
    "a file that lies beside the lock: name it in `[python] packages` as `name @ file:///…`";
const REPOSITORY: UnsupportedReason = "a repository that is none of git's";
const WHOLE: UnsupportedReason =
    "it is not there or does not say what is wanted, so all of the lock is";
const EXTRA: &str = "not asked for: `[python] extras` names what is wanted";
const GROUP: &str = "not asked for: `[python] groups` names what is wanted";
const NOTHING: &str = "it is asked for, and the lock has nothing of that name";
const NO_DIGEST: &str = "the lock has no SHA-256 of it, so the index says which file it is";

/// What of a lock is asked for.
#[derive(Debug, Clone, Copy)]
pub struct LockSelection<'a> {
    /// Extras of the project.
    pub extras: &'a [String],
    /// Groups of dependencies, beside those that are always wanted.
    pub groups: &'a [String],
    /// What it has to run on.
    pub machine: CpuArchitecture,
}

/// What a lock of another tool pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedLock {
    /// Its packages, sorted by name.
    pub packages: Vec<PinnedPackage>,
    /// The Pythons that it is for, as specifiers of PEP 440.
    pub requires_python: Option<String>,
    /// What was decided or left out.
    pub notes: Vec<ImportNote>,
    /// Where the project's own file asks for something else, in a sentence.
    pub disagreement: Option<String>,
}

/// A lock in the terms of all of them.
#[derive(Debug, Default)]
struct ReadLock {
    graph: LockGraph,
    /// The project's name.
    name: Option<String>,
    /// The only Python that it is for.
    python: Option<String>,
    /// Extras and groups that are not asked for.
    extras: Vec<String>,
    groups: Vec<String>,
    /// Extras and groups of which one excludes the others.
    exclusive: Vec<Vec<String>>,
    /// The environment that was taken, where it is not the usual one, and those that were not.
    environment: Option<String>,
    environments: Vec<String>,
    /// The project itself is installed, though the lock does not have it.
    is_project_installed: bool,
    /// Indexes that it names besides the usual one.
    indexes: Vec<String>,
    conda: Vec<CondaPackage>,
    left_out: Vec<(String, UnsupportedReason)>,
}

/// A package of conda's in a lock.
#[derive(Debug, PartialEq, Eq)]
struct CondaPackage {
    line: usize,
    name: String,
    version: String,
    /// `py310h5f9d8c6_0`; empty where it is not told.
    build: String,
    /// Another package of the lock needs it, so that nobody need have asked for it.
    is_needed: bool,
}

impl CondaPackage {
    /// From the file's address, `…/name-1.2-build_0.conda`.
    fn from_address(line: usize, address: &str) -> Option<Self> {
        let file = file_name_of(address);
        let stem = [".conda", ".tar.bz2"]
            .iter()
            .find_map(|end| file.strip_suffix(end))?;
        let mut parts = stem.rsplitn(3, '-');
        let (build, version, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            line,
            name: name.to_owned(),
            version: version.to_owned(),
            build: build.to_owned(),
            is_needed: false,
        })
    }

    /// As conda writes what it is asked for.
    fn as_request(&self) -> String {
        match self.build.as_str() {
            "" => format!("{}=={}", self.name, self.version),
            build => format!("{}={}={build}", self.name, self.version),
        }
    }
}

/// The names of what `packages` need, one line each: `libgomp >=7.5.0`.
fn mark_needed<'a>(packages: &mut [CondaPackage], needs: impl Iterator<Item = &'a str>) {
    let names: BTreeSet<&str> = needs
        .filter_map(|need| need.split_whitespace().next())
        .collect();
    for package in packages {
        package.is_needed = names.contains(package.name.as_str());
    }
}

/// Reads the lock of another tool at `path` (relative to the spec's folder).
///
/// # Errors
/// What keeps it from being read at all, and a format that is no lock.
pub fn read_pinned_lock(
    format: ImportFormat,
    path: &str,
    text: &str,
    beside: SiblingFiles<'_>,
    selection: &LockSelection<'_>,
) -> Result<PinnedLock, ImportError> {
    let source = ImportSource { path, text, beside };
    let read = read(format, &source, selection)?;
    let requires_python = read.graph.requires_python.clone();
    let mut draft = Draft::default();
    let pins = collect(&read, selection, &mut draft);
    note_unknown_names(format, &source, selection, &mut draft);
    let disagreement = disagreement::describe(format, &source, &read, selection);
    let mut packages = pins.packages;
    let names: BTreeSet<String> = packages
        .iter()
        .map(|package| package.name.clone())
        .collect();
    let of_conda = draft.requirements().iter();
    let of_conda = of_conda.filter(|requirement| !names.contains(&requirement.name));
    packages.extend(of_conda.map(|requirement| PinnedPackage {
        name: requirement.name.clone(),
        requirement: widen_version(&requirement.text),
        files: Vec::new(),
    }));
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(PinnedLock {
        packages,
        requires_python,
        notes: draft.finish_referring().notes,
        disagreement,
    })
}

/// Tells the extras and groups that are asked for and that the lock does not have.
fn note_unknown_names(
    format: ImportFormat,
    source: &ImportSource<'_>,
    selection: &LockSelection<'_>,
    draft: &mut Draft,
) {
    if selection.extras.is_empty() && selection.groups.is_empty() {
        return;
    }
    let none = LockSelection {
        extras: &[],
        groups: &[],
        ..*selection
    };
    let Ok(read) = read(format, source, &none) else {
        return;
    };
    // pipenv calls them both.
    let usual = ["default", "main", "dev"].map(str::to_owned);
    let known = [&read.extras, &read.groups, &read.environments];
    let known = known.into_iter().flatten().chain(&usual);
    let known: BTreeSet<Option<String>> = known.map(|name| normalize_project_name(name)).collect();
    let asked = (selection.extras.iter().map(|name| ("extra", name)))
        .chain(selection.groups.iter().map(|name| ("group", name)));
    for (kind, name) in asked {
        if !known.contains(&normalize_project_name(name)) {
            draft.left_out(None, &format!("the {kind} `{name}`"), NOTHING);
        }
    }
}

/// conda's `4.10.0` is what the index has as `4.10.0.84` or `4.10.0.post1`, too.
fn widen_version(requirement: &str) -> String {
    let version = requirement.split_once("==").map(|(_, version)| version);
    let plain = |version: &str| version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match version {
        Some(version) if plain(version) => format!("{requirement}.*"),
        _ => requirement.to_owned(),
    }
}

/// Whether a spec can refer to a file of the format as its lock.
#[must_use]
pub fn is_lock_format(format: ImportFormat) -> bool {
    format.lock_reader().is_some()
}

/// Returns what messages call the locks that a spec can refer to.
pub fn lock_file_names() -> impl Iterator<Item = &'static str> {
    let all = ImportFormat::ALL.into_iter();
    all.filter(|format| is_lock_format(*format))
        .map(|format| format.file_names()[0])
}

/// Whether what is wanted of a lock may stand in the `pyproject.toml` beside it.
#[must_use]
pub fn reads_project(format: ImportFormat) -> bool {
    matches!(format, ImportFormat::PoetryLock | ImportFormat::PdmLock)
}

/// What reads a lock of one format.
pub(crate) type LockReader =
    fn(&ImportSource<'_>, &LockSelection<'_>) -> Result<LockText, ImportError>;

/// A lock that was read, for this module alone.
#[derive(Debug)]
pub(crate) struct LockText(ReadLock);

impl ImportFormat {
    /// What reads it, where it is a lock.
    fn lock_reader(self) -> Option<LockReader> {
        Some(match self {
            Self::UvLock => |source, selection| uv::read(source.text, selection).map(LockText),
            Self::Pylock => |source, selection| pylock::read(source.text, selection).map(LockText),
            Self::PoetryLock => |source, selection| {
                poetry::read(source.text, &in_folder(source), selection).map(LockText)
            },
            Self::PdmLock => |source, selection| {
                pdm::read(source.text, &in_folder(source), selection).map(LockText)
            },
            Self::PipfileLock => {
                |source, selection| pipfile::read(source.text, selection).map(LockText)
            }
            Self::PixiLock => |source, selection| pixi::read(source.text, selection).map(LockText),
            Self::CondaLock => {
                |source, selection| conda_lock::read(source.text, selection).map(LockText)
            }
            Self::Pyproject
            | Self::Setup
            | Self::Requirements
            | Self::Pipfile
            | Self::Conda
            | Self::Dockerfile => {
                return None;
            }
        })
    }
}

/// The files of the folder that the lock is in.
fn in_folder<'a>(source: &'a ImportSource<'_>) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| {
        let path = match source.path.rsplit_once('/') {
            Some((folder, _)) => crate::inside(&format!("{folder}/{name}"))?,
            None => name.to_owned(),
        };
        (source.beside)(&path)
    }
}

fn read(
    format: ImportFormat,
    source: &ImportSource<'_>,
    selection: &LockSelection<'_>,
) -> Result<ReadLock, ImportError> {
    let missing = "no lock";
    let reader = format
        .lock_reader()
        .ok_or(ImportError::Nothing { missing })?;
    let LockText(read) = reader(source, selection)?;
    if read.graph.is_too_large() {
        let what = "a lock with so many entries";
        return Err(ImportError::Unread { line: 1, what });
    }
    Ok(read)
}

/// Puts into the draft what is conda's, and says what was left out.
fn collect(read: &ReadLock, selection: &LockSelection<'_>, draft: &mut Draft) -> CollectedPins {
    let mut unneeded = Vec::new();
    for package in &read.conda {
        // What others need and no index has under a known name comes with the wheels of those.
        if package.is_needed && !conda::is_installable(&package.name) {
            unneeded.push(package.name.clone());
        } else {
            let line = Some(package.line);
            conda::add_dependency(&package.as_request(), line, draft, &mut unneeded);
        }
    }
    conda::note_unneeded(None, &unneeded, draft);
    let pins = read.graph.collect_pins(selection.machine);
    let is_installed = read.is_project_installed || !pins.folders.is_empty();
    for (what, why) in &pins.left_out {
        // What a package needs comes with it, whatever the lock has.
        match *why == graph::ABSENT && (is_installed || !read.graph.wants(what)) {
            true => draft.note_decision(None, what, format!("{why}: it is resolved beside it")),
            false => draft.left_out(None, what, *why),
        }
    }
    for (what, why) in &read.left_out {
        draft.note_decision(None, what, (*why).to_owned());
    }
    pins
}

/// A spec that refers to the lock.
pub(crate) fn convert(
    format: ImportFormat,
    source: &ImportSource<'_>,
) -> Result<ImportedSpec, ImportError> {
    let selection = LockSelection {
        extras: &[],
        groups: &[],
        machine: CpuArchitecture::X86_64,
    };
    let read = read(format, source, &selection)?;
    let mut draft = Draft::default();
    if let Some(name) = &read.name {
        draft.set_name(name);
    }
    match (&read.python, &read.graph.requires_python) {
        (Some(python), _) => draft.set_python(None, python),
        (None, Some(specifiers)) => draft.requires_python(None, specifiers),
        (None, None) => {}
    }
    note_choices(&read, &mut draft);
    for url in &read.indexes {
        draft.extra_index(None, url);
    }
    let mut pins = collect(&read, &selection, &mut draft);
    if read.is_project_installed {
        pins.folders.insert(".".to_owned());
    }
    add_folders(source.path, &pins, &mut draft);
    if let Some(why) = disagreement::describe(format, source, &read, &selection) {
        draft.note_decision(None, source.path, why);
    }
    let of_conda = draft.requirements().len();
    let names: BTreeSet<&str> = pins.packages.iter().map(|p| p.name.as_str()).collect();
    let count = names.len() + of_conda;
    if count == 0 && draft.spec.python.editable.is_empty() {
        let missing = "no package that can be locked";
        return Err(ImportError::Nothing { missing });
    }
    note_missing_digests(&pins, &mut draft);
    draft.spec.python.lock = Some(source.path.to_owned());
    draft.indexed = true;
    let packages = if count == 1 { "package" } else { "packages" };
    let why = format!(
        "it is referred to: `lock` takes the versions and files of it, {count} {packages} today"
    );
    draft.note_decision(None, source.path, why);
    Ok(draft.finish_referring())
}

/// What there is to ask for.
fn note_choices(read: &ReadLock, draft: &mut Draft) {
    for (names, kind, why) in [
        (&read.extras, "extra", EXTRA),
        (&read.groups, "group", GROUP),
    ] {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names.as_slice() {
            [] => {}
            [one] => draft.left_out(None, &format!("the {kind} `{one}`"), why),
            several => draft.left_out(None, &list_choices(&format!("{kind}s"), several), why),
        }
    }
    for set in read.exclusive.iter().take(crate::project_table::MAX_GROUPS) {
        let why = "each excludes the others: ask for one of them at most".to_owned();
        draft.note_decision(None, &set.join(", "), why);
    }
    if let Some(environment) = &read.environment {
        let why = "there is none called `default`, so this one is taken".to_owned();
        draft.note_decision(None, &format!("the environment `{environment}`"), why);
    }
    if !read.environments.is_empty() {
        let why = "environments of the lock that are not taken: name one in `[python] groups`";
        draft.note_decision(None, &read.environments.join(", "), why.to_owned());
    }
}

/// Folders of projects become `editable`, relative to the spec.
fn add_folders(path: &str, pins: &CollectedPins, draft: &mut Draft) {
    let own = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for folder in &pins.folders {
        let joined = match own {
            "" => folder.clone(),
            own => format!("{own}/{folder}"),
        };
        let is_here = joined.split('/').all(|part| matches!(part, "" | "."));
        let named = match is_here && !joined.starts_with('/') {
            true => Some(".".to_owned()),
            false => crate::inside(&joined),
        };
        let plain = |named: &String| {
            let known = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            named.chars().all(known) && !named.starts_with(['-', '~'])
        };
        match named.filter(plain) {
            Some(named) if draft.spec.python.editable.len() < crate::project_table::MAX_GROUPS => {
                draft.spec.python.editable.push(named);
            }
            _ => draft.left_out(None, folder, "a folder outside the spec's own"),
        }
    }
}

fn note_missing_digests(pins: &CollectedPins, draft: &mut Draft) {
    let without = pins
        .packages
        .iter()
        .filter(|package| package.files.is_empty() && !package.requirement.contains(" @ git+"));
    let names: BTreeSet<&str> = without.map(|package| package.name.as_str()).collect();
    for name in names {
        draft.note_decision(None, name, NO_DIGEST.to_owned());
    }
}

/// Reads TOML of a known shape, or says where it is another.
fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, ImportError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let breaks = text.as_bytes()[..start].iter().filter(|&&b| b == b'\n');
        ImportError::Toml {
            line: breaks.count() + 1,
            message: crate::note::redacted_line(error.message()),
        }
    })
}

/// The address that most have. One that ends as a whole index does comes before one that has the builds of a few
/// projects.
fn common_address<'a>(addresses: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for address in addresses {
        *counts.entry(address).or_default() += 1;
    }
    let is_whole = |address: &str| address.trim_end_matches('/').ends_with("/simple");
    let best = counts
        .into_iter()
        .max_by_key(|(address, count)| (is_whole(address), *count));
    best.map(|(address, _)| address)
}

/// `https://host:port` of an address.
fn host_of(address: &str) -> &str {
    let Some(at) = address.find("://") else {
        return "";
    };
    let end = address[at + 3..].find('/');
    end.map_or(address, |end| &address[..at + 3 + end])
}

/// The last part of an address or a path.
fn file_name_of(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let file = address
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    file.replace("%2B", "+").replace("%2b", "+")
}

/// A commit of a repository, as pip writes it.
fn git_requirement(address: &str, commit: &str, subdirectory: Option<&str>) -> String {
    let mut text = match address {
        whole if whole.starts_with("git+") => whole.to_owned(),
        // `git@host:me/x`
        short if !short.contains("://") => format!("git+ssh://{}", short.replacen(':', "/", 1)),
        address => format!("git+{address}"),
    };
    if !commit.is_empty() {
        text = format!("{text}@{commit}");
    }
    match subdirectory {
        Some(folder) => format!("{text}#subdirectory={folder}"),
        None => text,
    }
}

/// A need as PEP 508 writes it, and as Poetry does in extras: `x (>=1) ; marker`.
fn requirement_need(text: &str) -> Option<LockedNeed> {
    let (text, marker) = match text.split_once(';') {
        Some((text, marker)) => (text.trim(), Some(marker.trim().to_owned())),
        None => (text.trim(), None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = text.find(|c: char| !plain(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    normalize_project_name(name)?;
    let rest = rest.trim();
    let (extras, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let extras = extras
        .split(',')
        .map(str::trim)
        .filter(|extra| !extra.is_empty());
    let specifiers = rest.trim().trim_start_matches('(').trim_end_matches(')');
    let is_address = specifiers.starts_with('@');
    Some(LockedNeed {
        name: name.to_owned(),
        specifiers: (!is_address && !specifiers.is_empty()).then(|| specifiers.to_owned()),
        marker: marker.filter(|marker| !marker.is_empty()),
        extras: extras.map(str::to_owned).collect(),
        ..LockedNeed::default()
    })
}

/// The `pyproject.toml` beside a lock.
fn read_project(beside: SiblingFiles<'_>) -> Option<Table> {
    toml_table(&beside("pyproject.toml")?).ok()
}

/// Whether the tool installs the project, too: it is one, and `[tool.NAME]` does not say `key = false`.
fn is_installed(root: &Table, name: &str, key: &str) -> bool {
    let says = root
        .get("tool")
        .and_then(|tool| tool.get(name)?.get(key)?.as_bool());
    root.contains_key("build-system") && says != Some(false)
}

/// What `[project]` and the groups of a `pyproject.toml` ask for.
fn needs_of_project(root: &Table, selection: &LockSelection<'_>) -> Option<Vec<LockedNeed>> {
    let project = root.get("project")?.as_table()?;
    let mut needs: Vec<&str> = array_strings(project.get("dependencies")?);
    let table =
        |value: Option<&'_ Value>| value.and_then(Value::as_table).cloned().unwrap_or_default();
    let extras = table(project.get("optional-dependencies"));
    let groups = table(root.get("dependency-groups"));
    let of_pdm = root
        .get("tool")
        .and_then(|tool| tool.get("pdm")?.get("dev-dependencies"));
    let of_pdm = table(of_pdm);
    let asked = selection
        .extras
        .iter()
        .filter_map(|extra| extras.get(extra));
    let asked = asked.chain(selection.groups.iter().flat_map(|group| {
        let both = [groups.get(group), of_pdm.get(group)];
        both.into_iter().flatten()
    }));
    needs.extend(asked.flat_map(array_strings));
    Some(needs.into_iter().filter_map(requirement_need).collect())
}
