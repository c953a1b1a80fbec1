//! What the whole machine tells beside a run: how busy each CPU is, and the traffic of the run's own
//! network.

use std::fs;
use std::path::{Path, PathBuf};

use super::parse;
use super::reread_file::RereadFile;

/// How busy each CPU of the machine was since the first reading.
#[derive(Debug)]
pub(super) struct CpuBusyTimes {
    stat: RereadFile,
    began: Vec<u64>,
}

impl CpuBusyTimes {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            stat: RereadFile::open(&proc.join("stat")),
            began: Vec::new(),
        }
    }

    /// µs by CPU number; empty where it cannot be read.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> Vec<u64> {
        let Some(text) = self.stat.read(buffer) else {
            return Vec::new();
        };
        let now = parse::cpus_busy_ticks(text);
        if self.began.is_empty() {
            self.began.clone_from(&now);
        }
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        // A CPU that was plugged in later began then.
        let since = |(cpu, ticks): (usize, u64)| {
            let began = self.began.get(cpu).copied().unwrap_or_default();
            ticks.saturating_sub(began).saturating_mul(tick_us)
        };
        now.into_iter().enumerate().map(since).collect()
    }
}

/// The counters of the run's network namespace.
#[derive(Debug)]
pub(super) struct NetworkCounters {
    proc: PathBuf,
    /// Open once a process of the run was found in a namespace of its own: the file stays the
    /// namespace's when the process is gone.
    file: RereadFile,
    decided: bool,
}

impl NetworkCounters {
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            file: RereadFile::without_file(),
            decided: false,
        }
    }

    /// Bytes received and sent, loopback left out; `None` on the machine's own network. `pid` is a
    /// process of the run.
    pub(super) fn read(&mut self, pid: Option<u32>, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
        if !self.decided {
            let of = |name: &str| fs::read_link(self.proc.join(name).join("ns/net")).ok();
            let (own, theirs) = (of("self")?, of(&pid?.to_string())?);
            self.decided = true;
            if own != theirs {
                let path = self.proc.join(pid?.to_string()).join("net/dev");
                self.file = RereadFile::open(&path);
            }
        }
        parse::network_bytes(self.file.read(buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_network_of_its_own_is_counted() {
        let proc = tempfile::tempdir().unwrap();
        let process = |name: &str, namespace: &str| {
            fs::create_dir_all(proc.path().join(name).join("ns")).unwrap();
            fs::create_dir_all(proc.path().join(name).join("net")).unwrap();
            symlink(namespace, proc.path().join(name).join("ns/net")).unwrap();
            let text = "Inter-|\n face |\n    lo: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n  \
                        eth0:10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n";
            fs::write(proc.path().join(name).join("net/dev"), text).unwrap();
        };
        process("self", "net:[1]");
        process("7", "net:[1]");
        process("8", "net:[2]");
        let mut buffer = Vec::new();
        let mut read = |pid| NetworkCounters::new(proc.path()).read(pid, &mut buffer);
        assert_eq!(read(Some(7)), None);
        assert_eq!(read(Some(8)), Some((10, 20)));
        assert_eq!(read(Some(9)), None, "gone");
        assert_eq!(read(None), None);
    }

    #[test]
    fn cpus_count_from_the_first_reading() {
        let proc = tempfile::tempdir().unwrap();
        let stat = |busy: u64| {
            let text =
                format!("cpu  9 9\ncpu0 {busy} 0 0 500 7 0 0 0 0 0\ncpu2 1 1 1 1 1 1 1 1 0 0\n");
            fs::write(proc.path().join("stat"), text).unwrap();
        };
        stat(100);
        let (mut cpus, mut buffer) = (CpuBusyTimes::new(proc.path()), Vec::new());
        assert_eq!(cpus.read(&mut buffer), [0, 0, 0]);
        stat(130);
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(cpus.read(&mut buffer), [30 * tick_us, 0, 0]);
    }
}
