//! cgroup v2: one hierarchy, controllers handed down from parent to child, and processes only in
//! leaves ("no internal processes", cgroups(7)).

use std::io;
use std::path::{Path, PathBuf};

use sconce_host::Hierarchy;
use sconce_schema::event::UnenforcedLimit;

use super::{
    ACCOUNTED, CgroupFs, CgroupRequest, PARENT, Placement, cpu_quota, devices, keyed,
    limit_huge_pages, stale, v1_name,
};

/// The run's folder.
#[derive(Debug)]
pub(super) struct V2Cgroup {
    pub(super) path: PathBuf,
}

/// Why no folder of this hierarchy will do.
#[derive(Debug)]
pub(super) struct V2Obstacle {
    pub(super) why: String,
    pub(super) hint: Option<String>,
}

/// Looks for a parent: for root the top of what is mounted, then, for everyone, the caller's own
/// cgroup and upwards from it as far as the caller may write (that is delegation).
pub(super) fn choose(
    files: &dyn CgroupFs,
    hierarchy: &Hierarchy,
    asked: &CgroupRequest<'_>,
    here: &dyn Fn(&str) -> bool,
) -> Result<V2Cgroup, V2Obstacle> {
    let wanted = asked.limited().map(|(c, _)| c).filter(|c| here(c));
    // Of the others, one that is not handed down here does not keep the rest from being limited.
    let (needed, others): (Vec<&str>, Vec<&str>) = wanted.partition(|c| ACCOUNTED.contains(c));
    let top = asked.privileged.then(|| hierarchy.mount.clone());
    let upwards = hierarchy
        .own
        .iter()
        .flat_map(|own| own.ancestors())
        .take_while(|folder| folder.starts_with(&hierarchy.mount))
        .take_while(|folder| {
            ["", "cgroup.procs", "cgroup.subtree_control"]
                .iter()
                .all(|name| files.writable(&folder.join(name)))
        })
        .map(Path::to_owned);
    let mut last = None;
    for parent in top.into_iter().chain(upwards) {
        match prepare(files, &parent, &needed, &others, asked.waiting) {
            Ok(()) => {
                let path = parent.join(PARENT).join(asked.id);
                return Ok(V2Cgroup { path });
            }
            Err(error) => last = Some((parent, error)),
        }
    }
    Err(match last {
        Some((parent, error)) => V2Obstacle {
            why: format!(
                "the cgroup {} cannot hand down its controllers ({error})",
                parent.display()
            ),
            hint: Some(DELEGATE.to_owned()),
        },
        None => V2Obstacle {
            why: "no cgroup was delegated to this user".to_owned(),
            hint: Some(DELEGATE.to_owned()),
        },
    })
}

const DELEGATE: &str = "start it as `systemd-run --user --scope -p Delegate=yes sconce run …`, or \
                        run as root";

/// Makes `parent/sconce` able to hold limited children.
fn prepare(
    files: &dyn CgroupFs,
    parent: &Path,
    needed: &[&str],
    others: &[&str],
    waiting: Option<u32>,
) -> io::Result<()> {
    if !may_hand_down(files, parent)? {
        // The processes here may be this one and who waits for it, which can step aside into a leaf.
        let me = std::process::id();
        let ours = |pid: &u32| *pid == me || Some(*pid) == waiting;
        let listed = files.read(&parent.join("cgroup.procs"))?;
        let pids = listed.lines().map(|line| line.parse().ok().filter(ours));
        let Some(pids) = pids.collect::<Option<Vec<u32>>>() else {
            return Err(io::ErrorKind::ResourceBusy.into());
        };
        let leaf = parent.join("sconce-itself");
        make(files, &leaf)?;
        for pid in pids {
            files.write(&leaf.join("cgroup.procs"), &pid.to_string())?;
        }
    }
    enable(files, parent, needed, others)?;
    let ours = parent.join(PARENT);
    make(files, &ours)?;
    enable(files, &ours, needed, others)
}

/// Whether controllers can be handed down from here: from the top, or where no process lives. The
/// kernel would hand some down (cpu, pids) from elsewhere too, and in doing so make the folder a
/// threaded one, below which no process can be started.
fn may_hand_down(files: &dyn CgroupFs, folder: &Path) -> io::Result<bool> {
    // Only the top of the whole hierarchy has no type.
    let is_top = files.read(&folder.join("cgroup.type")).is_err();
    Ok(is_top || files.read(&folder.join("cgroup.procs"))?.trim().is_empty())
}

