//! Lock and store to an assembled environment: which trees lie over each other, and its variables.
#![forbid(unsafe_code)]

mod assemble;
pub mod build;
pub mod bytecode;
mod compiler;
pub mod devel;
pub mod diff;
pub mod docker_archive;
pub mod editable_wheel;
pub mod embedded_documents;
mod environment;
pub mod execution;
mod fetch;
pub mod flat_tree;
#[cfg(test)]
mod golden;
pub mod layer;
pub mod layer_plan;
pub mod layout;
pub mod local_image;
pub mod open;
pub mod package_diff;
mod prefetch;
mod priority;
pub mod project;
pub mod provenance;
pub mod publish;
pub mod sbom;
pub mod slim;
pub mod squashfs;
mod standalone;
pub mod system;
pub mod unpack;

pub use assemble::{
    AssembleError, MissingPackages, assemble_environment, find_missing_packages, load_environment,
    so_far,
};
pub use prefetch::fetch_packages;
pub use priority::Priority;
pub use standalone::StandaloneError;
