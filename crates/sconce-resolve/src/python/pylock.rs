//! `pylock.toml` (PEP 751), as uv writes it for one platform: which wheel of each package the
//! target takes, and where the sources of those are that have none.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use sconce_schema::lock::Wheel;
use sconce_schema::{Hint, Sha256, exit};
use serde::Deserialize;

use super::source_package::{SourceOrigin, SourcePackage};
use sconce_base::text::{redact_git_credentials, without_credentials};
use sconce_fetch::file_url;
use sconce_formats::tags::{WheelName, WheelTarget};
use sconce_formats::{PinnedFile, normalize_project_name};

/// Why a `pylock.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PylockError {
    /// Not TOML, or not a lock.
    #[error("uv wrote a lock that cannot be read")]
    Malformed(#[from] toml::de::Error),
    /// Of another format.
    #[error("uv wrote a lock of version `{found}`, this Sconce reads 1.x")]
    Version {
        /// The version that it has.
        found: String,
    },
    /// A package that is no wheel.
    #[error("{package} is {kind}, and only wheels can be locked")]
    NotAWheel {
        /// Name and version.
        package: String,
        /// What it is.
        kind: &'static str,
    },
    /// No wheel of the package runs on the target.
    #[error("{package} has no wheel for the target; it has {found}")]
    NoWheel {
        /// Name and version.
        package: String,
        /// The tags of its wheels.
        found: String,
    },
    /// A wheel whose name, address or version is not sound.
    #[error("{package}: {what}: `{value}`")]
    Unsound {
        /// The package's name.
        package: String,
        /// What is wrong.
        what: &'static str,
        /// What stands there.
        value: String,
    },
    /// A wheel with no SHA-256.
    #[error("the index gives no SHA-256 for {file}")]
    NoDigest {
        /// The wheel.
        file: String,
    },
    /// Another file than a lock, or a requirements file, names.
    #[error(
        "{package} is not what was locked: {file} has the SHA-256 {found}, and {}",
        describe_locked(locked)
    )]
    OtherBytes {
        /// The package's name and version.
        package: String,
        /// The file that the index has.
        file: String,
        /// Its digest.
        found: String,
        /// The digests that it may have.
        locked: Vec<String>,
    },
    /// One package twice: a lock for several platforms.
    #[error("{package} stands in the lock twice")]
    Twice {
        /// The package's name.
        package: String,
    },
}

impl Hint for PylockError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotAWheel { .. } => Some(
                "name a folder of a project in `[python] editable`; build a wheel of anything else (`pip wheel`) and name that, or a version that has wheels"
                    .to_owned(),
            ),
            Self::NoWheel { .. } => Some("ask for another version of it, or of Python".to_owned()),
            Self::NoDigest { .. } => Some("use an index that tells digests".to_owned()),
            Self::Version { .. } | Self::Malformed(_) => {
                Some("use the uv that Sconce brings: take yours off PATH".to_owned())
            }
            Self::OtherBytes { .. } => Some(
                "ask the index that it was locked from; where the new file is meant, lock it again with the tool that wrote the lock"
                    .to_owned(),
            ),
            Self::Unsound { .. } | Self::Twice { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NotAWheel { .. } | Self::NoWheel { .. } | Self::NoDigest { .. } => {
                exit::NO_SOLUTION
            }
            Self::Malformed(_)
            | Self::Version { .. }
            | Self::Unsound { .. }
            | Self::OtherBytes { .. }
            | Self::Twice { .. } => exit::VERIFY,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Pylock {
    lock_version: String,
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: Option<String>,
    #[serde(default)]
    wheels: Vec<File>,
    sdist: Option<File>,
    archive: Option<File>,
    vcs: Option<Repository>,
    directory: Option<toml::Table>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Repository {
    r#type: String,
    url: Option<String>,
    commit_id: Option<String>,
    subdirectory: Option<String>,
}

#[derive(Deserialize)]
struct File {
    name: Option<String>,
    url: Option<String>,
    path: Option<String>,
    size: Option<u64>,
    #[serde(rename = "upload-time")]
    upload_time: Option<toml::value::Datetime>,
    subdirectory: Option<String>,
    #[serde(default)]
    hashes: Hashes,
}

#[derive(Default, Deserialize)]
struct Hashes {
    sha256: Option<String>,
}

/// The packages of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockedPackages {
    /// Those that have wheels, sorted by name.
    pub wheels: Vec<Wheel>,
    /// Those that have sources alone, sorted by name.
    pub sources: Vec<SourcePackage>,
}

/// The files that each project may be, by its name; any where there are none.
pub type KnownFiles<'a> = BTreeMap<&'a str, Vec<&'a PinnedFile>>;

/// `the lock says 0123…`, or how many there are.
fn describe_locked(locked: &[String]) -> String {
    match locked {
        [one] => format!("the lock says {one}"),
        [first, rest @ ..] => format!("the lock says {first} or one of {} more", rest.len()),
        [] => "the lock has no such file".to_owned(),
    }
}

/// Reads the lock and takes for each package the wheel that suits `target` best, among those that
/// `known` allows. Relative paths in it are below `folder`.
pub fn parse(
    text: &str,
    target: WheelTarget,
    folder: &Path,
    known: &KnownFiles<'_>,
) -> Result<LockedPackages, PylockError> {
    let lock: Pylock = toml::from_str(text)?;
    if lock.lock_version.split('.').next() != Some("1") {
        return Err(PylockError::Version {
            found: lock.lock_version,
        });
    }
    let mut packages = LockedPackages::default();
    for package in &lock.packages {
        let known = known.get(package.name.as_str()).map(Vec::as_slice);
        let known = known.unwrap_or_default();
        match find_sources(package, folder, known)? {
            Some(source) => packages.sources.push(source),
            None => packages
                .wheels
                .push(choose(package, target, folder, known)?),
        }
    }
    let LockedPackages { wheels, sources } = &mut packages;
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let names = wheels.iter().map(|wheel| &wheel.name);
    let mut names: Vec<&String> = names.chain(sources.iter().map(|one| &one.name)).collect();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(PylockError::Twice {
            package: pair[0].clone(),
        });
    }
    Ok(packages)
}

