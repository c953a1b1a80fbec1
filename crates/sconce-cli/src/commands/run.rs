//! `sconce run`.

use std::path::{Path, PathBuf};

use sconce_app::context::AppContext;
use sconce_app::detach::{self, DetachOutcome};
use sconce_app::failure::Result;
use sconce_app::job::allocated_run::{AllocatedRunOptions, NodeCount, run_in_allocation};
use sconce_app::outputs::{self, OutputForm, VerbFiles, inputs};
use sconce_app::project::Project;
use sconce_app::run::image::{self, ImageCommand};
use sconce_app::run::run_source::{ImageLocation, RunSource};
use sconce_app::run::{RunWorkload, contained_as, on_host};
use sconce_app::script::is_script;
use sconce_schema::exit;

use super::init;
use crate::args::RunArgs;
use crate::output;

pub(crate) fn run(args: &RunArgs, context: &AppContext) -> Result<u8> {
    // Found before the command begins, and not looked for again: what it leaves under that name, or on the way to
    // it, is not followed.
    let find = |file: &PathBuf| match args.detach {
        true => outputs::find_in_background(file, OutputForm::Text),
        false => outputs::find_beside_command(file, OutputForm::Text),
    };
    let json = args.json.as_ref().map(find).transpose()?;
    if json.is_some() {
        VerbFiles {
            outputs: &[json.as_ref()],
            inputs: &inputs_of(args),
            ..VerbFiles::default()
        }
        .claim()?;
    }
    if !args.host
        && let RunSource::Spec(folder) = RunSource::from_argument(&args.spec)
    {
        init::ensure_spec(&folder, args.init, context)?;
    }
    if let Some(nodes) = args.allocation.nodes {
        return run_on_nodes(args, nodes, context);
    }
    if args.detach && !context.holds_run() {
        return match detach::start_background_run(context)? {
            DetachOutcome::Ended(code) => Ok(code),
            DetachOutcome::Begun(id) => {
                output::write_data(&id)?;
                Ok(exit::OK)
            }
        };
    }
    if args.host {
        on_host(
            &args.flags.to_overrides(),
            &args.command,
            json,
            None,
            context,
        )
    } else {
        match RunSource::from_argument(&args.spec) {
            RunSource::Spec(spec) => {
                let command = command_of(&spec, &args.command)?;
                let asked = match args.services {
                    true => RunWorkload::Both(&command),
                    false => RunWorkload::Command(&command),
                };
                contained_as(
                    &spec,
                    &args.flags.to_overrides(),
                    asked,
                    json,
                    None,
                    context,
                )
            }
            RunSource::Image(which) => image::run_image(
                &which,
                &args.flags.to_overrides(),
                ImageCommand::Command(&args.command),
                json,
                context,
            ),
        }
    }
}

/// The command as it is given; for a program, its own with these arguments.
fn command_of(spec: &Path, given: &[String]) -> Result<Vec<String>> {
    match is_script(spec) {
        true => Ok([Project::open(spec)?.spec.run.command, given.to_vec()].concat()),
        false => Ok(given.to_vec()),
    }
}

/// In an allocation, on several of its nodes.
fn run_on_nodes(args: &RunArgs, nodes: NodeCount, context: &AppContext) -> Result<u8> {
    let wanted = AllocatedRunOptions {
        nodes,
        ranks_per_node: args.allocation.ranks_per_node,
        launch: args.allocation.launch,
    };
    let command = command_of(&args.spec, &args.command)?;
    let overrides = args.flags.to_overrides();
    run_in_allocation(&args.spec, &overrides, &command, &wanted, context)
}

/// What is read before the command runs: what that reads itself, it alone knows.
fn inputs_of(args: &RunArgs) -> Vec<PathBuf> {
    if args.host {
        return Vec::new();
    }
    match RunSource::from_argument(&args.spec) {
        RunSource::Spec(spec) => inputs::of_spec(&spec),
        RunSource::Image(ImageLocation::There(source)) => inputs::of_image(&source),
        RunSource::Image(ImageLocation::Named(_)) => Vec::new(),
    }
}
