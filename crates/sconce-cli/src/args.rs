//! The command line. One struct per verb; the verb's file in `commands/` does the work.

mod run_flags;
mod scheduler_flags;

use std::path::PathBuf;

use sconce_app::job::allocated_run::NodeCount;
use sconce_schema::spec::LaunchMode;

use crate::commands::audit::AuditArgs;
use crate::commands::outdated::OutdatedArgs;
use crate::number::whole_number_parser;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use self::run_flags::{LockFlags, RankFlags, RunFlags, SourceFlags, TrainingPlanFlags};
pub(crate) use self::scheduler_flags::SchedulerFlags;

/// From a bare Linux machine to a verified, reproducible, accounted PyTorch run.
#[derive(Debug, Parser)]
#[command(
    name = "sconce",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub(crate) struct CliArgs {
    #[command(subcommand)]
    pub(crate) verb: CliCommand,
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

/// The command line as clap knows it. A value that begins with `-` and a digit is a wrong number, which its
/// flag says better than clap, which looks for a flag of that name. `-v` is `--verbose`, but for verbs that
/// mount folders with it, as Docker does: those have the long form alone, or take `-v` before their name.
pub(crate) fn command() -> clap::Command {
    fn numbers(command: clap::Command) -> clap::Command {
        command
            .mut_args(|arg| {
                let takes = arg.get_action().takes_values() && !arg.is_positional();
                if takes {
                    arg.allow_negative_numbers(true)
                } else {
                    arg
                }
            })
            .mut_subcommands(numbers)
    }
    let root = CliArgs::command();
    let verbose = root.get_arguments().find(|arg| arg.get_id() == "verbose");
    let long_alone = verbose.cloned();
    let root = root.mut_subcommands(|verb| {
        let is_taken = verb.get_arguments().any(|arg| arg.get_short() == Some('v'));
        verb.args(long_alone.clone().filter(|_| is_taken))
    });
    numbers(root.mut_arg("verbose", |arg| arg.short('v')))
}

/// What was asked for.
pub(crate) fn parse() -> Result<CliArgs, clap::Error> {
    let mut matches = command().try_get_matches()?;
    CliArgs::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command()))
}

