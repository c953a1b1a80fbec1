//! cgroup v1: one hierarchy for each controller, or for a few together.

use std::io;
use std::path::{Path, PathBuf};

use sconce_host::Cgroups;
use sconce_schema::NumberSet;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::DeviceNode;

use super::{
    CgroupFs, CgroupRequest, PARENT, Placement, cpu_quota, devices, keyed, limit_huge_pages,
    of_controller, stale, v1_name,
};

/// A run's folder in one hierarchy.
#[derive(Debug)]
pub(super) struct V1Cgroup {
    pub(super) path: PathBuf,
    pub(super) controllers: Vec<String>,
}

/// A controller and the name of the limit that needs it; `None` is for the account alone.
type ControllerNeed = (&'static str, Option<&'static str>);

fn wanted(asked: &CgroupRequest<'_>) -> Vec<ControllerNeed> {
    let limited: Vec<_> = asked.limited().collect();
    let limit = |controller| {
        limited
            .iter()
            .find(|(c, _)| *c == controller)
            .map(|(_, what)| *what)
    };
    let mut wanted = vec![("memory", limit("memory")), ("cpuacct", None)];
    let others = limited
        .iter()
        .filter(|(controller, _)| *controller != "memory");
    wanted.extend(others.map(|(controller, what)| (*controller, Some(*what))));
    if asked.devices.is_some() {
        wanted.push(("devices", None));
    }
    wanted
}

/// Below the caller's own cgroups, so that a limit on the caller (a batch system's) stays one.
pub(super) fn choose(
    files: &dyn CgroupFs,
    cgroups: &Cgroups,
    asked: &CgroupRequest<'_>,
    is_v2: &dyn Fn(&str) -> bool,
    placement: &mut Placement,
) {
    for (controller, limit) in wanted(asked) {
        if is_v2(controller) {
            continue;
        }
        let Some(hierarchy) = of_controller(cgroups, controller) else {
            if let Some(what) = limit {
                placement.unenforced.push(UnenforcedLimit {
                    what: what.to_owned(),
                    why: format!(
                        "the kernel has no `{}` cgroup controller mounted",
                        v1_name(controller)
                    ),
                    hint: None,
                });
            }
            continue;
        };
        let own = hierarchy.own.as_ref().unwrap_or(&hierarchy.mount);
        let parent = own.join(PARENT);
        let made = if files.writable(&parent) {
            Ok(())
        } else {
            files.make(&parent)
        };
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                if let Some(what) = limit {
                    placement
                        .unenforced
                        .push(cannot_make(what, &parent, &error));
                }
            }
            _ => {
                if hierarchy.controllers.iter().any(|c| c == "cpuset") {
                    // What it lacks is said when the run's own folder is filled.
                    let _ = fill_cpuset(files, own, &parent, None);
                }
                let path = parent.join(asked.id);
                if !placement.v1.iter().any(|folder| folder.path == path) {
                    let controllers = hierarchy.controllers.clone();
                    placement.v1.push(V1Cgroup { path, controllers });
                }
            }
        }
    }
}

fn cannot_make(what: &str, path: &std::path::Path, error: &io::Error) -> UnenforcedLimit {
    UnenforcedLimit {
        what: what.to_owned(),
        why: format!("cannot make the cgroup {} ({error})", path.display()),
        hint: Some(
            "this machine uses cgroup v1, where only root can limit: run as root, or boot with \
             cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
                .to_owned(),
        ),
    }
}

pub(super) fn create(files: &dyn CgroupFs, placement: &mut Placement, asked: &CgroupRequest<'_>) {
    let (mut failed, mut held) = (Vec::new(), Vec::new());
    placement.v1.retain(|folder| {
        let has = |controller: &str| {
            let name = v1_name(controller);
            folder.controllers.iter().any(|c| c == name)
        };
        if let Err(error) = stale::create_locked_dir(files, &folder.path, &mut held) {
            let concerned = asked.limited().filter(|(controller, _)| has(controller));
            failed.extend(concerned.map(|(_, what)| cannot_make(what, &folder.path, &error)));
            return false;
        }
        let refused = |what: &str, error: &io::Error| UnenforcedLimit {
            what: what.to_owned(),
            why: format!(
                "the kernel refused the limit in {} ({error})",
                folder.path.display()
            ),
            hint: None,
        };
        for (controller, what) in asked.limited().filter(|(controller, _)| has(controller)) {
            if let Err(error) = limit(files, folder, controller, asked) {
                failed.push(refused(what, &error));
            }
        }
        if let (true, Some(error)) = (has("memory"), no_swap_limit(files, folder, asked)) {
            failed.push(refused("memory-swap", &error));
        }
        // Without CPUs and memory nodes nobody can join a folder of this controller.
        if has("cpuset")
            && let Some(parent) = folder.path.parent()
            && let Err(error) = fill_cpuset(files, parent, &folder.path, asked.limits.cpuset)
        {
            failed.extend(asked.limits.cpuset.map(|_| refused("cpuset", &error)));
            let _ = files.remove(&folder.path);
            return false;
        }
        if let (true, Some(nodes)) = (has("devices"), asked.devices)
            && let Err(error) = restrict_devices(files, folder, nodes)
        {
            failed.push(devices::unenforced_devices(&folder.path, &error));
        }
        true
    });
    placement.unenforced.extend(failed);
    placement.held.append(&mut held);
}

