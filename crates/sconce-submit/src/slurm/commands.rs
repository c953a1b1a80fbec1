//! Slurm's programs, each once for what is asked: handing over, looking, cancelling.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use sconce_base::Env;
use sconce_schema::spec::TargetSpec;

use super::inventory::{architectures, nodes_of_partitions};
use super::process::{ProgramCall, ProgramOutput, run_program};
use super::said::{error_of, has_no_accounting, is_unsure};
use super::script::{
    dependency_options, job_comment, render_both, render_script, token_of_comment,
};
use super::state::{JobRow, parse_sacct, parse_squeue, sacct_args, squeue_args};
use super::step::step_args;
use super::step_log::find_step_fault;
use crate::dependency::JobDependency;
use crate::error::{RejectionCause, SubmitError};
use crate::job_id::SchedulerJobId;
use crate::scheduler::{JobScript, JobStep, Scheduler};
use crate::status::{JobQueue, JobStatus, QueuedJob, StateReason, StepFault, StepLog};

/// How long each of Slurm's programs may take where the caller has no other wish: three times what its parts wait for
/// each other (`MessageTimeout` of slurm.conf(5), 10 s).
pub const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long sacct may take: its database is another service than the controller, which many clusters do without for hours,
/// and what it would say, the job's own files mostly say too.
const ACCOUNTING_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a job is looked for that sbatch gave no answer to: the controller may still be at it.
const LOOKUPS: u32 = 3;

/// How far back sacct looks for a token; without a beginning it looks at today alone (sacct(1), "DEFAULT TIME WINDOW").
const ACCOUNTING_WINDOW: &str = "--starttime=now-7days";

/// What is given to Slurm's programs.
#[derive(Debug, Clone)]
pub struct SlurmSettings {
    /// The variables of the caller: `PATH` says where the programs are, `SLURM_CONF` which cluster it is. Those that
    /// change what the programs do (`SBATCH_…`, `SQUEUE_…` and others) are not passed on.
    pub env: Env,
    /// Whose jobs they are.
    pub user_id: u32,
    /// How long each program may take.
    pub command_timeout: Duration,
}

/// Slurm's programs on this machine.
#[derive(Debug, Clone)]
pub struct SlurmScheduler {
    settings: SlurmSettings,
}

impl SlurmScheduler {
    /// Takes the settings; no program is looked for until one is needed.
    #[must_use]
    pub fn new(settings: SlurmSettings) -> Self {
        Self { settings }
    }

    /// Runs one program to its end, whatever that is.
    fn run(
        &self,
        program: &'static str,
        args: &[String],
        input: &str,
    ) -> Result<ProgramOutput, SubmitError> {
        self.run_within(self.settings.command_timeout, program, args, input)
    }

    fn run_within(
        &self,
        timeout: Duration,
        program: &'static str,
        args: &[String],
        input: &str,
    ) -> Result<ProgramOutput, SubmitError> {
        let env = &self.settings.env;
        let path = env
            .find_program(program)
            .or_else(|| find_without_path(env, program))
            .ok_or(SubmitError::NoProgram { program })?;
        tracing::debug!(program, ?args, "asking Slurm");
        run_program(ProgramCall {
            program,
            path: &path,
            args,
            env,
            input,
            timeout,
        })
    }

    /// Reads the user's jobs that squeue knows.
    fn read_queue(&self) -> Result<Vec<JobRow>, SubmitError> {
        let output = self.run("squeue", &squeue_args(self.settings.user_id), "")?;
        match output.status.success() {
            true => parse_squeue(&output.stdout),
            false => Err(error_of("squeue", &output.stderr)),
        }
    }

    /// Lists jobs of the accounting; `None` where the cluster has none, or no program for it.
    fn list_accounting(&self, which: &[String]) -> Result<Option<Vec<JobRow>>, SubmitError> {
        let timeout = self.settings.command_timeout.min(ACCOUNTING_TIMEOUT);
        let output = match self.run_within(timeout, "sacct", &sacct_args(which), "") {
            Err(SubmitError::NoProgram { .. }) => return Ok(None),
            output => output?,
        };
        if output.status.success() {
            return parse_sacct(&output.stdout).map(Some);
        }
        match has_no_accounting(&output.stderr) {
            true => Ok(None),
            false => Err(error_of("sacct", &output.stderr)),
        }
    }

