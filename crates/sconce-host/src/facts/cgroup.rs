//! What the caller's cgroup allows. A limit is that of the narrowest of its own cgroup and those
//! above it, as far as they are visible.

use std::path::Path;

use sconce_schema::Bytes;
use sconce_schema::facts::{CgroupFacts, CgroupVersion};

use crate::cgroups::{CgroupMode, Cgroups, Hierarchy};
use crate::{cpus, small_files};

/// v1 writes "no limit" as the greatest number of pages, in bytes; what comes near is none.
const UNLIMITED: u64 = 1 << 62;

pub(super) fn read_facts(cgroups: &Cgroups) -> CgroupFacts {
    let mut delegated: Vec<String> = Vec::new();
    for hierarchy in cgroups.hierarchies.iter().filter(|h| h.delegated) {
        let controllers = hierarchy.controllers.iter();
        // systemd's own v1 hierarchy limits nothing.
        delegated.extend(
            controllers
                .filter(|name| !name.starts_with("name="))
                .cloned(),
        );
    }
    delegated.sort();
    delegated.dedup();
    CgroupFacts {
        version: Some(match cgroups.mode {
            CgroupMode::V1 => CgroupVersion::V1,
            CgroupMode::V2 => CgroupVersion::V2,
            CgroupMode::Hybrid => CgroupVersion::Hybrid,
        }),
        delegated,
        memory: least(cgroups, "memory", ["memory.limit_in_bytes", "memory.max"])
            .filter(|&bytes| bytes < UNLIMITED)
            .map(Bytes),
        cpu: cpus::read_quota(cgroups),
        pids: least(cgroups, "pids", ["pids.max", "pids.max"]),
        oom_kills: oom_kills(cgroups),
    }
}

/// The least number in a file of v1's or v2's name; `max` is no number.
fn least(cgroups: &Cgroups, controller: &str, [v1, v2]: [&str; 2]) -> Option<u64> {
    // A v2 root has no file of limits, and below it every file of a controller that is on.
    let hierarchy = cgroups
        .find_hierarchy(controller)
        .or_else(|| cgroups.v2_hierarchy())?;
    let name = if hierarchy.v2 { v2 } else { v1 };
    folders(hierarchy)
        .filter_map(|folder| small_files::read_number(&folder.join(name)))
        .min()
}

fn folders(hierarchy: &Hierarchy) -> impl Iterator<Item = &Path> {
    let own = hierarchy.own.as_deref().map(Path::ancestors);
    let above = own.into_iter().flatten();
    above.take_while(|folder| folder.starts_with(&hierarchy.mount))
}

/// The caller's own cgroup only: what was killed above was somebody else's. v2's
/// `memory.events` counts those below it too.
fn oom_kills(cgroups: &Cgroups) -> Option<u64> {
    let hierarchy = cgroups
        .find_hierarchy("memory")
        .or_else(|| cgroups.v2_hierarchy())?;
    let own = hierarchy.own.as_deref()?;
    let name = match hierarchy.v2 {
        true => "memory.events",
        false => "memory.oom_control",
    };
    parse_oom_kills(&small_files::read_text(&own.join(name))?)
}

/// The line `oom_kill N`, in both files.
fn parse_oom_kills(text: &str) -> Option<u64> {
    let of_line = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Roots;
    use std::fs;

    fn machine(mounts: &str, own: &str, files: &[(&str, &str)]) -> CgroupFacts {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        let write = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(roots.proc.join("self/mountinfo"), mounts);
        write(roots.proc.join("self/cgroup"), own);
        for (name, text) in files {
            write(roots.sys.join("fs/cgroup").join(name), text);
        }
        read_facts(&Cgroups::read(&roots).unwrap())
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    /// The files of a Slurm job's step and of the slice above it, in the form of cgroups(7).
    #[test]
    fn the_narrowest_of_a_line_of_groups() {
        let step = "system.slice/slurmstepd.scope/job_7/step_0";
        let found = machine(
            V2,
            &format!("0::/{step}\n"),
            &[
                (
                    "system.slice/slurmstepd.scope/job_7/memory.max",
                    "68719476736\n",
                ),
                (&format!("{step}/memory.max"), "max\n"),
                (
                    &format!("{step}/cgroup.controllers"),
                    "cpuset cpu memory pids\n",
                ),
                (&format!("{step}/pids.max"), "max\n"),
                ("system.slice/pids.max", "9000\n"),
                ("system.slice/cpu.max", "800000 100000\n"),
                (
                    &format!("{step}/memory.events"),
                    "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\n",
                ),
            ],
        );
        assert_eq!(found.version, Some(CgroupVersion::V2));
        assert_eq!(found.memory, Some(Bytes::from_gib(64)));
        assert_eq!(found.pids, Some(9000));
        assert_eq!(found.cpu.map(|cpu| cpu.as_cores()), Some(8.0));
        assert_eq!(found.oom_kills, Some(1));
        assert_eq!(found.delegated, [""; 0]);
    }

    #[test]
    fn what_v1_calls_no_limit() {
        let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
        let found = machine(
            mounts,
            "4:memory:/a\n1:name=systemd:/a\n",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "memory/a/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                ),
                ("memory/a/cgroup.procs", ""),
                ("systemd/a/cgroup.procs", ""),
            ],
        );
        assert_eq!(found.version, Some(CgroupVersion::V1));
        assert_eq!(
            (found.memory, found.pids, found.oom_kills),
            (None, None, Some(3))
        );
        assert_eq!(found.delegated, ["memory"]);
    }

    #[test]
    fn a_container_has_its_limit_at_the_top() {
        let found = machine(V2, "0::/\n", &[("memory.max", "1073741824\n")]);
        assert_eq!(found.memory, Some(Bytes::from_gib(1)));
    }
}
