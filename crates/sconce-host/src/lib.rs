//! The machine: what it is ([`HostProfile`]), which NVIDIA cards it has and how a container gets
//! them ([`cdi`]), and what a run uses while it goes on ([`sampler`]).
//!
//! Everything is read below a [`Roots`], so that a recorded machine can stand for the real one.
//! Nothing here creates a CUDA context: a monitor must not take memory on the card that it
//! watches.
//!
//! Unsafe code is in three files, where a driver's library is called: `facts/nvml/raw.rs`,
//! `facts/probe/cuda.rs` and `nvml/counters.rs`.

pub mod addresses;
pub mod cdi;
pub mod cgroups;
mod cpus;
pub mod disks;
pub mod fabric;
pub mod fabric_plugins;
pub mod facts;
#[cfg(test)]
mod golden;
pub mod gpu_selection;
pub mod host_profile;
pub mod nccl;
pub mod numa;
mod nvidia;
pub mod nvml;
pub mod process_owner;
mod roots;
pub mod sampler;
mod small_files;
#[cfg(test)]
mod testing;

pub mod training;
pub mod userns;

pub use cdi::{CdiError, edits_for};
pub use cgroups::{CgroupMode, Cgroups, Hierarchy};
pub use gpu_selection::{GpuSelectionError, select_gpus, visible_devices};
pub use host_profile::{HostProfile, OverlaySupport, boot_id, machine_id};
pub use nccl::NcclReader;
pub use nvidia::{CharacterDevice, GpuDevice, NvidiaDriver};
pub use nvml::{GpuMonitor, MigInstance, NvmlGpu, NvmlLibrary, NvmlMonitor};
pub use roots::Roots;
pub use sampler::{RunCgroups, SampleScope, Sampler, V1Directories};
pub use training::TrainingReader;
pub use userns::{UserNamespaces, UsernsObstacle};
