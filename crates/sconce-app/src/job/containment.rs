//! What holds a job's processes on its nodes: chosen and validated before anything is handed over, and what it does
//! not hold is said.

use sconce_base::Env;
use sconce_schema::lock::Lock;
use sconce_schema::request::{ContainerUser, NetworkMode};
use sconce_schema::spec::{JobContainment, LaunchMode, TargetSpec, WORKSPACE};
use sconce_schema::{Hint, exit};
use sconce_submit::find_oci_conf;

use super::submit::JobOptions;
use crate::failure::Result;
use crate::project::Project;
use crate::run_options::ResolvedRunOptions;

/// So many Debian packages are named; of more there is the number.
const MAX_NAMED_PACKAGES: usize = 8;

/// Why a job cannot be held as it is wished.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainmentError {
    /// The target does not let its callers say it.
    #[error("target `{target}` does not let jobs run without a container")]
    NotAllowed {
        /// Its name.
        target: String,
    },
    /// Debian's Python finds its C library and its modules where Debian has them.
    #[error("the lock's Python {version} is Debian's, which runs in its own container alone")]
    DebianPython {
        /// Its version.
        version: String,
    },
    /// A task that cannot tell which it is.
    #[error(
        "Slurm does not tell processes in its containers which task they are, and `task-per-gpu` starts several on a node"
    )]
    TasksInContainer,
    /// Files cannot be somewhere else than they are.
    #[error("{mounted} cannot be at {target} without a container")]
    Mount {
        /// Where it is.
        mounted: String,
        /// Where it was to be.
        target: String,
    },
}

impl Hint for ContainmentError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotAllowed { target } => {
                format!("`allow-uncontained = true` in `[target.{target}]` lets them, where the cluster's rules do")
            }
            Self::DebianPython { version } => {
                // One that no release of Debian's has.
                let other = match version.starts_with("3.12") {
                    true => "3.10",
                    false => "3.12",
                };
                format!(
                    "lock a standalone one, as of every version that the Debian release does not have: \
                     `[python] version = \"{other}\"`"
                )
            }
            Self::TasksInContainer => {
                "let torchrun start the ranks (`--launch torchrun`), or the command itself (`--launch node`)".to_owned()
            }
            Self::Mount { .. } => {
                "name it by its own path, inside as outside: `/data` instead of `/scratch/data:/data`".to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// What holds the processes of a job: what its caller says, or else its target.
///
/// # Errors
/// The target does not let the caller say it.
pub(super) fn choose_containment(
    job: &JobOptions,
    target: &TargetSpec,
) -> Result<JobContainment, ContainmentError> {
    match job.is_uncontained && target.containment != JobContainment::None {
        true if target.allow_uncontained => Ok(JobContainment::None),
        true => Err(ContainmentError::NotAllowed {
            target: job.target.clone(),
        }),
        false => Ok(target.containment),
    }
}

/// A job that is not held by Sconce's own container.
pub(super) struct ContainedJob<'a> {
    pub(super) containment: JobContainment,
    pub(super) project: &'a Project,
    pub(super) options: &'a ResolvedRunOptions,
    /// Whose variables say where Slurm's settings are.
    pub(super) env: &'a Env,
}

