//! The root file system: the image's trees under a writable layer, /proc, /sys, /dev, the mounts
//! of the request, and nothing of the machine besides.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_change, move_mount, open_tree, unmount,
};
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::NetworkMode;

use super::mount_points::{self, MountPointKind};
use super::overlay;
use crate::init_config::{ContainerConfig, InitMount};
use crate::protocol::{InitFailure, errno};
use crate::sys::mount as attributes;

/// The step that fails where the machine's own /proc is partly covered.
pub(crate) const MOUNT_PROC: &str = "mount /proc";

pub(super) const NO_DEVICES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
pub(super) const NOTHING_RUNS: MountFlags = NO_DEVICES.union(MountFlags::NOEXEC);

/// Files and folders of /proc and /sys that tell or do too much: the defaults that container
/// engines share, and what root inside could tell the kernel to write into its log.
const MASKED: [&str; 11] = [
    "proc/acpi",
    "proc/asound",
    "proc/dynamic_debug",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/scsi",
    "proc/timer_list",
    "sys/firmware",
    "sys/devices/virtual/powercap",
];

/// Those that can be read and not written.
const READ_ONLY: [&str; 5] = [
    "proc/bus",
    "proc/fs",
    "proc/irq",
    "proc/sys",
    "proc/sysrq-trigger",
];

/// Builds the root and enters it; gives the shared folder. Wishes that could not be granted are added to `notices`.
pub(super) fn enter_root(
    plan: &ContainerConfig,
    owners: &[OwnedFd],
    notices: &mut Vec<UnenforcedLimit>,
) -> Result<Option<OwnedFd>, InitFailure> {
    let (_, shared) = build_root(plan, owners, notices)?;
    // The old root goes below the new one, and from there away.
    rustix::process::pivot_root(c".", c".").map_err(InitFailure::at_step("change the root"))?;
    unmount(c".", UnmountFlags::DETACH).map_err(InitFailure::at_step("leave the old root"))?;
    rustix::process::chdir(c"/").map_err(InitFailure::at_step("enter the root"))?;
    Ok(shared)
}

