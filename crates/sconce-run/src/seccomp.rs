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

use crate::sys::seccomp::SeccompInstruction;

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
#[cfg(target_arch = "x86_64")]
const OCI_MACHINE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const OCI_MACHINE: &str = "SCMP_ARCH_AARCH64";

/// The first number that this program knows nothing about. 467 to 469 are the newest of Linux
/// 6.17 (open_tree_attr, file_getattr, file_setattr).
const FIRST_UNKNOWN: u32 = 470;

/// Every `CLONE_NEW…` that clone takes: mount, cgroup, UTS, IPC, user, pid, network.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// A call's name, as libseccomp and runtime-spec write it, and its number: one list serves the kernel
/// and other runtimes.
type Call = (&'static str, libc::c_long);

macro_rules! call {
    ($number:ident) => {
        (stringify!($number).split_at("SYS_".len()).1, libc::$number)
    };
}

/// Refused with `EPERM`.
const FORBIDDEN: &[Call] = &[
    // Mounts and roots.
    call!(SYS_mount),
    call!(SYS_umount2),
    call!(SYS_pivot_root),
    call!(SYS_open_tree),
    call!(SYS_move_mount),
    call!(SYS_fsopen),
    call!(SYS_fsconfig),
    call!(SYS_fsmount),
    call!(SYS_fspick),
    call!(SYS_mount_setattr),
    ("open_tree_attr", 467),
    call!(SYS_open_by_handle_at),
    // Namespaces (clone is looked at by its flags).
    call!(SYS_unshare),
    call!(SYS_setns),
    // The kernel itself.
    call!(SYS_init_module),
    call!(SYS_finit_module),
    call!(SYS_delete_module),
    call!(SYS_kexec_load),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_kexec_file_load),
    #[cfg(target_arch = "aarch64")]
    ("kexec_file_load", 294),
    call!(SYS_reboot),
    call!(SYS_bpf),
    call!(SYS_perf_event_open),
    call!(SYS_userfaultfd),
    call!(SYS_syslog),
    call!(SYS_acct),
    call!(SYS_swapon),
    call!(SYS_swapoff),
    call!(SYS_quotactl),
    call!(SYS_quotactl_fd),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_modify_ldt),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_uselib),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_ustat),
    call!(SYS_nfsservctl),
    call!(SYS_vhangup),
    // The machine's clock and name.
    call!(SYS_settimeofday),
    call!(SYS_clock_settime),
    call!(SYS_sethostname),
    call!(SYS_setdomainname),
    // Keyrings have no namespace.
    call!(SYS_add_key),
    call!(SYS_request_key),
    call!(SYS_keyctl),
];

/// Answered with `ENOSYS`, so that programs take another way. clone3's flags lie in memory, where
/// a filter cannot see them; C libraries fall back to clone.
const ABSENT: &[Call] = &[
    call!(SYS_clone3),
    call!(SYS_io_uring_setup),
    call!(SYS_io_uring_enter),
    call!(SYS_io_uring_register),
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
        .map(|(_, nr)| (*nr as u32, EPERM))
        .chain(ABSENT.iter().map(|(_, nr)| (*nr as u32, ENOSYS)))
        .collect();
    all.sort_unstable();
    all
}

