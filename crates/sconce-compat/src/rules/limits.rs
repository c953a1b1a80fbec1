//! What limits a process on the machine.

use sconce_schema::Bytes;
use sconce_schema::facts::{CgroupFacts, CgroupVersion, RlimitPair, SeccompMode};
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::{CheckInput, as_root, as_user, in_spec};

/// Below this, workers of a DataLoader and NCCL run out of it (failures seen with Docker's 64 MiB;
/// NCCL takes about 10 MiB for each channel and peer).
const MIN_SHM_SIZE: Bytes = Bytes::from_gib(1);
/// PyTorch's workers pass every tensor as a file descriptor.
const MIN_OPEN_FILES: u64 = 4096;
/// What an image, its layers and a checkpoint need at least.
const MIN_FREE_DISK: Bytes = Bytes::from_gib(10);

/// /dev/shm.
pub(super) fn check_shared_memory(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(shm) = &case.host.shm else {
        return Vec::new();
    };
    if shm.writable == Some(false) {
        let finding = Finding::new(
            "shm-too-small",
            Severity::Fails,
            Certainty::Certain,
            "/dev/shm cannot be written to, so that DataLoader workers cannot pass on what they read",
        )
        .with_evidence("/dev/shm", None, "not writable")
        .would_say("unable to open shared memory object")
        .with_fix("Mount a tmpfs there", in_spec("run.shm", "\"8GiB\""));
        return vec![finding];
    }
    let Some(size) = shm.size.filter(|size| *size < MIN_SHM_SIZE) else {
        return Vec::new();
    };
    let finding = Finding::new(
        "shm-too-small",
        Severity::Warns,
        Certainty::Likely,
        format!("/dev/shm has {size}: DataLoader workers and NCCL run out of it"),
    )
    .with_evidence("/dev/shm", Some("size"), size.to_string())
    .would_say(
        "DataLoader worker (pid N) is killed by signal: Bus error. It is possible that \
         dataloader's workers are out of shared memory.",
    )
    .with_fix("Give the run more", in_spec("run.shm", "\"8GiB\""))
    .with_fix("With Docker: `--shm-size 8g`, or `--ipc host`", None);
    vec![finding]
}

/// Open files.
pub(super) fn open_files(case: &CheckInput<'_>) -> Vec<Finding> {
    let limit = case
        .host
        .limits
        .as_ref()
        .and_then(|limits| limits.open_files);
    let Some(RlimitPair {
        soft: Some(soft),
        hard,
    }) = limit
    else {
        return Vec::new();
    };
    if soft >= MIN_OPEN_FILES {
        return Vec::new();
    }
    let can = hard.unwrap_or(65_536).min(65_536);
    let finding = Finding::new(
        "too-many-open-files",
        Severity::Warns,
        Certainty::Likely,
        format!("a process may open {soft} files; many DataLoader workers need more"),
    )
    .with_evidence("getrlimit(RLIMIT_NOFILE)", None, soft.to_string())
    .would_say("RuntimeError: received 0 items of ancdata");
    let finding = match can > soft {
        true => finding.with_fix("Raise the limit", as_user(&format!("ulimit -n {can}"))),
        false => finding.with_fix(
            "Raise the limit in /etc/security/limits.conf, or with `--ulimit nofile` of the \
             container engine",
            None,
        ),
    };
    vec![finding.with_fix(
        "Or pass tensors as files: torch.multiprocessing.set_sharing_strategy('file_system')",
        None,
    )]
}

/// Locked memory, which InfiniBand needs.
pub(super) fn locked_memory(case: &CheckInput<'_>) -> Vec<Finding> {
    let limit = case
        .host
        .limits
        .as_ref()
        .and_then(|limits| limits.locked_memory);
    let fast = case
        .host
        .infiniband
        .as_ref()
        .is_some_and(|devices| !devices.is_empty());
    let Some(RlimitPair {
        soft: Some(soft), ..
    }) = limit.filter(|_| fast)
    else {
        return Vec::new();
    };
    let finding = Finding::new(
        "locked-memory",
        Severity::Warns,
        Certainty::Likely,
        format!(
            "a process may lock {} of memory; NCCL over InfiniBand needs it without a limit",
            Bytes(soft)
        ),
    )
    .with_evidence("getrlimit(RLIMIT_MEMLOCK)", None, soft.to_string())
    .would_say("NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory")
    .with_fix(
        "Lift the limit of this shell and what it starts",
        as_root("prlimit --pid $$ --memlock=unlimited"),
    )
    .with_fix("With Docker: `--ulimit memlock=-1`", None);
    vec![finding]
}

/// Control groups: what was killed, and whether limits can be enforced.
pub(super) fn check_cgroup(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(cgroup) = &case.host.cgroup else {
        return Vec::new();
    };
    [killed(cgroup), undelegated(case, cgroup)]
        .into_iter()
        .flatten()
        .collect()
}

