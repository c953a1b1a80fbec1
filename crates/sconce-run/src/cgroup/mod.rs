//! Limits: the run's own cgroup, on v1, v2 or both side by side.
//!
//! Placing has two steps, so that a folder's name is on disk before the folder is:
//! [`Placement::choose`] says where the folders will be and what cannot be enforced there, and
//! [`Cgroup::create`] makes them. What was not limited is still accounted where that is possible,
//! and silently not where it is not.

mod devices;
mod job_memory;
mod stale;
mod v1;
mod v2;

#[cfg(test)]
mod test;

pub(crate) use stale::remove_stale_cgroups;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Mode, OFlags, accessat, flock};
use rustix::io::Errno;
use sconce_host::sampler::{RunCgroups, V1Directories};
use sconce_host::{Cgroups, Hierarchy};
use sconce_schema::event::{OomKill, UnenforcedLimit};
use sconce_schema::request::{DeviceNode, RunLimits, RunRequest};
use sconce_schema::units::Bytes;

use self::job_memory::JobMemory;
use crate::sys::bpf::{self, EbpfInstruction};

/// The folder that holds the runs' folders.
pub(crate) const PARENT: &str = "sconce";

/// The folder that an engine makes in a run's folder of v2.
pub(crate) const ENGINE: &str = "engine";

/// What this module does with a cgroup file system.
pub(crate) trait CgroupFs {
    /// Makes one folder.
    fn make(&self, folder: &Path) -> io::Result<()>;
    /// Writes a control file that exists.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    /// Reads a control file.
    fn read(&self, file: &Path) -> io::Result<String>;
    /// Removes a folder that has no processes and no folders.
    fn remove(&self, folder: &Path) -> io::Result<()>;
    /// Takes a folder as that of a run that lives, until what this gives is closed; `None` when another
    /// process has it.
    fn hold(&self, folder: &Path) -> io::Result<Option<OwnedFd>>;
    /// Whether the caller may write there.
    fn writable(&self, path: &Path) -> bool;
    /// Has openings of devices by members of a v2 folder judged by a program.
    fn filter_devices(&self, folder: &Path, program: &[EbpfInstruction]) -> io::Result<()>;
}

/// The kernel's.
pub(crate) struct KernelCgroupFs;

impl CgroupFs for KernelCgroupFs {
    fn make(&self, folder: &Path) -> io::Result<()> {
        Ok(rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755))?)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, text.as_bytes())?;
        Ok(())
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        std::fs::read_to_string(file)
    }

    fn remove(&self, folder: &Path) -> io::Result<()> {
        std::fs::remove_dir(folder)
    }

    fn hold(&self, folder: &Path) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(folder)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn writable(&self, path: &Path) -> bool {
        accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }

    fn filter_devices(&self, folder: &Path, program: &[EbpfInstruction]) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        bpf::filter_devices(folder.as_fd(), program)
    }
}

/// What a run asks of its cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CgroupRequest<'a> {
    /// The run's name; its folders' too.
    pub(crate) id: &'a str,
    pub(crate) limits: &'a RunLimits,
    /// Whether a disk of this machine heeds [`RunLimits::io_weight`].
    pub(crate) disks_weighed: bool,
    /// Allow these devices and the harmless ones, and no others; `None` leaves devices alone.
    pub(crate) devices: Option<&'a [DeviceNode]>,
    /// Whether the caller is the machine's root.
    pub(crate) privileged: bool,
    /// See [`RunOptions::waiting`](crate::RunOptions::waiting).
    pub(crate) waiting: Option<u32>,
}

/// Where a run's cgroups will be.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    v1: Vec<v1::V1Cgroup>,
    v2: Option<v2::V2Cgroup>,
    /// What says that the run of the folders lives.
    held: Vec<OwnedFd>,
    /// Of the job whose cgroup the run stays in.
    job_memory: Option<JobMemory>,
    /// Limits that cannot be enforced here.
    pub(crate) unenforced: Vec<UnenforcedLimit>,
}

