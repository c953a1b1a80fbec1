//! What a container needs to use cards, made by ourselves: device nodes, the driver's own
//! libraries and programs, links and environment, as Container Device Interface edits.
//!
//! The set is what NVIDIA's tools call the capabilities `compute` and `utility`. Libraries come
//! from the host because they must have exactly the version of its kernel module. Only the nodes
//! of the given cards are named: a process without CAP_MKNOD cannot reach another card.

mod check;
mod describe;
mod driver_files;
mod elf;
mod files;
mod ld_cache;
mod spec;
mod write;
mod yaml;

use std::path::{Path, PathBuf};

use sconce_schema::request::{ContainerEdits, DeviceNode, EditMount};
use sconce_schema::{Hint, exit};

use crate::host_profile::HostProfile;
use crate::nvidia::{CharacterDevice, GpuDevice};
use crate::roots::Roots;
use crate::small_files;
use driver_files::DriverFiles;
pub(crate) use driver_files::library_folders;

pub use check::{CdiProblem, CdiProblemKind, check_file};
pub use describe::{NVIDIA, build_spec};
pub use files::{CdiDevice, CdiFile, CdiPrecedence, list_devices, read_file, read_files};
pub use spec::is_kind;
pub use write::text_for;

/// Whether the loader of this machine can load the file.
pub(crate) fn is_library(path: &Path) -> bool {
    elf::read_library(path).is_some()
}

/// Where a loader's cache says that `name` lies, in its order.
pub(crate) fn named_in_cache(cache: &[u8], name: &str) -> Vec<PathBuf> {
    let folders = ld_cache::find_library_dirs(cache, |entry| entry == name);
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .collect()
}

/// Why cards cannot be given to a container.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// No driver is loaded, or it does not tell its version.
    #[error("no NVIDIA driver is loaded on this machine")]
    NoDriver,
    /// A device node does not exist.
    #[error("the device node {path} does not exist")]
    NodeMissing {
        /// The node.
        path: PathBuf,
    },
    /// The caller may not open a device node.
    #[error("this user may not read and write the device node {path}")]
    NodeClosed {
        /// The node.
        path: PathBuf,
    },
    /// The driver's main library is in none of the places where it should be.
    #[error(
        "libcuda.so.{driver}, the library of the loaded driver, was not found in {}",
        list(searched)
    )]
    NoLibrary {
        /// The loaded driver's version.
        driver: String,
        /// The folders that were searched.
        searched: Vec<PathBuf>,
    },
    /// There is no card to describe.
    #[error("this machine's driver knows no card")]
    NoCard,
    /// The kernel module does not tell how an instance of a divided card is reached.
    #[error("{path} does not tell which node belongs to the instance {uuid}")]
    NoCapability {
        /// `MIG-…`.
        uuid: String,
        /// The kernel module's file.
        path: PathBuf,
    },
    /// A name that engines do not read.
    #[error("{path} ends neither in .json nor in .yaml")]
    Ending {
        /// The file.
        path: PathBuf,
    },
    /// A file of ours could not be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn list(folders: &[PathBuf]) -> String {
    let names: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    names.join(", ")
}

impl Hint for CdiError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoDriver => "install NVIDIA's driver, or ask for `gpus = 0`".to_owned(),
            Self::NodeMissing { .. } => {
                "run `sudo nvidia-modprobe -c=0 -u`, which loads the modules and makes the nodes"
                    .to_owned()
            }
            Self::NodeClosed { path } => format!(
                "join the group that owns {} (often `video` or `render`), or run as root",
                path.display()
            ),
            Self::NoLibrary { driver, .. } => format!(
                "the loaded kernel module is {driver}: after an update of the driver, reboot; \
                 on a fresh machine, install the driver's compute libraries"
            ),
            Self::NoCard => "`sconce doctor` looks for the reason".to_owned(),
            Self::NoCapability { .. } => {
                "the instances were changed while they were read, or the driver is older than 450; \
                 `nvidia-smi mig -lgi` lists them"
                    .to_owned()
            }
            Self::Ending { .. } => "engines read no other files".to_owned(),
            Self::Write { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "write it as root, or for your own engines with --user".to_owned()
            }
            Self::Write { .. } => return None,
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Write { .. } => exit::STORE,
            Self::Ending { .. } => exit::USAGE,
            Self::NoDriver
            | Self::NodeMissing { .. }
            | Self::NodeClosed { .. }
            | Self::NoLibrary { .. }
            | Self::NoCard
            | Self::NoCapability { .. } => exit::RUN,
        }
    }
}

/// Edits that give a container `cards` (chosen by [`crate::select_gpus`]): first those that every card
/// needs, then one for each card in order. No card, no edits.
///
/// `scratch` is a folder of the run that lives as long as the container. A copy of the driver's
/// parameters is written there and mounted over `/proc/driver/nvidia/params`, in which
/// `ModifyDeviceFiles` is 0, so that NVIDIA's libraries do not make nodes of other cards.
///
/// # Errors
/// When there is no driver, a node is missing or closed, the driver's library is not found, or
/// the copy cannot be written.
pub fn edits_for(
    facts: &HostProfile,
    cards: &[&GpuDevice],
    roots: &Roots,
    scratch: &Path,
) -> Result<Vec<ContainerEdits>, CdiError> {
    let (mut edits, files) = base(facts, cards, roots)?;
    let Some(common) = edits.first_mut() else {
        return Ok(edits);
    };
    files.into_edits(common);
    if let Some(mount) = masked_params(roots, scratch)? {
        common.mounts.push(mount);
    }
    Ok(edits)
}

