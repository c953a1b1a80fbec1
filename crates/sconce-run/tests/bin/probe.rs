//! Tries what a contained command must not be able to do: `probe NAME [ARGUMENT]` prints `done` or the
//! kernel's error, `probe --list` the names. Each is harmless where it succeeds, in a mount namespace
//! of one's own.
#![expect(
    unsafe_code,
    reason = "system calls that no crate offers are what is tried"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

const EMPTY: [u8; 256] = [0; 256];

/// A system call of which nothing is needed but whether it works.
fn call(number: libc::c_long, args: [usize; 6]) -> io::Result<usize> {
    // SAFETY: every pointer that is passed comes from `at` or from a string that is alive, and is
    // as large as the call reads or writes.
    let done =
        unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// The address of something that lives until the call has returned.
fn at<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>() as usize
}

fn text(text: &str) -> io::Result<CString> {
    Ok(CString::new(text)?)
}

/// `AT_FDCWD`.
const HERE: usize = libc::AT_FDCWD as usize;
const HERE_TOO: usize = -1_isize as usize;

type Attempt = fn() -> io::Result<()>;

const ATTEMPTS: &[(&str, Attempt)] = &[
    ("keyring", || {
        let (kind, name) = (text("user")?, text("sconce-probe")?);
        // KEY_SPEC_PROCESS_KEYRING
        let ring = -2_isize as usize;
        call(
            libc::SYS_add_key,
            [at(&*kind), at(&*name), at(&EMPTY), 4, ring, 0],
        )
        .map(drop)
    }),
    ("keyctl", || {
        // KEYCTL_GET_KEYRING_ID of the process's.
        call(libc::SYS_keyctl, [0, -2_isize as usize, 1, 0, 0, 0]).map(drop)
    }),
    ("bpf", || {
        // BPF_MAP_CREATE of an array: type, key size, value size, entries.
        let mut map = [0_u32; 32];
        map[..4].copy_from_slice(&[2, 4, 4, 1]);
        call(libc::SYS_bpf, [0, at(&map), 128, 0, 0, 0]).map(drop)
    }),
    ("perf", || {
        let mut event = [0_u32; 32];
        // PERF_TYPE_SOFTWARE, the size of its first version; without the kernel's own events.
        (event[0], event[1], event[10]) = (1, 64, 0x60);
        let everywhere = -1_isize as usize;
        call(
            libc::SYS_perf_event_open,
            [at(&event), 0, everywhere, everywhere, 0, 0],
        )
        .map(drop)
    }),
    // UFFD_USER_MODE_ONLY, which needs no privilege.
    ("userfaultfd", || {
        call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]).map(drop)
    }),
    ("io-uring", || {
        call(libc::SYS_io_uring_setup, [4, at(&EMPTY), 0, 0, 0, 0]).map(drop)
    }),
    ("open-by-handle", || {
        // Shocker (2014): a made-up handle of inode 2 on the file system of a bound file.
        let file = std::fs::File::open("/etc/hosts").or_else(|_| std::fs::File::open("/"))?;
        let handle: [u32; 4] = [8, 1, 2, 0];
        call(
            libc::SYS_open_by_handle_at,
            [file.as_raw_fd() as usize, at(&handle), 0, 0, 0, 0],
        )
        .map(drop)
    }),
    ("vm-read", || {
        let mut into = [0_u8; 8];
        let local = [into.as_mut_ptr() as usize, 8];
        let remote = [0x1000_usize, 8];
        call(
            libc::SYS_process_vm_readv,
            [1, at(&local), 1, at(&remote), 1, 0],
        )
        .map(drop)
    }),
    ("descriptor-of-init", || {
        let pidfd = call(libc::SYS_pidfd_open, [1, 0, 0, 0, 0, 0])?;
        call(libc::SYS_pidfd_getfd, [pidfd, 0, 0, 0, 0, 0]).map(drop)
    }),
    // PTRACE_SEIZE, which does not stop it.
    ("ptrace-init", || {
        call(libc::SYS_ptrace, [0x4206, 1, 0, 0, 0, 0]).map(drop)
    }),
    ("mount", || {
        let (kind, place) = (text("tmpfs")?, text("/tmp")?);
        call(
            libc::SYS_mount,
            [at(&*kind), at(&*place), at(&*kind), 0, 0, 0],
        )
        .map(drop)
    }),
    ("remount", || {
        let place = text("/")?;
        let flags = (libc::MS_BIND | libc::MS_REMOUNT) as usize;
        call(libc::SYS_mount, [0, at(&*place), 0, flags, 0, 0]).map(drop)
    }),
    ("umount", || {
        let place = text("/proc")?;
        call(
            libc::SYS_umount2,
            [at(&*place), libc::MNT_DETACH as usize, 0, 0, 0, 0],
        )
        .map(drop)
    }),
    ("pivot-root", || {
        let here = text(".")?;
        call(libc::SYS_pivot_root, [at(&*here), at(&*here), 0, 0, 0, 0]).map(drop)
    }),
    ("open-tree", || {
        let root = text("/")?;
        call(libc::SYS_open_tree, [HERE, at(&*root), 1, 0, 0, 0]).map(drop)
    }),
    ("fsopen", || {
        let kind = text("tmpfs")?;
        call(libc::SYS_fsopen, [at(&*kind), 0, 0, 0, 0, 0]).map(drop)
    }),
    ("move-mount", || {
        let nothing = text("")?;
        call(
            libc::SYS_move_mount,
            [HERE_TOO, at(&*nothing), HERE_TOO, at(&*nothing), 0, 0],
        )
        .map(drop)
    }),
    ("mount-setattr", || {
        let root = text("/")?;
        call(
            libc::SYS_mount_setattr,
            [HERE, at(&*root), 0, at(&EMPTY), 32, 0],
        )
        .map(drop)
    }),
    ("setns", || {
        let own = std::fs::File::open("/proc/self/ns/net")?;
        call(libc::SYS_setns, [own.as_raw_fd() as usize, 0, 0, 0, 0, 0]).map(drop)
    }),
    ("unshare-user", || unshare(libc::CLONE_NEWUSER)),
    ("unshare-mount", || unshare(libc::CLONE_NEWNS)),
    ("unshare-network", || unshare(libc::CLONE_NEWNET)),
    ("unshare-cgroup", || unshare(libc::CLONE_NEWCGROUP)),
    ("clone-user", || {
        let flags = (libc::CLONE_NEWUSER | libc::SIGCHLD) as usize;
        child(call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]))
    }),
    ("clone3-user", || {
        // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
        let mut args = [0_u64; 8];
        (args[0], args[4]) = (libc::CLONE_NEWUSER as u64, libc::SIGCHLD as u64);
        child(call(libc::SYS_clone3, [at(&args), 64, 0, 0, 0, 0]))
    }),
    ("release-agent", || {
        // CVE-2022-0492: a user namespace of one's own, and in it a v1 hierarchy to be written to.
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP)?;
        let (kind, place, data) = (text("cgroup")?, text("/tmp")?, text("memory")?);
        call(
            libc::SYS_mount,
            [at(&*kind), at(&*place), at(&*kind), 0, at(&*data), 0],
        )
        .map(drop)
    }),
    ("raw-socket", || {
        socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    }),
    ("packet-socket", || {
        socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
    }),
    ("vsock", || socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ("crypto-socket", || {
        socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    }),
    ("device-node", || {
        let path = text(&format!("/tmp/probe-{}", std::process::id()))?;
        // null: nothing comes of it.
        let (mode, null) = (
            (libc::S_IFCHR | 0o600) as usize,
            libc::makedev(1, 3) as usize,
        );
        call(libc::SYS_mknodat, [HERE, at(&*path), mode, null, 0, 0])?;
        std::fs::remove_file(format!("/tmp/probe-{}", std::process::id()))
    }),
    // Wrong in every other argument, so that nothing happens where they are permitted.
    ("reboot", || call(libc::SYS_reboot, [0; 6]).map(drop)),
    ("module", || call(libc::SYS_init_module, [0; 6]).map(drop)),
    ("kexec", || {
        call(libc::SYS_kexec_load, [0, 1 << 20, 0, 0, 0, 0]).map(drop)
    }),
    ("swap", || call(libc::SYS_swapoff, [0; 6]).map(drop)),
    ("clock", || call(libc::SYS_clock_settime, [0; 6]).map(drop)),
    // SYSLOG_ACTION_READ_ALL
    ("kernel-log", || {
        call(libc::SYS_syslog, [3, at(&EMPTY), 16, 0, 0, 0]).map(drop)
    }),
    ("chroot-and-back", || {
        let outer = std::fs::metadata("/")?;
        let jail = format!("/tmp/jail-{}", std::process::id());
        let root = std::fs::File::open("/")?;
        std::fs::create_dir(&jail)?;
        let path = text(&jail)?;
        call(libc::SYS_chroot, [at(&*path), 0, 0, 0, 0, 0])?;
        call(libc::SYS_fchdir, [root.as_raw_fd() as usize, 0, 0, 0, 0, 0])?;
        for _ in 0..64 {
            std::env::set_current_dir("..")?;
        }
        let reached = std::fs::metadata(".")?;
        match (reached.dev(), reached.ino()) == (outer.dev(), outer.ino()) {
            // As far as to the root that it had.
            true => Err(io::Error::from_raw_os_error(libc::EPERM)),
            false => Ok(()),
        }
    }),
];