    /// Looks for a job that sbatch gave no answer to, several times. `unanswered` is what kept the answer away.
    fn look_for(
        &self,
        token: &str,
        unanswered: SubmitError,
    ) -> Result<SchedulerJobId, SubmitError> {
        for lookup in 0..LOOKUPS {
            if lookup > 0 {
                thread::sleep(self.settings.command_timeout / 10);
            }
            match self.list_queue() {
                Ok(queue) => {
                    if let Some(id) = queue.find(token) {
                        tracing::info!(%id, "sbatch gave no answer, and the job is in the queue");
                        return Ok(id);
                    }
                }
                Err(error) => tracing::debug!(%error, "the queue cannot be read"),
            }
        }
        Err(SubmitError::Unanswered {
            token: token.to_owned(),
            source: Box::new(unanswered),
        })
    }
}

impl Scheduler for SlurmScheduler {
    fn render(&self, job: &JobScript<'_>) -> Result<String, SubmitError> {
        render_script(job)
    }

    fn architectures(&self, target: &TargetSpec) -> Result<BTreeSet<String>, SubmitError> {
        let ask = |args: &[&str]| -> Result<String, SubmitError> {
            let args: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
            let output = self.run("scontrol", &args, "")?;
            match output.status.success() {
                true => Ok(output.stdout),
                false => Err(error_of("scontrol", &output.stderr)),
            }
        };
        let partitions = ask(&["--oneliner", "show", "partition"])?;
        let nodes = nodes_of_partitions(&partitions, target.partition.as_deref());
        match nodes.is_empty() {
            true => Ok(BTreeSet::new()),
            false => Ok(architectures(&ask(&[
                "--oneliner",
                "show",
                "node",
                &nodes,
            ])?)),
        }
    }

    fn render_step(&self, step: &JobStep<'_>) -> Result<Vec<String>, SubmitError> {
        let env = &self.settings.env;
        let program = "srun";
        let path = env
            .find_program(program)
            .or_else(|| find_without_path(env, program))
            .ok_or(SubmitError::NoProgram { program })?;
        let mut words = vec![path.to_string_lossy().into_owned()];
        words.extend(step_args(step)?);
        Ok(words)
    }

    fn find_step_fault(&self, logs: &[StepLog]) -> Option<StepFault> {
        find_step_fault(logs)
    }

    fn render_both(
        &self,
        preparation: &str,
        job: &str,
        after: &[JobDependency],
    ) -> Result<String, SubmitError> {
        render_both(preparation, job, after)
    }

    fn submit(
        &self,
        script: &str,
        token: &str,
        after: &[JobDependency],
    ) -> Result<SchedulerJobId, SubmitError> {
        // Before anything is handed over that could not be found again.
        job_comment(token)?;
        let mut args = vec!["--parsable".to_owned()];
        let options = dependency_options(after).into_iter();
        args.extend(options.map(|(name, value)| format!("--{name}={value}")));
        let output = match self.run("sbatch", &args, script) {
            // It was started, and what became of it is not known.
            Err(error @ (SubmitError::Timeout { .. } | SubmitError::TooMuchOutput { .. })) => {
                return self.look_for(token, error);
            }
            output => output?,
        };
        if output.status.success() {
            return match parse_sbatch(&output.stdout) {
                Some(id) => Ok(id),
                None => {
                    let said = sconce_base::text::to_printable(output.stdout.trim(), 200);
                    let program = "sbatch";
                    self.look_for(token, SubmitError::Unreadable { program, said })
                }
            };
        }
        let error = error_of("sbatch", &output.stderr);
        // Killed by a signal, or the connection broke after the request was sent.
        let is_open = output.status.code().is_none() || is_unsure(&output.stderr);
        match is_open {
            true => self.look_for(token, error),
            false => Err(error),
        }
    }