/// Where the sources of a package are that has no wheel; `None` for one that has some, or neither.
fn find_sources(
    package: &Package,
    folder: &Path,
    known: &[&PinnedFile],
) -> Result<Option<SourcePackage>, PylockError> {
    check_name(package)?;
    let is_wheel = |file: &&File| {
        file_name(package, file).is_ok_and(|name| {
            Path::new(&name)
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("whl"))
        })
    };
    let origin = match (&package.vcs, &package.archive, &package.sdist) {
        (Some(repository), ..) => git_origin(package, repository)?,
        (None, Some(file), _) if !is_wheel(&file) => archive_origin(package, file, folder)?,
        (None, None, Some(file)) if package.wheels.is_empty() => {
            archive_origin(package, file, folder)?
        }
        _ => return Ok(None),
    };
    if let Some(version) = &package.version {
        check_version(package, version)?;
    }
    if let SourceOrigin::Archive { url, sha256, .. } = &origin
        && !known.is_empty()
        && !is_known(&sha256.to_string(), known)
    {
        let file = url.rsplit('/').next().unwrap_or_default();
        let found = sha256.to_string();
        return Err(other_bytes(package, file, found, known));
    }
    Ok(Some(SourcePackage {
        name: package.name.clone(),
        is_name_guessed: false,
        version: package.version.clone(),
        origin,
    }))
}

fn git_origin(package: &Package, repository: &Repository) -> Result<SourceOrigin, PylockError> {
    if repository.r#type != "git" {
        return Err(unsound(package, "not a git repository", &repository.r#type));
    }
    let url = repository.url.clone().unwrap_or_default();
    let known = ["https://", "http://", "ssh://", "git://", "file://"];
    let is_known = known.iter().any(|scheme| url.starts_with(scheme));
    if !is_known || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let url = without_credentials(&url);
        return Err(unsound(package, "not an address that git takes", &url));
    }
    let commit = repository.commit_id.clone().unwrap_or_default();
    if commit.len() != 40 || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(unsound(package, "not a commit", &commit));
    }
    let url = match url.starts_with("ssh://") {
        true => redact_git_credentials(&url),
        false => without_credentials(&url),
    };
    Ok(SourceOrigin::Git {
        url,
        commit: commit.to_ascii_lowercase(),
        subdirectory: subdirectory(package, repository.subdirectory.as_deref())?,
    })
}

