//! `sconce submit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use sconce_app::accounting::AccountingOverrides;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::dependencies::JobBefore;
use sconce_app::job::lookup::find_job;
use sconce_app::job::submit::{JobOptions, Submission, submit_job};
use sconce_app::job::sweep::ArrayOptions;
use sconce_app::project::Project;
use sconce_app::run_options::RunOverrides;
use sconce_app::script::is_script;
use sconce_schema::job::JobArray;
use sconce_schema::request::RunLimits;
use sconce_schema::spec::LaunchMode;
use sconce_schema::spec::MountSpec;
use sconce_schema::{Bytes, Millicores, duration, exit};
use serde_json::json;

use super::wait::wait_for_job;
use crate::args::{LockFlags, SchedulerFlags, SourceFlags, launch_mode};
use crate::number::{some_size, whole_number_parser};
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// A sconce.toml or its folder; or a program that says what it needs (`# /// script`, PEP 723).
    #[arg(default_value = ".", value_name = "SPEC|PROGRAM.py")]
    pub(crate) spec: PathBuf,
    /// To whom: `[target.NAME]` of the spec, or of ~/.config/sconce/config.toml.
    #[arg(long, value_name = "NAME")]
    pub(crate) to: String,
    /// Nodes [default: the target's, or 1].
    #[arg(long, short = 'N', value_name = "N", value_parser = whole_number_parser::<u32>(1, 65_536))]
    pub(crate) nodes: Option<u32>,
    /// Cards of each node.
    #[arg(long, value_name = "G", value_parser = whole_number_parser::<u32>(0, 1024))]
    pub(crate) gpus_per_node: Option<u32>,
    /// Ranks of each node [default: one a card, and one where there is none].
    #[arg(long, value_name = "R", value_parser = whole_number_parser::<u32>(1, 1024))]
    pub(crate) ranks_per_node: Option<u32>,
    /// The longest that it may take, such as 4h; or as Slurm writes it: minutes, 4:00:00, 2-00:00:00.
    #[arg(long, short, value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Who starts the ranks: `torchrun`, once a node, one rank a card; `task-per-gpu`, the scheduler; or
    /// `node`, the command itself, started once a node.
    #[arg(long, value_name = "MODE", value_parser = launch_mode)]
    pub(crate) launch: Option<LaunchMode>,
    /// Start the command once for each index, as elements of one array: 0-7, 1,3,5 or 0-15:4. `SCONCE_ARRAY_INDEX`
    /// tells each its own. With a sweep, only these of its lines.
    #[arg(long, value_name = "INDICES", value_parser = JobArray::parse)]
    pub(crate) array: Option<JobArray>,
    /// Start the command once for each line of a file, with the line's words at its end, or in place of its word `{}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) sweep: Option<PathBuf>,
    /// Of an array, how many may run at once.
    #[arg(long, value_name = "N", value_parser = whole_number_parser::<u32>(1, 10_000))]
    pub(crate) at_once: Option<u32>,
    /// Start when this job has ended well; `afterany:JOB`, however it ended; `afternotok:JOB`, when it failed.
    #[arg(long, value_name = "[KIND:]JOB", value_parser = JobBefore::parse)]
    pub(crate) after: Vec<JobBefore>,
    /// Make the environment by a job of its own before, on this other target: one node without cards. Here nothing is
    /// done but to lock and to fetch [default: the target's `prepare-on`].
    #[arg(long, value_name = "NAME")]
    pub(crate) prepare_on: Option<String>,
    /// Say nothing where the same waits or runs already.
    #[arg(long)]
    pub(crate) again: bool,
    /// Run without a container, where the target allows it: the lock's own Python and packages, beside the node's files.
    #[arg(long)]
    pub(crate) uncontained: bool,
    /// Wait until it has ended, and end with its exit code; whoever ends the waiting leaves the job.
    #[arg(long, short = 'W', conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// Print the script that would be handed over, and hand nothing over.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: JobRunFlags,
    #[command(flatten)]
    pub(crate) scheduler: SchedulerFlags,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
    #[command(flatten)]
    pub(crate) lock: LockFlags,
    /// The command, instead of the spec's. For a program, its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What a run may use on nodes; each overrides the spec.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct JobRunFlags {
    /// CPUs of each node.
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<Millicores>,
    /// Memory of each node, such as 64GiB.
    #[arg(long, short, value_name = "SIZE", value_parser = some_size)]
    pub(crate) memory: Option<Bytes>,
    /// The same as sbatch takes it: without a unit in MB.
    #[arg(long, value_name = "SIZE", value_parser = slurm_memory, conflicts_with = "memory")]
    pub(crate) mem: Option<Bytes>,
    /// Size of /dev/shm.
    #[arg(long, value_name = "SIZE", value_parser = some_size)]
    pub(crate) shm_size: Option<Bytes>,
    /// Mount a folder or file that nodes see: SOURCE:TARGET[:ro].
    #[arg(long = "volume", short = 'v', value_name = "MOUNT")]
    pub(crate) volumes: Vec<MountSpec>,
    /// Set a variable: NAME=VALUE, or NAME to pass this shell's, whose value stands in no script.
    #[arg(long = "env", short = 'e', value_name = "VAR")]
    pub(crate) env: Vec<String>,
    /// Working directory; inside, one that is not absolute is below /workspace.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Be root inside.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) root: bool,
    /// Start on no node whose fast network the ranks would not use, such as InfiniBand without libibverbs.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Bring nothing into the program that accounts for its steps.
    #[arg(long)]
    pub(crate) no_probe: bool,
}

