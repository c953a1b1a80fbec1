//! NVML, NVIDIA's management library, loaded at run time. It makes no CUDA context, so that
//! watching takes no memory of a card.

mod counters;
mod gpu_watch;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::roots::Roots;
use sconce_schema::Bytes;
use sconce_schema::event::GpuSample;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use gpu_watch::GpuWatchState;

/// A card as NVML names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmlGpu {
    /// NVML's index.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Product name.
    pub name: Option<String>,
    /// PCI address, `00000000:01:00.0`.
    pub bus_id: Option<String>,
    /// Minor number of its device node.
    pub minor: Option<u32>,
    /// All of its memory.
    pub memory: Option<Bytes>,
}

/// An instance of a divided card, which is a device of its own (MIG).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigInstance {
    /// NVML's index of the card.
    pub card: u32,
    /// Its number on the card. Numbers have holes.
    pub index: u32,
    /// `MIG-…`.
    pub uuid: String,
    /// The part of the card that it has.
    pub gpu_instance: u32,
    /// The part of that part.
    pub compute_instance: u32,
}

/// The cards of a machine, as far as they can be watched.
pub trait GpuMonitor: Send {
    /// The driver's version.
    fn driver(&self) -> Option<String>;
    /// Every card that the caller may see.
    fn cards(&self) -> Vec<NvmlGpu>;
    /// One reading of the card `index`, with the memory of every process on it, by the host's
    /// process ids. What the card or its driver does not tell is absent; a lost card has only its
    /// index.
    fn sample(&self, index: u32) -> GpuSample;

    /// One reading of a series: as [`Self::sample`], and what is slow to read and changes slowly may be absent where
    /// it was read a moment ago. A series ends with a whole reading.
    fn sample_in_series(&self, index: u32) -> GpuSample {
        self.sample(index)
    }
}

/// The real library.
pub struct NvmlMonitor {
    /// Kept to the end of the program, as the driver itself keeps it: what waits for events borrows it.
    nvml: &'static Nvml,
    watch: RefCell<GpuWatchState>,
}

/// NVML's file, as the driver names it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Which NVML is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NvmlLibrary {
    /// This machine's `libnvidia-ml.so.1`: as the loader finds it, then where the driver's other
    /// libraries are looked for too, because some machines keep them in a folder that the loader
    /// does not know.
    #[default]
    Machine,
    /// This file. Only a caller can name it, no variable does: it is how a test plays a machine.
    File(PathBuf),
}

impl NvmlMonitor {
    /// Loads this machine's `libnvidia-ml.so.1` and starts it. `None` where there is no library
    /// or no driver: that is a machine without cards, not an error. Without the library this takes
    /// microseconds; with it, and with no process that keeps the cards awake, up to seconds, so
    /// it belongs off the path on which a command starts.
    #[must_use]
    pub fn load() -> Option<Self> {
        Self::open(&NvmlLibrary::Machine)
            .inspect_err(|error| tracing::debug!(%error, "NVML does not start"))
            .ok()
    }

    /// Loads NVML and starts it.
    ///
    /// # Errors
    /// When no library loads, or the one that does cannot start; of several the first that could
    /// be loaded at all is told.
    pub fn open(from: &NvmlLibrary) -> Result<Self, NvmlError> {
        let start = |path: &Path| Nvml::builder().lib_path(path.as_os_str()).init();
        let first = match from {
            NvmlLibrary::File(path) => return start(path).map(Self::of),
            NvmlLibrary::Machine => start(Path::new(LIBRARY)),
        };
        let mut told = match first {
            Ok(nvml) => return Ok(Self::of(nvml)),
            Err(error) => error,
        };
        let folders = crate::cdi::library_folders(&Roots::default());
        for path in folders.iter().map(|folder| folder.join(LIBRARY)) {
            match start(&path) {
                Ok(nvml) => return Ok(Self::of(nvml)),
                Err(error) if matches!(told, NvmlError::LibloadingError(_)) => told = error,
                Err(_) => {}
            }
        }
        Err(told)
    }

    fn of(nvml: Nvml) -> Self {
        Self {
            nvml: Box::leak(Box::new(nvml)),
            watch: RefCell::default(),
        }
    }

