//! NVIDIA's device nodes, and whether they can be used.
//!
//! access(2) asks a node's permissions and the device cgroup alike: it says EACCES for the one and
//! EPERM for the other, without the driver noticing (the kernel's `inode_permission` calls
//! `devcgroup_inode_permission`; seen on kernel 6.18). So the nodes of cards are not opened: that
//! would start a card that sleeps, which takes seconds. The control nodes `nvidiactl` and
//! `nvidia-uvm` are, where the caller wishes it: opening them starts no card, and it finds a file
//! system without devices (EACCES although the permissions allow it) and a node whose module is
//! not loaded (ENXIO).

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, major, minor, open};
use rustix::io::Errno;
use sconce_schema::facts::DeviceNodeFacts;

use crate::roots::Roots;

/// More nodes than a machine with every card split has.
const MAX_NODES: usize = 1024;
/// Control nodes that may be opened.
const OPENED: [&str; 2] = ["nvidiactl", "nvidia-uvm"];

/// The nodes /dev/nvidia*, /dev/nvidia-caps/*, /dev/nvidia-caps-imex-channels/* and /dev/dxg;
/// `None` where /dev cannot be read.
#[must_use]
pub fn read(roots: &Roots, open_control: bool) -> Option<Vec<DeviceNodeFacts>> {
    let mut nodes = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let ours = |name: &String| name.starts_with("nvidia") || name == "dxg";
    for name in list(&roots.dev)?.into_iter().filter(ours) {
        match name.as_str() {
            "nvidia-caps" | "nvidia-caps-imex-channels" => {
                let inside = list(&roots.dev.join(&name)).unwrap_or_default();
                names.extend(inside.iter().map(|inner| format!("{name}/{inner}")));
            }
            _ => names.push(name),
        }
    }
    names.sort();
    // sd_booted(3).
    let systemd = roots.root.join("run/systemd/system").is_dir();
    for name in names.iter().take(MAX_NODES) {
        let opened = open_control && OPENED.contains(&name.as_str());
        let Some(found) = node(&roots.dev.join(name), name, opened) else {
            continue;
        };
        nodes.push(DeviceNodeFacts {
            char_link: systemd.then(|| is_linked(roots, &found)),
            ..found
        });
    }
    Some(nodes)
}

fn list(folder: &Path) -> Option<Vec<String>> {
    let names = folder.read_dir().ok()?.flatten();
    Some(
        names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect(),
    )
}

fn node(path: &Path, name: &str, opened: bool) -> Option<DeviceNodeFacts> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.file_type().is_char_device() {
        return None;
    }
    let access = Access::READ_OK | Access::WRITE_OK;
    let allowed = accessat(CWD, path, access, AtFlags::EACCESS);
    // Not to wait, and not to become the terminal of a process without one.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tried = match allowed {
        Err(error) => Err(error),
        Ok(()) if opened => open(path, flags, Mode::empty()).map(drop),
        Ok(()) => Ok(()),
    };
    Some(DeviceNodeFacts {
        path: format!("/dev/{name}"),
        major: major(metadata.rdev()),
        minor: minor(metadata.rdev()),
        mode: metadata.mode() & 0o7777,
        // What a device cgroup forbids, the permissions may well allow.
        usable: matches!(allowed, Ok(()) | Err(Errno::PERM)),
        open_error: match (allowed, tried) {
            // What the permissions forbid is told by `usable`.
            (Err(Errno::ACCESS), _) => None,
            (_, tried) => tried.err().map(words),
        },
        char_link: None,
    })
}

/// Whether the link by a node's numbers leads to such a node.
fn is_linked(roots: &Roots, node: &DeviceNodeFacts) -> bool {
    let link = roots
        .dev
        .join(format!("char/{}:{}", node.major, node.minor));
    std::fs::metadata(link).is_ok_and(|end| {
        let number = (major(end.rdev()), minor(end.rdev()));
        end.file_type().is_char_device() && number == (node.major, node.minor)
    })
}

/// `EPERM: Operation not permitted`.
fn words(error: Errno) -> String {
    let name = match error {
        Errno::PERM => "EPERM: ",
        Errno::ACCESS => "EACCES: ",
        Errno::NXIO => "ENXIO: ",
        Errno::NODEV => "ENODEV: ",
        Errno::IO => "EIO: ",
        Errno::BUSY => "EBUSY: ",
        _ => "",
    };
    let text = std::io::Error::from(error).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("{name}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nodes_of_a_recorded_machine() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        assert_eq!(read(&roots, true), None);
        std::fs::create_dir_all(roots.dev.join("nvidia-caps")).unwrap();
        for name in ["nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap1", "null"] {
            symlink("/dev/null", roots.dev.join(name)).unwrap();
        }
        std::fs::write(roots.dev.join("nvidia-uvm"), "a file, no node").unwrap();
        let nodes = read(&roots, true).unwrap();
        let names: Vec<_> = nodes.iter().map(|node| node.path.as_str()).collect();
        let expected = [
            "/dev/nvidia-caps/nvidia-cap1",
            "/dev/nvidia0",
            "/dev/nvidiactl",
        ];
        assert_eq!(names, expected);
        for node in nodes {
            assert_eq!((node.major, node.minor, node.mode), (1, 3, 0o666));
            assert!(node.usable && node.open_error.is_none(), "{node:?}");
        }
    }

    #[test]
    fn links_by_number_are_looked_for_where_systemd_runs() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        std::fs::create_dir_all(roots.dev.join("char")).unwrap();
        symlink("/dev/null", roots.dev.join("nvidia0")).unwrap();
        let linked = || read(&roots, false).unwrap()[0].char_link;
        assert_eq!(linked(), None);
        std::fs::create_dir_all(folder.path().join("run/systemd/system")).unwrap();
        assert_eq!(linked(), Some(false));
        let link = roots.dev.join("char/1:3");
        symlink("/dev/zero", &link).unwrap();
        assert_eq!(linked(), Some(false), "it leads to another node");
        std::fs::remove_file(&link).unwrap();
        symlink("../nvidia0", &link).unwrap();
        assert_eq!(linked(), Some(true));
    }

    #[test]
    fn errors_have_their_names() {
        assert_eq!(words(Errno::PERM), "EPERM: Operation not permitted");
        assert_eq!(words(Errno::NXIO), "ENXIO: No such device or address");
    }
}
