//! The `sconce` program: flags, environment, printing, exit codes. Everything else is a stage.
#![forbid(unsafe_code)]

mod args;
mod argument_hints;
mod commands;
#[cfg(test)]
mod documented_commands_test;
mod error;
mod failure;
mod findings;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod help_text;
mod log;
mod number;
mod output;
#[cfg(test)]
mod outputs_table_test;
mod progress;
mod remote_machines;
mod signing_keys;
mod style;
mod table;
mod terminal_reporter;
mod text_layout;

use std::process::ExitCode;
use std::sync::Arc;

use crate::terminal_reporter::TerminalReporter;
use args::CliCommand;
use clap::error::ContextKind;
use sconce_app::context::AppContext;
use sconce_app::file_action::FileAction;
use sconce_app::worker::WorkerTask;
use sconce_base::Env;
use sconce_web::html;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if sconce_run::is_init(&name) {
        return ExitCode::from(sconce_run::init_main(arguments));
    }
    let task = match sconce_app::worker::is_worker(&name)
        .then(sconce_app::worker::read_task)
        .transpose()
    {
        Ok(task) => task,
        Err(source) => {
            let error = sconce_app::failure::AppError::File {
                action: FileAction::Read,
                path: "the task on standard input".into(),
                source,
            };
            return print_failure(&error.into());
        }
    };
    // Children whose arguments say nothing.
    match &task {
        Some(WorkerTask::QueryDriver(library)) => {
            return exit_code(remote_machines::query_driver(*library));
        }
        Some(WorkerTask::WorkBesideRun { spec, store }) => {
            return exit_code(sconce_app::background_work::work_beside_run(
                spec.as_ref(),
                store.as_ref(),
            ));
        }
        Some(WorkerTask::HoldRun | WorkerTask::Trial { .. }) | None => {}
    }
    let root = match args::parse() {
        Ok(root) => root,
        Err(wrong) => return refused(wrong),
    };
    let context = AppContext {
        quiet: root.global.quiet,
        offline: root.global.offline,
        store: root.global.store,
        task,
        env: Env::of_process(),
        arguments: arguments.collect(),
        reporter: Arc::new(TerminalReporter::default()),
    };
    if context.holds_run() {
        sconce_app::detach::start_holder_session();
    }
    if let Err(wrong) = log::install(root.global.verbose, &context.env) {
        return print_failure(&wrong.into());
    }
    sconce_base::output::set_signal_watch(sconce_app::outputs::signals::watch_signals);
    sconce_app::outputs::own_places::set_once(context.store.clone(), context.env.clone());
    let done = match root.verb {
        CliCommand::Init(args) => commands::init::init(&args, &context),
        CliCommand::Lock(args) => commands::lock::lock(&args, &context),
        CliCommand::Outdated(args) => commands::outdated::outdated(&args, &context),
        CliCommand::Audit(args) => commands::audit::audit(&args, &context),
        CliCommand::Run(args) => commands::run::run(&args, &context),
        CliCommand::Submit(args) => commands::submit::submit(&args, &context),
        CliCommand::Node(args) => commands::node::node(&args, &context),
        CliCommand::Shell(args) => commands::shell::shell(&args, &context),
        CliCommand::Up(args) => commands::up::up(&args, &context),
        CliCommand::Ps(args) => commands::ps::ps(&args, &context),
        CliCommand::Logs(args) => commands::logs::logs(&args, &context),
        CliCommand::Exec(args) => commands::exec::exec(&args, &context),
        CliCommand::Stop(args) => commands::stop::stop(&args, &context),
        CliCommand::Restart(args) => commands::restart::restart(&args, &context),
        CliCommand::Wait(args) => commands::wait::wait(&args, &context),
        CliCommand::Build(args) => commands::build::build(&args, &context),
        CliCommand::Push(args) => commands::push::push(&args, &context),
        CliCommand::Pull(args) => commands::pull::pull(&args, &context),
        CliCommand::Verify(args) => commands::verify::verify(&args, &context),
        CliCommand::Keygen(args) => commands::keygen::keygen(&args, &context),
        CliCommand::Images(args) => commands::images::images(&args, &context),
        CliCommand::Prune(args) => commands::prune::prune(&args, &context),
        CliCommand::Sbom(args) => commands::sbom::sbom(&args, &context),
        CliCommand::Diff(args) => commands::diff::diff(&args, &context),
        CliCommand::Cdi(args) => commands::cdi::cdi(&args, &context),
        CliCommand::Check(args) => commands::check::check(&args, &context),
        CliCommand::Fit(args) => commands::fit::fit(&args, &context),
        CliCommand::Explain(args) => commands::explain::explain(&args, &context),
        CliCommand::Doctor(args) => commands::doctor::doctor(&args, &context),
        CliCommand::Memory(args) => commands::memory::memory(&args, &context),
        CliCommand::Lease(args) => commands::lease::lease(&args, &context),
        CliCommand::Runs(args) => commands::runs::runs(&args, &context),
        CliCommand::Usage(args) => commands::usage::usage(&args, &context),
        CliCommand::Report(args) => commands::report::report(&args, &context),
        CliCommand::Compare(args) => commands::compare::compare(&args, &context),
        CliCommand::Serve(args) => commands::serve::serve(&args, &context),
        CliCommand::Top(args) => commands::top::top(&args, &context),
        CliCommand::Export(args) => commands::export::export(&args, &context),
    };
    exit_code(done)
}

fn exit_code(done: sconce_app::failure::Result<u8>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => print_failure(&failure),
    }
}

/// Prints why the program fails, and gives its exit code.
fn print_failure(failure: &sconce_app::failure::Failure) -> ExitCode {
    output::print_error(&failure::render_failure(
        failure,
        &style::OutputStyle::for_stderr(),
    ));
    ExitCode::from(failure.exit_code())
}

/// What clap says of arguments, in its own colours; without the secrets that it repeats, and what a terminal
/// would obey.
fn refused(mut wrong: clap::Error) -> ExitCode {
    if argument_hints::takes_command(&wrong) {
        // Behind `--` it would be a word of the command.
        wrong.remove(ContextKind::Suggested);
    }
    let wrong = &wrong;
    let rendered = wrong.render();
    let styled = |style: style::OutputStyle| match style.color {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    // clap itself would let go what a full pipe does not take.
    if !wrong.use_stderr() {
        let written = output::write_data(&styled(style::OutputStyle::for_stdout()));
        return exit_code(written.map(|()| wrong.exit_code() as u8));
    }
    let said = rendered.to_string();
    let masked = sconce_app::failure::tame(sconce_base::secrets::mask_text(&said));
    let text = match masked == said {
        true => styled(style::OutputStyle::for_stderr()),
        false => masked,
    };
    output::print_error(text.trim_end());
    if let Some(hint) = argument_hints::find_hint(wrong, std::env::args_os()) {
        let label = style::OutputStyle::for_stderr().hint("hint:");
        output::print_error(&format!("{label} {}", sconce_app::failure::tame(hint)));
    }
    ExitCode::from(wrong.exit_code() as u8)
}
