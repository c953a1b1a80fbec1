//! Limits that every process carries itself (getrlimit(2)), and where it is placed: they work on any
//! machine, for any user, with and without a container.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CpuSet, sched_setaffinity};
use sconce_schema::NumberSet;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::{NumaPlacement, RunLimits, RunRequest, RunRoot};
use sconce_schema::units::{Bytes, LockedMemory};
use serde::{Deserialize, Serialize};

use crate::capabilities;
use crate::sys::numa;

/// What a process sets for itself before it becomes the command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessLimits {
    /// Open files.
    pub(crate) files: Option<u64>,
    /// Memory that may be locked.
    pub(crate) locked: Option<LockedMemory>,
    /// Processes and threads of the container's user namespace: holds with and without a cgroup.
    pub(crate) processes: Option<u64>,
}

/// Whether RLIMIT_NPROC counts what a user has in one user namespace, and not what it has anywhere: Linux 5.14
/// and later (commit 21d1c5e386bc).
pub(crate) fn counts_processes_by_namespace() -> bool {
    let system = rustix::system::uname();
    is_at_least_5_14(&system.release().to_string_lossy())
}

fn is_at_least_5_14(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse::<u32>().ok();
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= (5, 14))
}

/// What of the caller's decides what it can give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HardLimits {
    /// Its own hard limits; `None` is without limit.
    files: Option<u64>,
    locked: Option<u64>,
    /// Whether it may go beyond them.
    raises: bool,
    /// Whether it may lock what it likes, whatever the limit.
    locks: bool,
    /// The most that the kernel gives anyone (`fs.nr_open`).
    most_files: Option<u64>,
}

impl HardLimits {
    /// This process's.
    pub(crate) fn read() -> Self {
        let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
        Self {
            files: getrlimit(Resource::Nofile).maximum,
            locked: getrlimit(Resource::Memlock).maximum,
            raises: capabilities::has_effective(CapabilitySet::SYS_RESOURCE)
                && crate::prepare::is_machine_root(),
            locks: capabilities::has_effective(CapabilitySet::IPC_LOCK)
                && crate::prepare::is_machine_root(),
            most_files: most.and_then(|text| text.trim().parse().ok()),
        }
    }
}

impl ProcessLimits {
    /// As near to `request` as `ceilings` allow, and what that leaves.
    pub(crate) fn from_request(
        request: &RunRequest,
        ceilings: HardLimits,
    ) -> (Self, Vec<UnenforcedLimit>) {
        let mut unenforced = Vec::new();
        let RunLimits {
            nofile, memlock, ..
        } = request.limits;
        let files = nofile.map(|asked| {
            let most = match ceilings.raises {
                true => ceilings.most_files,
                false => ceilings.files,
            };
            let given = most.map_or(asked, |most| asked.min(most));
            if given < asked {
                unenforced.push(beyond("nofile", &asked.to_string(), &given.to_string()));
            }
            given
        });
        let locked = memlock.map(|asked| {
            let wanted = match asked {
                LockedMemory::Unlimited => None,
                LockedMemory::Limited(Bytes(bytes)) => Some(bytes),
            };
            let most = ceilings.locked.filter(|_| !ceilings.raises);
            let given = match (wanted, most) {
                (Some(wanted), Some(most)) => Some(wanted.min(most)),
                (wanted, most) => wanted.or(most),
            };
            if let Some(given) = given.filter(|_| given != wanted) {
                unenforced.push(beyond(
                    "memlock",
                    &asked.to_string(),
                    &Bytes(given).to_string(),
                ));
            }
            given.map_or(LockedMemory::Unlimited, |bytes| {
                LockedMemory::Limited(Bytes(bytes))
            })
        });
        if matches!(memlock, Some(LockedMemory::Limited(_))) && not_held(request, ceilings) {
            unenforced.push(UnenforcedLimit {
                what: "memlock".to_owned(),
                why: "root without a container is not held to it (CAP_IPC_LOCK)".to_owned(),
                hint: None,
            });
        }
        let own = Self {
            files,
            locked,
            processes: None,
        };
        (own, unenforced)
    }

    /// Sets them for this process. Plain system calls.
    pub(crate) fn apply_to_process(&self) -> rustix::io::Result<()> {
        let both = |most| Rlimit {
            current: most,
            maximum: most,
        };
        if let Some(files) = self.files {
            setrlimit(Resource::Nofile, both(Some(files)))?;
        }
        if let Some(processes) = self.processes {
            setrlimit(Resource::Nproc, both(Some(processes)))?;
        }
        match self.locked {
            None => Ok(()),
            Some(LockedMemory::Limited(Bytes(bytes))) => {
                setrlimit(Resource::Memlock, both(Some(bytes)))
            }
            Some(LockedMemory::Unlimited) => setrlimit(Resource::Memlock, both(None)),
        }
    }
}

fn not_held(request: &RunRequest, ceilings: HardLimits) -> bool {
    request.root == RunRoot::Host && ceilings.locks
}