fn limit(
    files: &dyn CgroupFs,
    folder: &V1Cgroup,
    controller: &str,
    asked: &CgroupRequest<'_>,
) -> io::Result<()> {
    let set = |name: &str, value: u64| files.write(&folder.path.join(name), &value.to_string());
    match controller {
        "cpu" => asked.limits.cpus.map_or(Ok(()), |cpus| {
            let (quota, period) = cpu_quota(cpus.0);
            set("cpu.cfs_period_us", period)?;
            set("cpu.cfs_quota_us", quota)
        }),
        "memory" => asked.limits.memory.map_or(Ok(()), |memory| {
            set("memory.limit_in_bytes", memory.0)?;
            // Memory and swap together; absent where the kernel does not account swap.
            let both = asked.memory_and_swap().unwrap_or(memory);
            match set(BOTH, both.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }),
        "io" => asked
            .limits
            .io_weight
            .map_or(Ok(()), |weight| set("blkio.bfq.weight", u64::from(weight))),
        "hugetlb" => asked.limits.hugepages.map_or(Ok(()), |most| {
            limit_huge_pages(files, &folder.path, most, "limit_in_bytes")
        }),
        "pids" => asked
            .limits
            .pids
            .map_or(Ok(()), |pids| set("pids.max", pids)),
        // The CPU set is filled for every folder.
        _ => Ok(()),
    }
}

const BOTH: &str = "memory.memsw.limit_in_bytes";

/// Why a limit of swap that was asked for does not hold, where the kernel does not account swap.
fn no_swap_limit(
    files: &dyn CgroupFs,
    folder: &V1Cgroup,
    asked: &CgroupRequest<'_>,
) -> Option<io::Error> {
    asked.limits.memory_swap?;
    files.read(&folder.path.join(BOTH)).err()
}

/// Gives a folder CPUs, those `asked` or its parent's, and its parent's memory nodes: a new folder
/// has none (the kernel's Documentation/admin-guide/cgroup-v1/cpusets.rst). What it has stays.
fn fill_cpuset(
    files: &dyn CgroupFs,
    parent: &Path,
    folder: &Path,
    asked: Option<NumberSet>,
) -> io::Result<()> {
    for name in ["cpuset.mems", "cpuset.cpus"] {
        let file = folder.join(name);
        let text = match asked.filter(|_| name == "cpuset.cpus") {
            Some(cpus) => cpus.to_string(),
            None if files.read(&file)?.trim().is_empty() => {
                files.read(&parent.join(name))?.trim().to_owned()
            }
            None => continue,
        };
        files.write(&file, &text)?;
    }
    Ok(())
}

fn restrict_devices(
    files: &dyn CgroupFs,
    folder: &V1Cgroup,
    nodes: &[DeviceNode],
) -> io::Result<()> {
    files.write(&folder.path.join("devices.deny"), "a")?;
    let allow = folder.path.join("devices.allow");
    for rule in devices::build_rules(nodes) {
        files.write(&allow, &rule.to_string())?;
    }
    Ok(())
}

/// How many processes the kernel killed, and whether for this folder's own limit.
pub(super) fn out_of_memory(files: &dyn CgroupFs, folder: &V1Cgroup) -> Option<(u64, bool)> {
    if !folder.controllers.iter().any(|c| c == "memory") {
        return None;
    }
    let kills = keyed(
        &files.read(&folder.path.join("memory.oom_control")).ok()?,
        "oom_kill",
    )?;
    // failcnt will not do: where the limit of memory with swap is the same, as here, kernel 6.18
    // counts a hit in neither memory.failcnt nor memory.memsw.failcnt. The peak stands at the limit.
    let number = |name: &str| -> Option<u64> {
        files
            .read(&folder.path.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let peak = number("memory.max_usage_in_bytes");
    let hit = peak
        .zip(number("memory.limit_in_bytes"))
        .is_some_and(|(peak, limit)| peak >= limit);
    Some((kills, hit))
}
