//! What sets a run's container up.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Sconce itself, or another program that is on the machine already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// Sconce itself.
    #[default]
    Sconce,
    /// runc, by an OCI bundle.
    Runc,
    /// crun, by an OCI bundle.
    Crun,
    /// podman, by its command line.
    Podman,
    /// docker: the run is handed over to its daemon.
    Docker,
}

impl Runtime {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Sconce,
        Self::Runc,
        Self::Crun,
        Self::Podman,
        Self::Docker,
    ];

    /// Its name, which is also that of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sconce => "sconce",
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(|one| format!("`{one}`"));
            format!("it is one of {}", names.join(", "))
        })
    }
}

/// The program that set a run's container up, as a record names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuntimeSummary {
    /// Which.
    pub name: Runtime,
    /// Its version, as it says itself.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        for one in Runtime::ALL {
            assert_eq!(one.name().parse(), Ok(one));
        }
        let why = "runsc".parse::<Runtime>().unwrap_err();
        assert!(why.contains("`runc`"), "{why}");
    }
}
