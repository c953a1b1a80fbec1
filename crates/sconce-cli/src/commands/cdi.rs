//! `sconce cdi`: the cards as other container engines know them. One file per question.

mod check;
mod list;
mod write;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sconce_base::Env;
use sconce_host::Roots;
use sconce_host::cdi::{CdiDevice, CdiFile, CdiPrecedence};

use sconce_app::context::AppContext;
use sconce_app::dirs;
use sconce_app::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct CdiArgs {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// List the devices of all CDI files, and which file an engine takes each from.
    List(list::CdiListArgs),
    /// Describe this machine's cards for Docker, Podman and containerd.
    Write(write::CdiWriteArgs),
    /// Say whether CDI files still describe this machine. Exit code 1 where one does not.
    Check(check::CdiCheckArgs),
}

/// Answers one question about CDI files.
pub(crate) fn cdi(args: &CdiArgs, context: &AppContext) -> Result<u8> {
    match &args.question {
        Question::List(args) => list::list_cdi_devices(args, &context.env),
        Question::Write(args) => write::write_cdi_file(args, context),
        Question::Check(args) => check::check_cdi_files(args, &context.env),
    }
}

/// The folder of the user's own engines. Those of root read the machine's.
fn own_folder(env: &Env) -> Option<PathBuf> {
    match rustix::process::geteuid().is_root() {
        true => None,
        false => dirs::own_cdi(env),
    }
}

/// Every CDI file that an engine of this user may read.
fn files(env: &Env) -> Vec<CdiFile> {
    sconce_host::cdi::read_files(&Roots::default(), own_folder(env).as_deref())
}

/// The other file that has a device too, and why engines do not take the device from this one.
fn standing(device: &CdiDevice) -> Option<(&'static str, &str)> {
    match &device.standing {
        CdiPrecedence::Taken => None,
        CdiPrecedence::Hidden { by } => Some(("hidden", by)),
        CdiPrecedence::Conflict { with } => Some(("conflict", with)),
    }
}
