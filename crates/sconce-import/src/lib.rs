//! What people have already, as a spec: requirements.txt, pyproject.toml, uv.lock, conda's
//! environment.yml, a Dockerfile. Text in, a [`Spec`] out, with a [`ImportNote`] for all that was decided
//! and all that has no counterpart.
#![forbid(unsafe_code)]

mod conda;
mod dockerfile;
mod draft;
#[cfg(test)]
mod golden;
mod marker;
mod note;
mod poetry;
mod pyproject;
mod release;
mod requirement;
mod requirements;
mod specifier;
mod uvlock;
mod yaml;

use sconce_schema::{Hint, Spec, exit};

pub use note::{ImportNote, NoteKind, group_by_reason};

/// A spec, and what to know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedSpec {
    /// What was understood.
    pub spec: Spec,
    /// What was decided or left out, in the order of the source.
    pub notes: Vec<ImportNote>,
}

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// pip's requirements file.
    Requirements,
    /// `pyproject.toml`, with `[project]` or with Poetry's table.
    Pyproject,
    /// `uv.lock`.
    UvLock,
    /// conda's `environment.yml`.
    Conda,
    /// A Dockerfile.
    Dockerfile,
}

impl ImportFormat {
    /// By the file's name, as people name such files.
    #[must_use]
    pub fn from_file_name(file_name: &str) -> Option<Self> {
        let name = file_name.to_ascii_lowercase();
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        let begins = |begins: &[&str]| begins.iter().any(|begin| name.starts_with(begin));
        if name == "uv.lock" {
            Some(Self::UvLock)
        } else if name == "pyproject.toml" {
            Some(Self::Pyproject)
        } else if begins(&["dockerfile", "containerfile"])
            || ends(&[".dockerfile", ".containerfile"])
        {
            Some(Self::Dockerfile)
        } else if ends(&[".yml", ".yaml"]) {
            Some(Self::Conda)
        } else if ends(&[".txt", ".in"]) {
            Some(Self::Requirements)
        } else {
            None
        }
    }

    /// The largest file that is read, in bytes. Far above what people and tools write.
    #[must_use]
    pub fn limit_bytes(self) -> u64 {
        match self {
            Self::UvLock => 32 << 20,
            _ => 1 << 20,
        }
    }
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
    /// A uv.lock of another format.
    #[error("this is version {found} of uv.lock; version 1 is read")]
    LockVersion {
        /// What it says.
        found: i64,
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
            Self::TooLarge { .. } | Self::Toml { .. } | Self::Yaml { .. } => return None,
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

/// The text of a file, without a byte order mark.
///
/// # Errors
/// [`ImportError::TooLarge`] and [`ImportError::NotText`].
pub fn decode_text(kind: ImportFormat, bytes: &[u8]) -> Result<&str, ImportError> {
    let limit_bytes = kind.limit_bytes();
    if bytes.len() as u64 > limit_bytes {
        return Err(ImportError::TooLarge { limit_bytes });
    }
    let line = |at: usize| bytes[..at].iter().filter(|&&b| b == b'\n').count() + 1;
    let text = std::str::from_utf8(bytes).map_err(|error| ImportError::NotText {
        line: line(error.valid_up_to()),
    })?;
    if let Some(at) = text.find('\0') {
        return Err(ImportError::NotText { line: line(at) });
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
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
    match kind {
        ImportFormat::Requirements => Ok(requirements::convert(path, text, beside)),
        ImportFormat::Pyproject => pyproject::convert(path, text),
        ImportFormat::UvLock => uvlock::convert(text),
        ImportFormat::Conda => conda::convert(text, beside),
        ImportFormat::Dockerfile => dockerfile::convert(text, beside),
    }
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