impl Placement {
    /// Chooses. On v2 this also enables controllers in the parents and may move this process to
    /// a leaf, because a folder with processes cannot have limited children.
    pub(crate) fn choose(
        files: &dyn CgroupFs,
        cgroups: Option<&Cgroups>,
        asked: CgroupRequest<'_>,
    ) -> Self {
        let mut placement = Self::default();
        if asked.limits.io_weight.is_some() && !asked.disks_weighed {
            placement.unenforced.push(no_disk_weighs());
        }
        let Some(cgroups) = cgroups else {
            placement.refuse(&asked, |_| true, "no cgroup file system is mounted", None);
            return placement;
        };
        // The caller's own cgroup may lack what the top has.
        let top = cgroups
            .v2_hierarchy()
            .map(|v2| v2.mount.join("cgroup.controllers"));
        let top = top
            .and_then(|file| files.read(&file).ok())
            .unwrap_or_default();
        let is_v2 = |controller: &str| match of_controller(cgroups, controller) {
            Some(hierarchy) => hierarchy.v2,
            None => top.split_ascii_whitespace().any(|name| name == controller),
        };
        let limited = asked.limited().map(|(controller, _)| controller);
        if let Some(v2) = cgroups
            .v2_hierarchy()
            .filter(|_| ACCOUNTED.into_iter().chain(limited).any(is_v2))
        {
            match v2::choose(files, v2, &asked, &is_v2) {
                Ok(folder) => placement.v2 = Some(folder),
                Err(v2::V2Obstacle { why, hint }) => {
                    placement.refuse(&asked, is_v2, &why, hint);
                }
            }
        }
        v1::choose(files, cgroups, &asked, &is_v2, &mut placement);
        placement
    }

    /// None, since the run stays in a scheduler's.
    pub(crate) fn in_job(
        files: &dyn CgroupFs,
        cgroups: Option<&Cgroups>,
        asked: &CgroupRequest<'_>,
    ) -> Self {
        let mut placement = Self {
            job_memory: JobMemory::find(files, cgroups),
            ..Self::default()
        };
        placement.refuse(
            asked,
            |_| true,
            "the run is part of a job, whose limits hold",
            None,
        );
        placement
    }

    /// The folders that [`Cgroup::create`] will make, to be removed whatever happens.
    pub(crate) fn cgroup_dirs(&self) -> impl Iterator<Item = &Path> {
        let v2 = self.v2.iter().map(|folder| folder.path.as_path());
        self.v1.iter().map(|folder| folder.path.as_path()).chain(v2)
    }

    /// Its folder of v2, where it has one.
    pub(crate) fn v2_folder(&self) -> Option<&Path> {
        self.v2.as_ref().map(|folder| folder.path.as_path())
    }

    /// Says that the limits of the controllers that `concerned` names are not enforced.
    fn refuse(
        &mut self,
        asked: &CgroupRequest<'_>,
        concerned: impl Fn(&str) -> bool,
        why: &str,
        hint: Option<String>,
    ) {
        for (controller, what) in asked.limited() {
            if concerned(controller) {
                self.unenforced.push(UnenforcedLimit {
                    what: what.to_owned(),
                    why: why.to_owned(),
                    hint: hint.clone(),
                });
            }
        }
    }
}

/// The controllers that keep the account of every run.
const ACCOUNTED: [&str; 3] = ["cpu", "memory", "pids"];

/// v1's name of a controller.
fn v1_name(controller: &str) -> &str {
    match controller {
        "io" => "blkio",
        same => same,
    }
}

/// The hierarchy that has a controller, by its name in v2.
fn of_controller<'a>(cgroups: &'a Cgroups, controller: &str) -> Option<&'a Hierarchy> {
    let v1 = || cgroups.find_hierarchy(v1_name(controller));
    cgroups.find_hierarchy(controller).or_else(v1)
}

/// Page sizes as the hugetlb controller names them: all that x86-64, Arm and POWER have
/// (the kernel's hugetlb_cgroup.c makes the names so).
const HUGE_PAGES: [&str; 7] = ["64KB", "2MB", "16MB", "32MB", "512MB", "1GB", "16GB"];