fn unshare(flags: libc::c_int) -> io::Result<()> {
    call(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]).map(drop)
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<()> {
    let args = [family as usize, kind as usize, protocol as usize, 0, 0, 0];
    call(libc::SYS_socket, args).map(drop)
}

/// Ends the child, and lets the parent say that there was one.
fn child(cloned: io::Result<usize>) -> io::Result<()> {
    if cloned? == 0 {
        // SAFETY: `_exit` takes any number and does not return.
        unsafe { libc::_exit(0) };
    }
    Ok(())
}

/// Types a letter into the terminal that is standard input (CVE-2017-5226 and its like).
fn type_in() -> io::Result<()> {
    let letter = b'x';
    // SAFETY: TIOCSTI reads one byte.
    let done = unsafe { libc::ioctl(0, libc::TIOCSTI, &raw const letter) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connects to a socket of its own.
fn own_abstract(name: &str) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(name)?;
    let _listener = UnixListener::bind_addr(&address)?;
    UnixStream::connect_addr(&address).map(drop)
}

/// This program's own file, changed through /proc/self/exe (CVE-2019-5736).
fn overwrite_self() -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions("/proc/self/exe", std::fs::Permissions::from_mode(0o755))
}

#[expect(clippy::print_stdout, reason = "a program, not the library")]
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let argument = args.get(1).map_or("", String::as_str);
    let done = match args.first().map(String::as_str) {
        Some("--list") => {
            for (name, _) in ATTEMPTS {
                println!("{name}");
            }
            return;
        }
        Some("type-in") => type_in(),
        Some("connect") => SocketAddr::from_abstract_name(argument)
            .and_then(|address| UnixStream::connect_addr(&address).map(drop)),
        Some("connect-own") => own_abstract(argument),
        Some("overwrite-self") => overwrite_self(),
        Some("who") => {
            // SAFETY: it takes nothing and cannot fail.
            println!("{}", unsafe { libc::geteuid() });
            return;
        }
        // LANDLOCK_CREATE_RULESET_VERSION
        Some("landlock") => {
            let version = call(libc::SYS_landlock_create_ruleset, [0, 0, 1, 0, 0, 0]);
            println!("{}", version.unwrap_or(0));
            return;
        }
        Some(wanted) => match ATTEMPTS.iter().find(|(name, _)| *name == wanted) {
            Some((_, attempt)) => attempt(),
            None => Err(io::ErrorKind::InvalidInput.into()),
        },
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    match done {
        Ok(()) => println!("done"),
        Err(error) => println!("{}", error.raw_os_error().map_or(-1, |number| number)),
    }
}
