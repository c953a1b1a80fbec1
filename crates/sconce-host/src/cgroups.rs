//! The cgroup file systems that the caller sees, and where it sits in them.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::roots::Roots;
use crate::small_files;

/// Which kinds of cgroup file system are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupMode {
    /// Only v1 hierarchies.
    V1,
    /// Only the v2 hierarchy.
    V2,
    /// Controllers on v1, beside a v2 hierarchy that has the rest (often none).
    Hybrid,
}

/// One hierarchy: a v1 mount with its controllers, or v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Whether it is the v2 hierarchy.
    pub v2: bool,
    /// v1: the controllers mounted here (`name=systemd` for a named one). v2: those that the
    /// caller's own cgroup can hand to children (`cgroup.controllers`).
    pub controllers: Vec<String>,
    /// Mount point.
    pub mount: PathBuf,
    /// The folder of the caller's own cgroup; absent when it lies outside of what is mounted.
    pub own: Option<PathBuf>,
    /// Whether the caller can make child cgroups in [`Hierarchy::own`] and move processes there.
    /// On v2 this is delegation: the folder, `cgroup.procs` and `cgroup.subtree_control` can all
    /// be written.
    pub delegated: bool,
}

/// The cgroups of a machine, as the caller sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    /// What is mounted.
    pub mode: CgroupMode,
    /// Each hierarchy, in the order of the mount table.
    pub hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Reads the mount table and the caller's own cgroups. `None` where no cgroup file system is
    /// mounted.
    pub(crate) fn read(roots: &Roots) -> Option<Self> {
        Self::of(roots, "self")
    }

    /// The same with another process in the caller's place: [`Hierarchy::own`] is the folder of that
    /// process's cgroup. `pid` is in the numbering of the /proc that is read; a process that is not
    /// there has none.
    #[must_use]
    pub fn of_process(roots: &Roots, pid: u32) -> Option<Self> {
        Self::of(roots, &pid.to_string())
    }

    fn of(roots: &Roots, process: &str) -> Option<Self> {
        let mounts = parse_mountinfo(&small_files::read_text(&roots.proc.join("self/mountinfo"))?);
        let cgroups = roots.proc.join(process).join("cgroup");
        let own = parse_own(&small_files::read_text(&cgroups).unwrap_or_default());
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for mount in mounts {
            let twice = hierarchies
                .iter()
                .any(|h| h.v2 == mount.v2 && (mount.v2 || h.controllers == mount.controllers));
            if twice {
                continue;
            }
            let path = own
                .iter()
                .find(|own| own.names(&mount))
                .and_then(|own| own.path.strip_prefix(&mount.root).ok().map(Path::to_owned));
            hierarchies.push(mount.hierarchy(path, roots));
        }
        let mode = match (
            hierarchies.iter().any(|h| h.v2),
            hierarchies.iter().any(|h| !h.v2),
        ) {
            (true, false) => CgroupMode::V2,
            (false, true) => CgroupMode::V1,
            (true, true) => CgroupMode::Hybrid,
            (false, false) => return None,
        };
        Some(Self { mode, hierarchies })
    }

    /// The hierarchy that has `controller` (`cpu`, `memory`, `pids`, …), v2 before v1: a
    /// controller is only ever in one of them.
    #[must_use]
    pub fn find_hierarchy(&self, controller: &str) -> Option<&Hierarchy> {
        let has = |h: &&Hierarchy| h.controllers.iter().any(|name| name == controller);
        let (v2, v1): (Vec<_>, Vec<_>) = self.hierarchies.iter().partition(|h| h.v2);
        v2.into_iter()
            .find(|h| has(h))
            .or_else(|| v1.into_iter().find(|h| has(h)))
    }

    /// The v2 hierarchy, where it is mounted.
    #[must_use]
    pub fn v2_hierarchy(&self) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|h| h.v2)
    }
}

/// A cgroup mount, as the mount table names it.
#[derive(Debug, PartialEq, Eq)]
struct CgroupMount {
    v2: bool,
    /// Empty for v2.
    controllers: Vec<String>,
    /// Which part of the hierarchy is mounted.
    root: PathBuf,
    mount: PathBuf,
}

