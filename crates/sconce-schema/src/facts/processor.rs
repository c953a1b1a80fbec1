//! What a machine's CPUs are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The CPUs of a machine, as lscpu(1) tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`; on Arm the maker's number, `0x41`.
    pub vendor: Option<String>,
    /// Family, model and stepping; on x86 alone.
    pub family: Option<u32>,
    /// See [`Processor::family`].
    pub model: Option<u32>,
    /// See [`Processor::family`].
    pub stepping: Option<u32>,
    /// Logical CPUs of the machine, usable by the reader or not.
    pub online: Option<u32>,
    /// Sockets.
    pub sockets: Option<u32>,
    /// Cores of all sockets.
    pub cores: Option<u32>,
    /// NUMA nodes.
    pub numa_nodes: Option<u32>,
    /// Caches that the first CPU uses, the nearest first.
    pub caches: Vec<CpuCache>,
    /// The highest clock, MHz.
    pub max_mhz: Option<u32>,
    /// What chooses the clock: `performance`, `schedutil`.
    pub governor: Option<String>,
    /// Whether it is a virtual machine's; x86 says it.
    pub hypervisor: Option<bool>,
    /// What it can do, in the kernel's words: `avx2`, `avx512f`, `amx_bf16`, `sve`.
    pub flags: Vec<String>,
    /// What the kernel says of known faults: `meltdown` to `Not affected`.
    pub vulnerabilities: BTreeMap<String, String>,
}

/// A cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct CpuCache {
    /// 1 is the nearest.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Of this one.
    pub size: Bytes,
    /// Logical CPUs that share it.
    pub shared_by: Option<u32>,
}
