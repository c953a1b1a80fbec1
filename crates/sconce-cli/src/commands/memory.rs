//! `sconce memory`: what PyTorch's allocator does with a card's memory.

mod diff;
mod report;
mod words;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    verb: MemoryVerb,
}

#[derive(Debug, Subcommand)]
enum MemoryVerb {
    /// Say what filled a card's memory, what leaks and why it ran out, from a PyTorch snapshot.
    Report(report::ReportArgs),
    /// Compare two snapshots.
    Diff(diff::DiffArgs),
}

pub(crate) fn memory(args: &MemoryArgs, global: &Global) -> Result<u8> {
    match &args.verb {
        MemoryVerb::Report(args) => report::report(args, global),
        MemoryVerb::Diff(args) => diff::diff(args, global),
    }
}
