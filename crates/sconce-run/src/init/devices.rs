//! /dev: a small file system of its own with the harmless devices, terminals and shared memory;
//! and the loopback interface.

use std::os::fd::AsRawFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::init_config::ContainerConfig;
use crate::protocol::InitFailure;

/// Their numbers are the same on every Linux (Documentation/admin-guide/devices.txt).
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
    ("pts/ptmx", "dev/ptmx"),
];

/// Looks whether the machine's devices are what their names say: an engine that opens a file in /dev/null's place
/// loses what the command writes.
pub(super) fn validate_host_devices() -> Result<(), InitFailure> {
    for (name, major, minor) in DEVICES {
        let path = format!("/dev/{name}");
        let there = rustix::fs::stat(&path).map_err(InitFailure::at_step(name))?;
        let is_device = FileType::from_raw_mode(there.st_mode) == FileType::CharacterDevice;
        // Some machines have urandom's node for both (random(4)).
        let is_urandom = name == "random" && there.st_rdev == makedev(1, 9);
        if !is_device || there.st_rdev != makedev(major, minor) && !is_urandom {
            return Err(InitFailure::Device {
                path: path.into(),
                major,
                minor,
            });
        }
    }
    Ok(())
}

/// Fills `dev` below the working directory.
pub(super) fn populate_dev(plan: &ContainerConfig) -> Result<(), InitFailure> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(c"tmpfs", c"dev", c"tmpfs", flags, c"mode=755,size=64k")
        .map_err(InitFailure::at_step("mount /dev"))?;
    for (name, ..) in DEVICES {
        device(name).map_err(InitFailure::at_step(name))?;
    }
    for (target, link) in LINKS {
        rustix::fs::symlink(target, link).map_err(InitFailure::at_step(link))?;
    }
    let folder = |path: &str| rustix::fs::mkdir(path, Mode::from_raw_mode(0o755));
    folder("dev/pts").map_err(InitFailure::at_step("make /dev/pts"))?;
    // Group 5 is `tty` on every Linux; a user namespace of one user has no such group.
    let options = if plan.credentials.change {
        c"newinstance,ptmxmode=0666,mode=0620,gid=5"
    } else {
        c"newinstance,ptmxmode=0666,mode=0620"
    };
    mount(c"devpts", c"dev/pts", c"devpts", flags, options)
        .map_err(InitFailure::at_step("mount /dev/pts"))?;
    folder("dev/shm").map_err(InitFailure::at_step("make /dev/shm"))?;
    let options = std::ffi::CString::new(format!("mode=1777,size={}", plan.shm_bytes))
        .map_err(InitFailure::at_step("mount /dev/shm"))?;
    mount(
        c"tmpfs",
        c"dev/shm",
        c"tmpfs",
        flags | MountFlags::NODEV,
        &*options,
    )
    .map_err(InitFailure::at_step("mount /dev/shm"))
}

/// The machine's own node, bound: a user namespace cannot make device nodes.
fn device(name: &str) -> rustix::io::Result<()> {
    let path = format!("dev/{name}");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::WRONLY;
    rustix::fs::openat(CWD, &path, flags, Mode::from_raw_mode(0o666))?;
    mount_bind(format!("/dev/{name}"), &path)
}

/// `struct ifreq` of the kernel, as far as the flags of an interface go (netdevice(7)).
#[repr(C)]
struct InterfaceFlags {
    name: [u8; 16],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Brings the loopback interface of this network up.
pub(super) fn loopback_up() -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut request = InterfaceFlags {
        name: [0; 16],
        flags: (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short,
        rest: [0; 22],
    };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: SIOCSIFFLAGS reads a `struct ifreq`, which `request` is in size and in the part that
    // is read.
    #[expect(unsafe_code, reason = "rustix has no ioctl for interfaces")]
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}
