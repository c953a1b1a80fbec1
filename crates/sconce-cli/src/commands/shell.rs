//! `sconce shell`.

use super::run::image::{self, ImageCommand};
use super::run::run_source::RunSource;
use crate::args::{GlobalArgs, ShellArgs};
use crate::failure::Result;

pub(crate) fn shell(args: &ShellArgs, global: &GlobalArgs) -> Result<u8> {
    match RunSource::from_argument(&args.spec) {
        RunSource::Spec(spec) => {
            super::run::run_contained(&spec, &args.flags, &["bash".to_owned()], None, global)
        }
        RunSource::Image(which) => {
            image::run_image(&which, &args.flags, ImageCommand::Shell, None, global)
        }
    }
}
