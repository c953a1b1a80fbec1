//! Whose files are whose: a mount can show another owner than the disk has.
//!
//! When the machine's root starts a run whose user inside is uid 1000, a folder of the host that
//! belongs to U is mounted so that U and 1000 change places: the command owns what U owns, and what
//! it writes belongs to U on the host. Everyone else stays who they are. The kernel takes such a
//! map as a user namespace, which some process must make; that process lives for these few calls.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::sys::clone::{self, CloneResult};

/// Ids go from 0 to this, exclusive (user_namespaces(7)).
const IDS: u32 = u32::MAX;

/// An owner on the host, and who they are inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdMapping {
    /// Owner and group on the host.
    pub(crate) outside: (u32, u32),
    /// uid and gid inside.
    pub(crate) inside: (u32, u32),
}

impl IdMapping {
    /// Whether it changes nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.outside == self.inside
    }

    /// A user namespace that maps so.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn user_namespace(&self) -> io::Result<OwnedFd> {
        let uid_map = swap(self.outside.0, self.inside.0);
        let gid_map = swap(self.outside.1, self.inside.1);
        // SAFETY: the child only waits for a signal, one plain system call repeated.
        #[expect(unsafe_code, reason = "clone in a program that may have threads")]
        let (pid, pidfd) = match unsafe { clone::fork(libc::CLONE_NEWUSER, None) }? {
            CloneResult::Parent { pid, pidfd } => (pid, pidfd),
            CloneResult::Child => wait_to_be_killed(),
        };
        let made = namespace_of(pid, &uid_map, &gid_map);
        rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)?;
        let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
        rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED)?;
        made
    }
}

fn wait_to_be_killed() -> ! {
    // Should the parent die in the meantime, so does this process.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    loop {
        let _ = rustix::event::poll(&mut [], None);
    }
}

fn namespace_of(pid: i32, uid_map: &str, gid_map: &str) -> io::Result<OwnedFd> {
    for (name, text) in [("uid_map", uid_map), ("gid_map", gid_map)] {
        let path = CString::new(format!("/proc/{pid}/{name}"))?;
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes())?;
    }
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// The lines of a map in which `a` and `b` change places: on disk, as seen, how many.
fn swap(a: u32, b: u32) -> String {
    let (low, high) = (a.min(b), a.max(b));
    let mut lines = String::new();
    let mut line = |disk: u32, seen: u32, count: u32| {
        if count > 0 {
            lines.push_str(&format!("{disk} {seen} {count}\n"));
        }
    };
    if low == high {
        line(0, 0, IDS);
    } else {
        line(0, 0, low);
        line(low, high, 1);
        line(low + 1, low + 1, high - low - 1);
        line(high, low, 1);
        line(high + 1, high + 1, IDS - high - 1);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ids_change_places_and_nobody_is_lost() {
        for (a, b) in [
            (0, 1000),
            (1000, 0),
            (999, 1000),
            (1001, 1000),
            (1000, 1000),
            (65_534, 0),
        ] {
            let lines: Vec<[u64; 3]> = swap(a, b)
                .lines()
                .map(|line| {
                    let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
                    numbers.try_into().unwrap()
                })
                .collect();
            let seen = |disk: u32| {
                let disk = u64::from(disk);
                let line = lines
                    .iter()
                    .find(|l| (l[0]..l[0] + l[2]).contains(&disk))
                    .unwrap();
                line[1] + disk - line[0]
            };
            assert_eq!(seen(a), u64::from(b));
            assert_eq!(seen(b), u64::from(a));
            for other in [1, 998, 1002, 70_000, IDS - 1] {
                assert!(other == a || other == b || seen(other) == u64::from(other));
            }
            assert_eq!(lines.iter().map(|l| l[2]).sum::<u64>(), u64::from(IDS));
        }
    }
}
