//! Where packages come from, and whether a lock is made of them.

use std::path::PathBuf;

use sconce_schema::{Hint, exit};

/// Where packages come from, instead of the spec's, this user's and this machine's own settings.
#[derive(Debug, Clone, Default)]
pub struct PackageSources {
    /// The Python package index.
    pub index: Option<String>,
    /// Python package indexes beside it.
    pub extra_index: Vec<String>,
    /// The Debian mirror.
    pub mirror: Option<String>,
    /// Whether a lock may be made from them.
    pub lock_use: LockUse,
}

/// What a verb that needs a lock does where there is none, or one of an older spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockUse {
    /// It makes one.
    #[default]
    Update,
    /// It fails; and where a wheel is built from its sources, that has to be the one that was locked.
    Locked,
    /// It takes what is there, whatever the spec says by now.
    Frozen,
}

/// Why a lock is not used, where none may be made.
#[derive(Debug, thiserror::Error)]
pub enum LockUseError {
    /// There is none.
    #[error("there is no lock at {}, and `{flag}` makes none", path.display())]
    Missing {
        /// Where it would be.
        path: PathBuf,
        /// The flag.
        flag: &'static str,
    },
    /// It is that of another spec.
    #[error("the spec has changed since {} was made, and `--locked` makes no other", path.display())]
    Stale {
        /// The lock.
        path: PathBuf,
    },
}

impl Hint for LockUseError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => "make it with `sconce lock`, and commit it",
            Self::Stale { .. } => "make it anew with `sconce lock`; `--frozen` takes it as it is",
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}
