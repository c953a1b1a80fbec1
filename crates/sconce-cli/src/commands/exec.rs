//! `sconce exec`.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use sconce_run::control::{self, ControlResponse, ExecRequest};
use sconce_schema::exit;

use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::enter::exec_in_job;
use sconce_app::job::lookup::find_job;
use sconce_app::run_lookup::{self, LiveError};
use sconce_app::run_options;

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// An id of a run or of a job, its beginning, or the name of an environment; the only run in the background where
    /// none is given.
    pub(crate) run: Option<String>,
    /// Of a job, the rank whose container is entered [default: 0].
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,
    /// Set a variable beside the run's: NAME=VALUE, or NAME to pass this shell's value on.
    #[arg(long = "env", short = 'e', value_name = "VAR")]
    pub(crate) env: Vec<String>,
    /// Working directory inside; the run's where none is given.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// The command.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The arguments of the same command on the node.
fn own_args(args: &ExecArgs) -> Vec<String> {
    let env = args
        .env
        .iter()
        .flat_map(|one| ["--env".to_owned(), one.clone()]);
    let workdir = args
        .workdir
        .iter()
        .map(|dir| format!("--workdir={}", dir.display()));
    let command = std::iter::once("--".to_owned()).chain(args.command.iter().cloned());
    env.chain(workdir).chain(command).collect()
}

pub(crate) fn exec(args: &ExecArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let job = args.run.as_deref().map(|which| find_job(&places, which));
    if let Some(job) = job.transpose()?.flatten() {
        let own = own_args(args);
        return exec_in_job(&job, args.rank, &own, terminal, &places, context);
    }
    let run = run_lookup::find_live(&places, args.run.as_deref())?;
    let term = context.env.var("TERM").filter(|_| terminal);
    let beside = term
        .map(|term| ("TERM".to_owned(), term.to_owned()))
        .into_iter();
    let env = run_options::merge_variables(&beside.collect(), &args.env, |name| {
        context.env.var(name).map(str::to_owned)
    })?;
    let command = ExecRequest {
        command: args.command.clone(),
        env: (env.iter().map(|(name, value)| format!("{name}={value}"))).collect(),
        workdir: args.workdir.clone(),
        terminal,
    };
    let id = || run.started.id.clone();
    let answer = control::exec_command(run_lookup::run_dir(&run), &command);
    match answer.map_err(|source| LiveError::Ask { id: id(), source })? {
        ControlResponse::Ended(exit) => Ok(exit.exit_code()),
        ControlResponse::CannotStart(why, hint, code) => {
            let style = OutputStyle::for_stderr();
            output::print_error(&format!("{} {why}", style.error("error:")));
            if let Some(hint) = hint {
                output::print_message(&format!("{} {hint}", style.hint("hint:")));
            }
            Ok(code)
        }
        ControlResponse::Refused(why) => Err(LiveError::Refused { id: id(), why }.into()),
        _ => Ok(exit::NO),
    }
}