fn beyond(what: &str, asked: &str, given: &str) -> UnenforcedLimit {
    UnenforcedLimit {
        what: what.to_owned(),
        why: format!("{asked} were asked for, and {given} is the most that may be given here"),
        hint: Some(format!(
            "root can raise the caller's own limit: `{what}` in /etc/security/limits.conf, or \
             LimitNOFILE= and LimitMEMLOCK= of a systemd unit"
        )),
    }
}

/// Where a run is placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuPlacement {
    /// The CPUs that were named; a cgroup holds the run to them where it can.
    pub(crate) named: Option<NumberSet>,
    pub(crate) near: Option<NumaPlacement>,
}

impl CpuPlacement {
    pub(crate) fn from_request(request: &RunRequest) -> Self {
        Self {
            named: request.limits.cpuset,
            near: request.near,
        }
    }

    /// Places this process and what it starts from now on. Gives what the kernel refused.
    pub(crate) fn apply_to_process(&self) -> Vec<UnenforcedLimit> {
        let near = self.near.and_then(|near| near.cpus);
        let mut refused = Vec::new();
        let mut note = |what: &str, doing: &str, error: std::io::Error| {
            refused.push(UnenforcedLimit {
                what: what.to_owned(),
                why: format!("the kernel refused to {doing} ({error})"),
                hint: None,
            });
        };
        if let Some(cpus) = self.named.or(near) {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(cpu as usize));
            if let Err(error) = sched_setaffinity(None, &set) {
                let what = if self.named.is_some() {
                    "cpuset"
                } else {
                    "numa"
                };
                note(what, &format!("run it on CPUs {cpus}"), error.into());
            }
        }
        if let Some(near) = &self.near
            && let Err(error) = numa::prefer_nodes(&near.nodes)
        {
            note(
                "numa",
                &format!("take memory of node {}", near.nodes),
                error,
            );
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn since_5_14_processes_are_counted_by_namespace() {
        for (release, expected) in [
            ("6.1.0-18-amd64", true),
            ("5.14.0-427.el9.x86_64", true),
            ("5.13.19", false),
            ("5.4.0-150-generic", false),
            ("4.18.0-553.el8_10.x86_64", false),
            ("6", false),
            ("", false),
        ] {
            assert_eq!(super::is_at_least_5_14(release), expected, "{release}");
        }
    }

    use super::*;

    fn request(nofile: Option<u64>, memlock: Option<LockedMemory>) -> RunRequest {
        RunRequest {
            limits: RunLimits {
                nofile,
                memlock,
                ..RunLimits::default()
            },
            ..RunRequest::new("a", RunRoot::Host, vec!["true".to_owned()])
        }
    }

    const USER: HardLimits = HardLimits {
        files: Some(4_096),
        locked: Some(8 << 20),
        raises: false,
        locks: false,
        most_files: Some(1_048_576),
    };
    const ROOT: HardLimits = HardLimits {
        raises: true,
        locks: true,
        ..USER
    };

    /// What is given, and which limits are said not to be what was asked.
    fn given(request: &RunRequest, ceilings: HardLimits) -> (ProcessLimits, Vec<String>) {
        let (own, unenforced) = ProcessLimits::from_request(request, ceilings);
        (own, unenforced.into_iter().map(|u| u.what).collect())
    }

    #[test]
    fn a_user_gets_what_its_own_limits_leave_and_is_told() {
        let nothing = Vec::<String>::new();
        let files = |asked, ceilings| {
            let (own, said) = given(&request(Some(asked), None), ceilings);
            (own.files, said)
        };
        assert_eq!(files(1_024, USER), (Some(1_024), nothing.clone()));
        assert_eq!(
            files(65_536, USER),
            (Some(4_096), vec!["nofile".to_owned()])
        );
        assert_eq!(files(65_536, ROOT), (Some(65_536), nothing.clone()));
        assert_eq!(
            files(u64::MAX, ROOT),
            (Some(1_048_576), vec!["nofile".to_owned()])
        );
        let locked = |asked, ceilings| {
            let (own, said) = given(&request(None, Some(asked)), ceilings);
            (own.locked, said)
        };
        let mib = |n| LockedMemory::Limited(Bytes::from_mib(n));
        assert_eq!(locked(mib(1), USER), (Some(mib(1)), nothing.clone()));
        let said = vec!["memlock".to_owned()];
        assert_eq!(locked(mib(64), USER), (Some(mib(8)), said.clone()));
        assert_eq!(
            locked(LockedMemory::Unlimited, USER),
            (Some(mib(8)), said.clone())
        );
        let unlimited = LockedMemory::Unlimited;
        assert_eq!(locked(unlimited, ROOT), (Some(unlimited), nothing));
        // On the machine itself root keeps the capability to lock what it likes.
        assert_eq!(locked(mib(64), ROOT), (Some(mib(64)), said));
        assert_eq!(
            given(&request(None, None), USER),
            (ProcessLimits::default(), Vec::new())
        );
    }
}
