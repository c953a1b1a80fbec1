//! `sconce shell`.

use crate::args::ShellArgs;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::job::allocated_run::{call_on_first_node, is_outside_of_its_nodes};
use sconce_app::run::image::{self, ImageCommand};
use sconce_app::run::run_source::RunSource;

pub(crate) fn shell(args: &ShellArgs, context: &AppContext) -> Result<u8> {
    let source = RunSource::from_argument(&args.spec);
    if is_outside_of_its_nodes(&context.env) {
        let spec = match &source {
            RunSource::Spec(spec) => Some(spec.as_path()),
            RunSource::Image(_) => None,
        };
        let own: Vec<String> = std::env::args().skip(1).collect();
        return call_on_first_node(spec, &args.flags.to_overrides(), &own, context);
    }
    match source {
        RunSource::Spec(spec) => sconce_app::run::run_contained(
            &spec,
            &args.flags.to_overrides(),
            &["bash".to_owned()],
            None,
            context,
        ),
        RunSource::Image(which) => image::run_image(
            &which,
            &args.flags.to_overrides(),
            ImageCommand::Shell,
            None,
            context,
        ),
    }
}
