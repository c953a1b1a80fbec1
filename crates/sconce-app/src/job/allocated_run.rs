//! Runs in an allocation that is there: that of `salloc`, or of the job around this process.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use sconce_base::Env;
use sconce_run::run_in_foreground;
use sconce_schema::spec::{LaunchMode, SchedulerKind, TargetSpec};
use sconce_schema::{Hint, exit};
use sconce_submit::{JobStep, SchedulerJobId, expand_node_list};

use super::job_dir::JobDir;
use super::prepare::PreparedJob;
use super::program::keep_program;
use super::schedulers::scheduler_of;
use super::submit::JobOptions;
use super::task_run::first_exit;
use crate::background::Background;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::enclosing_job::EnclosingJob;
use crate::failure::Result;
use crate::project::Project;
use crate::run::current_folder;
use crate::run_options::RunOverrides;

/// How many of an allocation's nodes a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCount {
    /// Every one.
    All,
    /// So many.
    Count(u32),
}

/// What a caller says of a run on several nodes.
#[derive(Debug, Clone)]
pub struct AllocatedRunOptions {
    /// Nodes.
    pub nodes: NodeCount,
    /// Ranks of each, where that is not one a card.
    pub ranks_per_node: Option<u32>,
    /// Who starts the ranks.
    pub launch: Option<LaunchMode>,
}

/// Why there is no run in an allocation.
#[derive(Debug, thiserror::Error)]
pub enum AllocatedRunError {
    /// No variable names one.
    #[error("there is no allocation here: SLURM_JOB_ID is not set")]
    NoAllocation,
    /// A variable says something that it cannot say.
    #[error("{name} is `{value}`")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// Fewer nodes than are asked for.
    #[error("the run is for {wanted} nodes, and the allocation has {has}")]
    TooFewNodes {
        /// How many are asked for.
        wanted: u32,
        /// How many there are.
        has: u32,
    },
    /// The program that starts it cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Hint for AllocatedRunError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoAllocation => {
                "`salloc --nodes 2` makes one; `sconce submit` hands a job over that waits for its nodes".to_owned()
            }
            Self::Value { .. } => "it is the scheduler's own to set: `salloc` does".to_owned(),
            Self::TooFewNodes { .. } => "`--nodes all` takes those that there are".to_owned(),
            Self::Start { .. } => "try the same program by hand on this machine".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Start { .. } => exit::RUN,
            Self::NoAllocation | Self::Value { .. } | Self::TooFewNodes { .. } => exit::BAD_INPUT,
        }
    }
}

/// An allocation, as its variables have it (salloc(1), "OUTPUT ENVIRONMENT VARIABLES"; srun(1)).
#[derive(Debug, Clone, PartialEq, Eq)]
struct CallerAllocation {
    job: SchedulerJobId,
    nodes: u32,
    gpus_per_node: Option<u32>,
    cpus_per_node: Option<u32>,
}

impl CallerAllocation {
    fn from_env(env: &Env) -> Result<Self, AllocatedRunError> {
        let id = env
            .var("SLURM_JOB_ID")
            .ok_or(AllocatedRunError::NoAllocation)?;
        let wrong = |name, value: &str| AllocatedRunError::Value {
            name,
            value: value.to_owned(),
        };
        let list = env.var("SLURM_JOB_NODELIST").unwrap_or_default();
        let nodes = expand_node_list(list).map_err(|_| wrong("SLURM_JOB_NODELIST", list))?;
        if nodes.is_empty() {
            return Err(wrong("SLURM_JOB_NODELIST", list));
        }
        let gpus = ["SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"];
        Ok(Self {
            job: SchedulerJobId::parse(id).ok_or_else(|| wrong("SLURM_JOB_ID", id))?,
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            // `2`, or `a100:2`.
            gpus_per_node: (gpus.into_iter())
                .find_map(|name| env.var(name)?.rsplit(':').next()?.parse().ok()),
            // `16(x2)`, or `16,8(x3)`: the smallest node decides.
            cpus_per_node: env.var("SLURM_JOB_CPUS_PER_NODE").and_then(|list| {
                let counts = list
                    .split(',')
                    .map(|item| item.split('(').next()?.parse().ok());
                counts.collect::<Option<Vec<u32>>>()?.into_iter().min()
            }),
        })
    }
}

/// Runs `command`, or the spec's own where it is empty, on nodes of the allocation that is there; what tasks print is
/// printed here. Gives the exit code of the task that failed first.
///
/// # Errors
/// There is no allocation, or it cannot be prepared or started.
pub fn run_in_allocation(
    spec: &Path,
    overrides: &RunOverrides,
    command: &[String],
    wanted: &AllocatedRunOptions,
    context: &AppContext,
) -> Result<u8> {
    let allocation = CallerAllocation::from_env(&context.env)?;
    let nodes = match wanted.nodes {
        NodeCount::All => allocation.nodes,
        NodeCount::Count(count) if count <= allocation.nodes => count,
        NodeCount::Count(count) => {
            return Err(AllocatedRunError::TooFewNodes {
                wanted: count,
                has: allocation.nodes,
            }
            .into());
        }
    };
    let opened = CommandContext::open(Project::open(spec)?, context)?;
    let target = TargetSpec::new(SchedulerKind::Slurm);
    let job = JobOptions {
        nodes: Some(nodes),
        gpus_per_node: allocation.gpus_per_node,
        ranks_per_node: wanted.ranks_per_node,
        launch: wanted.launch,
        ..JobOptions::default()
    };
    let prepared = PreparedJob::new(&opened, overrides, command, &job, &target, context)?;
    let dir = JobDir::of(&opened.places, &prepared.request.token);
    prepared.write(&dir)?;
    let program = keep_program(&opened.places)?;
    let tasks = prepared.request.layout.tasks_per_node();
    let share = |cpus: u32| (cpus / tasks).max(1);
    let node = [
        program.to_string_lossy().into_owned(),
        "node".to_owned(),
        dir.path().to_string_lossy().into_owned(),
    ];
    let step = JobStep {
        job: &allocation.job,
        nodes,
        tasks_per_node: tasks,
        cpus_per_task: (prepared.cpus_per_task(&target)).or(allocation.cpus_per_node.map(share)),
        node: None,
        has_terminal: false,
        work_dir: &opened.project.folder,
        options: &[],
        command: &node,
    };
    let code = run_step(&step, &BTreeMap::new(), context)?;
    // srun's is the highest, of tasks that were ended because one had failed too.
    Ok(first_exit(&dir.read_tasks())
        .filter(|_| code != exit::OK)
        .unwrap_or(code))
}