impl ContainedJob<'_> {
    /// Refuses what the site does not have, before anything is brought.
    ///
    /// # Errors
    /// [`ContainmentError`], and where Slurm's containers are not set up.
    pub(super) fn validate_site(&self, launch: LaunchMode) -> Result<()> {
        if self.containment != JobContainment::Slurm {
            return Ok(());
        }
        let file = find_oci_conf(self.env)?;
        tracing::debug!(file = %file.display(), "Slurm's containers are set up");
        match launch {
            LaunchMode::TaskPerGpu => Err(ContainmentError::TasksInContainer.into()),
            LaunchMode::Torchrun | LaunchMode::Node => Ok(()),
        }
    }

    /// Refuses what would not be as it was locked. Before there is a lock, that is not known.
    ///
    /// # Errors
    /// [`ContainmentError`].
    pub(super) fn validate(&self, lock: Option<&Lock>) -> Result<(), ContainmentError> {
        if self.containment != JobContainment::None {
            return Ok(());
        }
        if let Some(lock) = lock.filter(|lock| lock.interpreter.is_none()) {
            let version = lock.versions.python.clone();
            return Err(ContainmentError::DebianPython { version });
        }
        let is_elsewhere = |mount: &&sconce_schema::request::Mount| {
            mount.source != mount.target && !mount.target.starts_with(WORKSPACE)
        };
        match self.options.mounts.iter().find(is_elsewhere) {
            Some(mount) => Err(ContainmentError::Mount {
                mounted: mount.source.display().to_string(),
                target: mount.target.display().to_string(),
            }),
            None => Ok(()),
        }
    }

    /// What the job has, and what of it does not hold; `None` where everything does.
    pub(super) fn describe_gaps(&self) -> Option<String> {
        let by = match self.containment {
            JobContainment::Sconce => return None,
            JobContainment::None => {
                "without a container: the lock's Python and wheels are first on PATH, beside the node's own files and \
                 programs and the user's home"
            }
            JobContainment::Apptainer => "in apptainer's container",
            JobContainment::Slurm => {
                "in the container that Slurm makes by its oci.conf, where the user is root"
            }
            JobContainment::Pyxis => "in enroot's container, by pyxis",
        };
        Some(format!("{by}. Not held: {}", self.list_gaps().join(", ")))
    }

    fn list_gaps(&self) -> Vec<String> {
        let is_contained = self.containment != JobContainment::None;
        let mut gaps = vec!["limits of [run] but the job's", "a filter of system calls"];
        if self.options.network != NetworkMode::Host {
            gaps.push("a network of its own");
        }
        match self.containment {
            JobContainment::None => gaps.extend([
                "/workspace (the command starts in the project's own directory)",
                "changes that go away with the run",
            ]),
            JobContainment::Slurm | JobContainment::Pyxis => gaps.extend([
                "a /tmp of its own",
                "cards but those that the site's own hooks bring",
            ]),
            JobContainment::Sconce | JobContainment::Apptainer => gaps.push("a /tmp of its own"),
        }
        let is_root = self.containment == JobContainment::Slurm;
        if self.options.user == ContainerUser::Root && !is_root {
            gaps.push("root inside");
        }
        let mut gaps: Vec<String> = gaps.into_iter().map(str::to_owned).collect();
        if !is_contained {
            gaps.push(describe_packages(&self.project.spec.system.packages));
        }
        gaps
    }
}

/// The Debian packages that were asked for, which are in a container alone.
fn describe_packages(packages: &[String]) -> String {
    let named: Vec<&str> = (packages.iter().take(MAX_NAMED_PACKAGES))
        .map(String::as_str)
        .collect();
    let named = named.join(", ");
    match packages.len() {
        0 => "the lock's Debian packages".to_owned(),
        1..=MAX_NAMED_PACKAGES => format!("the lock's Debian packages ({named} among them)"),
        all => {
            let more = all - MAX_NAMED_PACKAGES;
            format!("the lock's Debian packages ({named} and {more} more among them)")
        }
    }
}

#[cfg(test)]
mod tests {
    use sconce_schema::spec::SchedulerKind;

    use super::*;

    #[test]
    fn of_many_packages_the_first_are_named() {
        let names = |count| (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>();
        assert_eq!(describe_packages(&[]), "the lock's Debian packages");
        let two = describe_packages(&names(2));
        assert_eq!(two, "the lock's Debian packages (p0, p1 among them)");
        let many = describe_packages(&names(10));
        assert!(
            many.contains("p7 and 2 more among them") && !many.contains("p8"),
            "{many}"
        );
    }

    #[test]
    fn nothing_is_uncontained_that_the_target_does_not_allow() {
        let choose = |is_uncontained, containment, allow_uncontained| {
            let job = JobOptions {
                is_uncontained,
                ..JobOptions::default()
            };
            let target = TargetSpec {
                containment,
                allow_uncontained,
                ..TargetSpec::new(SchedulerKind::Slurm)
            };
            choose_containment(&job, &target).ok()
        };
        let (own, none) = (JobContainment::Sconce, JobContainment::None);
        assert_eq!(choose(false, own, true), Some(own));
        assert_eq!(choose(true, own, true), Some(none));
        assert_eq!(choose(true, own, false), None);
        assert_eq!(choose(false, none, false), Some(none));
        assert_eq!(choose(true, none, false), Some(none));
        let apptainer = JobContainment::Apptainer;
        assert_eq!(choose(false, apptainer, true), Some(apptainer));
    }
}
