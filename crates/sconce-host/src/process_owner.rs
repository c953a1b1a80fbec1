//! Whose a process is.

use crate::roots::Roots;
use crate::small_files;

/// A process as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOwner {
    /// Real user id.
    pub uid: u32,
    /// Its name, at most 15 bytes of it (proc_pid_comm(5)).
    pub command: String,
    /// The process that started it, or took it over.
    pub parent: u32,
}

/// How far parents are followed; no tree is deeper, and a recorded one may be a circle.
const MAX_ANCESTORS: usize = 64;

/// Whose the process is; `None` when it is gone or may not be seen.
#[must_use]
pub fn read_owner(roots: &Roots, pid: u32) -> Option<ProcessOwner> {
    parse(&small_files::read_text(
        &roots.proc.join(pid.to_string()).join("status"),
    )?)
}

/// The processes that it comes from, nearest first.
#[must_use]
pub fn list_ancestors(roots: &Roots, pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| {
        let owner = read_owner(roots, *pid)?;
        (owner.parent != 0).then_some(owner.parent)
    };
    std::iter::successors(parent(&pid), parent)
        .take(MAX_ANCESTORS)
        .collect()
}

/// `/proc/PID/status` (proc_pid_status(5)). The kernel writes what a terminal would obey as `\033`.
fn parse(status: &str) -> Option<ProcessOwner> {
    let value = |key: &str| {
        let lines = status.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        values.next().map(str::trim)
    };
    Some(ProcessOwner {
        uid: value("Uid")?.split_whitespace().next()?.parse().ok()?,
        command: value("Name")?.to_owned(),
        parent: value("PPid")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_status_is_read() {
        let text = "Name:\tpython\\n3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t812\nPid:\t812\n\
                    PPid:\t1\nTracerPid:\t0\nUid:\t1001\t1001\t1001\t1001\nGid:\t100\t100\t100\t100\n";
        let owner = parse(text).expect("all is there");
        assert_eq!((owner.uid, owner.parent), (1001, 1));
        assert_eq!(owner.command, "python\\n3");
        for cut in 0..text.find("\t1001").unwrap_or(0) {
            assert_eq!(parse(&text[..cut]), None);
        }
        assert_eq!(parse("Name:\tUid:\t0\nPPid:\tx\n"), None);
    }

    #[test]
    fn this_process_has_an_owner_and_parents() {
        let roots = Roots::default();
        let own = read_owner(&roots, std::process::id()).expect("it is here");
        assert_eq!(own.uid, std::fs::metadata("/proc/self").unwrap().uid());
        assert_eq!(list_ancestors(&roots, std::process::id())[0], own.parent);
        assert_eq!(read_owner(&roots, u32::MAX), None);
    }
}
