//! What of a container this machine sees: its cgroup, by its first process.

use sconce_host::{Cgroups, Hierarchy, Roots, RunCgroups, SampleScope, V1Directories};
use sconce_schema::event::UnenforcedLimit;

use super::client::ContainerState;

/// The container's processes as this machine sees them; `None` where it does not.
pub(super) fn sample_scope(state: &ContainerState, id: &str) -> Option<SampleScope> {
    // 0 where it has ended already.
    let pid = (state.pid != 0).then_some(state.pid)?;
    let found = folders(&Cgroups::of_process(&Roots::default(), pid)?, id);
    (found != RunCgroups::None).then(|| SampleScope {
        root_pid: Some(pid),
        cgroups: found,
        shm: Some(format!("/proc/{pid}/root/dev/shm").into()),
        ..SampleScope::default()
    })
}

pub(super) fn unreadable_cgroup() -> UnenforcedLimit {
    UnenforcedLimit {
        what: "accounting".to_owned(),
        why:
            "the container's cgroup cannot be seen from here, so that what it uses is missing from \
              the record"
                .to_owned(),
        hint: None,
    }
}

/// The container's own folders: those that its id is in the name of, so that no other's are read.
fn folders(cgroups: &Cgroups, id: &str) -> RunCgroups {
    let own = |hierarchy: &Hierarchy| {
        let folder = hierarchy.own.clone()?;
        let name = folder.file_name()?.to_str()?;
        (id.len() == 64 && name.contains(id)).then_some(folder)
    };
    let v1 = |controller: &str| {
        let has = |one: &&Hierarchy| !one.v2 && one.controllers.iter().any(|c| c == controller);
        cgroups.hierarchies.iter().find(has).and_then(own)
    };
    let folders = V1Directories {
        pids: v1("pids"),
        memory: v1("memory"),
        cpu: v1("cpu"),
        cpuacct: v1("cpuacct"),
        blkio: v1("blkio"),
    };
    match cgroups.v2_hierarchy().and_then(own) {
        _ if folders != V1Directories::default() => RunCgroups::V1(folders),
        Some(folder) => RunCgroups::V2(folder),
        None => RunCgroups::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_containers_own_folders_are_read() {
        let id = "0f".repeat(32);
        let hierarchy = |v2, controllers: &[&str], own: &str| Hierarchy {
            v2,
            controllers: controllers.iter().map(|&c| c.to_owned()).collect(),
            mount: "/sys/fs/cgroup".into(),
            own: Some(own.into()),
            delegated: false,
        };
        let of = |hierarchies| {
            let mode = sconce_host::CgroupMode::Hybrid;
            folders(&Cgroups { mode, hierarchies }, &id)
        };
        let scope = format!("/sys/fs/cgroup/system.slice/docker-{id}.scope");
        let own = format!("/sys/fs/cgroup/memory/docker/{id}");
        assert_eq!(
            of(vec![hierarchy(true, &["memory"], &scope)]),
            RunCgroups::V2(scope.clone().into())
        );
        let v1 = V1Directories {
            memory: Some(own.clone().into()),
            ..V1Directories::default()
        };
        let both = vec![
            hierarchy(true, &[], &scope),
            hierarchy(false, &["memory"], &own),
            hierarchy(false, &["pids"], "/sys/fs/cgroup/pids/user"),
        ];
        assert_eq!(of(both), RunCgroups::V1(v1));
        let others = vec![hierarchy(true, &["memory"], "/sys/fs/cgroup/user.slice")];
        assert_eq!(of(others), RunCgroups::None);
    }
}