/// Builds the root; afterwards it is the working directory. Gives it, and the shared folder.
pub(super) fn build_root(
    plan: &ContainerConfig,
    owners: &[OwnedFd],
    notices: &mut Vec<UnenforcedLimit>,
) -> Result<(OwnedFd, Option<OwnedFd>), InitFailure> {
    // Modes are meant as they are written here; the command gets the usual mask again.
    rustix::process::umask(Mode::empty());
    rustix::system::sethostname(plan.hostname.as_bytes())
        .map_err(InitFailure::at_step("set the host name"))?;
    if plan.network != NetworkMode::Host {
        super::devices::loopback_up().map_err(InitFailure::at_step("bring the loopback up"))?;
    }
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change(c"/", private).map_err(InitFailure::at_step("make mounts private"))?;
    super::devices::validate_host_devices()?;
    let left = plan.held.as_ref().is_some_and(|held| held.mounts_system);
    let covered = |mount: &&InitMount| left && crate::engine::is_covered(&mount.target);
    let wanted = plan.mounts.iter().filter(|mount| !covered(mount));
    // Before the root is there: a folder that has the store in it would bring it along.
    let opened: Vec<_> = wanted
        .map(|wanted| {
            let owners = wanted.owners.and_then(|index| owners.get(index));
            Ok((wanted, open(wanted, owners, notices)?))
        })
        .collect::<Result<_, InitFailure>>()?;
    let memory = overlay::mount_overlay(plan, notices)?;
    let root_path = plan.scratch.join("root");
    rustix::process::chdir(&root_path).map_err(InitFailure::at_step("enter the new root"))?;
    let root = rustix::fs::open(c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(InitFailure::at_step("open the new root"))?;
    if !left {
        system_folders(plan)?;
    }
    for (wanted, tree) in opened {
        bind(root.as_fd(), wanted, &tree)?;
    }
    if let (Some(folder), Some(target)) = (&memory.shared, &plan.shared) {
        let failed = |error: Errno| InitFailure::Target {
            path: target.clone(),
            errno: errno(error),
        };
        let tree = open_tree(folder, c"", clone_flags() | OpenTreeFlags::AT_EMPTY_PATH);
        let tree = tree.map_err(failed)?;
        attributes::set_attributes(&tree, c"", false, attributes::NOEXEC, None)
            .map_err(to_errno)
            .map_err(failed)?;
        move_to(root.as_fd(), &tree, target, MountPointKind::Folder).map_err(failed)?;
    }
    for (target, path) in &plan.links {
        mount_points::create_link(root.as_fd(), target, path).map_err(|error| {
            InitFailure::Target {
                path: path.clone(),
                errno: errno(error),
            }
        })?;
    }
    Ok((root, memory.shared))
}

/// /proc, /sys and /dev. The folders themselves are in the run's own layer, made by Sconce, so that
/// these names are what they seem, whatever the image has there.
fn system_folders(plan: &ContainerConfig) -> Result<(), InitFailure> {
    mount(c"proc", c"proc", c"proc", NOTHING_RUNS, None)
        .map_err(InitFailure::at_step(MOUNT_PROC))?;
    match mount(
        c"sysfs",
        c"sys",
        c"sysfs",
        NOTHING_RUNS | MountFlags::RDONLY,
        None,
    ) {
        // sysfs shows the network's owner's devices; in a user namespace on the host's network
        // the machine's own tree has to serve.
        Err(Errno::PERM) => read_only_copy(c"/sys", c"sys"),
        other => other,
    }
    .map_err(InitFailure::at_step("mount /sys"))?;
    super::devices::populate_dev(plan)?;
    for path in MASKED {
        mask(path).map_err(InitFailure::at_step(path))?;
    }
    for path in READ_ONLY {
        let path = CString::new(path).map_err(InitFailure::at_step(path))?;
        match read_only_copy(&path, &path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(InitFailure::at_step("make /proc/sys read-only")(error)),
        }
    }
    Ok(())
}

fn mask(path: &str) -> rustix::io::Result<()> {
    match mount_bind(c"dev/null", path) {
        Err(Errno::NOTDIR) => mount(
            c"tmpfs",
            path,
            c"tmpfs",
            NOTHING_RUNS | MountFlags::RDONLY,
            c"size=0,nr_inodes=2,mode=555",
        ),
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn read_only_copy(source: &std::ffi::CStr, target: &std::ffi::CStr) -> rustix::io::Result<()> {
    let tree = open_tree(CWD, source, clone_flags())?;
    let closed = attributes::RDONLY | attributes::NOSUID | attributes::NODEV | attributes::NOEXEC;
    attributes::set_attributes(&tree, c"", true, closed, None).map_err(to_errno)?;
    move_mount(
        &tree,
        c"",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

fn clone_flags() -> OpenTreeFlags {
    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE
}

fn to_errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

/// One file or folder of the machine, ready to be attached.
fn open(
    wanted: &InitMount,
    owners: Option<&OwnedFd>,
    notices: &mut Vec<UnenforcedLimit>,
) -> Result<OwnedFd, InitFailure> {
    let source = |error: Errno| InitFailure::Source {
        path: wanted.source.clone(),
        errno: errno(error),
    };
    let tree = open_tree(CWD, &wanted.source, clone_flags()).map_err(source)?;
    attributes::set_attributes(&tree, c"", true, wanted.attributes, None)
        .map_err(to_errno)
        .map_err(source)?;
    if let Some(owners) = owners
        && let Err(error) = attributes::set_attributes(&tree, c"", true, 0, Some(owners.as_fd()))
    {
        notices.push(UnenforcedLimit {
            what: format!("owner of {}", wanted.target.display()),
            why: format!(
                "the file system of {} cannot show its files as the run's user's ({error}), so \
                     that what is private to their owner is closed to the run",
                wanted.source.display()
            ),
            hint: Some(
                "start Sconce as the folder's owner, or keep the folder on ext4, xfs or btrfs"
                    .to_owned(),
            ),
        });
    }
    Ok(tree)
}

/// Attaches it.
fn bind(root: BorrowedFd<'_>, wanted: &InitMount, tree: &OwnedFd) -> Result<(), InitFailure> {
    let target = |error: Errno| InitFailure::Target {
        path: wanted.target.clone(),
        errno: errno(error),
    };
    let kind = match FileType::from_raw_mode(fstat(tree).map_err(target)?.st_mode) {
        FileType::Directory => MountPointKind::Folder,
        _ => MountPointKind::File,
    };
    move_to(root, tree, &wanted.target, kind).map_err(target)
}

/// Attaches a mount in the root.
fn move_to(
    root: BorrowedFd<'_>,
    tree: &OwnedFd,
    target: &Path,
    kind: MountPointKind,
) -> rustix::io::Result<()> {
    let place = mount_points::ensure_mount_point(root, target, kind)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", &place, c"", both)
}
