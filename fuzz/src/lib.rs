//! Every parser that reads bytes from outside, as a function of bytes with its seeds.
//!
//! A target takes any bytes. It must not panic, overflow, hang or eat memory, and where there is
//! more that must hold (a round trip, an order, no path that leaves its folder) it says so with
//! an assertion.
//!
//! The program `sconce-fuzz` runs them under libFuzzer (`scripts/fuzz`), the test `replay` runs
//! each of them on its seeds.
#![forbid(unsafe_code)]

mod adopt;
mod binary;
mod bytes;
mod deb;
mod debian;
mod explain;
mod fetch;
mod host;
mod image;
mod layer;
mod memory;
mod osv;
mod python;
mod record;
mod registry;
mod schema;
mod scratch;
mod settings;
mod sign;
mod solve;
mod standalone;
mod submit;
mod targets;
#[path = "../../crates/sconce-host/src/testing.rs"]
mod testing;
mod wheel;
mod zip;

pub use scratch::remove_scratch;
pub use targets::{TARGETS, Target};
