//! NVML, loaded beside everything else that comes before a run.
//!
//! The kernel module's files tell which cards there are, but not their memory, and on some machines
//! neither their names nor the driver's own order. Starting NVML takes up to seconds where nothing
//! keeps the cards awake; a program that uses the cards would wait for the same.

use std::thread::JoinHandle;

use sconce_host::{GpuMonitor, HostProfile, NvmlMonitor};
use sconce_schema::spec;

/// NVML on its way; nothing where no card is wanted or there is none.
pub(super) struct NvmlLoad(Option<JoinHandle<Option<NvmlMonitor>>>);

impl NvmlLoad {
    pub(super) fn start_if_needed(host: &HostProfile, wanted: &spec::GpuRequest) -> Self {
        let cards = host.nvidia.as_ref().is_some_and(|n| !n.cards.is_empty());
        let load = cards && *wanted != spec::GpuRequest::Count(0);
        Self(load.then(|| std::thread::spawn(NvmlMonitor::load)))
    }

    /// Waits for it, fills the facts with what it tells, and hands it over for the readings.
    pub(super) fn finish_loading(self, host: &mut HostProfile) -> Option<Box<dyn GpuMonitor>> {
        let gpus = self.0?.join().ok()??;
        if let Some(nvidia) = &mut host.nvidia {
            nvidia.fill_from_nvml(&gpus);
        }
        Some(Box::new(gpus))
    }
}
