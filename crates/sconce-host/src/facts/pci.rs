//! What the PCI bus tells: cards that no driver has, slow links, and what stands between cards.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sconce_schema::facts::{Iommu, PciGpu};

use crate::nvidia::bus_address;
use crate::roots::Roots;
use crate::small_files;

const NVIDIA: &str = "0x10de";
/// Display controllers, those without a plug too.
const DISPLAY: &str = "0x03";
/// PCI bridges.
const BRIDGE: &str = "0x0604";

/// NVIDIA's devices of class 0x03 below /sys/bus/pci/devices; `None` where there is no such
/// folder, as in some sandboxes.
pub(super) fn list_gpus(roots: &Roots) -> Option<Vec<PciGpu>> {
    let folder = roots.sys.join("bus/pci/devices");
    let mut cards: Vec<PciGpu> = folder
        .read_dir()
        .ok()?
        .flatten()
        .filter_map(|entry| card(&entry.path(), entry.file_name().into_string().ok()?))
        .collect();
    cards.sort_by_key(|card| bus_address(&card.address));
    Some(cards)
}

fn card(folder: &Path, address: String) -> Option<PciGpu> {
    let line = |name: &str| small_files::read_line(&folder.join(name));
    bus_address(&address)?;
    if line("vendor")? != NVIDIA || !line("class")?.starts_with(DISPLAY) {
        return None;
    }
    let driver = folder.join("driver").read_link().ok();
    let name = driver.as_deref().and_then(Path::file_name);
    Some(PciGpu {
        address,
        device: line("device")?,
        driver: name.map(|name| name.to_string_lossy().into_owned()),
        link_now: link(line("current_link_speed"), line("current_link_width")),
        link_most: link(line("max_link_speed"), line("max_link_width")),
    })
}

/// `16.0 GT/s x8`. Kernels before 5.7 write `16 GT/s`, later ones `16.0 GT/s PCIe`; where the bus
/// does not tell they write `Unknown` and a width of 0 or 255.
fn link(speed: Option<String>, width: Option<String>) -> Option<String> {
    let speed = speed?;
    let number = speed.split(' ').next()?.parse::<f32>().ok()?;
    let width = width?.parse::<u32>().ok()?;
    let told = speed.contains("GT/s") && (1..=64).contains(&width);
    told.then(|| format!("{number:.1} GT/s x{width}"))
}

/// IOMMU and access control. The kernel uses an IOMMU where it lists one in /sys/class/iommu or
/// puts devices into groups.
pub(super) fn read_iommu(roots: &Roots, cards: Option<&[PciGpu]>) -> Option<Iommu> {
    let entries = |name: &str| Some(roots.sys.join(name).read_dir().ok()?.next().is_some());
    let lists = [entries("class/iommu"), entries("kernel/iommu_groups")];
    let active = lists.contains(&Some(true));
    let known = lists.iter().any(Option::is_some);
    let cmdline = small_files::read_line(&roots.proc.join("cmdline"));
    if !known && cmdline.is_none() {
        return None;
    }
    Some(Iommu {
        active: known.then_some(active),
        parameters: parameters(&cmdline.unwrap_or_default()),
        acs_bridges: cards.and_then(|cards| acs_bridges(roots, cards)),
    })
}

/// The parameters that are about it: `intel_iommu=`, `amd_iommu=`, `iommu=`, `iommu.passthrough=`,
/// `pcie_acs_override=`, `pci=…acs…` (the kernel's `kernel-parameters.txt`).
fn parameters(cmdline: &str) -> Vec<String> {
    let about = |word: &&str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        key.contains("iommu") || key.contains("acs") || (key == "pci" && value.contains("acs"))
    };
    let words = cmdline.split_ascii_whitespace().filter(about);
    words.map(str::to_owned).collect()
}

/// Of the bridges above NVIDIA's cards those that redirect requests between devices; `None` where
/// one of them does not let itself be looked at.
fn acs_bridges(roots: &Roots, cards: &[PciGpu]) -> Option<Vec<String>> {
    let devices = roots.sys.join("bus/pci/devices");
    let mut bridges: Vec<String> = Vec::new();
    for card in cards {
        // A link into /sys/devices, where a device lies below its bridge.
        let Ok(place) = devices.join(&card.address).canonicalize() else {
            continue;
        };
        for part in place.parent()?.components() {
            let name = String::from_utf8_lossy(part.as_os_str().as_bytes()).into_owned();
            if bus_address(&name).is_some() && !bridges.contains(&name) {
                bridges.push(name);
            }
        }
    }
    let mut redirecting = Vec::new();
    for bridge in bridges {
        let folder = devices.join(&bridge);
        let is_bridge = small_files::read_line(&folder.join("class"))?.starts_with(BRIDGE);
        if is_bridge && redirects(&std::fs::read(folder.join("config")).ok()?)? {
            redirecting.push(bridge);
        }
    }
    Some(redirecting)
}

