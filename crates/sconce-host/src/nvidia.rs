//! NVIDIA's driver and cards, from the files of its kernel module: no library is needed.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, major, minor};
use sconce_schema::event::GpuSummary;
use sconce_schema::{Bytes, DriverVersion};

use crate::nvml::GpuMonitor;
use crate::roots::Roots;
use crate::small_files;

/// NVIDIA's driver and cards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvidiaDriver {
    /// The driver's version as NVIDIA writes it, which is also the ending of its libraries' names.
    pub driver: Option<String>,
    /// Whether the kernel module is the open one.
    pub open_module: Option<bool>,
    /// The cards, in the order of their PCI addresses, which is the driver's and NVML's.
    pub cards: Vec<GpuDevice>,
    /// Control nodes that exist: `nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`, `nvidia-modeset`.
    pub control: Vec<CharacterDevice>,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuDevice {
    /// Its place in the order of PCI addresses, as the driver counts.
    pub index: u32,
    /// PCI address, `0000:01:00.0`.
    pub bus_id: Option<String>,
    /// Minor number of its device node, the N of /dev/nvidiaN.
    pub minor: Option<u32>,
    /// `GPU-…`; absent until the driver has started the card once.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Its memory; only NVML tells it ([`NvidiaDriver::fill_from_nvml`]).
    pub memory: Option<Bytes>,
    /// Its device node, where it exists.
    pub node: Option<CharacterDevice>,
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharacterDevice {
    /// As the machine names it, `/dev/nvidia0`.
    pub path: PathBuf,
    /// Where it can be opened; differs from [`CharacterDevice::path`] on a recorded machine only.
    pub host_path: PathBuf,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Whether the caller may read and write it.
    pub usable: bool,
}

const CONTROL: [&str; 4] = [
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
];

impl NvidiaDriver {
    /// Version: `/proc/driver/nvidia/version`, else `/sys/module/nvidia/version`. Cards:
    /// `/proc/driver/nvidia/gpus/*/information`, else (some sandboxes have no such folder) the
    /// nodes /dev/nvidiaN. `None` where there is neither version nor card.
    pub(crate) fn read(roots: &Roots) -> Option<Self> {
        let version = small_files::read_text(&roots.proc.join("driver/nvidia/version"))
            .and_then(|text| parse_version(&text));
        let (driver, open_module) = match version {
            Some((driver, open)) => (Some(driver), Some(open)),
            None => (
                small_files::read_line(&roots.sys.join("module/nvidia/version")),
                None,
            ),
        };
        let mut cards = cards_of_proc(roots);
        let from_proc = !cards.is_empty();
        if cards.is_empty() {
            cards = cards_of_dev(roots);
        }
        let count = cards.len();
        tracing::debug!(driver, cards = count, from_proc, "NVIDIA's kernel module");
        if driver.is_none() && cards.is_empty() {
            return None;
        }
        for (index, card) in (0..).zip(&mut cards) {
            card.index = index;
            card.node = card
                .minor
                .and_then(|minor| CharacterDevice::read(roots, &format!("nvidia{minor}")));
        }
        let control = CONTROL
            .iter()
            .filter_map(|name| CharacterDevice::read(roots, name))
            .collect();
        Some(Self {
            driver,
            open_module,
            cards,
            control,
        })
    }

    /// The driver's version as a number that orders.
    #[must_use]
    pub fn driver_version(&self) -> Option<DriverVersion> {
        self.driver.as_ref()?.parse().ok()
    }

    /// Fills what the kernel module's files did not tell from NVML: name, UUID, memory, version.
    /// A card is found by its UUID, else its PCI address, else its minor number.
    pub fn fill_from_nvml(&mut self, gpus: &dyn GpuMonitor) {
        if self.driver.is_none() {
            self.driver = gpus.driver();
        }
        let known = gpus.cards();
        for card in &mut self.cards {
            let same_bus = |id: &Option<String>| {
                let own = card.bus_id.as_deref().and_then(bus_address);
                own.is_some() && own == id.as_deref().and_then(bus_address)
            };
            let found = known
                .iter()
                .find(|other| card.uuid.as_deref() == Some(other.uuid.as_str()))
                .or_else(|| known.iter().find(|other| same_bus(&other.bus_id)))
                .or_else(|| {
                    known
                        .iter()
                        .find(|other| card.minor.is_some() && card.minor == other.minor)
                });
            if let Some(found) = found {
                card.index = found.index;
                card.uuid = Some(found.uuid.clone());
                card.memory = found.memory;
                card.name = card.name.take().or_else(|| found.name.clone());
                // As the kernel writes it: it is how others know the card.
                let address = || found.bus_id.as_deref().and_then(bus_address);
                card.bus_id = card.bus_id.take().or_else(|| address().map(address_text));
            }
        }
    }
}

impl GpuDevice {
    /// The part that a run's record keeps. A card without a UUID is named by its PCI address.
    #[must_use]
    pub fn summary(&self) -> GpuSummary {
        let name = self.uuid.clone().or_else(|| self.bus_id.clone());
        GpuSummary {
            index: self.index,
            uuid: name.unwrap_or_else(|| format!("nvidia{}", self.minor.unwrap_or(self.index))),
            name: self.name.clone().unwrap_or_else(|| "NVIDIA GPU".to_owned()),
            memory: self.memory,
        }
    }
}

impl CharacterDevice {
    pub(crate) fn read(roots: &Roots, name: &str) -> Option<Self> {
        let host_path = roots.dev.join(name);
        let metadata = std::fs::metadata(&host_path).ok()?;
        if !metadata.file_type().is_char_device() {
            return None;
        }
        let access = Access::READ_OK | Access::WRITE_OK;
        Some(Self {
            path: Path::new("/dev").join(name),
            major: major(metadata.rdev()),
            minor: minor(metadata.rdev()),
            usable: accessat(CWD, &host_path, access, AtFlags::EACCESS).is_ok(),
            host_path,
        })
    }
}

/// The version, and whether the module is the open one, from
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  …` or
/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  …`.
pub(crate) fn parse_version(text: &str) -> Option<(String, bool)> {
    let line = text
        .lines()
        .find(|line| line.starts_with("NVRM version:"))?;
    let (before, after) = line.split_once("Kernel Module")?;
    let version = after
        .split_ascii_whitespace()
        .find(|word| is_version(word))?;
    Some((version.to_owned(), before.trim_end().ends_with("Open")))
}

/// Two or more numbers joined by dots. It becomes a part of file names, so nothing else may pass.
pub(crate) fn is_version(word: &str) -> bool {
    word.len() <= 32
        && word.contains('.')
        && word
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// One card's `information`; `None` for a card that the driver was told to leave alone.
fn parse_information(text: &str) -> Option<GpuDevice> {
    let field = |key| small_files::find_field(text, key).map(str::to_owned);
    if small_files::find_field(text, "GPU Excluded") == Some("Yes") {
        return None;
    }
    Some(GpuDevice {
        index: 0,
        bus_id: field("Bus Location").filter(|id| bus_address(id).is_some()),
        minor: field("Device Minor").and_then(|minor| minor.parse().ok()),
        // Question marks stand for digits until the card was started.
        uuid: field("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?')),
        name: field("Model").filter(|name| name != "Unknown"),
        memory: None,
        node: None,
    })
}

fn cards_of_proc(roots: &Roots) -> Vec<GpuDevice> {
    let Ok(folder) = roots.proc.join("driver/nvidia/gpus").read_dir() else {
        return Vec::new();
    };
    let mut cards: Vec<GpuDevice> = folder
        .flatten()
        .filter_map(|entry| {
            let card =
                parse_information(&small_files::read_text(&entry.path().join("information"))?)?;
            // The folder is named after the address, too.
            let name = entry.file_name().into_string().ok();
            Some(GpuDevice {
                bus_id: card
                    .bus_id
                    .or(name.filter(|name| bus_address(name).is_some())),
                ..card
            })
        })
        .collect();
    cards.sort_by_key(|card| card.bus_id.as_deref().and_then(bus_address));
    cards
}

fn cards_of_dev(roots: &Roots) -> Vec<GpuDevice> {
    let Ok(folder) = roots.dev.read_dir() else {
        return Vec::new();
    };
    let mut minors: Vec<u32> = folder
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("nvidia")?.parse().ok()
        })
        .collect();
    minors.sort_unstable();
    let card = |minor| GpuDevice {
        index: 0,
        bus_id: None,
        minor: Some(minor),
        uuid: None,
        name: None,
        memory: None,
        node: None,
    };
    minors.into_iter().map(card).collect()
}

/// Domain, bus, device, function of `0000:01:00.0`; NVML writes eight digits of domain.
pub(crate) fn bus_address(id: &str) -> Option<(u32, u32, u32, u32)> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (domain, rest) = id.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    Some((hex(domain)?, hex(bus)?, hex(device)?, hex(function)?))
}