const fn op(code: u16, k: u32) -> SeccompInstruction {
    SeccompInstruction {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> SeccompInstruction {
    SeccompInstruction { code, jt, jf, k }
}

/// The filter.
pub(crate) fn build_filter() -> Vec<SeccompInstruction> {
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

/// The same filter as runtime-spec has it (config-linux.md, "Seccomp"), for engines that make theirs
/// with libseccomp. Two things it cannot say: calls newer than the list pass (their names are not
/// known to libseccomp either), and another machine's calls end the thread and not the process.
pub(crate) fn build_oci_filter() -> serde_json::Value {
    use serde_json::json;
    let names = |list: &[Call]| list.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let errno = |names: Vec<&str>, errno: i32, args: serde_json::Value| json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args });
    let mut calls = vec![
        errno(names(FORBIDDEN), libc::EPERM, json!([])),
        errno(names(ABSENT), libc::ENOSYS, json!([])),
    ];
    // One entry for each flag: a comparison looks for all bits of a mask.
    for flag in (0..u32::BITS).map(|bit| 1_u32 << bit) {
        if flag & NEW_NAMESPACES != 0 {
            let has = json!([{ "index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ" }]);
            calls.push(errno(vec!["clone"], libc::EPERM, has));
        }
    }
    // Several comparisons of one argument are alternatives, so that a list of what is allowed has to
    // be one of what is not.
    let last = FAMILIES.into_iter().max().unwrap_or_default();
    let refused = (0..last).filter(|family| !FAMILIES.contains(family));
    let socket = |family: i32, op: &str| {
        let is = json!([{ "index": 0, "value": family, "op": op }]);
        errno(vec!["socket"], libc::EAFNOSUPPORT, is)
    };
    calls.extend(refused.map(|family| socket(family, "SCMP_CMP_EQ")));
    calls.push(socket(last, "SCMP_CMP_GT"));
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [OCI_MACHINE],
        "syscalls": calls,
    })
}

/// A binary search over `answers` for the number that is loaded.
fn search(answers: &[(u32, u32)], program: &mut Vec<SeccompInstruction>) {
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
    fn answer(program: &[SeccompInstruction], arch: u32, nr: u32, arg0: u64) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let SeccompInstruction { code, jt, jf, k } = program[at];
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
        let filter = build_filter();
        assert!(filter.len() < 256, "{}", filter.len());
        for nr in 0..FIRST_UNKNOWN {
            let is_in = |list: &[Call]| list.iter().any(|(_, number)| *number == i64::from(nr));
            let expected = if is_in(FORBIDDEN) {
                EPERM
            } else if is_in(ABSENT) {
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
        let filter = build_filter();
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
        let filter = build_filter();
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

    /// What runtime-spec's form answers, as libseccomp reads it: the first entry whose comparisons
    /// hold.
    fn oci_answer(name: &str, arg0: u64) -> u32 {
        let filter = build_oci_filter();
        let calls = filter["syscalls"].as_array().unwrap();
        let found = calls.iter().find(|entry| {
            let names = entry["names"].as_array().unwrap();
            let mut args = entry["args"].as_array().unwrap().iter();
            names.iter().any(|n| n == name)
                && args.all(|arg| {
                    assert_eq!(arg["index"], 0);
                    let value = arg["value"].as_u64().unwrap();
                    match arg["op"].as_str().unwrap() {
                        "SCMP_CMP_EQ" => arg0 == value,
                        "SCMP_CMP_GT" => arg0 > value,
                        "SCMP_CMP_MASKED_EQ" => arg0 & value == arg["valueTwo"].as_u64().unwrap(),
                        other => panic!("{other}"),
                    }
                })
        });
        found.map_or(ALLOW, |entry| {
            ERRNO | entry["errnoRet"].as_u64().unwrap() as u32
        })
    }

    #[test]
    fn engines_get_the_same_answers() {
        let filter = build_filter();
        let flags = (0..32).map(|bit| 1_u64 << bit);
        let families = 0..64_u64;
        let known = [
            ("clone", libc::SYS_clone),
            ("socket", libc::SYS_socket),
            ("read", libc::SYS_read),
        ];
        for (name, nr) in FORBIDDEN.iter().chain(ABSENT).chain(&known) {
            for arg in flags.clone().chain(families.clone()) {
                let own = answer(&filter, MACHINE, *nr as u32, arg);
                assert_eq!(oci_answer(name, arg), own, "{name} {arg:#x}");
            }
        }
    }

    #[test]
    fn threads_and_forks_pass_and_namespaces_do_not() {
        let filter = build_filter();
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
