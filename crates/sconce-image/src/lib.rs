//! Lock and store to an assembled environment: which trees lie over each other, and its variables.
#![forbid(unsafe_code)]

pub mod about;
mod assemble;
pub mod build;
pub mod bytecode;
pub mod changes;
mod compiler;
pub mod devel;
pub mod diff;
pub mod docker;
mod environment;
pub mod execution;
#[cfg(test)]
mod golden;
pub mod layer;
pub mod layout;
pub mod local;
pub mod open;
pub mod plan;
pub mod project;
pub mod provenance;
pub mod publish;
pub mod sbom;
pub mod slim;
pub mod squashfs;
pub mod system;
pub mod unpack;

pub use assemble::{
    AssembleError, MissingPackages, Priority, assemble_environment, find_missing_packages,
    load_environment, so_far,
};
