//! One file per verb.

pub(crate) mod audit;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod images;
pub(crate) mod init;
pub(crate) mod keygen;
pub(crate) mod lock;
pub(crate) mod memory;
mod opened;
pub(crate) mod outdated;
pub(crate) mod prune;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sbom;
pub(crate) mod shell;
mod subject;
pub(crate) mod verify;