fn killed(cgroup: &CgroupFacts) -> Option<Finding> {
    let kills = cgroup.oom_kills.filter(|kills| *kills > 0)?;
    let limit = cgroup
        .memory
        .map_or(String::new(), |limit| format!(" (its limit is {limit})"));
    let finding = Finding::new(
        "worker-killed",
        Severity::Notes,
        Certainty::Certain,
        format!("the kernel killed {kills} processes of this group for main memory{limit}"),
    )
    .with_evidence("memory.events", Some("oom_kill"), kills.to_string())
    .would_say("DataLoader worker (pid N) is killed by signal: Killed.")
    .with_fix(
        "Take fewer DataLoader workers, or give the run more memory",
        None,
    );
    Some(finding)
}

fn undelegated(case: &CheckInput<'_>, cgroup: &CgroupFacts) -> Option<Finding> {
    let missing: Vec<&str> = ["memory", "cpu", "pids"]
        .into_iter()
        .filter(|wanted| !cgroup.delegated.iter().any(|has| has == wanted))
        .collect();
    // Root needs no delegation, and v1 has none for others.
    if missing.is_empty() || case.host.root == Some(true) {
        return None;
    }
    // Side by side the controllers are v1's.
    let v1 = matches!(
        cgroup.version,
        Some(CgroupVersion::V1 | CgroupVersion::Hybrid)
    );
    let why = match v1 {
        true => "this machine has its controllers in cgroup v1, which has no delegation",
        false => "the controllers are not handed down to this user",
    };
    let finding = Finding::new(
        "cgroup-not-delegated",
        Severity::Notes,
        Certainty::Certain,
        format!(
            "limits of {} cannot be enforced on a run: {why}",
            missing.join(", ")
        ),
    )
    .with_evidence(
        "cgroup.controllers",
        None,
        match cgroup.delegated.is_empty() {
            true => "none".to_owned(),
            false => cgroup.delegated.join(" "),
        },
    );
    // A login session's cgroup is never the user's, whatever is delegated to the user's own manager.
    let nothing = cgroup.delegated.is_empty();
    Some(match (v1, nothing) {
        (true, _) => finding.with_fix(
            "Start the kernel with `systemd.unified_cgroup_hierarchy=1`, in /etc/default/grub",
            as_root("update-grub"),
        ),
        (false, true) => finding.with_fix(
            "Start runs that have limits in a scope of the user's own systemd: `systemd-run --user \
             --scope -p Delegate=yes sconce run …`",
            None,
        ),
        (false, false) => finding.with_fix(
            "Hand the controllers down to users",
            as_root(
                "mkdir -p /etc/systemd/system/user@.service.d && printf \
                 \"[Service]\\nDelegate=cpu cpuset io memory pids\\n\" > \
                 /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload",
            ),
        ),
    })
}

/// User namespaces, without which nothing is contained by a plain user.
pub(super) fn check_user_namespaces(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let barrier = host.user_namespaces_barrier.as_deref();
    let Some(barrier) = barrier.filter(|barrier| !barrier.is_empty()) else {
        return Vec::new();
    };
    if host.root == Some(true) && host.container.is_none() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        "user-namespaces-barred",
        Severity::Warns,
        Certainty::Certain,
        format!(
            "user namespaces cannot be used, so that an image cannot be run contained: {barrier}"
        ),
    )
    .with_evidence("unshare(CLONE_NEWUSER)", None, barrier);
    if host.seccomp == Some(SeccompMode::Filter) {
        finding = finding.with_evidence("/proc/self/status", Some("Seccomp"), "2 (a filter)");
    }
    let finding = match host.container.as_deref() {
        Some(_) => finding.with_fix(
            "Start the container so that it may: with Docker `--security-opt seccomp=unconfined \
             --security-opt apparmor=unconfined`",
            None,
        ),
        None => finding
            .with_fix(
                "Allow them",
                as_root(
                    "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000",
                ),
            )
            .with_fix(
                "On Ubuntu, AppArmor bars them",
                as_root("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
            ),
    };
    vec![finding]
}

/// The disk of the store.
pub(super) fn check_disk_space(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(store) = &case.host.store else {
        return Vec::new();
    };
    let Some(free) = store.free.filter(|free| *free < MIN_FREE_DISK) else {
        return Vec::new();
    };
    let finding = Finding::new(
        "disk-full",
        Severity::Warns,
        Certainty::Likely,
        format!("{free} are free where the store is; an environment with torch takes 5 to 10 GiB"),
    )
    .with_evidence(store.path.as_str(), Some("free"), free.to_string())
    .would_say("OSError: [Errno 28] No space left on device")
    .with_fix(
        "Make room there, or keep the store elsewhere: `--store`",
        None,
    );
    vec![finding]
}
