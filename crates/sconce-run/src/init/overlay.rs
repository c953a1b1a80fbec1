//! The image's trees laid over each other, with the run's own layer above them, under a writable layer:
//! on the state folder's disk, or in memory where that disk cannot hold one.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::mount;
use sconce_schema::event::UnenforcedLimit;

use super::rootfs::NO_DEVICES;
use super::upper_dir::{self, MemoryUpperDir};
use crate::init_config::ContainerConfig;
use crate::protocol::{InitFailure, errno};

/// Mounts the root at `root` in the scratch folder, and gives the file system in memory that lies beneath
/// it. Where the scratch folder's file system cannot hold the writable
/// layer (overlayfs itself, network file systems), that goes into memory, which is said.
///
/// Before Linux 6.6 a file system in memory has no attributes for a plain user. Overlayfs does
/// without, but for one thing: a folder of the image that was removed cannot be made anew (EIO).
pub(super) fn mount_overlay(
    plan: &ContainerConfig,
    notices: &mut Vec<UnenforcedLimit>,
) -> Result<MemoryUpperDir, InitFailure> {
    let mut layers = Vec::with_capacity(plan.layers.len());
    for path in &plan.layers {
        layers.push(open(path).map_err(|error| InitFailure::Layer {
            path: path.clone(),
            errno: errno(error),
        })?);
    }
    let writable =
        Writable::open(&plan.scratch).map_err(InitFailure::at_step("open the writable layer"))?;
    let memory = upper_dir::mount_memory(plan)
        .map_err(InitFailure::at_step("mount the run's own memory"))?;
    if plan.kept {
        // What a build step wrote is told from what was there by its writable layer alone.
        upper_dir::populate_layer(&writable.upper, plan)
    } else {
        upper_dir::populate_layer(&memory.layer, plan)
            .inspect(|()| upper_dir::add_places(&memory, &layers, plan))
    }
    .map_err(InitFailure::at_step("make what every container has"))?;
    if !plan.kept {
        layers.push(
            memory
                .layer
                .try_clone()
                .map_err(InitFailure::at_step("open a layer"))?,
        );
    }
    let Err(refused) = mount_over(plan, &layers, &writable) else {
        return Ok(memory);
    };
    if plan.kept {
        return Err(InitFailure::Overlay {
            layers: plan.layers.len(),
            scratch: plan.scratch.clone(),
            errno: errno(refused),
        });
    }
    let failed = |error: io::Error| InitFailure::Overlay {
        layers: plan.layers.len(),
        scratch: plan.scratch.clone(),
        errno: errno(error),
    };
    let second = in_memory(&plan.scratch.join("memory"))
        .and_then(|writable| mount_over(plan, &layers, &writable));
    if second.is_err() {
        // What stands in the way of both is what the first met.
        return Err(failed(refused));
    }
    notices.push(UnenforcedLimit {
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
    Ok(memory)
}

/// What the kernel writes into.
struct Writable {
    upper: OwnedFd,
    work: OwnedFd,
}

impl Writable {
    fn open(folder: &Path) -> rustix::io::Result<Self> {
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            upper: rustix::fs::open(folder.join("upper"), readable, Mode::empty())?,
            work: open(&folder.join("work"))?,
        })
    }
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Lays the trees under `upper` of `writable`. Their paths can be long and the kernel takes one
/// page of options, so each is opened and named by its descriptor's number, from within
/// /proc/self/fd.
fn mount_over(plan: &ContainerConfig, layers: &[OwnedFd], writable: &Writable) -> io::Result<()> {
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
    // xino: the run's own layer is another file system than the others; st_dev and st_ino are as if there
    // were one all the same, for `du -x`, and for whoever knows a file by them while it is written to.
    let one = if plan.kept { "" } else { ",xino=on" };
    let options = CString::new(format!(
        "lowerdir={},upperdir={},workdir={},volatile{namespaced}{complete}{one}",
        lower.join(":"),
        writable.upper.as_raw_fd(),
        writable.work.as_raw_fd(),
    ))?;
    rustix::process::chdir(c"/proc/self/fd")?;
    let root = plan.scratch.join("root");
    Ok(mount(c"overlay", root, c"overlay", NO_DEVICES, &*options)?)
}

/// Makes a file system in memory at `memory`, with an empty `upper` and `work`. It goes with this mount
/// namespace.
fn in_memory(memory: &Path) -> io::Result<Writable> {
    std::fs::create_dir(memory)?;
    mount(c"tmpfs", memory, c"tmpfs", NO_DEVICES, c"mode=700")?;
    for (name, mode) in [("work", 0o700), ("upper", 0o755)] {
        let mut folder = std::fs::DirBuilder::new();
        folder.mode(mode).create(memory.join(name))?;
    }
    Ok(Writable::open(memory)?)
}
