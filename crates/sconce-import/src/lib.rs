//! What people have already, as a spec: the files of other tools ([`ImportFormat::ALL`]). Text in, a
//! [`Spec`] out, with an [`ImportNote`] for all that was decided and all that has no counterpart.
//!
//! A further format is a module with its converter, a variant of [`ImportFormat`] with its row, an
//! example in the tests, a fuzz target, and a row in docs/init.md.
#![forbid(unsafe_code)]

mod conda;
mod conda_names;
mod dockerfile;
mod draft;
mod freeze;
#[cfg(test)]
mod golden;
mod hashes;
mod inline_metadata;
mod locks;
mod marker;
mod note;
mod poetry;
mod project_files;
mod project_table;
mod python;
mod readme;
mod release;
mod requirement;
mod requirement_options;
mod scm;
mod setup_cfg;
mod specifier;
mod survey;
mod torch_builds;
mod uv_settings;
mod yaml;

use std::borrow::Cow;
use std::collections::BTreeSet;

use sconce_schema::{Hint, Spec, exit};

pub use hashes::{HashProblem, UnusableHash};
pub use inline_metadata::{InlineMetadataError, read_inline_metadata};
pub use locks::{
    LockSelection, PinnedLock, VersionDifference, describe_differences, find_version_differences,
    is_lock_format, lock_file_names, read_pinned_lock, reads_project,
};
pub use note::{ImportNote, NoteKind, group_by_reason};
pub use project_files::setuptools_layout::SetuptoolsLayout;
pub use project_files::static_build::StaticBuild;
pub use project_files::static_project::StaticProject;
pub use project_files::static_version::read_static_version;
pub use project_table::is_for_developers;
pub use requirement_options::{RequirementOptions, read_requirement_options};
pub use survey::{FolderEntry, ProjectFolder, SurveyedSpec, survey_folder};

/// A spec, and what to know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedSpec {
    /// What was understood.
    pub spec: Spec,
    /// What was decided or left out, in the order of the source.
    pub notes: Vec<ImportNote>,
    /// The projects that it names, directly or in files that it refers to, normalised.
    pub provided: BTreeSet<String>,
    /// Which of `[python] packages` come from another file than the source, and from where in it.
    pub origins: Vec<PackageOrigin>,
    /// Packages that it names and that no index is known to have, normalised.
    pub unknown: BTreeSet<String>,
    /// Of those, the ones whose sources are known, with their lines.
    offers: Vec<(Option<usize>, requirement::Requirement)>,
    /// What the code imports and nothing brings.
    pub unprovided: Vec<UnprovidedModule>,
}

/// A module that is imported and that nothing is known to bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnprovidedModule {
    /// Without its points: `cudf`.
    pub module: String,
    /// The file that imports it, relative to the project's folder.
    pub file: String,
    /// The file cannot be loaded without it: it is imported when the file is, and no `try` is around it.
    pub is_required: bool,
    /// A file of packages asks for it, so its author has it.
    pub is_declared: bool,
}

/// Where a package of the spec comes from, other than from the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageOrigin {
    /// The requirement, as the spec has it.
    pub package: String,
    /// `scripts/amg.py:3`.
    pub place: String,
    /// What the code uses there and later versions do not have, `numpy.float`: why it has the bound.
    pub removed: Option<&'static str>,
}

impl PackageOrigin {
    /// Where it comes from and why, for a comment or a line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.removed {
            Some(removed) => format!("{} uses {removed}, which is gone later", self.place),
            None => self.place.clone(),
        }
    }
}

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// pip's requirements file.
    Requirements,
    /// `pyproject.toml`, with `[project]` or with Poetry's table.
    Pyproject,
    /// `setup.py` and `setup.cfg`.
    Setup,
    /// `uv.lock`.
    UvLock,
    /// `pylock.toml` (PEP 751).
    Pylock,
    /// `poetry.lock`.
    PoetryLock,
    /// `pdm.lock`.
    PdmLock,
    /// `Pipfile.lock`.
    PipfileLock,
    /// `pixi.lock`.
    PixiLock,
    /// `conda-lock.yml`.
    CondaLock,
    /// `Pipfile`, without its lock.
    Pipfile,
    /// conda's `environment.yml`.
    Conda,
    /// A Dockerfile.
    Dockerfile,
}

