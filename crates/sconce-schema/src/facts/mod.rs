//! A machine as written to a file: what [`crate::Finding`]s are judged from.
//!
//! Facts are read on the machine itself, taken from a table of known cards, or read from a file
//! that was saved elsewhere. What could not be read is absent; an empty list was read and is empty.

mod gpu;
mod limits;
mod processor;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use gpu::{
    CdiFileFacts, ContainerToolkit, CudaInit, DeviceNodeFacts, Driver, DriverFlavour,
    DriverLibrary, FabricState, FeatureState, GpuFacts, Mig, MpsFacts, NvLink, Nvml, PciGpu,
    ThrottleReasons, Xid,
};
pub use limits::{
    CgroupFacts, CgroupVersion, FilesystemFacts, Hugepages, InfiniBand, Iommu, RlimitFacts,
    RlimitPair, SeccompMode, Shm,
};
pub use processor::{CpuCache, Processor};

use crate::units::Bytes;

/// The newest format that this program reads and writes.
pub const FORMAT: u32 = 1;

/// Facts of one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct HostFacts {
    /// [`FORMAT`] when it was written.
    pub version: u32,
    /// Where the facts come from, for people: the machine's name, a file's, or `RTX 3070`.
    pub name: Option<String>,
    /// `PRETTY_NAME` of os-release(5).
    pub system: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The kernel's name of the processor, `x86_64`, `aarch64`.
    pub architecture: Option<String>,
    /// Version of the machine's own C library, `2.36`.
    pub glibc: Option<String>,
    /// The C++ library's newest symbol version, `3.4.30` of `GLIBCXX_3.4.30`.
    pub glibcxx: Option<String>,
    /// What it runs in, where it is no machine of its own: `docker`, `podman`, `kubernetes`, `lxc`,
    /// `wsl`.
    pub container: Option<String>,
    /// Whether the reader was root.
    pub root: Option<bool>,
    /// Logical CPUs that the reader may use.
    pub cpus: Option<u32>,
    /// The CPU's name.
    pub cpu_model: Option<String>,
    /// What else is known of its CPUs.
    pub processor: Option<Processor>,
    /// Main memory.
    pub memory: Option<Bytes>,
    /// What can be had without swapping.
    pub memory_available: Option<Bytes>,
    /// Files of the system's own cuDNN, which the loader finds where no package brings one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_cudnn: Vec<String>,
    /// Drivers of other makers' accelerators that are loaded, with their versions where they say
    /// one: `amdgpu` with ROCm's node, `xe`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub other_drivers: BTreeMap<String, String>,
    /// NVIDIA devices on the PCI bus, whether a driver has them or not.
    pub pci_cards: Option<Vec<PciGpu>>,
    /// The loaded NVIDIA driver; absent where there is none.
    pub driver: Option<Driver>,
    /// The driver's libraries on a machine where no driver is loaded: it is installed, or an image
    /// brought `cuda-compat`, and the kernel module is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unloaded_libraries: Vec<DriverLibrary>,
    /// Cards, in the driver's order. Empty where there are none.
    pub cards: Vec<GpuFacts>,
    /// NVIDIA's device nodes.
    pub nodes: Option<Vec<DeviceNodeFacts>>,
    /// What came of loading NVML.
    pub nvml: Option<Nvml>,
    /// What came of `cuInit` in a process of its own.
    pub cuda_init: Option<CudaInit>,
    /// The caller's cgroup.
    pub cgroup: Option<CgroupFacts>,
    /// Why user namespaces cannot be used; an empty text where they can.
    pub user_namespaces_barrier: Option<String>,
    /// The seccomp mode of this process.
    pub seccomp: Option<SeccompMode>,
    /// /dev/shm.
    pub shm: Option<Shm>,
    /// Resource limits of this process.
    pub limits: Option<RlimitFacts>,
    /// Huge pages.
    pub hugepages: Option<Hugepages>,
    /// The file system of the store.
    pub store: Option<FilesystemFacts>,
    /// The NVIDIA container toolkit; absent where it is not installed.
    pub toolkit: Option<ContainerToolkit>,
    /// CUDA's multi-process service.
    pub mps: Option<MpsFacts>,
    /// IOMMU and PCI access control.
    pub iommu: Option<Iommu>,
    /// InfiniBand and RoCE devices.
    pub infiniband: Option<Vec<InfiniBand>>,
    /// Names of the network interfaces that are up, without loopback.
    pub interfaces: Option<Vec<String>>,
    /// NVIDIA's faults in the kernel log; absent where the log cannot be read.
    pub xids: Option<Vec<Xid>>,
    /// State of the fabric manager's service, `active`, and of the persistence daemon, by unit.
    pub services: BTreeMap<String, String>,
    /// Variables that change what CUDA, PyTorch, NCCL or the loader do. Secrets never.
    pub variables: BTreeMap<String, String>,
}

/// Why a text is not facts that this program can use.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Written by a newer program.
    #[error("the facts have format {found}; this Sconce reads up to {FORMAT}")]
    Newer {
        /// The format that the file names.
        found: u32,
    },
}

impl HostFacts {
    /// Refuses what a newer program wrote.
    ///
    /// # Errors
    /// [`FactsError::Newer`].
    pub fn check_format(&self) -> Result<(), FactsError> {
        match self.version > FORMAT {
            true => Err(FactsError::Newer {
                found: self.version,
            }),
            false => Ok(()),
        }
    }
}
