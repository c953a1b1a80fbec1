//! What can go wrong with records.

use std::io;
use std::path::PathBuf;

use sconce_schema::event::FORMAT;
use sconce_schema::{Hint, exit};

/// A record that cannot be written, read or found.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system refused.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried: `create`, `read`, …
        doing: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An id that was given is in use.
    #[error("there is already a run `{id}`")]
    Taken {
        /// The id.
        id: String,
    },
    /// Not a name that a folder can have.
    #[error("`{id}` cannot be the name of a run")]
    BadId {
        /// The id.
        id: String,
    },
    /// Written by a newer program.
    #[error("the record {} has format {found}; this Sconce reads up to {FORMAT}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format that it names.
        found: u32,
    },
    /// A file that does not begin as a record does.
    #[error("{} is not a record: {why}", path.display())]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// What its first line lacks.
        why: String,
    },
    /// No run at all.
    #[error("no run has been recorded in {}", dir.display())]
    NoRuns {
        /// The folder of runs.
        dir: PathBuf,
    },
    /// No run by that name.
    #[error("there is no run `{which}`")]
    NotFound {
        /// What was asked for.
        which: String,
        /// Ids that are spelt like it, nearest first; perhaps none.
        nearest: Vec<String>,
    },
    /// More than one run by that prefix.
    #[error("`{which}` is the beginning of {} runs", matches.len())]
    Ambiguous {
        /// What was asked for.
        which: String,
        /// The ids that begin so, newest first.
        matches: Vec<String>,
    },
}

impl Hint for RecordError {
    fn hint(&self) -> Option<String> {
        const MAX_LISTED_IDS: usize = 5;
        let names = |ids: &[String]| {
            let more = if ids.len() > MAX_LISTED_IDS {
                ", …"
            } else {
                ""
            };
            let shown = &ids[..ids.len().min(MAX_LISTED_IDS)];
            format!("`{}`{more}", shown.join("`, `"))
        };
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space; the run itself goes on without it".to_owned())
            }
            Self::Newer { .. } => Some("update Sconce; the file was left as it is".to_owned()),
            Self::NoRuns { .. } => Some("`sconce run` records one".to_owned()),
            Self::NotFound { nearest, .. } if nearest.is_empty() => {
                Some("`sconce runs` lists them; `last` is the newest".to_owned())
            }
            Self::NotFound { nearest, .. } => Some(format!("did you mean {}?", names(nearest))),
            Self::Ambiguous { matches, .. } => {
                Some(format!("give more of one of them: {}", names(matches)))
            }
            Self::Io { .. } | Self::Taken { .. } | Self::BadId { .. } | Self::NotARecord { .. } => {
                None
            }
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Io { .. } | Self::Newer { .. } => exit::STORE,
            Self::Taken { .. } => exit::RUN,
            Self::BadId { .. }
            | Self::NotARecord { .. }
            | Self::NoRuns { .. }
            | Self::NotFound { .. }
            | Self::Ambiguous { .. } => exit::BAD_INPUT,
        }
    }
}
