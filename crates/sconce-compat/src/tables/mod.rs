//! What is known of cards, drivers, CUDA and PyTorch beside what can be read from files.
//!
//! The tables are text files beside this one; each row names its source and each source says how
//! sure it is. They are compiled in and read once. What a library says of itself always goes before
//! them.

mod drivers;
mod gpus;
mod hardware;
mod machine;
mod nccl;
mod rows;
mod torch;
mod xids;

use std::str::FromStr;

use sconce_schema::finding::Certainty;
use serde::Serialize;

pub use drivers::{
    ForwardCompatibility, GpuArchitecture, Toolkit, driver_cuda, forward_compatibility,
    gpu_architecture, ptx_cuda, toolkit_driver,
};
pub use gpus::{
    GpuMatch, GpuProduct, ProductClass, UnknownGpu, gpu_products, known_card, resolve_gpu_name,
};
pub use hardware::{
    ContextMemory, FormFactor, Hardware, HardwareError, HardwareMatch, all_hardware, context_range,
    find_hardware, hardware_for_gpu,
};
pub use machine::{MachineError, host_from_gpu_name, hosts_from_gpu_names};
pub use nccl::communicator_range;
pub use torch::{
    BuildGap, TorchBuild, TorchBuildName, TorchRelease, Triton, find_torch_release,
    find_triton_release, torch_releases,
};
pub use xids::{XidEntry, XidResolution, find_xid, unknown_xid, xid_entries};

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableSource {
    /// How good it is.
    pub sure: SourceQuality,
    /// Its name, for people.
    pub what: &'static str,
}

/// How good a source is, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceQuality {
    /// Read from the files themselves.
    Measured,
    /// Told by who makes it.
    Published,
    /// Told by others.
    Reported,
    /// It follows from something else, or is remembered and was not looked up.
    Lead,
}

impl SourceQuality {
    /// How sure a finding can be that stands on it.
    #[must_use]
    pub fn certainty(self) -> Certainty {
        match self {
            Self::Measured | Self::Published => Certainty::Certain,
            Self::Reported | Self::Lead => Certainty::Likely,
        }
    }
}

impl FromStr for SourceQuality {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "measured" => Self::Measured,
            "published" => Self::Published,
            "reported" => Self::Reported,
            "lead" => Self::Lead,
            _ => return Err(()),
        })
    }
}

/// A row that cannot be read. The tables are compiled in and a test reads them all, so nobody meets
/// it but who changes them.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the table cannot be read: {text}")]
struct TableError {
    line: usize,
    text: String,
}
