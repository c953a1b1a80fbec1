//! What every container has beneath what its command writes: places for the system's file systems,
//! /tmp, the files that name this machine, the user's home, and places for its mounts.
//!
//! It is the uppermost of the layers that are only read, on a file system in memory that belongs to
//! the run: a run that writes nothing leaves its writable layer on the disk empty. ext4 without a
//! journal looks at every inode that was freed within five minutes when it makes a new one
//! (`recently_deleted` in fs/ext4/ialloc.c), so that starts became slower with every run before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::{Errno, Result};
use rustix::mount::mount;

use super::rootfs::NO_DEVICES;
use crate::init_config::ContainerConfig;

/// The layer's folder in the file system in memory.
const LAYER: &str = "layer";
/// The folder that the run's processes and the supervisor share.
const SHARED: &str = "shared";

/// Most of what the run's processes may write to the shared folder, and a little for the layer. It counts
/// as their memory as well.
const OPTIONS: &std::ffi::CStr = c"mode=755,size=1g";

/// The file system in memory. It goes with the run's mount namespace, and with the last descriptor.
#[derive(Debug)]
pub(super) struct MemoryUpperDir {
    pub(super) layer: OwnedFd,
    /// Where processes of any user may write, if the run was asked to have that.
    pub(super) shared: Option<OwnedFd>,
}

/// Mounts the file system where the root will be, which will cover it: it needs no folder of its own.
pub(super) fn mount_memory(plan: &ContainerConfig) -> Result<MemoryUpperDir> {
    let place = plan.scratch.join("root");
    mount(c"tmpfs", &place, c"tmpfs", NO_DEVICES, OPTIONS)?;
    let top = folder(rustix::fs::CWD, &place)?;
    let layer = make(&top, LAYER, 0o755)?;
    let shared = match plan.shared {
        Some(_) => Some(make(&top, SHARED, 0o1777)?),
        None => None,
    };
    Ok(MemoryUpperDir { layer, shared })
}