/// Whether a configuration space says that requests between devices go up to the root (PCI
/// Express Base Specification, 7.7.11 "Access Control Services": capability 0x000d, bit 2 of the
/// control register at 6). `None` for a space cut off at 64 bytes, which is all that others than
/// root get.
fn redirects(config: &[u8]) -> Option<bool> {
    const ACS: u32 = 0x000d;
    const REDIRECT: u8 = 1 << 2;
    if config.len() <= 64 {
        return None;
    }
    // The extended capabilities begin at 256, each with its number, version and the next one's
    // place; a loop is as long as the space at most.
    let mut at = 256;
    for _ in 0..1024 {
        let Some(head) = config.get(at..at + 8) else {
            return Some(false);
        };
        let word = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        if word & 0xffff == ACS {
            return Some(head[6] & REDIRECT != 0);
        }
        at = (word >> 20) as usize & !3;
        if at < 256 {
            return Some(false);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_old_and_new_kernels() {
        let link = |speed: &str, width: &str| link(Some(speed.into()), Some(width.into()));
        assert_eq!(link("16.0 GT/s PCIe", "8").as_deref(), Some("16.0 GT/s x8"));
        assert_eq!(link("8 GT/s", "16").as_deref(), Some("8.0 GT/s x16"));
        assert_eq!(link("2.5 GT/s PCIe", "1").as_deref(), Some("2.5 GT/s x1"));
        assert_eq!(link("Unknown", "255"), None);
        assert_eq!(link("Unknown speed", "0"), None);
    }

    #[test]
    fn parameters_of_the_kernel() {
        let line = "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu=pt \
                    pci=noacs,nommconf quiet iommu.passthrough=1 pci=realloc";
        let expected = [
            "intel_iommu=on",
            "iommu=pt",
            "pci=noacs,nommconf",
            "iommu.passthrough=1",
        ];
        assert_eq!(parameters(line), expected);
        assert_eq!(parameters(""), [""; 0]);
    }

    /// A configuration space with two extended capabilities, the second of which is ACS.
    fn space(control: u8) -> Vec<u8> {
        let mut space = vec![0; 4096];
        space[256..260].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        space[0x148..0x14c].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
        space[0x14e] = control;
        space
    }

    #[test]
    fn access_control_of_a_bridge() {
        assert_eq!(redirects(&space(0x1d)), Some(true));
        assert_eq!(redirects(&space(0x11)), Some(false));
        assert_eq!(
            redirects(&space(0x1d)[..64]),
            None,
            "what a plain user reads"
        );
        assert_eq!(
            redirects(&[0; 256]),
            Some(false),
            "no extended capabilities"
        );
        // One capability that names itself as the next.
        let mut circle = vec![0; 4096];
        circle[256..260].copy_from_slice(&(0x0001_u32 | 256 << 20).to_le_bytes());
        assert_eq!(redirects(&circle), Some(false));
        let mut far = vec![0; 300];
        far[256..260].copy_from_slice(&(0x0001_u32 | 0xffc << 20).to_le_bytes());
        assert_eq!(redirects(&far), Some(false));
    }

    /// The form of /sys: a card below a bridge, a sound device of the same maker, an NVSwitch.
    #[test]
    fn a_bus_with_a_card() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        let bus = roots.sys.join("bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        assert_eq!(list_gpus(&roots), Some(vec![]));
        let device = |place: &str, files: &[(&str, &str)]| {
            let path = roots.sys.join("devices/pci0000:00").join(place);
            fs::create_dir_all(&path).unwrap();
            for (name, text) in files {
                fs::write(path.join(name), text).unwrap();
            }
            symlink(&path, bus.join(path.file_name().unwrap())).unwrap();
            path
        };
        let bridge = device(
            "0000:00:01.0",
            &[("vendor", "0x8086\n"), ("class", "0x060400\n")],
        );
        fs::write(bridge.join("config"), space(0x1d)).unwrap();
        let path = device(
            "0000:00:01.0/0000:01:00.0",
            &[
                ("vendor", "0x10de\n"),
                ("class", "0x030200\n"),
                ("device", "0x2330\n"),
                ("current_link_speed", "16.0 GT/s PCIe\n"),
                ("current_link_width", "8\n"),
                ("max_link_speed", "32.0 GT/s PCIe\n"),
                ("max_link_width", "16\n"),
            ],
        );
        symlink("../../../../bus/pci/drivers/vfio-pci", path.join("driver")).unwrap();
        for (place, class) in [
            ("0000:00:01.0/0000:01:00.1", "0x040300\n"),
            ("0000:00:02.0", "0x068000\n"),
        ] {
            device(
                place,
                &[
                    ("vendor", "0x10de\n"),
                    ("class", class),
                    ("device", "0x1\n"),
                ],
            );
        }
        let found = list_gpus(&roots).unwrap();
        let expected = PciGpu {
            address: "0000:01:00.0".to_owned(),
            device: "0x2330".to_owned(),
            driver: Some("vfio-pci".to_owned()),
            link_now: Some("16.0 GT/s x8".to_owned()),
            link_most: Some("32.0 GT/s x16".to_owned()),
        };
        assert_eq!(found, [expected]);

        fs::create_dir_all(roots.sys.join("kernel/iommu_groups/0")).unwrap();
        let found = read_iommu(&roots, Some(&found)).unwrap();
        assert_eq!(found.active, Some(true));
        assert_eq!(found.acs_bridges.unwrap(), ["0000:00:01.0"]);
        fs::write(bridge.join("config"), &space(0x1d)[..64]).unwrap();
        let found = read_iommu(&roots, list_gpus(&roots).as_deref()).unwrap();
        assert_eq!(found.acs_bridges, None);
    }
}
