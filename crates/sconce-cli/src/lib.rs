//! The `sconce` program: flags, environment, printing, exit codes. Everything else is a stage.
#![forbid(unsafe_code)]

mod account;
mod args;
mod background;
mod commands;
mod detach;
mod executor;
mod failure;
mod findings;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod help_text;
mod hosts;
mod html;
mod input;
mod judge;
mod kernels;
mod leases;
mod limits;
mod live;
mod log;
mod logout;
mod network;
mod number;
mod output;
mod outputs;
mod own_folders;
mod page;
mod pip;
mod places;
mod plan;
mod prepare;
mod private;
mod probe;
mod progress;
mod project;
mod ranks;
mod registries;
mod services;
mod staying;
mod style;
mod table;
#[cfg(test)]
mod told;
mod view;
mod virtual_gpu;
mod watch;
mod wish;
mod worker;

use std::process::ExitCode;

use args::Verb;
use sconce_base::Env;
use worker::WorkerTask;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if sconce_run::is_init(&name) {
        return ExitCode::from(sconce_run::init_main(arguments));
    }
    let task = match worker::is_worker(&name).then(worker::read_task).transpose() {
        Ok(task) => task,
        Err(source) => {
            let error = failure::CliError::File {
                action: "read",
                path: "the task on standard input".into(),
                source,
            };
            return print_failure(&error.into());
        }
    };
    // Children whose arguments say nothing.
    match &task {
        Some(WorkerTask::QueryDriver(library)) => return exit_code(hosts::query_driver(*library)),
        Some(WorkerTask::WorkBesideRun { spec, store }) => {
            return exit_code(background::work_beside_run(spec.as_ref(), store.as_ref()));
        }
        Some(WorkerTask::HoldRun | WorkerTask::Trial { .. }) | None => {}
    }
    let mut root = match args::parse() {
        Ok(root) => root,
        Err(wrong) => return refused(&wrong),
    };
    root.global.env = Env::of_process();
    root.global.task = task;
    if root.global.holds_run() {
        detach::begin();
    }
    if let Err(wrong) = log::install(root.global.verbose, &root.global.env) {
        return print_failure(&wrong.into());
    }
    let done = match root.verb {
        Verb::Init(args) => commands::init::init(&args, &root.global),
        Verb::Lock(args) => commands::lock::lock(&args, &root.global),
        Verb::Outdated(args) => commands::outdated::outdated(&args, &root.global),
        Verb::Audit(args) => commands::audit::audit(&args, &root.global),
        Verb::Run(args) => commands::run::run(&args, &root.global),
        Verb::Shell(args) => commands::shell::shell(&args, &root.global),
        Verb::Up(args) => commands::up::up(&args, &root.global),
        Verb::Ps(args) => commands::ps::ps(&args, &root.global),
        Verb::Logs(args) => commands::logs::logs(&args, &root.global),
        Verb::Exec(args) => commands::exec::exec(&args, &root.global),
        Verb::Stop(args) => commands::stop::stop(&args, &root.global),
        Verb::Restart(args) => commands::restart::restart(&args, &root.global),
        Verb::Wait(args) => commands::wait::wait(&args, &root.global),
        Verb::Build(args) => commands::build::build(&args, &root.global),
        Verb::Push(args) => commands::push::push(&args, &root.global),
        Verb::Pull(args) => commands::pull::pull(&args, &root.global),
        Verb::Verify(args) => commands::verify::verify(&args, &root.global),
        Verb::Keygen(args) => commands::keygen::keygen(&args, &root.global),
        Verb::Images(args) => commands::images::images(&args, &root.global),
        Verb::Prune(args) => commands::prune::prune(&args, &root.global),
        Verb::Sbom(args) => commands::sbom::sbom(&args, &root.global),
        Verb::Diff(args) => commands::diff::diff(&args, &root.global),
        Verb::Cdi(args) => commands::cdi::cdi(&args, &root.global),
        Verb::Check(args) => commands::check::check(&args, &root.global),
        Verb::Fit(args) => commands::fit::fit(&args, &root.global),
        Verb::Explain(args) => commands::explain::explain(&args, &root.global),
        Verb::Doctor(args) => commands::doctor::doctor(&args, &root.global),
        Verb::Memory(args) => commands::memory::memory(&args, &root.global),
        Verb::Lease(args) => commands::lease::lease(&args, &root.global),
        Verb::Runs(args) => commands::runs::runs(&args, &root.global),
        Verb::Usage(args) => commands::usage::usage(&args, &root.global),
        Verb::Report(args) => commands::report::report(&args, &root.global),
        Verb::Compare(args) => commands::compare::compare(&args, &root.global),
        Verb::Serve(args) => commands::serve::serve(&args, &root.global),
        Verb::Top(args) => commands::top::top(&args, &root.global),
        Verb::Export(args) => commands::export::export(&args, &root.global),
    };
    exit_code(done)
}

fn exit_code(done: failure::Result<u8>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => print_failure(&failure),
    }
}

/// Prints why the program fails, and gives its exit code.
fn print_failure(failure: &failure::Failure) -> ExitCode {
    output::error(&failure.text(&style::Style::for_stderr()));
    ExitCode::from(failure.exit_code())
}

/// What clap says of arguments, in its own colours; without the secrets that it repeats.
fn refused(wrong: &clap::Error) -> ExitCode {
    let said = wrong.to_string();
    let told = sconce_base::secrets::text(&said);
    if told == said || !wrong.use_stderr() {
        let _ = wrong.print();
    } else {
        output::error(told.trim_end());
    }
    ExitCode::from(wrong.exit_code() as u8)
}
