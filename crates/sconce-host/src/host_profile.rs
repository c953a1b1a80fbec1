//! What a machine is.

use std::path::Path;

use sconce_schema::event::HostSummary;
use sconce_schema::{Bytes, Millicores, NumberSet};
use tracing::debug;

use crate::cgroups::Cgroups;
use crate::nvidia::NvidiaDriver;
use crate::roots::Roots;
use crate::userns::UserNamespaces;
use crate::{cpus, small_files, userns};

/// Facts of a machine as the caller sees it. What could not be read is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct HostProfile {
    /// `/proc/sys/kernel/hostname`.
    pub hostname: Option<String>,
    /// Release, `/proc/sys/kernel/osrelease`.
    pub kernel: Option<String>,
    /// Logical CPUs that the caller may be scheduled on (`Cpus_allowed_list` of
    /// `/proc/self/status`).
    pub cpus: Option<u32>,
    /// Those CPUs by their numbers.
    pub allowed_cpus: Option<NumberSet>,
    /// CPU time per time that the caller's own cgroups leave it, where they limit it.
    pub cpu_quota: Option<Millicores>,
    /// The CPU's name.
    pub cpu_model: Option<String>,
    /// Main memory (`MemTotal`).
    pub memory: Option<Bytes>,
    /// What can be had without swapping (`MemAvailable`).
    pub memory_available: Option<Bytes>,
    /// The cgroup file systems; absent where none is mounted.
    pub cgroups: Option<Cgroups>,
    /// Whether user namespaces can be used.
    pub user_namespaces: UserNamespaces,
    /// The overlay file system.
    pub overlay: OverlaySupport,
    /// NVIDIA's driver and cards; absent where no driver is loaded.
    pub nvidia: Option<NvidiaDriver>,
}

/// Hints about the overlay file system; only mounting one proves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverlaySupport {
    /// It is in `/proc/filesystems`: built in, or its module is loaded.
    pub registered: bool,
    /// Its module lies in `/lib/modules`, so that root's first mount loads it.
    pub module: bool,
    /// The kernel is 5.11 or newer, which lets a user namespace mount it.
    pub in_user_namespaces: bool,
}

impl HostProfile {
    /// Reads the machine below `roots`. Nothing fails: what cannot be read is absent. A few dozen
    /// small reads, and no NVML, which would be slow to start.
    #[must_use]
    pub fn read(roots: &Roots) -> Self {
        let kernel_line =
            |name: &str| small_files::read_line(&roots.proc.join("sys/kernel").join(name));
        let kernel = kernel_line("osrelease");
        let status = small_files::read_text(&roots.proc.join("self/status")).unwrap_or_default();
        let meminfo = small_files::read_text(&roots.proc.join("meminfo")).unwrap_or_default();
        let cgroups = Cgroups::read(roots);
        let machine = Self {
            hostname: kernel_line("hostname"),
            cpus: small_files::find_field(&status, "Cpus_allowed_list").and_then(cpus::count_list),
            allowed_cpus: small_files::find_field(&status, "Cpus_allowed_list")
                .and_then(|l| l.parse().ok()),
            cpu_quota: cgroups.as_ref().and_then(cpus::read_quota),
            cpu_model: cpus::read_model_name(&roots.proc),
            memory: cpus::memory_line(&meminfo, "MemTotal"),
            memory_available: cpus::memory_line(&meminfo, "MemAvailable"),
            cgroups,
            user_namespaces: userns::check_available(roots),
            overlay: OverlaySupport::read(roots, kernel.as_deref()),
            nvidia: NvidiaDriver::read(roots),
            kernel,
        };
        machine.log_facts();
        machine
    }

    /// Says in the log what decides how a run is held here.
    fn log_facts(&self) {
        let (kernel, user_namespaces) = (self.kernel.as_deref(), self.user_namespaces);
        debug!(kernel, cpus = self.cpus, ?user_namespaces, "the machine");
        for one in self.cgroups.iter().flat_map(|all| &all.hierarchies) {
            let (v2, mount, delegated) = (one.v2, one.mount.display(), one.delegated);
            debug!(v2, %mount, own = ?one.own, delegated, "a hierarchy of cgroups");
        }
    }