/// Runs this program with `args`, as it was called, on the first node of the allocation, with the caller's terminal.
/// Where they are of a spec, its environment is brought before: nodes need no network.
///
/// # Errors
/// There is no allocation, the environment cannot be brought, or the step cannot be started.
pub fn call_on_first_node(
    spec: Option<&Path>,
    overrides: &RunOverrides,
    args: &[String],
    context: &AppContext,
) -> Result<u8> {
    let allocation = CallerAllocation::from_env(&context.env)?;
    if let Some(spec) = spec {
        let opened = CommandContext::open(Project::open(spec)?, context)?;
        let builder = opened.environment_builder(overrides.sources.clone(), context);
        let lock = builder.with_editable_projects(&builder.ensure_lock()?)?;
        let (_, _guards) = builder.assemble_with_guards(&lock, &mut Background::default())?;
        opened.progress.finish();
    }
    let program = keep_program(&SconceDirs::find(context)?)?;
    let mut command = vec![program.to_string_lossy().into_owned()];
    command.extend(args.iter().cloned());
    let step = JobStep {
        job: &allocation.job,
        nodes: 1,
        tasks_per_node: 1,
        cpus_per_task: allocation.cpus_per_node,
        node: None,
        has_terminal: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
        work_dir: &current_folder()?,
        options: &[],
        command: &command,
    };
    run_step(&step, &BTreeMap::new(), context)
}

/// Starts a step in the foreground, with the caller's variables and `variables`, and gives its exit code.
///
/// # Errors
/// It cannot be rendered or started.
pub(super) fn run_step(
    step: &JobStep<'_>,
    variables: &BTreeMap<String, String>,
    context: &AppContext,
) -> Result<u8> {
    let words = scheduler_of(SchedulerKind::Slurm, context).render_step(step)?;
    let (program, args) = words.split_first().expect("a command has a program");
    tracing::debug!(?words, "starting a step");
    let mut command = Command::new(program);
    command.args(args).envs(variables);
    // Those of the allocation say what this step does not want.
    for (name, _) in context.env.iter() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("SLURM_") && !is_clusters(name))
        {
            command.env_remove(name);
        }
    }
    let status = run_in_foreground(&mut command).map_err(|source| AllocatedRunError::Start {
        program: program.clone(),
        source,
    })?;
    let signal = || exit::code_for_signal(status.signal().unwrap_or_default());
    Ok(status
        .code()
        .map_or_else(signal, |code| u8::try_from(code).unwrap_or(exit::RUN)))
}

/// Whether a variable says which cluster it is, or who asks.
fn is_clusters(name: &str) -> bool {
    matches!(name, "SLURM_CONF" | "SLURM_JWT")
}

/// Whether a command of this user belongs on the first node of an allocation, and not where it was typed: `salloc`
/// leaves its user on the login node.
#[must_use]
pub fn is_outside_of_its_nodes(env: &Env) -> bool {
    CallerAllocation::from_env(env).is_ok() && EnclosingJob::find(env).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_read() {
        let read = |variables: &[(&str, &str)]| {
            CallerAllocation::from_env(&Env::from_variables(variables.iter().copied()))
        };
        let whole = read(&[
            ("SLURM_JOB_ID", "17"),
            ("SLURM_JOB_NODELIST", "n[2,10]"),
            ("SLURM_GPUS_PER_NODE", "a100:4"),
            ("SLURM_JOB_CPUS_PER_NODE", "16(x1),8"),
        ]);
        let whole = whole.unwrap();
        assert_eq!(
            (whole.nodes, whole.gpus_per_node, whole.cpus_per_node),
            (2, Some(4), Some(8))
        );
        let least = read(&[("SLURM_JOB_ID", "17"), ("SLURM_JOB_NODELIST", "n2")]).unwrap();
        assert_eq!(
            (least.nodes, least.gpus_per_node, least.cpus_per_node),
            (1, None, None)
        );
        for variables in [
            &[][..],
            &[("SLURM_JOB_ID", "17")],
            &[("SLURM_JOB_ID", "-1"), ("SLURM_JOB_NODELIST", "n2")],
            &[("SLURM_JOB_ID", "17"), ("SLURM_JOB_NODELIST", "n[2")],
        ] {
            assert!(read(variables).is_err(), "{variables:?}");
        }
    }
}