impl CgroupMount {
    fn hierarchy(self, own: Option<PathBuf>, roots: &Roots) -> Hierarchy {
        let mount = roots.locate(&self.mount);
        let own = own
            .map(|path| match path.as_os_str().is_empty() {
                true => mount.clone(),
                false => mount.join(path),
            })
            .filter(|folder| folder.is_dir());
        let writable =
            |path: &Path| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        let delegated = own.as_deref().is_some_and(|folder| {
            let files: &[&str] = match self.v2 {
                true => &["cgroup.procs", "cgroup.subtree_control"],
                false => &["cgroup.procs"],
            };
            writable(folder) && files.iter().all(|file| writable(&folder.join(file)))
        });
        let controllers = match (&own, self.v2) {
            (Some(folder), true) => small_files::read_text(&folder.join("cgroup.controllers"))
                .unwrap_or_default()
                .split_ascii_whitespace()
                .map(str::to_owned)
                .collect(),
            _ => self.controllers,
        };
        Hierarchy {
            v2: self.v2,
            controllers,
            mount,
            own,
            delegated,
        }
    }
}

/// A line of `/proc/self/cgroup`.
#[derive(Debug, PartialEq, Eq)]
struct CgroupMembership {
    v2: bool,
    controllers: Vec<String>,
    path: PathBuf,
}

impl CgroupMembership {
    fn names(&self, mount: &CgroupMount) -> bool {
        self.v2 == mount.v2
            && (self.v2
                || self
                    .controllers
                    .iter()
                    .any(|c| mount.controllers.contains(c)))
    }
}

/// `id:controllers:path` lines; v2's are `0::path` (cgroups(7)).
fn parse_own(text: &str) -> Vec<CgroupMembership> {
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some(CgroupMembership {
            v2: id == "0" && controllers.is_empty(),
            controllers: split_names(controllers),
            // A cgroup removed under its last process is still named.
            path: path.strip_suffix(" (deleted)").unwrap_or(path).into(),
        })
    };
    text.lines().filter_map(parse).collect()
}

fn split_names(list: &str) -> Vec<String> {
    list.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The cgroup mounts of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
///
/// What is mounted later at the same place hides what was there before, as where a container's part is mounted over
/// the machine's.
fn parse_mountinfo(text: &str) -> Vec<CgroupMount> {
    /// Super options of a v1 mount that are not controllers.
    const OPTIONS: [&str; 8] = [
        "rw",
        "ro",
        "xattr",
        "noprefix",
        "clone_children",
        "none",
        "favordynmods",
        "relatime",
    ];
    let parse = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let kind = file_system.next()?;
        let options = file_system.nth(1).unwrap_or_default();
        let mut fields = mount.split(' ');
        let root = unescape_octal(fields.nth(3)?);
        let mount = unescape_octal(fields.next()?);
        let controllers = match kind {
            "cgroup" => split_names(options)
                .into_iter()
                .filter(|name| {
                    !OPTIONS.contains(&name.as_str()) && !name.starts_with("release_agent=")
                })
                .collect(),
            "cgroup2" => Vec::new(),
            _ => return None,
        };
        Some(CgroupMount {
            v2: kind == "cgroup2",
            controllers,
            root: root.into(),
            mount: mount.into(),
        })
    };
    let all: Vec<CgroupMount> = text.lines().filter_map(parse).collect();
    let is_hidden = |at: usize| {
        let mut later = all.iter().skip(at + 1);
        later.any(|later| later.mount == all[at].mount)
    };
    let seen: Vec<bool> = (0..all.len()).map(|at| !is_hidden(at)).collect();
    all.into_iter()
        .zip(seen)
        .filter_map(|(mount, seen)| seen.then_some(mount))
        .collect()
}

