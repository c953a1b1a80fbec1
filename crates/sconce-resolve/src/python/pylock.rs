//! `pylock.toml` (PEP 751), as uv writes it for one platform: which wheel of each package the
//! target takes.

use std::path::{Component, Path, PathBuf};

use sconce_schema::lock::Wheel;
use sconce_schema::{Hint, Sha256, exit};
use serde::Deserialize;

use sconce_base::text::without_credentials;
use sconce_fetch::file_url;
use sconce_formats::normalize_project_name;
use sconce_formats::tags::{WheelName, WheelTarget};

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
                "build a wheel of it (`pip wheel`) and name that, or a version that has wheels"
                    .to_owned(),
            ),
            Self::NoWheel { .. } => Some("ask for another version of it, or of Python".to_owned()),
            Self::NoDigest { .. } => Some("use an index that tells digests".to_owned()),
            Self::Version { .. } | Self::Malformed(_) => {
                Some("use the uv that Sconce brings: take yours off PATH".to_owned())
            }
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
    archive: Option<File>,
    vcs: Option<toml::Table>,
    directory: Option<toml::Table>,
}

#[derive(Deserialize)]
struct File {
    name: Option<String>,
    url: Option<String>,
    path: Option<String>,
    size: Option<u64>,
    #[serde(default)]
    hashes: Hashes,
}

#[derive(Default, Deserialize)]
struct Hashes {
    sha256: Option<String>,
}

/// Reads the lock and takes for each package the wheel that suits `target` best. Relative paths
/// in it are below `folder`. The result is sorted by name.
pub fn parse(text: &str, target: WheelTarget, folder: &Path) -> Result<Vec<Wheel>, PylockError> {
    let lock: Pylock = toml::from_str(text)?;
    if lock.lock_version.split('.').next() != Some("1") {
        return Err(PylockError::Version {
            found: lock.lock_version,
        });
    }
    let mut wheels = lock
        .packages
        .iter()
        .map(|package| choose(package, target, folder))
        .collect::<Result<Vec<_>, _>>()?;
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = wheels.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(PylockError::Twice {
            package: pair[0].name.clone(),
        });
    }
    Ok(wheels)
}

fn choose(package: &Package, target: WheelTarget, folder: &Path) -> Result<Wheel, PylockError> {
    let label = match &package.version {
        Some(version) => format!("{} {version}", package.name),
        None => package.name.clone(),
    };
    if normalize_project_name(&package.name).as_deref() != Some(&package.name) {
        return Err(unsound(
            package,
            "not a normalised project name",
            &package.name,
        ));
    }
    let not_a_wheel = |kind| PylockError::NotAWheel {
        package: label.clone(),
        kind,
    };
    if package.vcs.is_some() {
        return Err(not_a_wheel("a version control checkout"));
    }
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
    let best = names
        .iter()
        .filter_map(|(name, file, entry)| Some((name.tag_priority(target)?, name, *file, *entry)))
        .max_by_key(|(fit, ..)| *fit);
    let Some((_, name, file, entry)) = best else {
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
    if version.is_empty()
        || !version
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+!-_".contains(&b))
    {
        return Err(unsound(package, "not a version", &version));
    }
    Ok(Wheel {
        name: package.name.clone(),
        version,
        file: file.clone(),
        url: address(package, entry, folder)?,
        size: entry.size,
        sha256,
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
        parse(text, TARGET, Path::new("/project/folder"))
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
        for entry in [
            "",
            "vcs = { type = \"git\", url = \"https://example.org/a.git\" }",
            "directory = { path = \".\" }",
            "sdist = { url = \"https://example.org/a-1.tar.gz\" }",
            "archive = { url = \"https://example.org/a-1.tar.gz\", hashes = {} }",
        ] {
            assert!(
                matches!(read(&one(entry)), Err(PylockError::NotAWheel { .. })),
                "{entry}"
            );
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
