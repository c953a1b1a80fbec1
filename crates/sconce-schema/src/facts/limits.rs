//! What limits a process on a machine.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Millicores};

/// The caller's cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct CgroupFacts {
    /// What is mounted.
    pub version: Option<CgroupVersion>,
    /// Controllers that the caller can hand to groups of its own.
    pub delegated: Vec<String>,
    /// Memory that it may have; absent where nothing limits it.
    pub memory: Option<Bytes>,
    /// CPU time that it may have; absent where nothing limits it.
    pub cpu: Option<Millicores>,
    /// Processes that it may have; absent where nothing limits it.
    pub pids: Option<u64>,
    /// Processes of it that the kernel killed for memory.
    pub oom_kills: Option<u64>,
}

/// Which cgroup file systems are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupVersion {
    /// Only v1.
    V1,
    /// Only v2.
    V2,
    /// Both.
    Hybrid,
}

/// Seccomp mode of a process (`SeccompMode` of /proc/PID/status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeccompMode {
    /// None.
    Off,
    /// read, write and exit alone.
    Strict,
    /// A filter, as container engines set it.
    Filter,
}

/// /dev/shm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Shm {
    /// Its size.
    pub size: Option<Bytes>,
    /// What is free of it.
    pub free: Option<Bytes>,
    /// Kind of its file system, `tmpfs`.
    pub kind: Option<String>,
    /// Whether the reader may write to it.
    pub writable: Option<bool>,
}

/// Resource limits (getrlimit(2)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RlimitFacts {
    /// Open files.
    pub open_files: Option<RlimitPair>,
    /// Memory that may be locked, bytes.
    pub locked_memory: Option<RlimitPair>,
    /// Processes of the user.
    pub processes: Option<RlimitPair>,
    /// Stack, bytes.
    pub stack: Option<RlimitPair>,
    /// Address space, bytes.
    pub address_space: Option<RlimitPair>,
}

/// A limit; an absent number is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RlimitPair {
    /// In force.
    pub soft: Option<u64>,
    /// What a process may raise it to.
    pub hard: Option<u64>,
}

/// Huge pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Hugepages {
    /// Reserved pages.
    pub total: Option<u64>,
    /// Of one of them.
    pub size: Option<Bytes>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub transparent: Option<String>,
}

/// A file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct FilesystemFacts {
    /// A folder on it.
    pub path: String,
    /// Its kind, `ext4`, `nfs4`.
    pub kind: Option<String>,
    /// Its size.
    pub size: Option<Bytes>,
    /// What the reader may still write.
    pub free: Option<Bytes>,
    /// Files that can still be made.
    pub free_files: Option<u64>,
}

/// IOMMU and PCI access control, which decide whether cards reach each other directly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Iommu {
    /// Whether the kernel uses one.
    pub active: Option<bool>,
    /// The kernel's parameters about it, `intel_iommu=on`, `iommu=pt`.
    pub parameters: Vec<String>,
    /// PCI bridges that redirect peer-to-peer requests (ACS); absent where only root may look.
    pub acs_bridges: Option<Vec<String>>,
}

/// An InfiniBand or RoCE device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InfiniBand {
    /// `mlx5_0`.
    pub name: String,
    /// State of its first port, `ACTIVE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
}
