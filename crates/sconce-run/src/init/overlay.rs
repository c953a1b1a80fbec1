//! The image's trees laid over each other, under a writable layer: on the state folder's disk, or
//! in memory where that disk cannot hold one.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::mount;
use sconce_schema::event::Unenforced;

use super::rootfs::NO_DEVICES;
use crate::plan::Container;
use crate::protocol::{Failure, errno};

/// Mounts the root at `root` in the scratch folder. Where its file system cannot hold the writable
/// layer (overlayfs itself, network file systems), that goes into memory, which is said.
///
/// Before Linux 6.6 a file system in memory has no attributes for a plain user. Overlayfs does
/// without, but for one thing: a folder of the image that was removed cannot be made anew (EIO).
pub(super) fn lay(plan: &Container, notices: &mut Vec<Unenforced>) -> Result<(), Failure> {
    let mut layers = Vec::with_capacity(plan.layers.len());
    for path in &plan.layers {
        layers.push(open(path).map_err(|error| Failure::Layer {
            path: path.clone(),
            errno: errno(error),
        })?);
    }
    let Err(refused) = mount_over(plan, &layers, &plan.scratch) else {
        return Ok(());
    };
    if plan.kept {
        return Err(Failure::Overlay {
            layers: plan.layers.len(),
            scratch: plan.scratch.clone(),
            errno: errno(refused),
        });
    }
    let failed = |error: io::Error| Failure::Overlay {
        layers: plan.layers.len(),
        scratch: plan.scratch.clone(),
        errno: errno(error),
    };
    let memory = plan.scratch.join("memory");
    let second =
        in_memory(&plan.scratch, &memory).and_then(|()| mount_over(plan, &layers, &memory));
    if second.is_err() {
        // What stands in the way of both is what the first met.
        return Err(failed(refused));
    }
    notices.push(Unenforced {
        what: "writable root on disk".to_owned(),
        why: format!(
            "the file system of {} cannot hold the writable layer of an overlay ({refused}); what \
             the run writes outside of its mounts is held in memory instead, counts as its memory, \
             and may be at most half of the machine's",
            plan.scratch.display()
        ),
        hint: Some(
            "put the state folder on ext4, xfs or btrfs; write large files to a mounted folder"
                .to_owned(),
        ),
    });
    Ok(())
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Lays the trees under `upper` of `writable`. Their paths can be long and the kernel takes one
/// page of options, so each is opened and named by its descriptor's number, from within
/// /proc/self/fd.
fn mount_over(plan: &Container, layers: &[OwnedFd], writable: &Path) -> io::Result<()> {
    let (upper, work) = (
        open(&writable.join("upper"))?,
        open(&writable.join("work"))?,
    );
    // overlayfs wants the highest first.
    let lower: Vec<_> = layers
        .iter()
        .rev()
        .map(|fd| fd.as_raw_fd().to_string())
        .collect();
    // volatile: the writable layer is thrown away, so nothing of it need ever reach the disk; what
    // is kept is synced with the rest of its store.
    // userxattr: a user namespace may not use the `trusted.` names; root need not care.
    let namespaced = if plan.credentials.change {
        ""
    } else {
        ",userxattr"
    };
    // What is kept has to mean the same without this mount: no folder that points to another, no
    // file without its data. (userxattr turns both off.)
    let complete = match plan.kept && plan.credentials.change {
        true => ",redirect_dir=off,metacopy=off",
        false => "",
    };
    let options = CString::new(format!(
        "lowerdir={},upperdir={},workdir={},volatile{namespaced}{complete}",
        lower.join(":"),
        upper.as_raw_fd(),
        work.as_raw_fd(),
    ))?;
    rustix::process::chdir(c"/proc/self/fd")?;
    let root = plan.scratch.join("root");
    Ok(mount(c"overlay", root, c"overlay", NO_DEVICES, &*options)?)
}

/// Makes a file system in memory at `memory`, with an empty `work` and with what is in `upper` of
/// `scratch`. It goes with this mount namespace.
fn in_memory(scratch: &Path, memory: &Path) -> io::Result<()> {
    std::fs::create_dir(memory)?;
    mount(c"tmpfs", memory, c"tmpfs", NO_DEVICES, c"mode=700")?;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(memory.join("work"))?;
    copy(&scratch.join("upper"), &memory.join("upper"))
}

/// Copies folders and files as they are. Nothing else is in a writable layer before its run.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = from.symlink_metadata()?;
    if metadata.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        std::fs::copy(from, to)?;
    }
    chown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    std::fs::set_permissions(to, PermissionsExt::from_mode(metadata.mode() & 0o7777))
}
