//! What holds a job's processes on nodes where Sconce cannot make a container.

use serde::{Deserialize, Serialize};

/// What is around a job's processes on its nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobContainment {
    /// A container of Sconce's.
    #[default]
    Sconce,
    /// One of the site's apptainer, which Sconce starts on each node.
    Apptainer,
    /// One that Slurm starts by the site's oci.conf (`srun --container`), with Sconce in it.
    Slurm,
    /// One of enroot's, which Slurm's plugin pyxis starts (`srun --container-image`), with Sconce in it.
    Pyxis,
    /// Nothing: the lock's own Python and packages, beside the node's files.
    None,
}

impl JobContainment {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Sconce,
        Self::Apptainer,
        Self::Slurm,
        Self::Pyxis,
        Self::None,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sconce => "sconce",
            Self::Apptainer => "apptainer",
            Self::Slurm => "slurm",
            Self::Pyxis => "pyxis",
            Self::None => "none",
        }
    }

    /// Whether Sconce makes the container itself.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Sconce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_written() {
        for one in JobContainment::ALL {
            let written = serde_json::to_value(one).unwrap();
            assert_eq!(written, one.name());
        }
    }
}
