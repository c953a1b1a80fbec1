//! Why a package was not built from its sources, whoever builds.

use std::error::Error;
use std::fmt;

use sconce_schema::{Hint, exit};

/// Sources of an index that are of another version than their name says.
#[derive(Debug, thiserror::Error)]
#[error("its build made version {found}, and the index has its sources as {expected}")]
pub(crate) struct OtherVersionError {
    /// Of the wheel.
    pub(crate) found: String,
    /// Of the index.
    pub(crate) expected: String,
}

impl Hint for OtherVersionError {
    fn hint(&self) -> Option<String> {
        Some("take another version of it".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::VERIFY
    }
}

/// Why sources were not built, of whatever stage.
#[derive(Debug)]
pub struct BuildFailure(Box<dyn Hint + Send>);

impl<E: Hint + Send + 'static> From<E> for BuildFailure {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl BuildFailure {
    /// Of an error of any type.
    #[must_use]
    pub fn new(error: Box<dyn Hint + Send>) -> Self {
        Self(error)
    }

    pub(crate) fn hint(&self) -> Option<String> {
        self.0.hint()
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.0.exit_code()
    }
}

impl fmt::Display for BuildFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for BuildFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