fn make(files: &dyn CgroupFs, folder: &Path) -> io::Result<()> {
    match files.make(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Enables the controllers for the children of `folder`: those `needed` or it fails, `others` and
/// those that only keep the account where that is possible.
fn enable(files: &dyn CgroupFs, folder: &Path, needed: &[&str], others: &[&str]) -> io::Result<()> {
    let control = folder.join("cgroup.subtree_control");
    let enabled = files.read(&control)?;
    let is_enabled = |c: &str| enabled.split_ascii_whitespace().any(|name| name == c);
    for controller in ACCOUNTED.iter().chain(others) {
        if is_enabled(controller) {
            continue;
        }
        let done = files.write(&control, &format!("+{controller}"));
        if needed.contains(controller) {
            done?;
        }
    }
    Ok(())
}

pub(super) fn create(files: &dyn CgroupFs, placement: &mut Placement, asked: &CgroupRequest<'_>) {
    let Some(folder) = &placement.v2 else { return };
    let refused = |what: &str, error: &io::Error| UnenforcedLimit {
        what: what.to_owned(),
        why: format!(
            "the kernel refused it in the cgroup {} ({error})",
            folder.path.display()
        ),
        hint: None,
    };
    let v1_has = |controller: &str| {
        placement
            .v1
            .iter()
            .any(|f| f.controllers.iter().any(|c| c == v1_name(controller)))
    };
    let said = |what: &str| placement.unenforced.iter().any(|u| u.what == what);
    let concerned: Vec<_> = asked
        .limited()
        .filter(|(controller, what)| !v1_has(controller) && !said(what))
        .collect();
    if let Err(error) = stale::create_locked_dir(files, &folder.path, &mut placement.held) {
        let failed: Vec<_> = concerned
            .iter()
            .map(|(_, what)| refused(what, &error))
            .collect();
        placement.unenforced.extend(failed);
        placement.v2 = None;
        return;
    }
    let mut failed: Vec<_> = concerned
        .iter()
        .filter_map(|(controller, what)| {
            let error = limit(files, folder, controller, asked).err()?;
            let here = handed_down(files, folder, controller);
            Some(if here {
                refused(what, &error)
            } else {
                missing(folder, controller, what)
            })
        })
        .collect();
    let swap = || files.read(&folder.path.join("memory.swap.max"));
    if let (Some(_), false, Err(error)) = (asked.limits.memory_swap, v1_has("memory"), swap()) {
        failed.push(refused("memory-swap", &error));
    }
    if let Some(nodes) = asked.devices.filter(|_| !v1_has("devices")) {
        let program = devices::build_filter_program(&devices::build_rules(nodes));
        let filtered = files.filter_devices(&folder.path, &program);
        failed.extend(
            filtered
                .err()
                .map(|e| devices::unenforced_devices(&folder.path, &e)),
        );
    }
    placement.unenforced.extend(failed);
}

/// Whether the controller got as far as this folder.
fn handed_down(files: &dyn CgroupFs, folder: &V2Cgroup, controller: &str) -> bool {
    let there = files.read(&folder.path.join("cgroup.controllers"));
    there.is_ok_and(|names| {
        names
            .split_ascii_whitespace()
            .any(|name| name == controller)
    })
}

fn missing(folder: &V2Cgroup, controller: &str, what: &str) -> UnenforcedLimit {
    UnenforcedLimit {
        what: what.to_owned(),
        why: format!(
            "the controller `{controller}` is not handed down to the cgroup {}",
            folder.path.display()
        ),
        hint: Some(format!(
            "have root delegate it too: `Delegate={controller} …` in a drop-in of user@.service, or \
             run as root"
        )),
    }
}

fn limit(
    files: &dyn CgroupFs,
    folder: &V2Cgroup,
    controller: &str,
    asked: &CgroupRequest<'_>,
) -> io::Result<()> {
    let set = |name: &str, value: &str| files.write(&folder.path.join(name), value);
    match controller {
        "cpu" => asked.limits.cpus.map_or(Ok(()), |cpus| {
            let (quota, period) = cpu_quota(cpus.0);
            set("cpu.max", &format!("{quota} {period}"))
        }),
        "memory" => asked.limits.memory.map_or(Ok(()), |memory| {
            set("memory.max", &memory.0.to_string())?;
            // Absent where the kernel does not account swap.
            let swap = asked.memory_and_swap().map_or(0, |both| both.0 - memory.0);
            match set("memory.swap.max", &swap.to_string()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }),
        "cpuset" => asked
            .limits
            .cpuset
            .map_or(Ok(()), |cpus| set("cpuset.cpus", &cpus.to_string())),
        "io" => asked.limits.io_weight.map_or(Ok(()), |weight| {
            // Whichever of the two works for a disk.
            let (bfq, cost) = (
                set("io.bfq.weight", &weight.to_string()),
                set("io.weight", &weight.to_string()),
            );
            bfq.or(cost)
        }),
        "hugetlb" => asked.limits.hugepages.map_or(Ok(()), |most| {
            limit_huge_pages(files, &folder.path, most, "max")
        }),
        _ => asked
            .limits
            .pids
            .map_or(Ok(()), |pids| set("pids.max", &pids.to_string())),
    }
}

/// How many processes the kernel killed, and whether for this folder's own limit.
pub(super) fn out_of_memory(files: &dyn CgroupFs, folder: &V2Cgroup) -> Option<(u64, bool)> {
    let events = files.read(&folder.path.join("memory.events")).ok()?;
    let own = keyed(&events, "oom").is_some_and(|times| times > 0);
    Some((keyed(&events, "oom_kill")?, own))
}
