//! What NVML tells of a machine, as values that a child process can hand over.

mod raw;

use nvml_wrapper::enum_wrappers::device::{
    Brand, ComputeMode, EccCounter, MemoryError, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use sconce_schema::facts::{FabricState, FeatureState, GpuFacts, Mig, NvLink, Nvml as Library};
use sconce_schema::{Bytes, ComputeCapability, CudaVersion};
use serde::{Deserialize, Serialize};

use crate::nvidia::{address_text, bus_address};
use crate::nvml::{NvmlLibrary, NvmlMonitor, by_pid, throttle_words};

/// What NVML says of itself where its file is not there.
pub(super) const NOT_FOUND: &str = "NVML Shared Library Not Found";
/// No machine has more cards.
const MAX_CARDS: u32 = 256;
/// NVML_NVLINK_MAX_LINKS.
const MAX_LINKS: u32 = 18;
/// A card is split into seven at most.
const MAX_MIG_DEVICES: u32 = 64;

/// NVML's answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NvmlReply {
    /// The library.
    pub library: Library,
    /// The driver's version.
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves.
    pub cuda: Option<CudaVersion>,
    /// One entry an index, also for a card that is lost or that the caller may not see.
    pub cards: Vec<NvmlGpuReply>,
}

/// What NVML says of one index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NvmlGpuReply {
    /// What it tells of the card; only the index where it tells nothing.
    pub card: GpuFacts,
    /// Why it tells nothing, in its words.
    pub error: Option<String>,
    /// The caller may not see the card.
    pub forbidden: bool,
}

impl NvmlReply {
    /// The library did not start.
    pub(super) fn from_error(words: &str) -> Self {
        Self {
            library: Library {
                error: Some(words.to_owned()),
                version: None,
            },
            ..Self::default()
        }
    }
}

/// Which part of a card, and which part of that, an instance of a divided card is.
pub(crate) fn instance_ids(part: &Device<'_>) -> Option<(u32, u32)> {
    raw::instance_ids(part)
}

/// Loads NVML, asks it everything, and lets it go.
#[must_use]
pub fn read(from: &NvmlLibrary) -> NvmlReply {
    match NvmlMonitor::open(from) {
        Ok(gpus) => ask(gpus.as_nvml()),
        Err(error) => NvmlReply::from_error(&words(&error)),
    }
}

fn ask(nvml: &Nvml) -> NvmlReply {
    let count = nvml.device_count().unwrap_or(0).min(MAX_CARDS);
    NvmlReply {
        library: Library {
            error: None,
            version: nvml.sys_nvml_version().ok(),
        },
        driver: nvml.sys_driver_version().ok(),
        cuda: nvml.sys_cuda_driver_version().ok().and_then(cuda_version),
        cards: (0..count).map(|index| answer(nvml, index)).collect(),
    }
}

/// `13000` is 13.0 (`cuDriverGetVersion` in CUDA's driver API).
pub(super) fn cuda_version(number: i32) -> Option<CudaVersion> {
    let number = u32::try_from(number).ok().filter(|&number| number > 0)?;
    Some(CudaVersion::new(number / 1000, number % 1000 / 10))
}

fn answer(nvml: &Nvml, index: u32) -> NvmlGpuReply {
    let card = GpuFacts {
        index,
        ..GpuFacts::default()
    };
    match nvml.device_by_index(index) {
        Ok(device) => NvmlGpuReply {
            card: of_device(index, &device),
            ..NvmlGpuReply::default()
        },
        Err(error) => NvmlGpuReply {
            card,
            forbidden: matches!(error, NvmlError::NoPermission),
            error: Some(words(&error)),
        },
    }
}