/// What is known of a format.
struct Importer {
    /// The names under which files are looked for; the first is what messages call the format.
    file_names: &'static [&'static str],
    /// How names of such files begin and end otherwise, in lower case.
    prefixes: &'static [&'static str],
    suffixes: &'static [&'static str],
    /// The largest file that is read, in bytes.
    max_bytes: u64,
    convert: fn(&ImportSource<'_>) -> Result<ImportedSpec, ImportError>,
}

/// That of a tool's lock.
fn lock_importer(
    file_names: &'static [&'static str],
    suffixes: &'static [&'static str],
    convert: fn(&ImportSource<'_>) -> Result<ImportedSpec, ImportError>,
) -> Importer {
    Importer {
        file_names,
        prefixes: &[],
        suffixes,
        max_bytes: MAX_LOCK_BYTES,
        convert,
    }
}

/// A file that is read.
struct ImportSource<'a> {
    /// Relative to the spec's folder, as a spec would name it.
    path: &'a str,
    text: &'a str,
    beside: SiblingFiles<'a>,
}

/// Far above what people write.
const MAX_BYTES: u64 = 1 << 20;
/// Far above what tools write: a lock names every file of every package. Not for YAML that is read whole, as its
/// reader holds a list in brackets before its values are counted, in 180 times its bytes.
const MAX_LOCK_BYTES: u64 = 32 << 20;

impl ImportFormat {
    /// Every one, in the order in which a folder is searched for them: exact versions before wishes,
    /// what is about Python alone before what is about a whole machine.
    pub const ALL: [Self; 13] = [
        Self::UvLock,
        Self::Pylock,
        Self::PoetryLock,
        Self::PdmLock,
        Self::PipfileLock,
        Self::PixiLock,
        Self::CondaLock,
        Self::Pyproject,
        Self::Setup,
        Self::Requirements,
        Self::Pipfile,
        Self::Conda,
        Self::Dockerfile,
    ];

    /// What the formats differ in, but for their contents.
    fn importer(self) -> Importer {
        match self {
            Self::UvLock => lock_importer(&["uv.lock"], &[], |source| {
                locks::convert(Self::UvLock, source)
            }),
            Self::Pylock => Importer {
                prefixes: &["pylock."],
                ..lock_importer(&["pylock.toml"], &[], |source| {
                    locks::convert(Self::Pylock, source)
                })
            },
            Self::PoetryLock => lock_importer(&["poetry.lock"], &[], |source| {
                locks::convert(Self::PoetryLock, source)
            }),
            Self::PdmLock => lock_importer(&["pdm.lock"], &[], |source| {
                locks::convert(Self::PdmLock, source)
            }),
            Self::PipfileLock => lock_importer(&["Pipfile.lock"], &[], |source| {
                locks::convert(Self::PipfileLock, source)
            }),
            Self::PixiLock => lock_importer(&["pixi.lock"], &[], |source| {
                locks::convert(Self::PixiLock, source)
            }),
            Self::CondaLock => lock_importer(
                &["conda-lock.yml", "conda-lock.yaml"],
                &["conda-lock.yml", "conda-lock.yaml"],
                |source| locks::convert(Self::CondaLock, source),
            ),
            Self::Pyproject => Importer {
                file_names: &["pyproject.toml"],
                prefixes: &[],
                suffixes: &[],
                max_bytes: MAX_BYTES,
                convert: |source| {
                    project_files::pyproject::convert(source.path, source.text, source.beside)
                },
            },
            Self::Setup => Importer {
                file_names: &["setup.py", "setup.cfg"],
                prefixes: &[],
                suffixes: &[],
                max_bytes: MAX_BYTES,
                convert: |source| {
                    project_files::setup::convert(source.path, source.text, source.beside)
                },
            },
            Self::Requirements => Importer {
                file_names: &["requirements.txt"],
                prefixes: &[],
                suffixes: &[".txt", ".in"],
                max_bytes: MAX_BYTES,
                convert: |source| {
                    Ok(project_files::requirements::convert(
                        source.path,
                        source.text,
                        source.beside,
                    ))
                },
            },
            Self::Pipfile => Importer {
                file_names: &["Pipfile"],
                prefixes: &[],
                suffixes: &[],
                max_bytes: MAX_BYTES,
                convert: |source| project_files::pipfile::convert(source.text),
            },
            Self::Conda => Importer {
                file_names: &[
                    "environment.yml",
                    "environment.yaml",
                    "conda.yaml",
                    "conda.yml",
                ],
                prefixes: &[],
                suffixes: &[".yml", ".yaml"],
                max_bytes: MAX_BYTES,
                convert: |source| conda::convert(source.text, source.beside),
            },
            Self::Dockerfile => Importer {
                file_names: &["Dockerfile"],
                prefixes: &["dockerfile", "containerfile"],
                suffixes: &[".dockerfile", ".containerfile"],
                max_bytes: MAX_BYTES,
                convert: |source| dockerfile::convert(source.text, source.beside),
            },
        }
    }