fn archive_origin(
    package: &Package,
    file: &File,
    folder: &Path,
) -> Result<SourceOrigin, PylockError> {
    let name = file_name(package, file)?;
    let no_digest = || PylockError::NoDigest { file: name.clone() };
    let digest = file.hashes.sha256.as_ref().ok_or_else(no_digest)?;
    Ok(SourceOrigin::Archive {
        url: address(package, file, folder)?,
        sha256: digest
            .parse()
            .map_err(|_| unsound(package, "not a SHA-256", digest))?,
        subdirectory: subdirectory(package, file.subdirectory.as_deref())?,
        uploaded: (file.upload_time.as_ref())
            .and_then(|time| time.date)
            .map(|date| date.to_string()),
    })
}

fn subdirectory(package: &Package, path: Option<&str>) -> Result<Option<String>, PylockError> {
    let Some(path) = path.filter(|path| !matches!(*path, "" | ".")) else {
        return Ok(None);
    };
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    match Path::new(path).components().all(is_plain) && !path.contains(['\0', '\n']) {
        true => Ok(Some(path.to_owned())),
        false => Err(unsound(package, "not a folder inside", path)),
    }
}

fn check_name(package: &Package) -> Result<(), PylockError> {
    match normalize_project_name(&package.name).as_deref() == Some(&package.name) {
        true => Ok(()),
        false => Err(unsound(
            package,
            "not a normalised project name",
            &package.name,
        )),
    }
}

fn check_version(package: &Package, version: &str) -> Result<(), PylockError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".+!-_".contains(&b);
    match !version.is_empty() && version.bytes().all(plain) {
        true => Ok(()),
        false => Err(unsound(package, "not a version", version)),
    }
}

fn label(package: &Package) -> String {
    match &package.version {
        Some(version) => format!("{} {version}", package.name),
        None => package.name.clone(),
    }
}

/// Whether a file may have this digest.
fn is_known(digest: &str, known: &[&PinnedFile]) -> bool {
    let mut known = known.iter();
    known.any(|file| file.sha256.eq_ignore_ascii_case(digest))
}

fn other_bytes(package: &Package, file: &str, found: String, known: &[&PinnedFile]) -> PylockError {
    let is_named = known.iter().all(|file| file.name.is_some());
    let locked = known
        .iter()
        .filter(|one| !is_named || one.name.as_deref() == Some(file));
    PylockError::OtherBytes {
        package: label(package),
        file: file.to_owned(),
        found,
        locked: locked.map(|file| file.sha256.clone()).collect(),
    }
}