/// Limits every size of huge pages that the folder has, both what is reserved (asking for more fails
/// at mmap) and what is used (more is a SIGBUS). `suffix` is what v1 and v2 call a limit.
fn limit_huge_pages(
    files: &dyn CgroupFs,
    folder: &Path,
    most: Bytes,
    suffix: &str,
) -> io::Result<()> {
    let mut any = false;
    for size in HUGE_PAGES {
        for reserved in ["", "rsvd."] {
            let file = folder.join(format!("hugetlb.{size}.{reserved}{suffix}"));
            match files.write(&file, &most.0.to_string()) {
                Ok(()) => any = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    match any {
        true => Ok(()),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

fn no_disk_weighs() -> UnenforcedLimit {
    UnenforcedLimit {
        what: "io-weight".to_owned(),
        why:
            "no disk of this machine heeds weights: that takes the BFQ scheduler, or the kernel's \
              cost model (io.cost)"
                .to_owned(),
        hint: Some("as root: `echo bfq > /sys/block/DISK/queue/scheduler`".to_owned()),
    }
}

impl CgroupRequest<'_> {
    /// Memory and swap together, where memory is limited: as asked, or no swap.
    fn memory_and_swap(&self) -> Option<Bytes> {
        let memory = self.limits.memory?;
        Some(self.limits.memory_swap.unwrap_or(memory).max(memory))
    }

    /// The controllers that a limit needs, by their names in v2, with the limit's name for people.
    fn limited(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let limits = self.limits;
        [
            ("cpu", "cpus", limits.cpus.is_some()),
            ("memory", "memory", limits.memory.is_some()),
            ("pids", "pids", limits.pids.is_some()),
            ("cpuset", "cpuset", limits.cpuset.is_some()),
            (
                "io",
                "io-weight",
                limits.io_weight.is_some() && self.disks_weighed,
            ),
            ("hugetlb", "hugepages", limits.hugepages.is_some()),
        ]
        .into_iter()
        .filter_map(|(controller, what, set)| set.then_some((controller, what)))
    }
}

/// A run's own cgroups. Removed by [`Cgroup::remove`], which leaves them when something still
/// lives there.
pub(crate) struct Cgroup<'a> {
    files: &'a dyn CgroupFs,
    placement: Placement,
    memory: Option<Bytes>,
}

/// How a process becomes a member.
#[derive(Debug, Default)]
pub(crate) struct CgroupJoin {
    /// v1: `tasks` files; a process with one thread writes `0` to each. Unlike `cgroup.procs`
    /// this takes no lock that waits for every CPU.
    pub(crate) tasks: Vec<OwnedFd>,
    /// v2: the folder, for clone3.
    pub(crate) folder: Option<OwnedFd>,
}

impl<'a> Cgroup<'a> {
    /// Makes the folders and sets the limits. What turns out not to work is added to
    /// [`Cgroup::unenforced_limits`].
    pub(crate) fn create(
        files: &'a dyn CgroupFs,
        mut placement: Placement,
        asked: CgroupRequest<'_>,
    ) -> Self {
        v1::create(files, &mut placement, &asked);
        v2::create(files, &mut placement, &asked);
        Self {
            files,
            placement,
            memory: asked.limits.memory,
        }
    }

    /// Limits that cannot be enforced here.
    pub(crate) fn unenforced_limits(&self) -> &[UnenforcedLimit] {
        &self.placement.unenforced
    }

    /// Opens what a process needs to become a member.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_join_handles(&self) -> io::Result<CgroupJoin> {
        let open =
            |path: &Path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(CgroupJoin {
            tasks: self
                .placement
                .v1
                .iter()
                .map(|folder| open(&folder.path.join("tasks"), OFlags::WRONLY))
                .collect::<Result<_, _>>()?,
            folder: match &self.placement.v2 {
                Some(folder) => Some(open(&folder.path, OFlags::PATH | OFlags::DIRECTORY)?),
                None => None,
            },
        })
    }

    /// The folders, as the sampler wants them.
    pub(crate) fn to_run_cgroups(&self) -> RunCgroups {
        let has = |controller: &str| {
            self.placement
                .v1
                .iter()
                .find(|folder| folder.controllers.iter().any(|c| c == controller))
                .map(|folder| folder.path.clone())
        };
        match &self.placement.v2 {
            _ if !self.placement.v1.is_empty() => RunCgroups::V1(V1Directories {
                pids: has("pids"),
                memory: has("memory"),
                cpu: has("cpu"),
                cpuacct: has("cpuacct"),
                blkio: None,
            }),
            Some(folder) => RunCgroups::V2(folder.path.clone()),
            None => RunCgroups::None,
        }
    }

    /// Whether the kernel killed something for want of memory.
    pub(crate) fn out_of_memory(&self) -> Option<OomKill> {
        let v1 = self
            .placement
            .v1
            .iter()
            .find_map(|f| v1::out_of_memory(self.files, f));
        let v2 = || {
            self.placement
                .v2
                .as_ref()
                .and_then(|f| v2::out_of_memory(self.files, f))
        };
        let of_job = || {
            let memory = self.placement.job_memory.as_ref()?;
            Some((memory.count_kills(self.files)?, false))
        };
        let (kills, own) = v1.or_else(v2).or_else(of_job)?;
        (kills > 0).then(|| OomKill {
            limit: self.memory.filter(|_| own),
            kills,
        })
    }

    /// Removes the folders, with those that the run or its engine made within: podman leaves its own
    /// where the machine has its cgroups mounted twice.
    ///
    /// # Errors
    /// The folder that could not be removed, and why.
    pub(crate) fn remove(&self) -> Result<(), (PathBuf, io::Error)> {
        self.placement
            .cgroup_dirs()
            .try_for_each(|folder| remove_all(self.files, folder))
    }
}

/// Removes one run's folder; one that is gone is fine.
fn remove_folder(files: &dyn CgroupFs, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
    match files.remove(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err((folder.to_owned(), error)),
        _ => Ok(()),
    }
}

/// Removes the folder of a run whose Sconce is dead, with whatever still lives there.
///
/// # Errors
/// The folder that could not be removed, and why; the killed processes may need a moment.
pub(crate) fn remove_leftover(
    files: &dyn CgroupFs,
    folder: &Path,
) -> Result<(), (PathBuf, io::Error)> {
    remove_folder(files, folder).or_else(|_| {
        let listed = files.read(&folder.join("cgroup.procs")).unwrap_or_default();
        for pid in listed.lines().filter_map(|line| line.parse().ok()) {
            // 0 is how the kernel writes a process of another namespace.
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        remove_folder(files, folder)
    })
}

/// Removes a folder and those within, the inner ones first, with whatever still lives there.
///
/// # Errors
/// The folder that could not be removed, and why.
pub(crate) fn remove_all(files: &dyn CgroupFs, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
    let inner = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_all(files, &entry.path())?;
    }
    remove_leftover(files, folder)
}

/// What a run may open, for an engine that holds it to that.
pub(crate) fn oci_devices(request: &RunRequest) -> serde_json::Value {
    let nodes = request.edits.iter().flat_map(|edits| &edits.device_nodes);
    let nodes: Vec<DeviceNode> = nodes.cloned().collect();
    devices::oci_device_list(&devices::build_rules(&nodes))
}

/// The value of `key` in a file of `key value` lines.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        if name == key {
            value.trim().parse().ok()
        } else {
            None
        }
    })
}

/// Quota and period of a CPU limit, µs. The kernel takes quotas from 1 ms and periods to 1 s, so
/// that a very small share needs the longest period.
fn cpu_quota(millicores: u32) -> (u64, u64) {
    let share = u64::from(millicores);
    match share * 100 {
        quota @ 1_000.. => (quota, 100_000),
        _ => ((share * 1_000).max(1_000), 1_000_000),
    }
}