/// The address as the kernel writes it, `0000:01:00.0`.
pub(crate) fn address_text((domain, bus, device, function): (u32, u32, u32, u32)) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form of NVIDIA's closed and open modules.
    const CLOSED: &str = "\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
";
    const OPEN: &str = "\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs-builder@U16-I2-C05-15-3)  Fri May 31 09:44:37 UTC 2024
GCC version:  gcc version 10.2.1 20210110 (Debian 10.2.1-6)
";

    #[test]
    fn both_modules_tell_their_version() {
        assert_eq!(parse_version(CLOSED), Some(("535.104.05".into(), false)));
        assert_eq!(parse_version(OPEN), Some(("550.90.07".into(), true)));
        let old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 2022\n";
        assert_eq!(parse_version(old), Some(("390.157".into(), false)));
    }

    #[test]
    fn a_version_is_numbers_and_dots() {
        for text in [
            "",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module",
            "NVRM version: Kernel Module ../../etc/passwd",
            "NVRM version: Kernel Module 1..2 .5 5.",
            "GCC version: gcc version 11.4.0",
        ] {
            assert_eq!(parse_version(text), None, "{text}");
        }
        assert!(!is_version(&"1.".repeat(40)));
    }

    #[test]
    fn a_card_that_was_never_started_has_no_uuid() {
        let text = "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\n\
                    Bus Location: \t 0000:62:00.0\nDevice Minor: \t 5\nGPU Excluded:\t No\n";
        let card = parse_information(text).unwrap();
        assert_eq!((card.uuid, card.name), (None, None));
        assert_eq!(card.minor, Some(5));
        assert_eq!(card.bus_id.as_deref(), Some("0000:62:00.0"));
        assert_eq!(parse_information("GPU Excluded:\t Yes\n"), None);
    }

    #[test]
    fn addresses_compare_in_both_spellings() {
        assert_eq!(bus_address("00000000:C1:00.0"), bus_address("0000:c1:00.0"));
        assert_eq!(bus_address("0000:c1:00.0"), Some((0, 0xc1, 0, 0)));
        let text = bus_address("00000000:C1:00.0").map(address_text);
        assert_eq!(text.as_deref(), Some("0000:c1:00.0"));
        assert_eq!(bus_address("0000:c1:00"), None);
        assert_eq!(bus_address("é:1:2.3"), None);
    }
}
