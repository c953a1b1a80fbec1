//! `sconce shell`.

use super::run::image::{self, Asked};
use super::run::target::Target;
use crate::args::{Global, ShellArgs};
use crate::failure::Result;

pub(crate) fn shell(args: &ShellArgs, global: &Global) -> Result<u8> {
    match Target::of(&args.spec) {
        Target::Spec(spec) => {
            super::run::contained(&spec, &args.flags, &["bash".to_owned()], None, global)
        }
        Target::Image(which) => image::run(&which, &args.flags, Asked::Shell, None, global),
    }
}