pub(crate) fn submit(args: &SubmitArgs, context: &AppContext) -> Result<u8> {
    let run = &args.run;
    let overrides = RunOverrides {
        limits: RunLimits {
            cpus: run.cpus,
            memory: run.memory.or(run.mem),
            shm: run.shm_size,
            ..RunLimits::default()
        },
        mounts: run.volumes.clone(),
        env: run.env.clone(),
        workdir: run.workdir.clone(),
        root: run.root,
        strict: run.strict,
        accounting: AccountingOverrides {
            no_probe: run.no_probe,
            ..AccountingOverrides::default()
        },
        sources: args.sources.to_sources(args.lock.to_lock_use()),
        ..RunOverrides::default()
    };
    let options = JobOptions {
        target: args.to.clone(),
        nodes: args.nodes,
        gpus_per_node: args.gpus_per_node,
        ranks_per_node: args.ranks_per_node,
        time: args.time,
        launch: args.launch,
        array: ArrayOptions {
            array: args.array.clone(),
            sweep: args.sweep.clone(),
            at_once: args.at_once,
        },
        after: args.after.clone(),
        again: args.again,
        prepare_on: args.prepare_on.clone(),
        is_uncontained: args.uncontained,
        dry_run: args.dry_run,
        scheduler: args.scheduler.to_overrides(),
    };
    let command = match is_script(&args.spec) {
        true => [
            Project::open(&args.spec)?.spec.run.command,
            args.command.clone(),
        ]
        .concat(),
        false => args.command.clone(),
    };
    let done = submit_job(&args.spec, &overrides, &command, &options, context)?;
    print_submission(args, &done, context)?;
    if !args.wait {
        return Ok(exit::OK);
    }
    let places = SconceDirs::find(context)?;
    match find_job(&places, &done.token)? {
        Some(job) => wait_for_job(&job, &places, context),
        None => Ok(exit::OK),
    }
}

fn print_submission(args: &SubmitArgs, done: &Submission, context: &AppContext) -> Result<()> {
    if args.json {
        return output::write_data(&to_json(args, done).to_string());
    }
    if args.dry_run {
        output::write_data(done.by_hand.trim_end())?;
    } else {
        output::write_data(&done.token)?;
    }
    let say = |text: String| {
        if !context.quiet {
            output::print_message(&text);
        }
    };
    if args.dry_run {
        if let Some(lacks) = done.lacks {
            say(format!(
                "there is no {lacks} yet: `sconce submit` makes it, and brings what it names"
            ));
        }
        if let Some(file) = &done.variables {
            say(format!(
                "the values of variables that are passed by name are in {} until the job has ended, or for a week",
                file.display()
            ));
        }
        say(format!(
            "handed over by hand, it is {} for `logs`, `stop` and `wait`, and for `ps` once it has begun",
            done.token
        ));
        return Ok(());
    }
    let preparation = done.preparation.as_ref();
    if let Some((one, id)) = preparation.and_then(|one| Some((one, one.id.as_ref()?))) {
        say(format!(
            "{} makes its environment before, as job {id}",
            one.target
        ));
    }
    if let Some(id) = &done.id {
        say(format!("{} has it as job {id}", args.to));
    }
    Ok(())
}

fn to_json(args: &SubmitArgs, done: &Submission) -> serde_json::Value {
    let preparation = done.preparation.as_ref().map(|one| {
        json!({
            "target": one.target,
            "id": one.id,
            "script": one.script,
        })
    });
    json!({
        "format": 1,
        "job": done.token,
        "target": args.to,
        "id": done.id,
        "script": done.script,
        "preparation": preparation,
    })
}

fn time(text: &str) -> Result<Duration, String> {
    match duration::parse_time_limit(text) {
        Ok(0) => Err("that is no time at all".to_owned()),
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(error) => Err(format!("not {}", error.expected)),
    }
}

/// A size as sbatch takes it (sbatch(1), `--mem`): 0 is all memory of a node, which no limit is.
fn slurm_memory(text: &str) -> Result<Bytes, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = match is_number {
        true => format!("{text}M"),
        false => text.to_owned(),
    };
    some_size(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_sbatchs_too() {
        assert_eq!(slurm_memory("4096"), Ok(Bytes::from_mib(4096)));
        assert_eq!(slurm_memory("64G"), Ok(Bytes::from_mib(64 << 10)));
        assert!(slurm_memory("0").is_err());
        assert_eq!(time("4:00:00"), Ok(Duration::from_secs(4 * 3600)));
        assert!(time("soon").unwrap_err().contains("2-00:00:00"));
        assert!(time("0").unwrap_err().contains("no time at all"));
    }
}
