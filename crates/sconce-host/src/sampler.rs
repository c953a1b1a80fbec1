//! What a run uses while it goes on: one [`Sample`] at a time, of its processes, its cgroup, its
//! shared memory and its cards.
//!
//! Where each figure comes from, first come first served:
//!
//! | figure | v2 cgroup | v1 cgroups | else |
//! |---|---|---|---|
//! | processes | `cgroup.procs` | `cgroup.procs` | `/proc`, by parent from the root process |
//! | CPU | `cpu.stat` `usage_usec` | `cpuacct.usage` | `/proc/PID/stat`, ended processes kept |
//! | throttled | `cpu.stat` `throttled_usec` | `cpu.stat` `throttled_time` | – |
//! | memory | `memory.current` | `memory.usage_in_bytes` | – |
//! | its peak | `memory.peak` | `memory.max_usage_in_bytes` | – |
//! | cache | `memory.stat` `active_file` + `inactive_file` | the same with `total_` | – |
//! | OOM kills | `memory.events` | `memory.oom_control` | – |
//! | forks refused | `pids.events` | `pids.events` | – |
//! | swap | `memory.swap.current` | `memory.stat` `total_swap` | – |
//! | pressure | `cpu.pressure`, `memory.pressure`, `io.pressure` | – | – |
//! | I/O | `io.stat` | the larger of `blkio.throttle.io_service_bytes` and `/proc/PID/io` | `/proc/PID/io` |
//!
//! Beside them: each CPU of the machine from `/proc/stat`; the traffic of the run's network from
//! `/proc/PID/net/dev`, where the run has a network namespace of its own; and each of the 32 processes
//! that used the most, with what it is for (`identity.rs`).
//!
//! RSS and threads are from `/proc/PID/stat` always. Before kernel 6.2 the kernel adds pages to it
//! in batches of 64 for each thread, so that the RSS of a small process lags behind.
//!
//! v1's blkio figures alone will not do: buffered writes are charged to the root cgroup, and a
//! kernel from 6.10 on counts nothing there until a throttle is set.
//!
//! The sampler is meant to cost far less than 1 % of a core: files of the cgroup stay open,
//! buffers are kept, and the one expensive reading (PSS walks the page tables) is spaced out so
//! that it takes at most [`PSS_SHARE`] of the time.

mod cgroup;
mod identity;
mod machine;
mod parse;
mod processes;
mod pss;
mod reread_file;

use std::path::PathBuf;

use sconce_schema::Bytes;
use sconce_schema::event::Sample;

use crate::nvml::GpuMonitor;
use crate::roots::Roots;
use cgroup::CgroupFiles;
use machine::{CpuBusyTimes, NetworkCounters};
use processes::ProcessTracker;
use pss::PssReader;

pub use pss::PSS_SHARE;

/// What is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleScope {
    /// The run's first process, in the numbering of the /proc that is read. Needed where there is
    /// no cgroup.
    pub root_pid: Option<u32>,
    /// A process outside of the run that inherits its orphans (`PR_SET_CHILD_SUBREAPER`) and has
    /// no other children: whatever has it as its parent belongs to the run. Without one, a
    /// process whose parent ended before it was first seen is only found by its session.
    pub reaper: Option<u32>,
    /// The run's own cgroups. They exist already, and the processes are in them and not in
    /// children of them.
    pub cgroups: RunCgroups,
    /// The run's /dev/shm as this process can reach it, such as `/proc/PID/root/dev/shm`.
    pub shm: Option<PathBuf>,
    /// Cards of the run, by NVML's index.
    pub gpus: Vec<u32>,
}

/// The cgroups of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RunCgroups {
    /// It has none of its own.
    #[default]
    None,
    /// Folders in v1 hierarchies.
    V1(V1Directories),
    /// Its folder in the v2 hierarchy.
    V2(PathBuf),
}

/// One folder for each v1 controller that the run has a cgroup of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the controller's own name")]
pub struct V1Directories {
    pub pids: Option<PathBuf>,
    pub memory: Option<PathBuf>,
    pub cpu: Option<PathBuf>,
    pub cpuacct: Option<PathBuf>,
    pub blkio: Option<PathBuf>,
}