/// Everything that the card tells; a question that it does not answer leaves its fact absent.
fn of_device(index: u32, device: &Device<'_>) -> GpuFacts {
    // A lost card answers some questions from memory: these reach for the card.
    let memory = device.memory_info();
    let temperature = device.temperature(TemperatureSensor::Gpu);
    let uuid = device.uuid();
    let lost = [
        memory.as_ref().err(),
        temperature.as_ref().err(),
        uuid.as_ref().err(),
    ]
    .into_iter()
    .flatten()
    .find(|error| is_lost(error))
    .map(words);
    let figures = match memory {
        Ok(memory) => Some((memory.total, memory.used)),
        Err(_) => raw::memory_usage(device),
    };
    let ecc = device.is_ecc_enabled().ok();
    let rows = raw::remapped_rows(device);
    let fabric = raw::fabric_registration(device);
    GpuFacts {
        index,
        name: device.name().ok(),
        uuid: uuid.ok(),
        bus_id: device.pci_info().ok().and_then(|pci| normal(&pci.bus_id)),
        minor: device.minor_number().ok(),
        capability: device.cuda_compute_capability().ok().and_then(capability),
        memory: figures.map(|(total, _)| Bytes(total)),
        memory_used: figures.map(|(_, used)| Bytes(used)),
        memory_by_pid: device.running_compute_processes().ok().map(by_pid),
        mig: device.mig_mode().ok().map(|mode| Mig {
            enabled: mode.current == 1,
            instances: match mode.current {
                1 => instances(device),
                _ => Vec::new(),
            },
        }),
        ecc: ecc.as_ref().map(|ecc| mode(ecc.currently_enabled)),
        // A card without ECC counts none.
        ecc_uncorrected: ecc.filter(|ecc| ecc.currently_enabled).and_then(|_| {
            let counted = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
            counted.ok()
        }),
        remapped_rows: rows.map(|rows| rows.uncorrectable),
        remap_pending: rows.map(|rows| rows.pending),
        remap_failed: rows.map(|rows| rows.failed),
        power_limit_mw: device
            .enforced_power_limit()
            .or_else(|_| device.power_management_limit())
            .ok(),
        power_limit_default_mw: device.power_management_limit_default().ok(),
        temperature_c: temperature.ok(),
        throttle: device.current_throttle_reasons().ok().map(throttle_words),
        persistence: device.is_in_persistent_mode().ok().map(mode),
        compute_mode: device.compute_mode().ok().map(compute_mode),
        nvlinks: links(device),
        fabric: fabric.and_then(|fabric| fabric_state(fabric.state)),
        fabric_error: fabric.and_then(fabric_error),
        lost,
        data_centre: device.brand().ok().and_then(data_centre),
    }
}

fn mode(on: bool) -> FeatureState {
    match on {
        true => FeatureState::On,
        false => FeatureState::Off,
    }
}

fn capability(
    pair: nvml_wrapper::structs::device::CudaComputeCapability,
) -> Option<ComputeCapability> {
    let (major, minor) = (pair.major.try_into().ok()?, pair.minor.try_into().ok()?);
    Some(ComputeCapability::new(major, minor))
}

fn compute_mode(mode: ComputeMode) -> String {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::ExclusiveThread => "exclusive-thread",
        ComputeMode::ExclusiveProcess => "exclusive-process",
        ComputeMode::Prohibited => "prohibited",
    }
    .to_owned()
}

/// NVML names data-centre cards `Tesla` up to Turing and plain `NVIDIA` since Ampere. Of the cards
/// for workstations only some are served by forward compatibility, which the brand does not tell.
fn data_centre(brand: Brand) -> Option<bool> {
    match brand {
        Brand::Tesla | Brand::Nvidia => Some(true),
        Brand::GeForce | Brand::GeForceRTX | Brand::Titan | Brand::TitanRTX => Some(false),
        _ => None,
    }
}

/// UUIDs of a card's parts. Their numbers have holes.
fn instances(device: &Device<'_>) -> Vec<String> {
    let count = device.mig_device_count().unwrap_or(0).min(MAX_MIG_DEVICES);
    let uuid = |index| device.mig_device_by_index(index).ok()?.uuid().ok();
    (0..count).filter_map(uuid).collect()
}

/// Links that are up; `None` where the card has none at all.
fn links(device: &Device<'_>) -> Option<Vec<NvLink>> {
    let mut up = None;
    for link in 0..MAX_LINKS {
        let asked = device.link_wrapper_for(link);
        match asked.is_active() {
            Ok(active) => {
                let list: &mut Vec<NvLink> = up.get_or_insert_default();
                if active {
                    let to = asked.remote_pci_info().ok();
                    let to = to.and_then(|pci| normal(&pci.bus_id));
                    list.push(NvLink { link, to });
                }
            }
            // A card with twelve links refuses the thirteenth.
            Err(_) => break,
        }
    }
    up
}

/// The address in the kernel's spelling: NVML writes eight digits of domain, in capitals.
fn normal(bus_id: &str) -> Option<String> {
    bus_address(bus_id).map(address_text)
}