#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Say nothing but errors.
    #[arg(long, short, global = true, help_heading = "Every verb")]
    pub(crate) quiet: bool,
    /// Log on standard error what is decided; twice: what is done (or SCONCE_LOG=debug).
    #[arg(long, action = ArgAction::Count, global = true, help_heading = "Every verb")]
    pub(crate) verbose: u8,
    /// Use no network: what is missing in the store is named.
    #[arg(long, global = true, help_heading = "Every verb")]
    pub(crate) offline: bool,
    /// Folder of downloaded and unpacked packages [default: ~/.local/share/sconce].
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "SCONCE_STORE",
        help_heading = "Every verb"
    )]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Write a sconce.toml, from nothing or from what is there.
    Init(crate::commands::init::InitArgs),
    /// Resolve a spec to exact bytes and write sconce.lock.
    Lock(LockArgs),
    /// What newer exists than the lock holds, and which of it are security updates.
    Outdated(OutdatedArgs),
    /// What a vulnerability database says of the lock.
    Audit(AuditArgs),
    /// Run a command in the environment, limited as asked, and report what it used.
    Run(RunArgs),
    /// Hand a command in the environment to a cluster's scheduler, for one node or many.
    Submit(crate::commands::submit::SubmitArgs),
    /// A node's part of a job, which the job's script starts.
    #[command(hide = true)]
    Node(crate::commands::node::NodeArgs),
    /// Open a shell in the environment.
    Shell(ShellArgs),
    /// Start the environment's services in the background.
    Up(crate::commands::up::UpArgs),
    /// What goes on in the background and elsewhere: runs and their services.
    Ps(crate::commands::ps::PsArgs),
    /// What a run's services write.
    Logs(crate::commands::logs::LogsArgs),
    /// Run another command inside of a run.
    Exec(crate::commands::exec::ExecArgs),
    /// Stop runs.
    Stop(crate::commands::stop::StopArgs),
    /// Stop a run's services and start them again.
    Restart(crate::commands::restart::RestartArgs),
    /// Wait until a run has ended, and end with its exit code.
    Wait(crate::commands::wait::WaitArgs),
    /// Build the environment's image, without a daemon.
    Build(crate::commands::build::BuildArgs),
    /// Push a local image to a registry, with what belongs to it.
    Push(crate::commands::push::PushArgs),
    /// Fetch an image from a registry.
    Pull(crate::commands::pull::PullArgs),
    /// Check that an image in a registry is signed by a key.
    Verify(crate::commands::verify::VerifyArgs),
    /// Make a pair of keys to sign images with, as cosign makes them.
    Keygen(crate::commands::keygen::KeygenArgs),
    /// List the images that were built or fetched.
    Images(crate::commands::images::ImagesArgs),
    /// Remove from the store what nobody used for some time.
    Prune(crate::commands::prune::PruneArgs),
    /// Print an image's list of packages, as SPDX or CycloneDX.
    Sbom(crate::commands::sbom::SbomArgs),
    /// Compare the packages of two images or locks.
    Diff(crate::commands::diff::DiffArgs),
    /// Say before a run whether it will work: on this machine, or on named cards.
    Check(crate::commands::check::CheckArgs),
    /// Say whether a training run fits on a card: its first steps are run on a virtual one.
    Fit(crate::commands::fit::FitArgs),
    /// Say what an error means, and how to mend it.
    Explain(crate::commands::explain::ExplainArgs),
    /// Say what is wrong with this machine, and how to mend it.
    Doctor(crate::commands::doctor::DoctorArgs),
    /// The cards as Docker, Podman and containerd know them: list, write and check CDI files.
    Cdi(crate::commands::cdi::CdiArgs),
    /// What fills a card's memory, and what would.
    Memory(crate::commands::memory::MemoryArgs),
    /// Who has which card of this machine, until when, and who waits.
    Lease(crate::commands::lease::LeaseArgs),
    /// List the runs on record.
    Runs(RunsArgs),
    /// Show what a run was and what it used.
    Report(ReportArgs),
    /// What many runs used together: GPU-hours, CPU-hours, energy, cost.
    Usage(crate::commands::usage::UsageArgs),
    /// Compare two runs: what was changed, and whether steps really take another time.
    Compare(crate::commands::compare::CompareArgs),
    /// Show the runs on record as a page, and as metrics.
    Serve(crate::commands::serve::ServeArgs),
    /// Watch runs in the terminal: phases, cards, processes, memory.
    Top(crate::commands::top::TopArgs),
    /// Write a run's record for other programs: CSV, Parquet, JSON, TensorBoard, Perfetto.
    Export(crate::commands::export::ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// A sconce.toml or its folder.
    #[arg(default_value = ".")]
    pub(crate) spec: PathBuf,
    /// Take the newest versions that fit, not those of the present lock.
    #[arg(long)]
    pub(crate) upgrade: bool,
    /// Take what the indexes had on a day, such as 2021-03-25; once, where the spec's `[python] as-of`
    /// always does.
    #[arg(long, value_name = "DATE", value_parser = date, conflicts_with = "check")]
    pub(crate) as_of: Option<String>,
    /// Change nothing: is the lock still what the spec says? Exit code 1 where it is not.
    #[arg(long, conflicts_with = "upgrade")]
    pub(crate) check: bool,
    /// Print the lock as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
}

fn date(text: &str) -> Result<String, String> {
    match sconce_schema::spec::is_date(text) {
        true => Ok(text.to_owned()),
        false => Err("a day such as 2021-03-25".to_owned()),
    }
}

