//! The loaded driver.

use sconce_schema::facts::{Driver, DriverFlavour, DriverLibrary, PciGpu};

use crate::nvidia::NvidiaDriver;
use crate::roots::Roots;
use crate::small_files;

/// The driver, or the libraries of one that is not loaded.
///
/// Version and flavour, the first that answers: /proc/driver/nvidia/version, which names both;
/// /sys/module/nvidia/version, with the flavour by the module's taint; /dev/dxg for Windows'
/// driver; the module `nouveau`, or a card that it has. NVML is asked last
/// ([`super::gpus::merge_nvml_reply`]), since it may be slow or not answer at all.
pub(super) fn read(
    roots: &Roots,
    nvidia: Option<&NvidiaDriver>,
    pci: Option<&[PciGpu]>,
    libraries: Vec<DriverLibrary>,
) -> (Option<Driver>, Vec<DriverLibrary>) {
    let modules = modules(roots);
    let loaded = |name: &str| modules.iter().flatten().any(|module| module == name);
    let has_cards = |driver: &str| {
        let mut cards = pci.unwrap_or_default().iter();
        cards.any(|card| card.driver.as_deref() == Some(driver))
    };
    let version = nvidia.and_then(NvidiaDriver::driver_version);
    let flavour = if version.is_some() || loaded("nvidia") || nvidia.is_some() {
        match nvidia.and_then(|nvidia| nvidia.open_module) {
            Some(true) => Some(DriverFlavour::Open),
            Some(false) => Some(DriverFlavour::Closed),
            None => {
                small_files::read_line(&roots.sys.join("module/nvidia/taint")).map(|t| of_taint(&t))
            }
        }
    } else if roots.dev.join("dxg").exists() {
        Some(DriverFlavour::Wsl)
    } else if loaded("nouveau") || has_cards("nouveau") {
        Some(DriverFlavour::Nouveau)
    } else {
        return (None, libraries);
    };
    let driver = Driver {
        version,
        flavour,
        modules,
        libraries,
        cuda: None,
    };
    (Some(driver), Vec::new())
}

/// The letter P stands for a module that is not under the GPL (the kernel's
/// `Documentation/admin-guide/tainted-kernels.rst`); NVIDIA's open module is under both.
fn of_taint(taint: &str) -> DriverFlavour {
    match taint.contains('P') {
        true => DriverFlavour::Closed,
        false => DriverFlavour::Open,
    }
}

/// The loaded modules of NVIDIA's and nouveau, by /proc/modules, else by the folders of
/// /sys/module.
fn modules(roots: &Roots) -> Option<Vec<String>> {
    let of_folders = || {
        let entries = roots.sys.join("module").read_dir().ok()?;
        let names = entries
            .flatten()
            .map(|entry| entry.file_name().into_string());
        Some(names.flatten().collect::<Vec<_>>())
    };
    let mut names = match small_files::read_text(&roots.proc.join("modules")) {
        Some(text) => in_table(&text),
        None => of_folders()?,
    };
    names.retain(|name| is_ours(name));
    names.sort();
    Some(names)
}

fn in_table(text: &str) -> Vec<String> {
    let first = |line: &str| line.split(' ').next().map(str::to_owned);
    text.lines().filter_map(first).collect()
}

/// `nvidia_peermem` and `gdrdrv` let a network card reach a card's memory, `nvidia_fs` a disk.
fn is_ours(name: &str) -> bool {
    name.starts_with("nvidia") || ["nouveau", "nova_core", "nv_peer_mem", "gdrdrv"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn found(files: &[(&str, &str)], pci: Option<&[PciGpu]>) -> Option<Driver> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = Roots::from_dir(folder.path());
        read(&roots, NvidiaDriver::read(&roots).as_ref(), pci, Vec::new()).0
    }

    /// Lines of /proc/modules in the form of proc(5), names of a DGX.
    const MODULES: &str = "\
nvidia_uvm 1540096 4 - Live 0x0000000000000000 (POE)
nvidia_peermem 16384 0 - Live 0x0000000000000000 (POE)
ib_core 434176 9 nvidia_peermem,rdma_cm, Live 0x0000000000000000
nvidia 56717312 221 nvidia_uvm,nvidia_peermem, Live 0x0000000000000000 (POE)
";

    #[test]
    fn the_kernel_modules_word_is_first() {
        // NVIDIA/ubuntu-packaging-nvidia-driver issue 3.
        let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n";
        let files = [
            ("proc/driver/nvidia/version", version),
            ("sys/module/nvidia/version", "1.2.3\n"),
            ("proc/modules", MODULES),
        ];
        let driver = found(&files, None).unwrap();
        assert_eq!(driver.version, "550.90.07".parse().ok());
        assert_eq!(driver.flavour, Some(DriverFlavour::Closed));
        let modules = driver.modules.unwrap();
        assert_eq!(modules, ["nvidia", "nvidia_peermem", "nvidia_uvm"]);
    }

    #[test]
    fn the_modules_folder_is_second() {
        for (taint, flavour) in [
            ("POE\n", DriverFlavour::Closed),
            ("OE\n", DriverFlavour::Open),
        ] {
            let files = [
                ("sys/module/nvidia/version", "580.65.06\n"),
                ("sys/module/nvidia/taint", taint),
            ];
            let driver = found(&files, None).unwrap();
            assert_eq!(driver.version, "580.65.06".parse().ok());
            assert_eq!(driver.flavour, Some(flavour));
            assert_eq!(driver.modules, Some(vec!["nvidia".to_owned()]));
        }
    }

    #[test]
    fn others_drivers() {
        let windows = found(&[("dev/dxg", "")], None).unwrap();
        assert_eq!(windows.flavour, Some(DriverFlavour::Wsl));
        assert_eq!((windows.version, windows.modules), (None, None));
        let table = [("proc/modules", "nouveau 3096576 4 - Live 0x0\n")];
        let nouveau = found(&table, None).unwrap();
        assert_eq!(nouveau.flavour, Some(DriverFlavour::Nouveau));
        let card = PciGpu {
            address: "0000:01:00.0".to_owned(),
            device: "0x2684".to_owned(),
            driver: Some("nouveau".to_owned()),
            link_now: None,
            link_most: None,
        };
        let built_in = found(&[], Some(&[card])).unwrap();
        assert_eq!(built_in.flavour, Some(DriverFlavour::Nouveau));
        assert_eq!(
            found(&[("proc/modules", "ext4 1 2 - Live 0x0\n")], None),
            None
        );
    }
}