    /// The instances of all divided cards that tell where they belong.
    #[must_use]
    pub fn mig_instances(&self) -> Vec<MigInstance> {
        let count = self.nvml.device_count().unwrap_or(0);
        let cards =
            (0..count).filter_map(|card| Some((card, self.nvml.device_by_index(card).ok()?)));
        cards
            .flat_map(|(card, device)| {
                let read = move |(index, part): (u32, nvml_wrapper::Device<'_>)| {
                    let (gpu_instance, compute_instance) = crate::facts::nvml::instance_ids(&part)?;
                    Some(MigInstance {
                        card,
                        index,
                        uuid: part.uuid().ok()?,
                        gpu_instance,
                        compute_instance,
                    })
                };
                let parts = gpu_watch::numbered_parts(&device);
                parts.into_iter().filter_map(read).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The library.
    pub(crate) fn as_nvml(&self) -> &Nvml {
        self.nvml
    }
}

impl std::fmt::Debug for NvmlMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NvmlGpus").finish_non_exhaustive()
    }
}

impl GpuMonitor for NvmlMonitor {
    fn driver(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    fn cards(&self) -> Vec<NvmlGpu> {
        let read = |index| {
            let device = self.nvml.device_by_index(index).ok()?;
            Some(NvmlGpu {
                index,
                uuid: device.uuid().ok()?,
                name: device.name().ok(),
                bus_id: device.pci_info().ok().map(|pci| pci.bus_id),
                minor: device.minor_number().ok(),
                memory: device.memory_info().ok().map(|memory| Bytes(memory.total)),
            })
        };
        let count = self.nvml.device_count().unwrap_or(0);
        (0..count).filter_map(read).collect()
    }

    fn sample(&self, index: u32) -> GpuSample {
        self.read_sample(index, true)
    }

    fn sample_in_series(&self, index: u32) -> GpuSample {
        self.read_sample(index, false)
    }
}

impl NvmlMonitor {
    /// One reading; with `whole`, of what is slow to read as well.
    fn read_sample(&self, index: u32, whole: bool) -> GpuSample {
        let Ok(device) = self.nvml.device_by_index(index) else {
            return GpuSample {
                index,
                ..GpuSample::default()
            };
        };
        let utilisation = device.utilization_rates().ok();
        let parts = gpu_watch::mig_devices(&device);
        let mut processes = device.running_compute_processes().unwrap_or_default();
        if processes.is_empty() {
            // Of a split card only some callers get the whole list.
            let of_parts = parts.iter().map(|part| part.running_compute_processes());
            processes = of_parts.flat_map(Result::unwrap_or_default).collect();
        }
        let mut watch = self.watch.borrow_mut();
        let energy_mj = match watch.is_energy_due(index) || whole {
            true => device.total_energy_consumption().ok(),
            false => None,
        };
        let links = watch.sample_links(index, &device);
        GpuSample {
            index,
            utilisation_percent: utilisation.as_ref().map(|share| share.gpu),
            memory_utilisation_percent: utilisation.as_ref().map(|share| share.memory),
            memory_used: device.memory_info().ok().map(|memory| Bytes(memory.used)),
            memory_by_pid: by_pid(processes),
            power_mw: device.power_usage().ok(),
            energy_mj,
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            pcie_received_bytes_per_s: links.pcie_per_s.map(|pair| pair.received),
            pcie_sent_bytes_per_s: links.pcie_per_s.map(|pair| pair.sent),
            nvlink_received_bytes: links.nvlink.map(|pair| pair.received),
            nvlink_sent_bytes: links.nvlink.map(|pair| pair.sent),
            xids: watch.poll_xids(index, self.nvml),
            instances: parts
                .iter()
                .filter_map(gpu_watch::sample_instance)
                .collect(),
            throttle: device.current_throttle_reasons().ok().map(throttle_words),
        }
    }
}

/// A process is listed once for each part of a split card that it uses: the parts are added.
pub(crate) fn by_pid(processes: Vec<ProcessInfo>) -> std::collections::BTreeMap<u32, Bytes> {
    let mut sums = std::collections::BTreeMap::new();
    for process in processes {
        if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
            let sum: &mut Bytes = sums.entry(process.pid).or_default();
            sum.0 = sum.0.saturating_add(bytes);
        }
    }
    sums
}

/// NVML's names of the reasons in kebab-case. An idle card is not held back, and is left out.
pub(crate) fn throttle_words(reasons: ThrottleReasons) -> Vec<String> {
    const WORDS: [(ThrottleReasons, &str); 8] = [
        (
            ThrottleReasons::APPLICATIONS_CLOCKS_SETTING,
            "applications-clocks-setting",
        ),
        (ThrottleReasons::SW_POWER_CAP, "sw-power-cap"),
        (ThrottleReasons::HW_SLOWDOWN, "hw-slowdown"),
        (ThrottleReasons::SYNC_BOOST, "sync-boost"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "sw-thermal-slowdown"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hw-thermal-slowdown"),
        (
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
            "hw-power-brake-slowdown",
        ),
        (
            ThrottleReasons::DISPLAY_CLOCK_SETTING,
            "display-clock-setting",
        ),
    ];
    WORDS
        .iter()
        .filter(|(reason, _)| reasons.contains(*reason))
        .map(|(_, word)| (*word).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words_and_idle_is_none() {
        let reasons = ThrottleReasons::GPU_IDLE
            | ThrottleReasons::SW_POWER_CAP
            | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(
            throttle_words(reasons),
            ["sw-power-cap", "hw-thermal-slowdown"]
        );
        assert_eq!(throttle_words(ThrottleReasons::GPU_IDLE), [""; 0]);
    }

    #[test]
    fn parts_of_a_split_card_are_added() {
        let process = |pid, memory| ProcessInfo {
            pid,
            used_gpu_memory: memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let sums = by_pid(vec![
            process(7, UsedGpuMemory::Used(5)),
            process(7, UsedGpuMemory::Used(6)),
            process(8, UsedGpuMemory::Unavailable),
        ]);
        assert_eq!(sums.into_iter().collect::<Vec<_>>(), [(7, Bytes(11))]);
    }
}