    /// Returns the format of a file by its name, as people name such files.
    #[must_use]
    pub fn from_file_name(file_name: &str) -> Option<Self> {
        let name = file_name.to_ascii_lowercase();
        let find = |is_such: &dyn Fn(&Importer) -> bool| {
            let mut all = Self::ALL.into_iter();
            all.find(|format| is_such(&format.importer()))
        };
        // A Dockerfile.txt is a Dockerfile, whatever its end says.
        find(&|of| {
            let mut names = of.file_names.iter();
            names.any(|one| one.eq_ignore_ascii_case(&name))
        })
        .or_else(|| find(&|of| of.prefixes.iter().any(|one| name.starts_with(one))))
        .or_else(|| find(&|of| of.suffixes.iter().any(|one| name.ends_with(one))))
    }

    /// The names under which files of the format are looked for; the first is what messages call it.
    #[must_use]
    pub fn file_names(self) -> &'static [&'static str] {
        self.importer().file_names
    }

    /// The largest file that is read, in bytes.
    #[must_use]
    pub fn limit_bytes(self) -> u64 {
        self.importer().max_bytes
    }
}

/// Returns the names under which files are looked for, in their order.
pub fn known_file_names() -> impl Iterator<Item = &'static str> {
    let names = ImportFormat::ALL.map(ImportFormat::file_names);
    names.into_iter().flatten().copied()
}

/// Returns what messages call the formats, as a list with "or" before the last.
#[must_use]
pub fn list_formats() -> String {
    let names = ImportFormat::ALL.map(|format| format.file_names()[0]);
    let (last, others) = names.split_last().expect("there are formats");
    format!("{} or {last}", others.join(", "))
}

