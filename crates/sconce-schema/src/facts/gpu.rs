//! What concerns NVIDIA's driver and cards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, ComputeCapability, CudaVersion, DriverVersion};

/// A loaded driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Driver {
    /// Version of the kernel module.
    pub version: Option<DriverVersion>,
    /// Which of NVIDIA's kernel modules it is.
    pub flavour: Option<DriverFlavour>,
    /// NVIDIA's kernel modules that are loaded: `nvidia`, `nvidia_uvm`, ….
    pub modules: Option<Vec<String>>,
    /// The driver's libraries on this machine, each file once: `libcuda.so.1`,
    /// `libnvidia-ml.so.1`.
    pub libraries: Vec<DriverLibrary>,
    /// The newest CUDA that it says it serves.
    pub cuda: Option<CudaVersion>,
}

/// Which kernel module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverFlavour {
    /// NVIDIA's open kernel module.
    Open,
    /// NVIDIA's closed kernel module.
    Closed,
    /// The kernel's own driver, which has no CUDA.
    Nouveau,
    /// Windows' driver, behind /dev/dxg.
    Wsl,
}

/// A library of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DriverLibrary {
    /// The name that programs ask for, `libcuda.so.1`.
    pub name: String,
    /// The file, links resolved.
    pub path: String,
    /// The version in the file's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<DriverVersion>,
    /// Whether the loader takes this one of several.
    #[serde(default)]
    pub wins: bool,
    /// It is a forward-compatibility library (`cuda-compat`).
    #[serde(default)]
    pub compat: bool,
}

/// An NVIDIA device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PciGpu {
    /// `0000:01:00.0`.
    pub address: String,
    /// PCI device id, `0x2684`.
    pub device: String,
    /// The kernel driver that has it, `nvidia`, `nouveau`, `vfio-pci`; absent where none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// PCI Express generation times lanes now and at most, where the bus tells: `16.0 GT/s x8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_now: Option<String>,
    /// The most that card and slot can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_most: Option<String>,
}

/// A card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GpuFacts {
    /// The driver's number.
    pub index: u32,
    /// Product name.
    pub name: Option<String>,
    /// `GPU-…`.
    pub uuid: Option<String>,
    /// PCI address.
    pub bus_id: Option<String>,
    /// Minor number of its node.
    pub minor: Option<u32>,
    /// Compute capability.
    pub capability: Option<ComputeCapability>,
    /// All of its memory.
    pub memory: Option<Bytes>,
    /// What of it is used.
    pub memory_used: Option<Bytes>,
    /// What of it the listed processes use.
    pub memory_by_pid: Option<BTreeMap<u32, Bytes>>,
    /// Multi-instance mode.
    pub mig: Option<Mig>,
    /// ECC, where the card has it.
    pub ecc: Option<FeatureState>,
    /// ECC errors that could not be mended since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Rows of its memory that were replaced after an uncorrectable error.
    pub remapped_rows: Option<u32>,
    /// A replacement that waits for a reset.
    pub remap_pending: Option<bool>,
    /// A row could not be replaced.
    pub remap_failed: Option<bool>,
    /// Power limit in force, milliwatts.
    pub power_limit_mw: Option<u32>,
    /// Default power limit, milliwatts.
    pub power_limit_default_mw: Option<u32>,
    /// Degrees Celsius.
    pub temperature_c: Option<u32>,
    /// What holds its clocks down now.
    pub throttle: Option<ThrottleReasons>,
    /// Persistence mode.
    pub persistence: Option<FeatureState>,
    /// Compute mode: `default`, `exclusive-process`, `prohibited`.
    pub compute_mode: Option<String>,
    /// NVLink, one entry a link that is up.
    pub nvlinks: Option<Vec<NvLink>>,
    /// Registration with the NVLink fabric, on machines that have one.
    pub fabric: Option<FabricState>,
    /// Why its registration with the fabric failed, in NVML's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_error: Option<String>,
    /// Lost: it fell off the bus, or NVML says that it must be reset.
    pub lost: Option<String>,
    /// The product is for data centres, so that forward-compatibility libraries work on it.
    pub data_centre: Option<bool>,
}

/// Something that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureState {
    /// On.
    On,
    /// Off.
    Off,
}

/// Multi-instance mode of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Mig {
    /// Whether it is on.
    pub enabled: bool,
    /// UUIDs of its instances, `MIG-…`.
    pub instances: Vec<String>,
}

/// What holds a card's clocks down, NVML's names in kebab-case; empty: nothing.
pub type ThrottleReasons = Vec<String>;

/// One NVLink that is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NvLink {
    /// Its number on the card.
    pub link: u32,
    /// PCI address of what is at its other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A card's registration with the fabric manager (`nvmlGpuFabricState_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricState {
    /// The card has no fabric.
    NotSupported,
    /// Not begun.
    NotStarted,
    /// Under way.
    InProgress,
    /// Done.
    Completed,
}

/// A device node below /dev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceNodeFacts {
    /// `/dev/nvidia0`.
    pub path: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Whether the reader may open it, by its permissions.
    pub usable: bool,
    /// What opening it for reading and writing said, where it was tried and failed (`EPERM` although
    /// the permissions allow it is a device cgroup).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_error: Option<String>,
    /// Whether /dev/char/MAJOR:MINOR leads to it. systemd finds a node by that when it sets up a
    /// container's devices again; where systemd does not run it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub char_link: Option<bool>,
}

/// What came of loading NVML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Nvml {
    /// Why it did not start, in NVML's words; absent where it did.
    pub error: Option<String>,
    /// Version of the library.
    pub version: Option<String>,
}

/// What came of `cuInit(0)` in a child process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct CudaInit {
    /// The CUresult, 0 for success; absent where the library could not be loaded or the child ended
    /// otherwise.
    pub result: Option<i32>,
    /// Why there is no result: the loader's words, a signal, or that it took too long.
    pub error: Option<String>,
    /// The newest CUDA that the driver serves.
    pub driver_cuda: Option<CudaVersion>,
    /// Devices that it shows.
    pub devices: Option<u32>,
}

/// The NVIDIA container toolkit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ContainerToolkit {
    /// Version of `nvidia-ctk`.
    pub version: Option<String>,
    /// Runtimes that Docker's daemon.json names.
    pub docker_runtimes: Option<Vec<String>>,
    /// Device descriptions for container engines.
    pub cdi: Vec<CdiFileFacts>,
}

/// A CDI file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct CdiFileFacts {
    /// Where it is.
    pub path: String,
    /// `nvidia.com/gpu`.
    pub kind: Option<String>,
    /// Driver version in the names of the libraries that it mounts.
    pub driver: Option<DriverVersion>,
    /// Files and nodes that it names and that are not there.
    pub missing: Vec<String>,
    /// What else of it engines refuse or is not so here, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<String>,
    /// Why it cannot be read.
    pub error: Option<String>,
}

/// CUDA's multi-process service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MpsFacts {
    /// Its control daemon runs.
    pub running: bool,
    /// The folder of its pipes, where that exists.
    pub pipe_folder: Option<String>,
}

/// A fault that the driver reported in the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Xid {
    /// NVIDIA's number.
    pub code: u32,
    /// PCI address of the card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
    /// Seconds since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_boot_s: Option<u64>,
    /// The line.
    pub text: String,
}