    /// CPU time per time that the caller can use: its CPUs, or its cgroups' quota where that is
    /// less.
    #[must_use]
    pub fn usable_cpus(&self) -> Option<Millicores> {
        let cpus = Millicores(self.cpus?.checked_mul(1000)?);
        Some(self.cpu_quota.map_or(cpus, |quota| quota.min(cpus)))
    }

    /// The part that a run's record keeps. An unknown name is empty there and unknown memory is
    /// 0; both are always known on a machine with /proc.
    #[must_use]
    pub fn summary(&self) -> HostSummary {
        HostSummary {
            hostname: self.hostname.clone().unwrap_or_default(),
            kernel: self.kernel.clone().unwrap_or_default(),
            cpus: self.cpus.unwrap_or_default(),
            cpu_model: self.cpu_model.clone(),
            memory: self.memory.unwrap_or_default(),
            driver: self
                .nvidia
                .as_ref()
                .and_then(|nvidia| nvidia.driver.clone()),
            boot_id: None,
        }
    }
}

impl OverlaySupport {
    fn read(roots: &Roots, kernel: Option<&str>) -> Self {
        let file_systems =
            small_files::read_text(&roots.proc.join("filesystems")).unwrap_or_default();
        let module = kernel.is_some_and(|kernel| {
            let folder = Path::new("/lib/modules")
                .join(kernel)
                .join("kernel/fs/overlayfs");
            [
                "overlay.ko",
                "overlay.ko.xz",
                "overlay.ko.zst",
                "overlay.ko.gz",
            ]
            .iter()
            .any(|name| roots.locate(&folder.join(name)).is_file())
        });
        Self {
            registered: file_systems
                .lines()
                .any(|line| line.split_ascii_whitespace().last() == Some("overlay")),
            module,
            in_user_namespaces: kernel.is_some_and(|kernel| at_least(kernel, 5, 11)),
        }
    }
}

/// Whether a kernel release such as `6.1.0-25-amd64` is at least `major.minor`.
fn at_least(release: &str, major: u32, minor: u32) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// The name that the kernel gave this boot: process ids are only unique within it.
#[must_use]
pub fn boot_id(roots: &Roots) -> Option<String> {
    small_files::read_line(&roots.proc.join("sys/kernel/random/boot_id"))
}

/// The name of this installation (machine-id(5)): 32 hexadecimal digits, which stay the same over
/// reboots. Absent where there is none yet, and where it is none.
#[must_use]
pub fn machine_id(roots: &Roots) -> Option<String> {
    let older = roots.locate(Path::new("/var/lib/dbus/machine-id"));
    [roots.etc.join("machine-id"), older]
        .iter()
        .find_map(|path| small_files::read_line(path).filter(|id| is_machine_id(id)))
}

fn is_machine_id(id: &str) -> bool {
    // It becomes a part of file names.
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    id.len() == 32 && id.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_by_its_id_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let roots = Roots::from_dir(folder.path());
        assert_eq!(machine_id(&roots), None);
        std::fs::create_dir(&roots.etc).expect("a folder");
        let id = "0123456789abcdef0123456789abcdef";
        for (text, read) in [
            (format!("{id}\n"), Some(id)),
            ("uninitialized\n".to_owned(), None),
            (String::new(), None),
            ("../../../../../../../../../../ab".to_owned(), None),
            (id.to_uppercase(), None),
        ] {
            std::fs::write(roots.etc.join("machine-id"), &text).expect("a file");
            assert_eq!(machine_id(&roots).as_deref(), read, "{text}");
        }
    }

    #[test]
    fn releases_order_by_number() {
        assert!(at_least("6.1.0-25-amd64", 5, 11));
        assert!(at_least("5.11.0", 5, 11));
        assert!(!at_least("5.9.0-5-amd64", 5, 11));
        assert!(!at_least("4.18.0-553.el8", 5, 11));
        assert!(!at_least("", 5, 11));
    }
}