/// Why a file cannot be adopted. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not UTF-8, or with bytes that no text has.
    #[error("line {line}: this is not UTF-8 text")]
    NotText {
        /// Where.
        line: usize,
    },
    /// Beyond [`ImportFormat::limit_bytes`].
    #[error("it is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// Not TOML, or not of its format.
    #[error("line {line}: {message}")]
    Toml {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Not JSON, or not of its format.
    #[error("line {line}: {message}")]
    Json {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Not YAML.
    #[error("line {line}: {message}")]
    Yaml {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// YAML that no environment.yml needs, and that can be made to fill the memory.
    #[error("line {line}: {what} is not read")]
    Unread {
        /// Where.
        line: usize,
        /// What it is.
        what: &'static str,
    },
    /// A lock of another version of its format.
    #[error("this is version {found} of {file}; version {read} is read")]
    LockVersion {
        /// What messages call the format.
        file: &'static str,
        /// The version that it says.
        found: i64,
        /// The version that is read.
        read: i64,
    },
    /// Nothing that says what to install.
    #[error("there is {missing} in it")]
    Nothing {
        /// What is not there.
        missing: &'static str,
    },
}

impl Hint for ImportError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NotText { .. } => {
                "save it as UTF-8 (`iconv -f UTF-16 -t UTF-8` where PowerShell wrote it)"
            }
            Self::LockVersion { .. } => "give pyproject.toml instead",
            Self::Unread { .. } => "write it out, or `conda env export` it",
            Self::Nothing { .. } => "give another file, or write sconce.toml by hand",
            Self::TooLarge { .. } | Self::Toml { .. } | Self::Json { .. } | Self::Yaml { .. } => {
                return None;
            }
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The files beside the source: gives the text of a path relative to the spec's folder, which has
/// no `..` and is not absolute. `None` for a file that is not there or not text.
pub type SiblingFiles<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The text of a file, without a byte order mark. Requirements may be UTF-16, which PowerShell makes of
/// `pip freeze >`, and which pip and uv read, too.
///
/// # Errors
/// [`ImportError::TooLarge`] and [`ImportError::NotText`].
pub fn decode_text(kind: ImportFormat, bytes: &[u8]) -> Result<Cow<'_, str>, ImportError> {
    let limit_bytes = kind.limit_bytes();
    if bytes.len() as u64 > limit_bytes {
        return Err(ImportError::TooLarge { limit_bytes });
    }
    match kind {
        ImportFormat::Requirements => decode_requirements(bytes),
        _ => decode_utf8(bytes),
    }
}

/// The text of a requirements file of any size, which may be UTF-16.
///
/// # Errors
/// [`ImportError::NotText`].
pub fn decode_requirements(bytes: &[u8]) -> Result<Cow<'_, str>, ImportError> {
    match decode_utf16(bytes) {
        Some(text) => Ok(Cow::Owned(text.ok_or(ImportError::NotText { line: 1 })?)),
        None => decode_utf8(bytes),
    }
}

fn decode_utf8(bytes: &[u8]) -> Result<Cow<'_, str>, ImportError> {
    let line = |at: usize| bytes[..at].iter().filter(|&&b| b == b'\n').count() + 1;
    let text = std::str::from_utf8(bytes).map_err(|error| ImportError::NotText {
        line: line(error.valid_up_to()),
    })?;
    if let Some(at) = text.find('\0') {
        return Err(ImportError::NotText { line: line(at) });
    }
    Ok(Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)))
}

/// Text that begins with the byte order mark of UTF-16; `Some(None)` where it is none in spite of that.
fn decode_utf16(bytes: &[u8]) -> Option<Option<String>> {
    let (rest, is_little) = match bytes {
        [0xff, 0xfe, rest @ ..] => (rest, true),
        [0xfe, 0xff, rest @ ..] => (rest, false),
        _ => return None,
    };
    let (pairs, odd) = rest.as_chunks::<2>();
    let units = pairs.iter().map(|pair| match is_little {
        true => u16::from_le_bytes(*pair),
        false => u16::from_be_bytes(*pair),
    });
    let text = String::from_utf16(&units.collect::<Vec<_>>());
    let text = text
        .ok()
        .filter(|text| odd.is_empty() && !text.contains('\0'));
    Some(text)
}

/// Reads `text`, the file at `path` (relative to the spec's folder, as a spec would name it).
///
/// # Errors
/// What keeps it from being read at all; what is merely not understood is a note.
pub fn import_spec(
    kind: ImportFormat,
    path: &str,
    text: &str,
    beside: SiblingFiles<'_>,
) -> Result<ImportedSpec, ImportError> {
    if text.len() as u64 > kind.limit_bytes() {
        let limit_bytes = kind.limit_bytes();
        return Err(ImportError::TooLarge { limit_bytes });
    }
    (kind.importer().convert)(&ImportSource { path, text, beside })
}

/// A path relative to the spec's folder in its plain form; `None` for one that leaves it.
fn inside(path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains(['\0', '\\']) || path.contains("://") {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests;
