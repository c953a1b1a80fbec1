//! `sconce memory`: one file per question.

mod diff;
pub(crate) mod format;
mod page;
mod report;
mod simulate;
mod what_if;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sconce_base::output::OutputDestination;

use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::outputs::{self, OutputForm, VerbFiles};

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Say what filled a card's memory, what leaks and why it ran out, from a PyTorch snapshot.
    Report(report::MemoryReportArgs),
    /// Compare two snapshots.
    Diff(diff::MemoryDiffArgs),
    /// Play a snapshot's history under other allocator settings, and find the best.
    WhatIf(what_if::WhatIfArgs),
    /// Run a program of calls on PyTorch's caching allocator, simulated: no card, no PyTorch.
    Simulate(simulate::SimulateArgs),
}

/// Answers one question about memory.
pub(crate) fn memory(args: &MemoryArgs, context: &AppContext) -> Result<u8> {
    match &args.question {
        Question::Report(args) => report::report_snapshot(args, context),
        Question::Diff(args) => diff::diff_snapshots(args, context),
        Question::WhatIf(args) => what_if::what_if(args, context),
        Question::Simulate(args) => simulate::simulate_program(args, context),
    }
}

/// Finds where a question's page goes, and claims it and the snapshots that it reads.
fn claim_page(
    html: Option<&Path>,
    snapshots: &[PathBuf],
    prints_json: bool,
) -> Result<Option<OutputDestination>> {
    let html = outputs::find_some(html, OutputForm::Text)?;
    VerbFiles {
        outputs: &[html.as_ref()],
        inputs: snapshots,
        prints_json,
        ..VerbFiles::default()
    }
    .claim()?;
    Ok(html)
}
