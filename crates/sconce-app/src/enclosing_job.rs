//! The scheduler's job that this process runs in, on one of its nodes: cards and limits are the job's there.

use std::path::Path;

use sconce_base::Env;
use sconce_host::GpuDevice;
use sconce_schema::spec::{GpuId, GpuRequest};

use crate::job_gpus::{JobGpuError, choose_gpus};

/// A job that this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnclosingJob;

impl EnclosingJob {
    /// Finds the job: the scheduler's variable names it, and this process is in its cgroup. A variable alone says
    /// nothing: anybody sets one, and a login node's shell has it too (`salloc`).
    pub(crate) fn find(env: &Env) -> Option<Self> {
        let cgroups = std::fs::read_to_string(Path::new("/proc/self/cgroup")).ok()?;
        is_in_job(env.var("SLURM_JOB_ID")?, &cgroups).then_some(Self)
    }

    /// The cards of this node that a run within the job gets, which asks for `wanted`.
    ///
    /// # Errors
    /// It asks for more than the job has, or the job's variables and devices contradict each other.
    pub(crate) fn choose_gpus(
        &self,
        cards: &[GpuDevice],
        wanted: &GpuRequest,
        env: &Env,
    ) -> Result<GpuRequest, JobGpuError> {
        let of_job = choose_gpus(cards, None, env)?;
        match (wanted, of_job) {
            (GpuRequest::Count(0) | GpuRequest::Listed(_), _) => Ok(wanted.clone()),
            (GpuRequest::Count(count), GpuRequest::Listed(ids)) if ids.len() >= *count as usize => {
                Ok(GpuRequest::Listed(
                    ids.into_iter().take(*count as usize).collect(),
                ))
            }
            (GpuRequest::Count(count), of_job) => Err(JobGpuError::MoreThanJob {
                wanted: *count,
                of_job: indices(&of_job),
            }),
            (GpuRequest::All, of_job) => Ok(of_job),
        }
    }
}

/// Whether `/proc/self/cgroup` leads through the directory that Slurm makes for the job: `job_4711`, with both versions
/// of cgroups (`cgroup/v1` and `cgroup/v2` of Slurm's plugins).
fn is_in_job(id: &str, cgroups: &str) -> bool {
    let name = format!("job_{id}");
    let paths = cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2));
    paths
        .filter(|path| path.contains("slurm"))
        .any(|path| path.split('/').any(|part| part == name))
}

fn indices(request: &GpuRequest) -> Vec<u32> {
    let GpuRequest::Listed(ids) = request else {
        return Vec::new();
    };
    let indices = ids.iter().filter_map(|id| match id {
        GpuId::Index(index) => Some(*index),
        GpuId::Uuid(_) => None,
    });
    indices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_alone_is_no_job() {
        for (cgroups, is_in) in [
            (
                "7:memory:/slurm_n2/uid_12346/job_17/step_0\n0::/init.scope\n",
                true,
            ),
            (
                "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n",
                true,
            ),
            ("0::/system.slice/slurmstepd.scope/job_171/step_0\n", false),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", false),
            ("0::/home/job_17\n", false),
            ("", false),
        ] {
            assert_eq!(is_in_job("17", cgroups), is_in, "{cgroups}");
        }
    }
}