/// `nvmlGpuFabricState_t`.
fn fabric_state(state: u8) -> Option<FabricState> {
    Some(match state {
        0 => FabricState::NotSupported,
        1 => FabricState::NotStarted,
        2 => FabricState::InProgress,
        3 => FabricState::Completed,
        _ => return None,
    })
}

/// The result stands beside the state, and counts when registration is over.
fn fabric_error(fabric: raw::FabricRegistration) -> Option<String> {
    let done = fabric_state(fabric.state) == Some(FabricState::Completed);
    (done && fabric.status != 0).then(|| words_of_code(fabric.status))
}

fn is_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::Unknown
    )
}

/// What nvmlErrorString says, which is also what nvidia-smi prints and people search for.
fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(error) => match error.to_string() {
            text if text.contains("No such file") => NOT_FOUND.to_owned(),
            text => text,
        },
        NvmlError::FailedToLoadSymbol(_) => words_of_code(13),
        NvmlError::UnexpectedVariant(code) => words_of_code(*code),
        error => words_of_code(error_code(error)),
    }
}

fn error_code(error: &NvmlError) -> u32 {
    match error {
        NvmlError::Uninitialized => 1,
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        NvmlError::NotFound => 6,
        NvmlError::InsufficientSize(_) => 7,
        NvmlError::InsufficientPower => 8,
        NvmlError::DriverNotLoaded => 9,
        NvmlError::Timeout => 10,
        NvmlError::IrqIssue => 11,
        NvmlError::LibraryNotFound => 12,
        NvmlError::FunctionNotFound => 13,
        NvmlError::CorruptedInfoROM => 14,
        NvmlError::GpuLost => 15,
        NvmlError::ResetRequired => 16,
        NvmlError::OperatingSystem => 17,
        NvmlError::LibRmVersionMismatch => 18,
        NvmlError::InUse => 19,
        NvmlError::InsufficientMemory => 20,
        NvmlError::NoData => 21,
        _ => 999,
    }
}

/// `nvmlReturn_t` in nvml.h, in nvidia-smi's words.
fn words_of_code(code: u32) -> String {
    match code {
        1 => "Uninitialized",
        2 => "Invalid Argument",
        3 => "Not Supported",
        4 => "Insufficient Permissions",
        6 => "Not Found",
        7 => "Insufficient Size",
        8 => "Insufficient External Power",
        9 => "Driver Not Loaded",
        10 => "Timeout",
        11 => "Interrupt Request Issue",
        12 => NOT_FOUND,
        13 => "Function Not Found",
        14 => "Corrupted infoROM",
        15 => "GPU is lost",
        16 => "GPU requires reset",
        17 => "The operating system has blocked the request",
        18 => "Driver/library version mismatch",
        19 => "In use by another client",
        20 => "Insufficient Memory",
        21 => "No data",
        999 => "Unknown Error",
        code => return format!("NVML error {code}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_nvidias() {
        assert_eq!(
            words(&NvmlError::LibRmVersionMismatch),
            "Driver/library version mismatch"
        );
        assert_eq!(words(&NvmlError::GpuLost), "GPU is lost");
        assert_eq!(words(&NvmlError::Unknown), "Unknown Error");
        assert_eq!(words(&NvmlError::UnexpectedVariant(28)), "NVML error 28");
        let none = read(&NvmlLibrary::File("/nowhere/libnvidia-ml.so.1".into()));
        assert_eq!(none, NvmlReply::from_error(NOT_FOUND));
    }

    #[test]
    fn versions_of_cuda() {
        assert_eq!(cuda_version(13_020), Some(CudaVersion::new(13, 2)));
        assert_eq!(cuda_version(11_080), Some(CudaVersion::new(11, 8)));
        assert_eq!((cuda_version(0), cuda_version(-1)), (None, None));
    }

    #[test]
    fn a_registration_that_failed() {
        let fabric = |state, status| raw::FabricRegistration { state, status };
        assert_eq!(fabric_error(fabric(3, 0)), None);
        assert_eq!(fabric_error(fabric(2, 999)), None, "not over");
        assert_eq!(
            fabric_error(fabric(3, 999)).as_deref(),
            Some("Unknown Error")
        );
        assert_eq!(fabric_state(9), None);
    }
}
