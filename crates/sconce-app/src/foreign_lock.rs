//! The lock of another tool that a spec refers to.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use sconce_base::input::read_regular;
use sconce_formats::tags::CpuArchitecture;
use sconce_import::{
    HashProblem, ImportError, ImportFormat, LockSelection, NoteKind, PinnedLock,
    RequirementOptions, UnusableHash,
};
use sconce_schema::spec::Python;
use sconce_schema::{Bytes, Hint, Progress, exit};

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::input;

/// Why what a spec calls a lock is none.
#[derive(Debug, thiserror::Error)]
pub enum ForeignLockError {
    /// Not named as any tool names its lock.
    #[error("`[python] lock` cannot be {}: no tool whose locks are read writes a file of that name", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// A `--hash` that pip does not take either.
    #[error("{place}: `--hash={digest}` is no digest that is compared")]
    Hash {
        /// `requirements.txt:3`.
        place: String,
        /// As it is written.
        digest: String,
    },
    /// It cannot be read.
    #[error("{}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ImportError,
    },
}

impl Hint for ForeignLockError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } => {
                let formats = sconce_import::lock_file_names().collect::<Vec<_>>();
                Some(format!("these are read: {}", formats.join(", ")))
            }
            Self::Hash { .. } => {
                let text =
                    "write it as `sha256:` and 64 hexadecimal digits: `pip hash FILE` prints it";
                Some(text.to_owned())
            }
            Self::Import { source, .. } => source.hint(),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Unknown { .. } | Self::Hash { .. } => exit::BAD_INPUT,
            Self::Import { source, .. } => source.exit_code(),
        }
    }
}

/// The texts that decide what the lock `name` pins: its own, and for a lock that does not tell what is
/// wanted, that of the project.
pub(crate) fn read_texts(folder: &Path, name: &str) -> Result<Vec<String>> {
    let path = folder.join(name);
    let format = lock_format(&path)?;
    let mut texts = vec![read_text(format, &path)?];
    if sconce_import::reads_project(format) {
        texts.extend(read_beside(&path, "pyproject.toml"));
    }
    Ok(texts)
}

/// What the lock that the spec names pins, on a machine of this architecture.
pub(crate) fn read_pinned(
    folder: &Path,
    python: &Python,
    machine: CpuArchitecture,
    progress: &dyn Progress,
) -> Result<Option<PinnedLock>> {
    let Some(name) = &python.lock else {
        return Ok(None);
    };
    let path = folder.join(name);
    let format = lock_format(&path)?;
    let text = read_text(format, &path)?;
    let selection = LockSelection {
        extras: &python.extras,
        groups: &python.groups,
        machine,
    };
    let beside = |name: &str| read_beside(&folder.join("sconce.toml"), name);
    let lock = sconce_import::read_pinned_lock(format, name, &text, &beside, &selection);
    let lock = lock.map_err(|source| ForeignLockError::Import { path, source })?;
    for group in sconce_import::group_by_reason(&lock.notes) {
        if group.outcome == NoteKind::LeftOut {
            let names: Vec<&str> = group.things.iter().map(|(_, what)| *what).collect();
            progress.note(&format!(
                "{name}: left out: {}: {}",
                list(&names),
                group.why
            ));
        }
    }
    Ok(Some(lock))
}

/// What the requirements file that the spec refers to says beside requirements.
pub(crate) fn read_options(
    folder: &Path,
    python: &Python,
    progress: &dyn Progress,
) -> Result<RequirementOptions> {
    let Some(name) = &python.requirements else {
        return Ok(RequirementOptions::default());
    };
    // `RequirementLines` says what is wrong with a file that cannot be read.
    let read = |name: &str| Some(read_requirements(&folder.join(name)).ok()?.text);
    let text = read(name).unwrap_or_default();
    let options = sconce_import::read_requirement_options(name, &text, &read);
    let places = |problem: HashProblem| {
        let all = options.unusable_hashes.iter();
        all.filter(move |hash| hash.problem == problem)
    };
    if let Some(UnusableHash { place, digest, .. }) = places(HashProblem::Refused).next() {
        let (place, digest) = (place.clone(), digest.clone());
        return Err(ForeignLockError::Hash { place, digest }.into());
    }
    let others: Vec<&str> = places(HashProblem::NotCompared)
        .map(|hash| hash.place.as_str())
        .collect();
    if !others.is_empty() {
        progress.note(&format!(
            "{}: no SHA-256 is beside it, and other digests are not compared",
            list(&others)
        ));
    }
    Ok(options)
}

/// A requirements file as a lock reads it.
pub(crate) struct RequirementsText {
    pub(crate) text: String,
    /// It is UTF-8, as all that reads it after Sconce expects it.
    pub(crate) is_utf8: bool,
}

/// Reads a requirements file, which may be UTF-16.
pub(crate) fn read_requirements(path: &Path) -> Result<RequirementsText> {
    let bytes = input::read_bytes(path).map_err(AppError::unreadable(path))?;
    let text = sconce_import::decode_requirements(&bytes).map_err(|source| {
        let path = path.to_owned();
        ForeignLockError::Import { path, source }
    })?;
    Ok(RequirementsText {
        is_utf8: matches!(text, Cow::Borrowed(_)),
        text: text.into_owned(),
    })
}

/// A few names, and how many more there are.
pub(crate) fn list(names: &[&str]) -> String {
    match names {
        [first, second, third, rest @ ..] if rest.len() > 1 => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}

fn lock_format(path: &Path) -> Result<ImportFormat, ForeignLockError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let format = name.and_then(ImportFormat::from_file_name);
    let format = format.filter(|format| sconce_import::is_lock_format(*format));
    format.ok_or_else(|| ForeignLockError::Unknown {
        path: path.to_owned(),
    })
}

fn read_text(format: ImportFormat, path: &Path) -> Result<String> {
    let limit = Bytes(format.limit_bytes());
    let bytes = read_regular(path, limit).map_err(|source| AppError::File {
        action: FileAction::Read,
        path: path.to_owned(),
        source,
    })?;
    let text =
        sconce_import::decode_text(format, &bytes).map_err(|source| ForeignLockError::Import {
            path: path.to_owned(),
            source,
        })?;
    Ok(text.into_owned())
}

/// A file in the folder of `path`, where it is there and text.
fn read_beside(path: &Path, name: &str) -> Option<String> {
    let limit = Bytes(ImportFormat::Pyproject.limit_bytes());
    let bytes = read_regular(&path.with_file_name(name), limit).ok()?;
    String::from_utf8(bytes).ok()
}
