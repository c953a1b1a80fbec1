//! The filter of system calls: what a container never needs is refused.
//!
//! It is a list of refusals, and not of permissions: an unknown program must run, and the walls of
//! the container are its namespaces, its missing capabilities and no_new_privs. The filter closes
//! the calls through which kernels were broken into from there: mounting, new user namespaces,
//! keyrings, BPF, io_uring, modules, and sockets of families that no training needs, whose code the
//! kernel would load when somebody asks. A call newer than this program gets `ENOSYS`, which every C
//! library takes as "use the older one".
//!
//! Written out as instructions and not through a crate: two answers in one filter (`EPERM` and
//! `ENOSYS`), a guard against x86-64's second call table, and a search tree instead of a chain,
//! so that a permitted call costs 8 comparisons.

use crate::sys::seccomp::Instruction;

// Classic BPF (linux/bpf_common.h) and seccomp's answers (linux/seccomp.h).
const LOAD: u16 = 0x20;
const JUMP_EQ: u16 = 0x15;
const JUMP_GE: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const EPERM: u32 = ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = ERRNO | libc::ENOSYS as u32;
const EAFNOSUPPORT: u32 = ERRNO | libc::EAFNOSUPPORT as u32;

/// Offsets in `struct seccomp_data`; arguments are 64 bits, little-endian on every machine here.
const NR: u32 = 0;
const ARCH: u32 = 4;
const ARG0_LOW: u32 = 16;

#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;

/// The first number that this program knows nothing about. 467 to 469 are the newest of Linux
/// 6.17 (open_tree_attr, file_getattr, file_setattr).
const FIRST_UNKNOWN: u32 = 470;

/// Every `CLONE_NEW…` that clone takes: mount, cgroup, UTS, IPC, user, pid, network.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Refused with `EPERM`.
const FORBIDDEN: &[libc::c_long] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    467, // open_tree_attr
    libc::SYS_open_by_handle_at,
    // Namespaces (clone is looked at by its flags).
    libc::SYS_unshare,
    libc::SYS_setns,
    // The kernel itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "aarch64")]
    294, // kexec_file_load
    libc::SYS_reboot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    // The machine's clock and name.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Keyrings have no namespace.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Answered with `ENOSYS`, so that programs take another way. clone3's flags lie in memory, where
/// a filter cannot see them; C libraries fall back to clone.
const ABSENT: &[libc::c_long] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The families of sockets that there are inside. Any other is answered as by a kernel without it;
/// AF_VSOCK would lead to the machine that a virtual machine runs on.
const FAMILIES: [libc::c_int; 5] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
    // Needs a capability that no run has; the answer is to be the kernel's own.
    libc::AF_PACKET,
];

/// The answer to each refused number, in order.
fn answers() -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = FORBIDDEN
        .iter()
        .map(|nr| (*nr as u32, EPERM))
        .chain(ABSENT.iter().map(|nr| (*nr as u32, ENOSYS)))
        .collect();
    all.sort_unstable();
    all
}

