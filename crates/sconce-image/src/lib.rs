//! Lock and store to an assembled environment: which trees lie over each other, and its variables.
#![forbid(unsafe_code)]

mod assemble;
pub mod build;
pub mod bytecode;
pub mod changes;
pub mod devel;
pub mod diff;
pub mod docker;
mod environment;
pub mod layer;
pub mod layout;
pub mod local;
pub mod oci;
pub mod plan;
pub mod project;
pub mod provenance;
pub mod sbom;
pub mod sign;
pub mod slim;
pub mod system;

pub use assemble::{AssembleError, Needs, assemble, needs, ready, so_far};