/// The mount table writes space, tab, line end and backslash as three octal digits.
pub(crate) fn unescape_octal(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (code, letter)| {
        match text.contains(code) {
            true => text.replace(code, letter),
            false => text,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - \
                      cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
    /// Inside an engine's container on v1, without a cgroup namespace.
    const DOCKER_V1: &str = "1201 1193 0:33 /docker/4f1c /sys/fs/cgroup/cpu,cpuacct \
        ro,nosuid,nodev,noexec,relatime master:15 - cgroup cgroup rw,cpu,cpuacct\n";

    fn machine(mountinfo: &str, own: &str, folders: &[&str]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        std::fs::create_dir_all(roots.proc.join("self")).unwrap();
        std::fs::write(roots.proc.join("self/mountinfo"), mountinfo).unwrap();
        std::fs::write(roots.proc.join("self/cgroup"), own).unwrap();
        for name in folders {
            std::fs::create_dir_all(roots.sys.join("fs/cgroup").join(name)).unwrap();
        }
        (folder, roots)
    }

    #[test]
    fn another_processs_cgroups_are_found_by_its_number() {
        let roots = Roots::default();
        let own = Cgroups::of_process(&roots, std::process::id());
        assert_eq!(own, Cgroups::read(&roots));
        // 0 is no process's number.
        let nobodys = Cgroups::of_process(&roots, 0);
        let mut folders = nobodys.iter().flat_map(|cgroups| &cgroups.hierarchies);
        assert!(folders.all(|hierarchy| hierarchy.own.is_none()));
    }

    #[test]
    fn hybrid() {
        let own = "9:name=systemd:/\n4:memory:/jobs/a\n1:cpu:/\n0::/\n";
        let (_folder, roots) = machine(HYBRID, own, &["cpu", "memory/jobs/a", "unified"]);
        let memory_folder = roots.sys.join("fs/cgroup/memory/jobs/a");
        std::fs::write(memory_folder.join("cgroup.procs"), "").unwrap();
        let cgroups = Cgroups::read(&roots).unwrap();
        assert_eq!(cgroups.mode, CgroupMode::Hybrid);
        let memory = cgroups.find_hierarchy("memory").unwrap();
        assert_eq!(memory.own.as_ref(), Some(&memory_folder));
        assert!(memory.delegated && !memory.v2);
        let cpu = cgroups.find_hierarchy("cpu").unwrap();
        assert_eq!(cpu.own.as_ref(), Some(&cpu.mount));
        assert!(!cpu.delegated, "there is no cgroup.procs to write");
        assert_eq!(cgroups.find_hierarchy("pids"), None);
        assert_eq!(
            cgroups.v2_hierarchy().unwrap().controllers,
            Vec::<String>::new()
        );
    }

    #[test]
    fn v2_with_delegation() {
        let slice = "user.slice/user-1000.slice/user@1000.service";
        let (_folder, roots) = machine(V2, &format!("0::/{slice}\n"), &[slice]);
        let own = roots.sys.join("fs/cgroup").join(slice);
        std::fs::write(own.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        std::fs::write(own.join("cgroup.procs"), "1\n").unwrap();
        let before = Cgroups::read(&roots).unwrap();
        assert_eq!(before.mode, CgroupMode::V2);
        assert!(!before.find_hierarchy("memory").unwrap().delegated);
        std::fs::write(own.join("cgroup.subtree_control"), "\n").unwrap();
        let after = Cgroups::read(&roots).unwrap();
        assert!(after.find_hierarchy("memory").unwrap().delegated);
        assert_eq!(after.find_hierarchy("io"), None);
    }

    #[test]
    fn a_container_sees_its_own_part() {
        let own = "3:cpu,cpuacct:/docker/4f1c\n";
        let (_folder, roots) = machine(DOCKER_V1, own, &["cpu,cpuacct"]);
        let cgroups = Cgroups::read(&roots).unwrap();
        assert_eq!(cgroups.mode, CgroupMode::V1);
        let cpu = cgroups.find_hierarchy("cpuacct").unwrap();
        assert_eq!(cpu.own.as_ref(), Some(&cpu.mount));
        // A path outside of what is mounted is no folder of ours.
        let (_folder, roots) = machine(DOCKER_V1, "3:cpu,cpuacct:/../x\n", &["cpu,cpuacct"]);
        assert_eq!(Cgroups::read(&roots).unwrap().hierarchies[0].own, None);
    }

    #[test]
    fn a_mount_hides_what_was_mounted_there_before() {
        let mountinfo = "1 0 0:32 /.. /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         2 0 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let (_dir, roots) = machine(mountinfo, "4:memory:/job_1\n", &["memory/job_1"]);
        let cgroups = Cgroups::read(&roots).unwrap();
        assert_eq!(cgroups.hierarchies.len(), 1);
        assert!(
            cgroups.hierarchies[0]
                .own
                .as_ref()
                .unwrap()
                .ends_with("job_1")
        );
    }

    #[test]
    fn odd_tables() {
        assert_eq!(parse_mountinfo("nonsense\n- - -\n1 2 - cgroup2\n"), []);
        let spaced = "1 2 0:3 / /mnt/a\\040b rw - cgroup2 none rw";
        assert_eq!(parse_mountinfo(spaced)[0].mount, Path::new("/mnt/a b"));
        assert_eq!(parse_own("x\n0:\n").len(), 0);
    }
}
