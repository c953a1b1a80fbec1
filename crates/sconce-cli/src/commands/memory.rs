//! `sconce memory`: one file per question.

mod simulate;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Run a program of calls on PyTorch's caching allocator, simulated: no card, no PyTorch.
    Simulate(simulate::SimulateArgs),
}

/// Answers one question about memory.
pub(crate) fn memory(args: &MemoryArgs, global: &Global) -> Result<u8> {
    match &args.question {
        Question::Simulate(args) => simulate::simulate(args, global),
    }
}