fn choose(
    package: &Package,
    target: WheelTarget,
    folder: &Path,
    known: &[&PinnedFile],
) -> Result<Wheel, PylockError> {
    let label = label(package);
    let not_a_wheel = |kind| PylockError::NotAWheel {
        package: label.clone(),
        kind,
    };
    if package.directory.is_some() {
        return Err(not_a_wheel("a folder of sources"));
    }
    let files: Vec<(String, &File)> = package
        .wheels
        .iter()
        .chain(&package.archive)
        .map(|file| Ok((file_name(package, file)?, file)))
        .collect::<Result<_, PylockError>>()?;
    let names: Vec<(WheelName<'_>, &String, &File)> = files
        .iter()
        .filter_map(|(name, file)| Some((WheelName::parse(name)?, name, *file)))
        .collect();
    if names.is_empty() {
        return Err(not_a_wheel("a source distribution"));
    }
    let mut suited: Vec<_> = names
        .iter()
        .filter_map(|(name, file, entry)| Some((name.tag_priority(target)?, name, *file, *entry)))
        .collect();
    suited.sort_by_key(|(fit, ..)| *fit);
    // An index may have got more of a version since it was locked.
    let is_locked = |entry: &File| {
        known.is_empty() || is_known(entry.hashes.sha256.as_deref().unwrap_or_default(), known)
    };
    let best = suited.iter().rev().find(|(.., entry)| is_locked(entry));
    if let (None, Some((_, _, file, entry))) = (best, suited.last()) {
        let found = entry.hashes.sha256.clone().unwrap_or_default();
        return Err(other_bytes(package, file, found, known));
    }
    let Some((_, name, file, entry)) = best.copied() else {
        let tags: Vec<String> = names.iter().map(|(name, ..)| name.tag_string()).collect();
        return Err(PylockError::NoWheel {
            package: label,
            found: tags.join(", "),
        });
    };
    if normalize_project_name(name.project).as_deref() != Some(&package.name) {
        return Err(unsound(package, "the wheel is another project's", file));
    }
    let digest = entry
        .hashes
        .sha256
        .as_ref()
        .ok_or_else(|| PylockError::NoDigest { file: file.clone() })?;
    let sha256: Sha256 = digest
        .parse()
        .map_err(|_| unsound(package, "not a SHA-256", digest))?;
    let version = package
        .version
        .clone()
        .unwrap_or_else(|| name.version.replace('_', "-"));
    check_version(package, &version)?;
    Ok(Wheel {
        name: package.name.clone(),
        version,
        file: file.clone(),
        url: address(package, entry, folder)?,
        size: entry.size,
        sha256,
        build: None,
    })
}

fn unsound(package: &Package, what: &'static str, value: &str) -> PylockError {
    PylockError::Unsound {
        package: package.name.chars().take(200).collect(),
        what,
        value: value.chars().take(200).collect(),
    }
}

/// The name of the file: the entry's, or the last part of its address.
fn file_name(package: &Package, file: &File) -> Result<String, PylockError> {
    let from = match (&file.name, &file.url, &file.path) {
        (Some(name), _, _) => name.clone(),
        (None, Some(url), _) => {
            let url = url.split(['?', '#']).next().unwrap_or_default();
            let last = url.rsplit('/').next().unwrap_or_default();
            decode_percent(last).ok_or_else(|| unsound(package, "not a URL", last))?
        }
        (None, None, Some(path)) => path.rsplit('/').next().unwrap_or_default().to_owned(),
        (None, None, None) => return Err(unsound(package, "a file without a name", "")),
    };
    if from.is_empty() || from.contains(['/', '\\', '\0']) {
        return Err(unsound(package, "not a file name", &from));
    }
    Ok(from)
}

/// The address without credentials; a path becomes a `file:` URL.
fn address(package: &Package, file: &File, folder: &Path) -> Result<String, PylockError> {
    match (&file.url, &file.path) {
        (Some(url), _) => {
            let known = ["http://", "https://", "file://"]
                .iter()
                .any(|scheme| url.starts_with(scheme));
            if !known || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(unsound(
                    package,
                    "not an http, https or file URL",
                    &without_credentials(url),
                ));
            }
            Ok(without_credentials(url))
        }
        (None, Some(path)) => Ok(file_url(&clean(&folder.join(path)))),
        (None, None) => Err(unsound(package, "a file without an address", "")),
    }
}

