//! `sconce shell`.

use crate::args::{Global, ShellArgs};
use crate::failure::Result;

pub(crate) fn shell(args: &ShellArgs, global: &Global) -> Result<u8> {
    super::run::contained(&args.spec, &args.flags, &["bash".to_owned()], None, global)
}