/// What cannot be had without a container, or has no meaning there.
const NEED_A_CONTAINER: [&str; 13] = [
    "spec",
    "gpus",
    "shm_size",
    "volumes",
    "ports",
    "network",
    "runtime",
    "root",
    "index",
    "extra_index",
    "mirror",
    "locked",
    "frozen",
];

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A sconce.toml or its folder; a program that says what it needs (`# /// script`, PEP 723); or an
    /// image: NAME:TAG, a digest, an OCI layout, an archive of one or of `docker save`.
    #[arg(default_value = ".", value_name = "SPEC|PROGRAM.py|IMAGE")]
    pub(crate) spec: PathBuf,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
    /// Record a run on this machine itself, with the Python that is here: no image, no container.
    #[arg(long, requires = "command", conflicts_with_all = NEED_A_CONTAINER)]
    pub(crate) host: bool,
    /// Start the spec's services too; they live as long as the command.
    #[arg(long, conflicts_with = "host")]
    pub(crate) services: bool,
    /// Where there is no spec yet, first write the one that `sconce init` would.
    #[arg(long, conflicts_with = "host")]
    pub(crate) init: bool,
    /// Go on in the background: what it writes is kept for `sconce logs`.
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// Write the report as JSON to FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) allocation: AllocationFlags,
    /// The command, instead of the spec's or the image's; an image's entrypoint stays before it. For a
    /// program, its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What no node of several does: they are one machine's, or of a run that has the terminal.
const NOT_ON_SEVERAL_NODES: [&str; 10] = [
    "host",
    "services",
    "detach",
    "json",
    "gpus",
    "virtual_gpu",
    "ports",
    "leak_stacks",
    "plan",
    "ranks",
];

/// In an allocation of a scheduler's, the nodes of it that a run has.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct AllocationFlags {
    /// Run on nodes of the allocation that is there (`salloc`): `all`, or so many.
    #[arg(
        long,
        short = 'N',
        value_name = "N",
        value_parser = node_count,
        conflicts_with_all = NOT_ON_SEVERAL_NODES,
        help_heading = "In an allocation"
    )]
    pub(crate) nodes: Option<NodeCount>,
    /// Ranks of each node [default: one a card, and one where there is none].
    #[arg(long, value_name = "R", requires = "nodes", value_parser = whole_number_parser::<u32>(1, 1024), help_heading = "In an allocation")]
    pub(crate) ranks_per_node: Option<u32>,
    /// Who starts the ranks: `torchrun`, `task-per-gpu` or `node`.
    #[arg(long, value_name = "MODE", requires = "nodes", value_parser = launch_mode, help_heading = "In an allocation")]
    pub(crate) launch: Option<LaunchMode>,
}

fn node_count(text: &str) -> Result<NodeCount, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(NodeCount::All),
        (_, Ok(count @ 1..)) => Ok(NodeCount::Count(count)),
        (_, _) => Err("`all`, or a number of nodes".to_owned()),
    }
}

