//! bpf(2): loading a program and attaching it to a cgroup.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction of an eBPF program (`struct bpf_insn` of <linux/bpf.h>).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EbpfInstruction {
    pub(crate) code: u8,
    /// Destination in the lower four bits, source in the upper four (on the little-endian
    /// machines that Sconce runs on).
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
/// Beside the programs of the folders above and of those below; all must agree.
const ALLOW_MULTI: u32 = 1 << 1;

/// The part of `union bpf_attr` that `BPF_PROG_LOAD` needs; the kernel takes what follows as zero.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// The part of `union bpf_attr` that `BPF_PROG_ATTACH` needs.
#[repr(C)]
struct Attach {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
}

/// Has every opening of a device by a member of `cgroup` (a v2 folder) judged by `program`, which
/// gives 1 to allow and 0 to refuse. It goes with the folder.
///
/// # Errors
/// The kernel's: `EPERM` without CAP_BPF or CAP_SYS_ADMIN, `EINVAL` where the kernel lacks
/// `CONFIG_CGROUP_BPF` or does not accept the program.
pub(crate) fn filter_devices(
    cgroup: BorrowedFd<'_>,
    program: &[EbpfInstruction],
) -> io::Result<()> {
    let program = load(program)?;
    let attach = Attach {
        target_fd: cgroup.as_raw_fd() as u32,
        attach_bpf_fd: program.as_fd().as_raw_fd() as u32,
        attach_type: CGROUP_DEVICE,
        attach_flags: ALLOW_MULTI,
    };
    // SAFETY: `attach` has the layout of the kernel's attribute for this command and its true
    // size; the kernel only reads it.
    #[expect(unsafe_code, reason = "rustix has no bpf")]
    let done = unsafe { bpf(PROG_ATTACH, (&raw const attach).cast(), size_of::<Attach>()) };
    done.map(drop)
}

fn load(program: &[EbpfInstruction]) -> io::Result<OwnedFd> {
    let load = Load {
        prog_type: PROG_TYPE_CGROUP_DEVICE,
        insn_cnt: u32::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        insns: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"sconce_devices\0\0",
    };
    // SAFETY: `load` has the layout of the kernel's attribute for this command and its true size.
    // It points to `insn_cnt` instructions and to a text that ends with zero, which both outlive
    // the call; the kernel copies and checks them. The descriptor that it gives is new and ours.
    #[expect(unsafe_code, reason = "rustix has no bpf")]
    unsafe {
        let fd = bpf(PROG_LOAD, (&raw const load).cast(), size_of::<Load>())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// # Safety
/// `attribute` points to `size` bytes that are what the kernel expects for `command`.
#[expect(unsafe_code, reason = "rustix has no bpf")]
unsafe fn bpf(
    command: libc::c_int,
    attribute: *const libc::c_void,
    size: usize,
) -> io::Result<libc::c_int> {
    // SAFETY: as the caller promises.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attribute, size) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done as libc::c_int),
    }
}
