//! One file per verb.

pub(crate) mod init;
pub(crate) mod lock;
mod opened;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod shell;
