//! System calls through which kernels and containers were broken out of.

use std::collections::BTreeMap;

use crate::bench::{Who, benches};
use crate::tools::{USERS, probe_outside, with_probe};

/// What a refusal is: EPERM, EACCES, ENOSYS, EAFNOSUPPORT.
const REFUSALS: [&str; 4] = ["1", "13", "38", "97"];

/// Each name is an attempt of `tests/bin/probe.rs`: keyrings (CVE-2016-0728), BPF (CVE-2021-3490), perf
/// (CVE-2013-2094), userfaultfd (the usual help of races), io_uring (CVE-2022-29582), file handles
/// (shocker, 2014), memory and descriptors of process 1, mounts in both interfaces, namespaces by every
/// call (CVE-2022-0185), a cgroup of v1 with a release agent (CVE-2022-0492), raw and odd sockets
/// (CVE-2020-14386), device nodes, the kernel's modules, clock, log and swap, chroot.
#[test]
fn calls_that_lead_out_are_refused() {
    for bench in benches() {
        for user in USERS {
            let mut request =
                bench.script("for name in $(probe --list); do echo $name $(probe $name); done");
            request.user = user;
            with_probe(&bench, &mut request);
            let done = bench.run(&request);
            assert_eq!(done.code, 0, "{:?} {}", bench.who, done.err);
            let inside: BTreeMap<&str, &str> = done
                .out
                .lines()
                .map(|line| line.split_once(' ').unwrap())
                .collect();
            assert!(inside.len() > 30, "{}", done.out);
            let reached: Vec<_> = inside
                .iter()
                .filter(|(_, said)| !REFUSALS.contains(said))
                .collect();
            assert!(reached.is_empty(), "{:?} {user:?}: {reached:?}", bench.who);
        }
    }
}

/// The same program outside, where most of it is permitted: it does try what it says.
#[test]
fn the_probe_reaches_what_is_not_walled_off() {
    for bench in benches().into_iter().filter(|bench| bench.who == Who::Root) {
        let names = [
            "keyring",
            "keyctl",
            "mount",
            "open-tree",
            "fsopen",
            "mount-setattr",
            "unshare-user",
            "unshare-mount",
            "unshare-cgroup",
            "clone-user",
            "raw-socket",
            "device-node",
        ];
        let refused: Vec<_> = names
            .into_iter()
            .filter(|name| probe_outside(&bench, &[name]) != "done")
            .collect();
        // A machine that is itself a container refuses some.
        if refused.len() > names.len() / 2 {
            let why = format!("this machine refuses root {refused:?} outside too");
            sconce_testkit::report_skip("refused-outside", why);
            continue;
        }
        assert!(!refused.contains(&"mount"), "{refused:?}");
    }
}

/// Programs need these.
#[test]
fn the_filter_leaves_ordinary_sockets() {
    for bench in benches() {
        let mut request = bench.script("probe connect-own probe; ip link show lo | wc -l");
        with_probe(&bench, &mut request);
        let done = bench.run(&request);
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!(lines[0], "done", "{:?} {}", bench.who, done.err);
        assert_ne!(lines[1].trim(), "0", "{}", done.err);
    }
}