    /// Looks into the queue, where jobs stay for some minutes after their end, and then into the accounting, which has
    /// comments only where the site keeps them (`AccountingStoreFlags=job_comment` of slurm.conf(5)).
    fn find(&self, token: &str) -> Result<Option<SchedulerJobId>, SubmitError> {
        job_comment(token)?;
        if let Some(id) = self.list_queue()?.find(token) {
            return Ok(Some(id));
        }
        let which = [
            format!("--user={}", self.settings.user_id),
            ACCOUNTING_WINDOW.to_owned(),
        ];
        let rows = self.list_accounting(&which)?;
        Ok(rows.and_then(|rows| queue_of(rows).find(token)))
    }

    fn list_queue(&self) -> Result<JobQueue, SubmitError> {
        self.read_queue().map(queue_of)
    }

    fn past_states(&self, jobs: &[SchedulerJobId]) -> Result<Vec<JobStatus>, SubmitError> {
        let ids: Vec<&str> = jobs.iter().map(SchedulerJobId::as_str).collect();
        let rows = self.list_accounting(&[format!("--jobs={}", ids.join(","))])?;
        let reason = rows.is_none().then(|| StateReason {
            raw: String::new(),
            text: "there is no accounting of Slurm's to ask".to_owned(),
        });
        let known = rows.map(queue_of).unwrap_or_default();
        let status = |job: &SchedulerJobId| {
            known.status(job).cloned().unwrap_or_else(|| JobStatus {
                reason: reason.clone(),
                ..JobStatus::forgotten(job.clone())
            })
        };
        Ok(jobs.iter().map(status).collect())
    }

    fn cancel(&self, job: &SchedulerJobId) -> Result<(), SubmitError> {
        let output = self.run("scancel", &[job.as_str().to_owned()], "")?;
        if output.status.success() {
            return Ok(());
        }
        match error_of("scancel", &output.stderr) {
            SubmitError::Rejected {
                cause: RejectionCause::NoJob,
                ..
            } => Ok(()),
            error => Err(error),
        }
    }
}

/// Finds a program where nobody says where programs are, as in a job without the caller's variables (execvp(3)).
fn find_without_path(env: &Env, program: &str) -> Option<PathBuf> {
    let is_unset = env.iter().all(|(name, _)| name != "PATH");
    let mut files = ["/usr/bin", "/bin"]
        .into_iter()
        .map(|dir| Path::new(dir).join(program));
    files.find(|file| is_unset && file.is_file())
}

/// Jobs with the tokens in their comments.
fn queue_of(rows: Vec<JobRow>) -> JobQueue {
    let job = |row: JobRow| QueuedJob {
        token: token_of_comment(&row.comment).map(str::to_owned),
        status: row.status,
    };
    JobQueue(rows.into_iter().map(job).collect())
}

/// Parses what `sbatch --parsable` wrote: `4711`, or `4711;cluster`. Scripts of sites around it may say more before.
fn parse_sbatch(stdout: &str) -> Option<SchedulerJobId> {
    let line = stdout
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())?;
    let (number, _) = line.split_once(';').unwrap_or((line, ""));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    SchedulerJobId::parse(number).filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_set_is_the_only_one() {
        assert!(find_without_path(&Env::default(), "env").is_some());
        let env = Env::from_variables([("PATH", "/nowhere")]);
        assert_eq!(find_without_path(&env, "env"), None);
    }

    #[test]
    fn an_id_is_read_from_the_last_line() {
        let parse = |text| parse_sbatch(text).map(|id| id.to_string());
        for (text, id) in [
            ("4711\n", Some("4711")),
            ("4711;cluster\n", Some("4711")),
            ("Welcome to the cluster!\n\n4711\n \n", Some("4711")),
            ("Submitted batch job 4711\n", None),
            ("", None),
            (";x", None),
            ("-1", None),
            ("4711 4712", None),
        ] {
            assert_eq!(parse(text).as_deref(), id, "{text:?}");
        }
    }
}