/// Environment and nodes, and the driver's files, which are not in the edits yet.
fn base(
    facts: &HostProfile,
    cards: &[&GpuDevice],
    roots: &Roots,
) -> Result<(Vec<ContainerEdits>, DriverFiles), CdiError> {
    if cards.is_empty() {
        return Ok((Vec::new(), DriverFiles::default()));
    }
    let nvidia = facts.nvidia.as_ref().ok_or(CdiError::NoDriver)?;
    let driver = nvidia.driver.as_deref().ok_or(CdiError::NoDriver)?;
    let mut edits = vec![ContainerEdits {
        env: env(),
        device_nodes: control_nodes(&nvidia.control)?,
        ..ContainerEdits::default()
    }];
    for card in cards {
        let node = card.node.as_ref().ok_or_else(|| CdiError::NodeMissing {
            path: format!("/dev/nvidia{}", card.minor.unwrap_or(card.index)).into(),
        })?;
        edits.push(ContainerEdits {
            device_nodes: vec![usable(node)?],
            ..ContainerEdits::default()
        });
    }
    Ok((edits, DriverFiles::find(driver, roots)?))
}

/// Environment of a container with cards.
fn env() -> Vec<String> {
    vec![
        // NVIDIA's own hooks, if an engine has them, shall add nothing to what we chose.
        "NVIDIA_VISIBLE_DEVICES=void".to_owned(),
        // Number the cards as NVML and nvidia-smi do, not fastest first.
        "CUDA_DEVICE_ORDER=PCI_BUS_ID".to_owned(),
        // Triton asks `ldconfig -p` otherwise, which knows nothing of mounted libraries.
        format!("TRITON_LIBCUDA_PATH={}", driver_files::container_folder()),
    ]
}

/// The control nodes that exist; CUDA works with no fewer than nvidiactl and nvidia-uvm.
fn control_nodes(control: &[CharacterDevice]) -> Result<Vec<DeviceNode>, CdiError> {
    for needed in ["/dev/nvidiactl", "/dev/nvidia-uvm"] {
        if !control.iter().any(|node| node.path == Path::new(needed)) {
            return Err(CdiError::NodeMissing {
                path: needed.into(),
            });
        }
    }
    control.iter().map(usable).collect()
}

fn device_node(node: &CharacterDevice) -> DeviceNode {
    DeviceNode {
        path: text(&node.path),
        host_path: text(&node.host_path),
        r#type: "c".to_owned(),
        major: node.major,
        minor: node.minor,
    }
}

fn usable(node: &CharacterDevice) -> Result<DeviceNode, CdiError> {
    match node.usable {
        true => Ok(device_node(node)),
        false => Err(CdiError::NodeClosed {
            path: node.path.clone(),
        }),
    }
}

fn masked_params(roots: &Roots, scratch: &Path) -> Result<Option<EditMount>, CdiError> {
    let Some(masked) = small_files::read_text(&roots.proc.join("driver/nvidia/params"))
        .and_then(|text| mask_params(&text))
    else {
        return Ok(None);
    };
    let path = scratch.join("nvidia-params");
    std::fs::write(&path, masked).map_err(|source| CdiError::Write {
        path: path.clone(),
        source,
    })?;
    Ok(Some(bind(&path, "/proc/driver/nvidia/params", true)))
}

/// The parameters with `ModifyDeviceFiles: 0`; `None` when they have no such line, or it is 0.
fn mask_params(text: &str) -> Option<String> {
    (small_files::find_field(text, "ModifyDeviceFiles")? != "0").then(|| {
        text.lines()
            .map(|line| match line.split_once(':') {
                Some(("ModifyDeviceFiles", _)) => "ModifyDeviceFiles: 0\n".to_owned(),
                _ => format!("{line}\n"),
            })
            .collect()
    })
}

/// A bind mount of a file; never with device nodes or set-uid programs.
fn bind(host: &Path, container: &str, read_only: bool) -> EditMount {
    // A socket is talked to, not executed; programs and libraries are.
    let kind = if read_only { "ro" } else { "noexec" };
    EditMount {
        host_path: text(host),
        container_path: container.to_owned(),
        options: [kind, "nosuid", "nodev", "bind"]
            .map(str::to_owned)
            .to_vec(),
    }
}

/// Paths here are of the driver's files, whose names are ASCII; a strange root above them would
/// be shown with replacement characters and then not be found.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_node_is_named() {
        let node = CharacterDevice {
            path: "/dev/nvidia0".into(),
            host_path: "/dev/nvidia0".into(),
            major: 195,
            minor: 0,
            usable: false,
        };
        let error = usable(&node).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this user may not read and write the device node /dev/nvidia0"
        );
        assert!(error.hint().unwrap().contains("group"));
    }

    #[test]
    fn parameters_are_masked() {
        let text = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n";
        assert_eq!(
            mask_params(text).unwrap(),
            "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\n"
        );
        assert_eq!(mask_params("ModifyDeviceFiles: 0\n"), None);
        assert_eq!(mask_params("DeviceFileUID: 0\n"), None);
    }
}