/// Fills the layer, or, for a run whose writable layer is kept, that one.
pub(super) fn populate_layer(layer: &OwnedFd, plan: &ContainerConfig) -> Result<()> {
    for name in ["proc", "sys", "dev"] {
        make(layer, name, 0o755)?;
    }
    make(layer, "tmp", 0o1777)?;
    let etc = make(layer, "etc", 0o755)?;
    for (name, text) in crate::etc_files::render_files(plan.network, &plan.hostname, plan.address) {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&etc, name, flags, Mode::from_raw_mode(0o644))?;
        write_all(&file, &text)?;
    }
    let Some(name) = &plan.home else {
        return Ok(());
    };
    let home = make(&make(layer, "home", 0o755)?, name, 0o755)?;
    // In a user namespace it is the user's as it is.
    if plan.credentials.change {
        let (uid, gid) = (plan.credentials.uid, plan.credentials.gid);
        fchown(&home, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// Makes places for the mounts in the layer, where the image below it has none. What is left out here
/// is made later, on the disk: where a link leads, and what lies in another mount.
pub(super) fn add_places(memory: &MemoryUpperDir, image: &[OwnedFd], plan: &ContainerConfig) {
    let mut layers = vec![memory.layer.as_fd()];
    layers.extend(image.iter().rev().map(AsFd::as_fd));
    let is_anothers = image.first().is_some_and(is_of_nobody_here);
    let shared = plan.shared.as_deref().map(|path| (path, true));
    let mounts = plan.mounts.iter().filter_map(|mount| {
        let is_folder = mount.source.metadata().ok()?.is_dir();
        Some((mount.target.as_path(), is_folder))
    });
    let elsewhere = |target: &Path| {
        let others = plan.mounts.iter().map(|mount| mount.target.as_path());
        let system = ["/dev", "/proc", "/sys"].map(Path::new);
        let mut above = others.filter(|other| *other != target).chain(system);
        above.any(|other| target.starts_with(other))
    };
    for (target, is_folder) in mounts
        .chain(shared)
        .filter(|(target, _)| !elsewhere(target))
    {
        let _ = add_place(&layers, target, is_folder, is_anothers);
    }
}

/// Whether a tree is of a user that this namespace lacks, as in a store of another user: all of the system is then.
fn is_of_nobody_here(tree: &OwnedFd) -> bool {
    /// What the kernel shows for such a user, unless `/proc/sys/kernel/overflowuid` was changed.
    const OVERFLOW_ID: u32 = 65534;
    rustix::fs::fstat(tree).is_ok_and(|stat| stat.st_uid == OVERFLOW_ID)
}

/// A place with the folders above it, each as the uppermost layer that has it. Where the system `is_anothers`, nothing
/// can be made in any of its folders, and so they are the run's here.
fn add_place(
    layers: &[BorrowedFd<'_>],
    target: &Path,
    is_folder: bool,
    is_anothers: bool,
) -> Result<()> {
    let mut seen = layers.to_vec();
    let mut so_far = PathBuf::new();
    let mut parent = None;
    let mut missing = Vec::new();
    for part in target.components() {
        let Component::Normal(name) = part else {
            continue;
        };
        so_far.push(name);
        let found = match missing.is_empty() {
            true => uppermost(&mut seen, &so_far)?,
            false => None,
        };
        match found {
            Some(stat) => parent = Some((so_far.clone(), stat)),
            None => missing.push(name.to_owned()),
        }
    }
    let Some(last) = missing.pop() else {
        return Ok(());
    };
    let mut at = layers[0].try_clone_to_owned().map_err(errno)?;
    let mut owner = None;
    if let Some((path, _)) = &parent {
        let mut above = PathBuf::new();
        for part in path.components() {
            above.push(part);
            let mut all = layers.to_vec();
            let mut stat = uppermost(&mut all, &above)?.ok_or(Errno::NOENT)?;
            if is_anothers {
                let own = rustix::fs::fstat(layers[0])?;
                (stat.st_uid, stat.st_gid) = (own.st_uid, own.st_gid);
            }
            at = make_as(&at, part.as_os_str().as_bytes(), &stat)?;
            owner = Some((stat.st_uid, stat.st_gid));
        }
    }
    for name in &missing {
        at = make_for(&at, name.as_bytes(), owner)?;
    }
    if is_folder {
        make_for(&at, last.as_bytes(), owner)?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = openat(&at, last.as_os_str(), flags, Mode::from_raw_mode(0o644))?;
        give(&made, owner)?;
    }
    Ok(())
}

/// The folder of that path in the uppermost of `layers` that has one; those that have none are left out of
/// them. What is no folder may lead elsewhere: an error.
fn uppermost(layers: &mut Vec<BorrowedFd<'_>>, path: &Path) -> Result<Option<Stat>> {
    let mut found = None;
    let mut with_it = Vec::new();
    for layer in layers.iter() {
        let stat = match statat(layer, path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            other => other?,
        };
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            match found {
                // It hides what is below it, as overlayfs has it.
                Some(_) => break,
                None => return Err(Errno::NOTDIR),
            }
        }
        with_it.push(*layer);
        found = found.or(Some(stat));
    }
    *layers = with_it;
    Ok(found)
}

/// A folder like another one.
fn make_as(at: &OwnedFd, name: &[u8], like: &Stat) -> Result<OwnedFd> {
    match mkdirat(at, name, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) => folder(at, name),
        other => {
            other?;
            let made = folder(at, name)?;
            let alike = give(&made, Some((like.st_uid, like.st_gid)))
                .and_then(|()| fchmod(&made, Mode::from_raw_mode(like.st_mode & 0o7777)));
            // A user namespace may lack the owner. Then the image's folder is better than another's.
            alike.inspect_err(|_| {
                let _ = unlinkat(at, name, AtFlags::REMOVEDIR);
            })?;
            Ok(made)
        }
    }
}

/// A new folder of that owner.
fn make_for(at: &OwnedFd, name: &[u8], owner: Option<(u32, u32)>) -> Result<OwnedFd> {
    let made = make(at, name, 0o755)?;
    give(&made, owner)?;
    Ok(made)
}

fn give(made: &OwnedFd, owner: Option<(u32, u32)>) -> Result<()> {
    let Some((uid, gid)) = owner else {
        return Ok(());
    };
    let now = rustix::fs::fstat(made)?;
    if (now.st_uid, now.st_gid) == (uid, gid) {
        return Ok(());
    }
    fchown(made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// A new folder with exactly this mode: init's file mode mask is empty.
fn make(at: &OwnedFd, name: impl rustix::path::Arg + Copy, mode: u32) -> Result<OwnedFd> {
    mkdirat(at, name, Mode::from_raw_mode(mode))?;
    folder(at, name)
}

fn folder(at: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::write(file, bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