const fn op(code: u16, k: u32) -> Instruction {
    Instruction {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// The filter.
pub(crate) fn filter() -> Vec<Instruction> {
    let mut program = vec![
        op(LOAD, ARCH),
        // Another machine's calls (32-bit programs) have other numbers.
        jump(JUMP_EQ, MACHINE, 1, 0),
        op(RETURN, KILL_PROCESS),
        op(LOAD, NR),
        // Also x86-64's x32 calls, which begin at 0x4000_0000.
        jump(JUMP_GE, FIRST_UNKNOWN, 0, 1),
        op(RETURN, ENOSYS),
        jump(JUMP_EQ, libc::SYS_clone as u32, 0, 4),
        op(LOAD, ARG0_LOW),
        jump(JUMP_SET, NEW_NAMESPACES, 0, 1),
        op(RETURN, EPERM),
        op(RETURN, ALLOW),
        jump(
            JUMP_EQ,
            libc::SYS_socket as u32,
            0,
            FAMILIES.len() as u8 + 3,
        ),
        op(LOAD, ARG0_LOW),
    ];
    for (index, family) in FAMILIES.iter().enumerate() {
        // Over the rest of them and the refusal.
        let hop = (FAMILIES.len() - index) as u8;
        program.push(jump(JUMP_EQ, *family as u32, hop, 0));
    }
    program.extend([op(RETURN, EAFNOSUPPORT), op(RETURN, ALLOW)]);
    search(&answers(), &mut program);
    program
}

/// A binary search over `answers` for the number that is loaded.
fn search(answers: &[(u32, u32)], program: &mut Vec<Instruction>) {
    if answers.len() <= 3 {
        for (nr, answer) in answers {
            program.push(jump(JUMP_EQ, *nr, 0, 1));
            program.push(op(RETURN, *answer));
        }
        program.push(op(RETURN, ALLOW));
        return;
    }
    let (low, high) = answers.split_at(answers.len() / 2);
    let branch = program.len();
    program.push(jump(JUMP_GE, high[0].0, 0, 0));
    search(low, program);
    // The low half is at most 127 instructions for any list of up to 100 calls, so that the jump
    // fits; a test reads every jump.
    program[branch].jt = (program.len() - branch - 1) as u8;
    search(high, program);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's interpreter, as far as this filter goes.
    fn answer(program: &[Instruction], arch: u32, nr: u32, arg0: u64) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let hop = match code {
                LOAD => {
                    loaded = match k {
                        NR => nr,
                        ARCH => arch,
                        ARG0_LOW => arg0 as u32,
                        other => panic!("a load from {other}"),
                    };
                    continue;
                }
                RETURN => return k,
                JUMP_EQ => loaded == k,
                JUMP_GE => loaded >= k,
                JUMP_SET => loaded & k != 0,
                other => panic!("instruction {other}"),
            };
            at += usize::from(if hop { jt } else { jf });
        }
    }

    #[test]
    fn each_call_gets_its_answer() {
        let filter = filter();
        assert!(filter.len() < 256, "{}", filter.len());
        for nr in 0..FIRST_UNKNOWN {
            let expected = if FORBIDDEN.contains(&i64::from(nr)) {
                EPERM
            } else if ABSENT.contains(&i64::from(nr)) {
                ENOSYS
            } else if i64::from(nr) == libc::SYS_socket {
                EAFNOSUPPORT
            } else {
                ALLOW
            };
            assert_eq!(answer(&filter, MACHINE, nr, 0), expected, "call {nr}");
        }
    }

    #[test]
    fn other_call_tables_are_closed() {
        let filter = filter();
        let read = libc::SYS_read as u32;
        assert_eq!(answer(&filter, 0x4000_0003, read, 0), KILL_PROCESS, "i386");
        assert_eq!(
            answer(&filter, MACHINE, 0x4000_0000 | read, 0),
            ENOSYS,
            "x32"
        );
        assert_eq!(answer(&filter, MACHINE, 600, 0), ENOSYS);
        assert_eq!(answer(&filter, MACHINE, u32::MAX, 0), ENOSYS);
    }

    #[test]
    fn only_sockets_that_programs_use_are_made() {
        let filter = filter();
        let socket = |family: i32| answer(&filter, MACHINE, libc::SYS_socket as u32, family as u64);
        for family in 0..64 {
            let expected = match FAMILIES.contains(&family) {
                true => ALLOW,
                false => EAFNOSUPPORT,
            };
            assert_eq!(socket(family), expected, "family {family}");
        }
        assert_eq!(socket(libc::AF_VSOCK), EAFNOSUPPORT);
        assert_eq!(socket(libc::AF_INET), ALLOW);
        assert_eq!(socket(-1), EAFNOSUPPORT);
    }

    #[test]
    fn threads_and_forks_pass_and_namespaces_do_not() {
        let filter = filter();
        let clone = |flags: i32| answer(&filter, MACHINE, libc::SYS_clone as u32, flags as u64);
        assert_eq!(clone(libc::SIGCHLD), ALLOW);
        assert_eq!(
            clone(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND),
            ALLOW
        );
        for flag in [
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWNS,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWCGROUP,
        ] {
            assert_eq!(clone(flag | libc::SIGCHLD), EPERM, "{flag:#x}");
        }
    }
}
