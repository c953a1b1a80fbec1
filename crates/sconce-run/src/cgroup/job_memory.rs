//! The memory of a scheduler's job, whose cgroup a run stays in.

use std::path::PathBuf;

use sconce_host::Cgroups;

use super::{CgroupFs, keyed, of_controller};

/// What the kernel counts in the job's cgroup: the run makes none, and nobody else says without an accounting of the
/// site that memory was the cause.
#[derive(Debug)]
pub(super) struct JobMemory {
    /// `memory.events`, or `memory.oom_control` of v1.
    file: PathBuf,
    /// Processes that were killed before the run began: a job may have several, one after the other.
    before: u64,
}

impl JobMemory {
    /// Finds the cgroup; `None` where the kernel keeps no account of this process's memory.
    ///
    /// With v2 the cgroups of a step's tasks need not have the controller, and the step's own has; it counts what
    /// lies below it (Linux, Documentation/admin-guide/cgroup-v2.rst, "memory.events"). With v1 each counts its own
    /// processes.
    pub(super) fn find(files: &dyn CgroupFs, cgroups: Option<&Cgroups>) -> Option<Self> {
        let cgroups = cgroups?;
        let v1 = of_controller(cgroups, "memory").filter(|hierarchy| !hierarchy.v2);
        let v2 = || cgroups.v2_hierarchy();
        let hierarchy = v1.or_else(v2)?;
        let name = match hierarchy.v2 {
            true => "memory.events",
            false => "memory.oom_control",
        };
        let own = hierarchy.own.as_deref()?;
        let dirs = own
            .ancestors()
            .take(if hierarchy.v2 { usize::MAX } else { 1 });
        let mut dirs = dirs.take_while(|dir| dir.starts_with(&hierarchy.mount));
        dirs.find_map(|dir| {
            let file = dir.join(name);
            let before = keyed(&files.read(&file).ok()?, "oom_kill")?;
            Some(Self { file, before })
        })
    }

    /// How many processes the kernel killed since.
    pub(super) fn count_kills(&self, files: &dyn CgroupFs) -> Option<u64> {
        let now = keyed(&files.read(&self.file).ok()?, "oom_kill")?;
        Some(now.saturating_sub(self.before))
    }
}
