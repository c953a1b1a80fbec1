//! Debian packages: from the signed indexes of an archive to the closure of what is needed.

mod archive;
mod base;
pub mod contents;
mod control;
pub mod index;
pub mod openpgp;
pub mod policy;
pub mod pythons;
pub mod relation;
pub mod release;
pub mod solve;
pub mod sources;
pub mod version;

pub(crate) use archive::ArchiveReader;
pub use archive::{ArchiveError, Suite};
pub use base::{BasePackage, base_packages};
