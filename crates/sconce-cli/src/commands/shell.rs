//! `sconce shell`.

use crate::args::ShellArgs;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::run::image::{self, ImageCommand};
use sconce_app::run::run_source::RunSource;

pub(crate) fn shell(args: &ShellArgs, context: &AppContext) -> Result<u8> {
    match RunSource::from_argument(&args.spec) {
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