pub(crate) fn launch_mode(text: &str) -> Result<LaunchMode, String> {
    text.parse()
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// A sconce.toml or its folder; or an image: NAME:TAG, a digest, an OCI layout, an archive of one
    /// or of `docker save`.
    #[arg(default_value = ".", value_name = "SPEC|IMAGE")]
    pub(crate) spec: PathBuf,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Remove the records of all runs that have ended but the KEEP newest ones, then list.
    #[arg(long, value_name = "KEEP")]
    pub(crate) prune: Option<usize>,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A run's id, the beginning of one, or `last`.
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page that opens without a network to FILE; `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn the_command_line_is_well_formed() {
        CliArgs::command().debug_assert();
    }

    #[test]
    fn limits_that_are_none_are_refused() {
        for flag in [
            "--cpuset 3-1",
            "--cpuset all",
            "--cpuset 5000",
            "--nofile 0",
            "--io-weight 0",
            "--io-weight 1001",
            "--memlock much",
            "--memory-swap -1",
            "--hugepages 2pages",
            "--numa 1",
            "--network bridge",
            "--runtime runsc",
        ] {
            let words = format!("sconce run {flag} -- true");
            let error = CliArgs::try_parse_from(words.split(' ')).err();
            let kind = error.expect(flag).kind();
            let known = [ErrorKind::ValueValidation, ErrorKind::UnknownArgument];
            assert!(known.contains(&kind), "{flag}: {kind:?}");
        }
    }

    #[test]
    fn v_is_verbose_but_where_it_mounts() {
        let parse = |words: &str| {
            let words = ["sconce"].into_iter().chain(words.split(' '));
            let mut matches = command().try_get_matches_from(words).expect("arguments");
            CliArgs::from_arg_matches_mut(&mut matches).expect("arguments")
        };
        for (words, verbose) in [
            ("lock", 0),
            ("lock -v", 1),
            ("-v lock", 1),
            ("lock -vv", 2),
            ("lease take --gpus 1 --for 1h -vvv", 3),
            ("-vv run -- true", 2),
            ("run --verbose -- true", 1),
            ("run -v /a:/b -- true", 0),
            ("shell -v /a:/b", 0),
            ("up -v /a:/b", 0),
            ("-v up -v /a:/b", 1),
            ("fit -v /a:/b -- python train.py", 0),
            ("fit --verbose --verbose -- python train.py", 2),
        ] {
            assert_eq!(parse(words).global.verbose, verbose, "{words}");
        }
        let CliCommand::Run(run) = parse("run -v /a:/b -- true").verb else {
            panic!("another verb");
        };
        assert_eq!(run.flags.volumes.len(), 1);
    }

    /// `--cpus -1` is a wrong number of CPUs, and no unknown flag `-1`.
    #[test]
    fn a_number_below_nothing_is_named_with_its_flag() {
        for words in [
            "run --cpus -1 -- true",
            "run --memory -1 -- true",
            "run --shm-size -1 -- true",
            "run --pids -1 -- true",
            "run --sample-hz -1 -- true",
            "run --gpus -1 -- true",
            "run --io-weight -1 -- true",
            "run --nofile -1 -- true",
            "run --ranks -2 -- true",
            "runs --prune -1",
            "lease take --gpus -1 --for 1h",
            "lease take --mem -1 --for 1h",
            "serve --port -1",
            "fit --steps -1 -- python train.py",
            "fit --time -1 -- python train.py",
        ] {
            let words = ["sconce"].into_iter().chain(words.split(' '));
            let error = command()
                .try_get_matches_from(words)
                .expect_err("a wrong number");
            let told = error.to_string();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{told}");
            assert!(told.contains("invalid value '-"), "{told}");
        }
    }

    #[test]
    fn what_needs_a_container_is_refused_without_one() {
        let refused = |words: &str| {
            let words = ["sconce", "run"].into_iter().chain(words.split(' '));
            CliArgs::try_parse_from(words)
                .err()
                .map(|error| error.kind())
        };
        for flag in [
            "examples/digits",
            "--gpus 1",
            "--shm-size 1GiB",
            "-v /a:/b",
            "-p 80",
            "--network none",
            "--network own",
            "--runtime runc",
            "--root",
            "--index https://index.example.org/simple",
            "--extra-index https://index.example.org/simple",
            "--mirror http://mirror.example.org/debian",
        ] {
            let kind = refused(&format!("--host {flag} -- true"));
            assert_eq!(kind, Some(ErrorKind::ArgumentConflict), "{flag}");
        }
        let kind = refused("--host");
        assert_eq!(kind, Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(
            refused(
                "--host --cpus 1 -m 1GiB --pids 9 --cpuset 0-1 --memory-swap 2GiB --nofile 9 --memlock unlimited \
                 --io-weight 50 --hugepages 4MiB --numa off --strict -e A=1 -w /tmp -- true"
            ),
            None
        );
    }
}