/// Reads samples of one run.
pub struct Sampler {
    target: SampleScope,
    cgroup: CgroupFiles,
    processes: ProcessTracker,
    pss: PssReader,
    cpus: CpuBusyTimes,
    traffic: NetworkCounters,
    gpus: Option<Box<dyn GpuMonitor>>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// Opens the files of `target`. What is absent or closed to the caller stays absent from
    /// every sample.
    #[must_use]
    pub fn new(roots: &Roots, target: SampleScope, gpus: Option<Box<dyn GpuMonitor>>) -> Self {
        let cgroup = CgroupFiles::open(&target.cgroups, roots);
        Self {
            processes: ProcessTracker::new(
                roots.proc.clone(),
                target.root_pid,
                target.reaper,
                !cgroup.counts_all_io(),
            ),
            pss: PssReader::new(roots.proc.clone()),
            cpus: CpuBusyTimes::new(&roots.proc),
            traffic: NetworkCounters::new(&roots.proc),
            buffer: Vec::new(),
            cgroup,
            gpus,
            target,
        }
    }

    /// Hands over the cards' library when it was loaded after the run began.
    pub fn set_gpus(&mut self, gpus: Box<dyn GpuMonitor>) {
        self.gpus = Some(gpus);
    }

    /// One reading of everything, but for what the GPUs are slow to tell and told a moment ago.
    pub fn sample(&mut self) -> Sample {
        self.read(false)
    }

    /// One reading of everything: the last.
    pub fn sample_last(&mut self) -> Sample {
        self.read(true)
    }

    fn read(&mut self, last: bool) -> Sample {
        let listed = self.cgroup.read_pids();
        let tree = match listed {
            Some(pids) => Some(self.processes.of_cgroup(pids)),
            None if self.target.root_pid.or(self.target.reaper).is_some() => {
                Some(self.processes.of_tree())
            }
            None => None,
        };
        let some_pid = self.processes.pids().min();
        let traffic = self.traffic.read(some_pid, &mut self.buffer);
        let mut sample = Sample {
            received_bytes: traffic.map(|(received, _)| received),
            sent_bytes: traffic.map(|(_, sent)| sent),
            cpus_busy_us: self.cpus.read(&mut self.buffer),
            by_process: self.processes.top_processes(),
            processes: tree.map(|tree| tree.processes),
            threads: tree.map(|tree| tree.threads),
            rss: tree.map(|tree| tree.rss),
            // A tree that ended before it was ever seen has no known time, not none.
            cpu_us: tree
                .filter(|tree| tree.processes > 0 || tree.cpu_us > 0)
                .map(|tree| tree.cpu_us),
            read_bytes: tree.and_then(|tree| tree.read_bytes),
            write_bytes: tree.and_then(|tree| tree.write_bytes),
            pss: self.pss.read_if_due(self.processes.pids()),
            shm: self.target.shm.as_deref().and_then(shm_used),
            ..Sample::default()
        };
        self.cgroup.read_into(&mut sample);
        if let Some(gpus) = &self.gpus {
            sample.gpus.extend(self.target.gpus.iter().map(|&index| {
                let mut card = match last {
                    true => gpus.sample(index),
                    false => gpus.sample_in_series(index),
                };
                card.memory_by_pid
                    .retain(|&pid, _| self.processes.contains(pid));
                card
            }));
        }
        sample
    }

    /// The run's processes as of the last reading, in the host's numbering.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.pids().collect()
    }

    /// How often the run's own memory limit stood in the way: v2's `oom` of `memory.events`
    /// (allocations that were about to fail), v1's `memory.failcnt` (which also counts the times
    /// that dropping cache was enough). An OOM kill while this is 0 was not for the run's own
    /// limit, but for that of a cgroup above it or of the machine.
    pub fn memory_limit_hits(&mut self) -> Option<u64> {
        self.cgroup.memory_limit_hits()
    }
}

/// Bytes used in a tmpfs; `None` when the path is gone or is no tmpfs (a container without a
/// /dev/shm of its own shows its root file system there).
fn shm_used(path: &std::path::Path) -> Option<Bytes> {
    /// `TMPFS_MAGIC` of statfs(2).
    const TMPFS: u64 = 0x0102_1994;
    let stat = rustix::fs::statfs(path).ok()?;
    if u64::try_from(stat.f_type) != Ok(TMPFS) {
        return None;
    }
    let blocks = stat.f_blocks.checked_sub(stat.f_bfree)?;
    u64::try_from(stat.f_bsize)
        .ok()?
        .checked_mul(blocks)
        .map(Bytes)
}
