//! What init does for a run whose command another program starts ([`crate::engine`]): the root as
//! ever, but the machine stays in sight, for the engine is a program of it.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount, mount_bind, mount_move, unmount};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::thread::CapabilitySet;
use sconce_schema::event::{ExitStatus, UnenforcedLimit};

use super::command::DEFAULT_PATH;
use super::rootfs::NOTHING_RUNS;
use super::{mount_points, rootfs};
use crate::capabilities;
use crate::init_config::{CgroupVisibility, ContainerConfig, DelegatedRuntime, InitConfig};
use crate::protocol::{InitFailure, errno};
use crate::sys::pipes;

/// Where cgroup file systems are mounted (file-hierarchy(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

/// The most that is told of an engine's own words, bytes.
const MAX_QUOTED_BYTES: u64 = 4096;

/// Builds the root, looks for the command in it, and hides cgroups from the engine. Gives the shared
/// folder.
pub(super) fn prepare_root(
    plan: &InitConfig,
    container: &ContainerConfig,
    engine: &DelegatedRuntime,
    owners: &[OwnedFd],
    notices: &mut Vec<UnenforcedLimit>,
) -> Result<Option<OwnedFd>, InitFailure> {
    let (root, shared) = rootfs::build_root(container, owners, notices)?;
    find(root.as_fd(), plan)?;
    rustix::process::chdir(c"/").map_err(InitFailure::at_step("enter the root"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // For everything that is started from here; no engine knows of it. Kernels before 6.12 cannot.
    let _ = crate::sys::landlock::keep_to_own_sockets();
    // Engines look their own processes up there, by the numbers that these have here.
    mount(c"proc", c"/proc", c"proc", NOTHING_RUNS, None)
        .map_err(InitFailure::at_step(rootfs::MOUNT_PROC))?;
    if let Some((folder, name)) = &engine.short {
        rustix::fs::mkdir(folder, Mode::from_raw_mode(0o700))
            .and_then(|()| mount_bind(folder, name))
            .map_err(InitFailure::at_step("give the engine a folder"))?;
    }
    show(&engine.shown, &container.scratch).map_err(InitFailure::at_step("hide cgroups"))?;
    keep_owners(plan, container).map_err(InitFailure::at_step(
        "keep the owners of the caller's streams",
    ))?;
    Ok(shared)
}

/// Engines (podman by runc) make the command's user the owner of its standard streams. Those are files, devices
/// or the terminal of the caller, and none of theirs to give away, unless the engine has a terminal
/// of the run's own. A command that may change owners itself needs the engine to be able to.
fn keep_owners(plan: &InitConfig, container: &ContainerConfig) -> rustix::io::Result<()> {
    let kept = CapabilitySet::from_bits_retain(container.credentials.capabilities);
    if plan.terminal || kept.contains(CapabilitySet::CHOWN) {
        return Ok(());
    }
    // Root's programs get back whatever the bounding set has.
    capabilities::restrict_bounding_set(!CapabilitySet::CHOWN)
}

/// Leaves in sight what of the cgroup file systems an engine is to see. All of this is in the run's
/// own mount namespace.
fn show(shown: &CgroupVisibility, scratch: &Path) -> rustix::io::Result<()> {
    let cover = || {
        mount(
            c"tmpfs",
            CGROUPS,
            c"tmpfs",
            NOTHING_RUNS,
            c"mode=755,size=64k",
        )
    };
    match shown {
        CgroupVisibility::Everything => Ok(()),
        // What a user namespace got from its parent cannot be unmounted, but covered.
        CgroupVisibility::Nothing => cover(),
        CgroupVisibility::One(place) => {
            let aside = scratch.join("cgroup");
            rustix::fs::mkdir(&aside, Mode::from_raw_mode(0o700))?;
            mount_bind(place, &aside)?;
            unmount(CGROUPS, UnmountFlags::DETACH)?;
            cover()?;
            rustix::fs::mkdir(place, Mode::from_raw_mode(0o755))?;
            mount_move(&aside, place)
        }
    }
}

/// Finds the command in the root as execvp(3) would, so that what is missing is told as ever:
/// engines have words and exit codes of their own for it.
fn find(root: BorrowedFd<'_>, plan: &InitConfig) -> Result<(), InitFailure> {
    let workdir = |error: Errno| InitFailure::Workdir {
        path: plan.workdir.clone(),
        errno: errno(error),
    };
    let folder = mount_points::open_in_root(root, &plan.workdir).map_err(workdir)?;
    if !FileType::from_raw_mode(fstat(&folder).map_err(workdir)?.st_mode).is_dir() {
        return Err(workdir(Errno::NOTDIR));
    }
    let name = plan.command.first().map_or(Path::new(""), Path::new);
    let path = plan
        .env
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(b"PATH="));
    let path = path.unwrap_or(DEFAULT_PATH.as_bytes());
    let direct = name.as_os_str().as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match direct {
        true => vec![plan.workdir.join(name)],
        false => path
            .split(|byte| *byte == b':')
            .map(|folder| Path::new(std::ffi::OsStr::from_bytes(folder)))
            // A folder that is not absolute is below the working directory.
            .map(|folder| plan.workdir.join(folder).join(name))
            .collect(),
    };
    let mut refused = None;
    for path in candidates {
        match executable(root, &path) {
            Ok(()) => return Ok(()),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => {
                refused = refused.or(Some(InitFailure::NotExecutable {
                    path,
                    errno: errno(error),
                }));
            }
        }
    }
    Err(refused.unwrap_or_else(|| InitFailure::NotFound {
        command: name.to_string_lossy().into_owned(),
        searched: (!direct).then(|| String::from_utf8_lossy(path).into_owned()),
    }))
}

/// Whether a file could be executed, as far as its bytes and its mode tell.
fn executable(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<()> {
    let file = mount_points::open_in_root(root, path)?;
    let mode = Mode::from_raw_mode(fstat(&file)?.st_mode);
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if !kind.is_file() || !mode.intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH) {
        return Err(Errno::ACCESS);
    }
    // The file that was looked at, and not whatever has its name by now.
    let opened = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(opened) = rustix::fs::open(opened, flags, Mode::empty()) else {
        // A program may be executed and not read.
        return Ok(());
    };
    let mut start = [0_u8; 256];
    let count = rustix::io::read(&opened, &mut start)?;
    let start = &start[..count];
    match start.strip_prefix(b"#!") {
        _ if start.starts_with(b"\x7fELF") => Ok(()),
        None => Err(Errno::NOEXEC),
        Some(line) => {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let mut words = line.split(|byte| b" \t".contains(byte));
            let interpreter = words.find(|word| !word.is_empty()).ok_or(Errno::NOEXEC)?;
            let interpreter = Path::new(std::ffi::OsStr::from_bytes(interpreter));
            // There, and not there: as the kernel has it for a script without its interpreter.
            match mount_points::open_in_root(root, interpreter) {
                Err(Errno::NOENT) => Err(Errno::NOEXEC),
                other => other.map(drop),
            }
        }
    }
}

/// Whether the engine got as far as the command; with its own words where it did not.
pub(super) fn has_begun(engine: &DelegatedRuntime, exit: ExitStatus) -> Result<(), InitFailure> {
    if matches!(exit, ExitStatus::Code(0) | ExitStatus::Signal(_)) || engine.pid_file.exists() {
        return Ok(());
    }
    Err(InitFailure::Engine {
        name: engine.name.clone(),
        said: last_words(&engine.log),
    })
}

/// How the command ended, by the end of its engine. podman that copies the command's output ends by
/// itself, and the command with it, when that has no reader any more; then it is as if the command
/// had got the signal of its own write.
pub(super) fn command_end(engine: &DelegatedRuntime, exit: ExitStatus) -> ExitStatus {
    let by_podman = !engine.is_parent && matches!(exit, ExitStatus::Code(125 | 126));
    let streams = [stdin(), stdout(), stderr()];
    // Without a terminal it hands them over (`engine/podman.rs`), and the code is the command's.
    let copies = streams.iter().any(rustix::termios::isatty);
    match by_podman && copies && pipes::is_output_unread() {
        true => ExitStatus::Code(128 + libc::SIGPIPE as u8),
        false => exit,
    }
}

/// `msg` of the last line of a log in JSON.
fn last_words(log: &Path) -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open(log).ok()?;
    file.take(MAX_QUOTED_BYTES).read_to_string(&mut text).ok()?;
    let mut lines = text.lines().rev();
    lines.find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(line.get("msg")?.as_str()?.to_owned())
    })
}
