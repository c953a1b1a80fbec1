//! `sconce submit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use sconce_app::accounting::AccountingOverrides;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::job::dependencies::JobBefore;
use sconce_app::job::submit::{JobOptions, submit_job};
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

use crate::args::{LockFlags, SourceFlags, launch_mode};
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
    /// The longest that it may take, such as 4h.
    #[arg(long, value_name = "TIME", value_parser = time)]
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
    /// Print the script that would be handed over, and hand nothing over.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: JobRunFlags,
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
            memory: run.memory,
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
    let preparation = done.preparation.as_ref();
    if args.json {
        let preparation = preparation.map(|one| {
            json!({
                "target": one.target,
                "id": one.id,
                "script": one.script,
            })
        });
        let value = json!({
            "format": 1,
            "job": done.token,
            "target": args.to,
            "id": done.id,
            "script": done.script,
            "preparation": preparation,
        });
        output::write_data(&value.to_string())?;
        return Ok(exit::OK);
    }
    if args.dry_run {
        output::write_data(done.by_hand.trim_end())?;
        if let Some(lacks) = done.lacks.filter(|_| !context.quiet) {
            output::print_message(&format!(
                "there is no {lacks} yet: `sconce submit` makes it, and brings what it names"
            ));
        }
        return Ok(exit::OK);
    }
    output::write_data(&done.token)?;
    if let Some((one, id)) = preparation.and_then(|one| Some((one, one.id.as_ref()?)))
        && !context.quiet
    {
        output::print_message(&format!(
            "{} makes its environment before, as job {id}",
            one.target
        ));
    }
    if let Some(id) = done.id.filter(|_| !context.quiet) {
        output::print_message(&format!("{} has it as job {id}", args.to));
    }
    Ok(exit::OK)
}

fn time(text: &str) -> Result<Duration, String> {
    match duration::parse_milliseconds(text) {
        Ok(0) => Err("that is no time at all".to_owned()),
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(error) => Err(format!("not {}", error.expected)),
    }
}
