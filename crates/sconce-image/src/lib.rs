//! Lock and store to an assembled environment: which trees lie over each other, and its variables.
#![forbid(unsafe_code)]

mod assemble;
pub mod bytecode;
mod environment;
pub mod system;

pub use assemble::{AssembleError, Needs, assemble, needs, ready, so_far};
