//! The machine: what it is ([`Machine`]), which NVIDIA cards it has and how a container gets
//! them ([`cdi`]), and what a run uses while it goes on ([`sampler`]).
//!
//! Everything is read below a [`Roots`], so that a recorded machine can stand for the real one.
//! Nothing here creates a CUDA context: a monitor must not take memory on the card that it
//! watches.
//!
//! Unsafe code is in two files, where a driver's library is called: `facts/nvml/raw.rs` and
//! `facts/probe/cuda.rs`.

pub mod cards;
pub mod cdi;
pub mod cgroups;
mod cpus;
pub mod facts;
pub mod machine;
mod nvidia;
pub mod nvml;
mod read;
mod roots;
pub mod sampler;
#[cfg(test)]
mod testing;
pub mod userns;

pub use cards::{CardsError, select, visible_devices};
pub use cdi::{CdiError, cdi_json, edits_for, write_cdi};
pub use cgroups::{CgroupMode, Cgroups, Hierarchy};
pub use machine::{Machine, Overlay, boot_id};
pub use nvidia::{Card, Node, Nvidia};
pub use nvml::{Gpus, NvmlCard, NvmlFrom, NvmlGpus};
pub use roots::Roots;
pub use sampler::{RunCgroups, SampleTarget, Sampler, V1Folders};
pub use userns::{UserNamespaces, UsernsBarrier};
