//! `sconce shell`.

use super::run::image::{self, ImageCommand};
use super::run::run_source::RunSource;
use crate::args::ShellArgs;
use crate::context::AppContext;
use crate::failure::Result;

pub(crate) fn shell(args: &ShellArgs, context: &AppContext) -> Result<u8> {
    match RunSource::from_argument(&args.spec) {
        RunSource::Spec(spec) => super::run::run_contained(
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