/// The path without `.` and `..`, by its text.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// `torch-2.8.0%2Bcu126-…` is how indexes write `+` in a URL.
fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = (rest.next()? as char).to_digit(16)?;
            let low = (rest.next()? as char).to_digit(16)?;
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sconce_formats::tags::CpuArchitecture;

    /// What uv 0.13.8 and 0.9.0 write, shortened; hosts changed.
    const REAL: &str = include_str!("../../tests/data/pylock.toml");
    const TARGET: WheelTarget = WheelTarget {
        python_minor: 13,
        glibc_minor: 41,
        machine: CpuArchitecture::X86_64,
    };

    fn read(text: &str) -> Result<Vec<Wheel>, PylockError> {
        let folder = Path::new("/project/folder");
        parse(text, TARGET, folder, &KnownFiles::new()).map(|packages| packages.wheels)
    }

    fn read_source(entry: &str) -> Result<SourcePackage, PylockError> {
        let packages = parse(
            &one(entry),
            TARGET,
            Path::new("/project/folder"),
            &KnownFiles::new(),
        )?;
        assert_eq!((packages.wheels.len(), packages.sources.len()), (0, 1));
        Ok(packages.sources[0].clone())
    }

    fn one(entry: &str) -> String {
        format!("lock-version = \"1.0\"\n[[packages]]\nname = \"a\"\nversion = \"1\"\n{entry}")
    }

    const DIGEST: &str = "80b1b5bfe38eb0e9f5ff09f206dcac0a87aadd084230d4a36eea5ec5232c115b";

    fn wheel(url: &str) -> String {
        one(&format!(
            "wheels = [{{ url = \"{url}\", hashes = {{ sha256 = \"{DIGEST}\" }} }}]"
        ))
    }

    #[test]
    fn reads_what_uv_writes() {
        let wheels = read(REAL).unwrap();
        let names: Vec<_> = wheels
            .iter()
            .map(|w| (w.name.as_str(), w.file.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                (
                    "nvidia-cudnn-cu13",
                    "nvidia_cudnn_cu13-9.26.0.51-py3-none-manylinux_2_27_x86_64.whl"
                ),
                (
                    "pillow",
                    "pillow-13.0.0-cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
                ),
                (
                    "torch",
                    "torch-2.10.0-3-cp313-cp313-manylinux_2_28_x86_64.whl"
                ),
                (
                    "uv",
                    "uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
                ),
            ]
        );
        assert_eq!(wheels[2].sha256.to_string(), DIGEST);
        assert_eq!(wheels[1].size, Some(7_035_467));
        assert_eq!(wheels[2].size, None);
        assert_eq!(
            wheels[3].url,
            "file:///project/wheels/uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
        );
    }

    #[test]
    fn credentials_never_stay() {
        for (url, clean) in [
            (
                "https://user:secret@example.org/a-1-py3-none-any.whl",
                "https://example.org/a-1-py3-none-any.whl",
            ),
            (
                "https://token@example.org:8443/a-1-py3-none-any.whl#sha256=00",
                "https://example.org:8443/a-1-py3-none-any.whl",
            ),
            (
                "https://u:p@ss@example.org/x/@y/a-1-py3-none-any.whl?token=secret",
                "https://example.org/x/@y/a-1-py3-none-any.whl",
            ),
        ] {
            assert_eq!(read(&wheel(url)).unwrap()[0].url, clean);
        }
        let error = read(&wheel("ftp://user:secret@example.org/a-1-py3-none-any.whl")).unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }

    #[test]
    fn local_versions_are_percent_encoded() {
        let wheels = read(&wheel("https://example.org/a-1%2Bcu126-py3-none-any.whl")).unwrap();
        assert_eq!(wheels[0].file, "a-1+cu126-py3-none-any.whl");
        assert_eq!(
            wheels[0].url,
            "https://example.org/a-1%2Bcu126-py3-none-any.whl"
        );
    }

    #[test]
    fn only_wheels_for_the_target() {
        let error = read(&wheel("https://example.org/a-1-cp313-cp313-win_amd64.whl")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a 1 has no wheel for the target; it has cp313-cp313-win_amd64"
        );
        assert_eq!(error.exit_code(), exit::NO_SOLUTION);
        for entry in ["", "directory = { path = \".\" }"] {
            assert!(
                matches!(read(&one(entry)), Err(PylockError::NotAWheel { .. })),
                "{entry}"
            );
        }
    }

    #[test]
    fn sources_are_named_by_their_bytes() {
        let source = read_source(&format!(
            "sdist = {{ url = \"https://me:pw@example.org/a-1.tar.gz\", \
             upload-time = 2019-12-18T07:31:43Z, hashes = {{ sha256 = \"{DIGEST}\" }} }}"
        ));
        let SourceOrigin::Archive { url, uploaded, .. } = source.unwrap().origin else {
            panic!("an archive");
        };
        assert_eq!(url, "https://example.org/a-1.tar.gz");
        assert_eq!(uploaded.as_deref(), Some("2019-12-18"));
        let commit = "cd9f1ca6e18641b99f6a18d77a4f65d28a09602b";
        let git = |url: &str, commit: &str, folder: &str| {
            read_source(&format!(
                "vcs = {{ type = \"git\", url = \"{url}\", commit-id = \"{commit}\", \
                 subdirectory = \"{folder}\" }}"
            ))
        };
        for (url, kept) in [
            (
                "https://me:pw@example.org/a.git",
                "https://example.org/a.git",
            ),
            ("ssh://git@example.org/a.git", "ssh://git@example.org/a.git"),
            (
                "ssh://git:pw@example.org/a.git",
                "ssh://git@example.org/a.git",
            ),
        ] {
            let origin = git(url, commit, "python").unwrap().origin;
            assert_eq!(
                (origin.url(), origin.subdirectory()),
                (kept, Some("python"))
            );
            assert_eq!(origin.fingerprint(), commit);
        }
        for (url, commit, folder) in [
            ("ext::sh -c x", commit, "."),
            ("--upload-pack=x", commit, "."),
            ("https://example.org/a.git", "main", "."),
            ("https://example.org/a.git", "--all", "."),
            ("https://example.org/a.git", commit, "../x"),
            ("https://example.org/a.git", commit, "/x"),
        ] {
            let error = git(url, commit, folder).unwrap_err();
            assert!(
                matches!(error, PylockError::Unsound { .. }),
                "{url} {commit} {folder}"
            );
        }
        for entry in [
            "vcs = { type = \"hg\", url = \"https://example.org/a\" }",
            "sdist = { url = \"https://example.org/a-1.tar.gz\" }",
            "archive = { url = \"https://example.org/a-1.tar.gz\", hashes = {} }",
        ] {
            assert!(read_source(entry).is_err(), "{entry}");
        }
    }

    #[test]
    fn refuses_hostile_locks() {
        for url in [
            "https://example.org/..%2Fa-1-py3-none-any.whl",
            "https://example.org/a-1-py3-none-any.whl%00",
            "https://example.org/%zz-1-py3-none-any.whl",
            "gopher://example.org/a-1-py3-none-any.whl",
            "https://exa mple.org/a-1-py3-none-any.whl",
            "https://example.org/other-1-py3-none-any.whl",
            "https://example.org/",
        ] {
            assert!(read(&wheel(url)).is_err(), "{url}");
        }
        let fine = wheel("https://example.org/a-1-py3-none-any.whl");
        assert!(read(&fine).is_ok());
        for (from, to) in [
            ("\"a\"", "\"../a\""),
            ("\"a\"", "\"A_b\""),
            ("\"1\"", "\"1/../2\""),
            ("\"1.0\"", "\"2.0\""),
            ("80b1", "zzzz"),
            ("lock-version", "lock_version"),
        ] {
            assert!(read(&fine.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
        let no_digest = fine.replace(&format!("sha256 = \"{DIGEST}\""), "");
        assert!(matches!(
            read(&no_digest),
            Err(PylockError::NoDigest { .. })
        ));
        let (_, package) = fine.split_once('\n').unwrap();
        assert!(matches!(
            read(&format!("{fine}\n{package}")),
            Err(PylockError::Twice { .. })
        ));
    }

    #[test]
    fn only_the_bytes_that_were_locked() {
        let other = "0".repeat(64);
        let file = |name: &str, tag: &str, digest: &str| {
            format!(
                "{{ url = \"https://example.org/{name}-1-{tag}.whl\", hashes = {{ sha256 = \"{digest}\" }} }}"
            )
        };
        let own = file("a", "py3-none-any", DIGEST);
        // Suits better, and came later.
        let newer = file("a", "cp313-cp313-manylinux_2_28_x86_64", &other);
        let text = one(&format!("wheels = [{own}, {newer}]"));
        let pinned = |name: Option<&str>, sha256: &str| PinnedFile {
            name: name.map(str::to_owned),
            sha256: sha256.to_owned(),
        };
        let read = |known: &[&PinnedFile]| {
            let known = KnownFiles::from([("a", known.to_vec())]);
            parse(&text, TARGET, Path::new("/"), &known).map(|packages| packages.wheels)
        };
        assert_eq!(read(&[]).unwrap()[0].sha256.to_string(), other);
        let upper = pinned(None, &DIGEST.to_ascii_uppercase());
        assert_eq!(read(&[&upper]).unwrap()[0].sha256.to_string(), DIGEST);
        let ones = "1".repeat(64);
        let wrong = pinned(Some("a-1-cp313-cp313-manylinux_2_28_x86_64.whl"), &ones);
        let error = read(&[&wrong]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "a 1 is not what was locked: a-1-cp313-cp313-manylinux_2_28_x86_64.whl has the SHA-256 {other}, and the lock says {ones}"
            )
        );
        assert_eq!(error.exit_code(), exit::VERIFY);
        let elsewhere = pinned(Some("a-1-cp39-cp39-win_amd64.whl"), &ones);
        let text = read(&[&elsewhere]).unwrap_err().to_string();
        assert!(text.ends_with("and the lock has no such file"), "{text}");
    }

    proptest! {
        #[test]
        fn no_text_panics(url in "\\PC{0,30}", name in "\\PC{0,8}") {
            let _ = without_credentials(&url);
            let _ = normalize_project_name(&name);
            let _ = decode_percent(&url);
            let _ = read(&url);
        }
    }
}
