//! `sconce runs`.

use sconce_report::{json, terminal};
use sconce_schema::exit;

use crate::args::RunsArgs;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;

pub(crate) fn runs(args: &RunsArgs, context: &AppContext) -> Result<u8> {
    let folder = SconceDirs::find(context)?.runs;
    if let Some(keep) = args.prune {
        let gone = sconce_record::prune_runs(&folder, keep)?;
        if !context.quiet {
            output::print_message(&format!("records removed: {}", gone.len()));
        }
    }
    let listing = sconce_record::list_runs(&folder)?;
    output::write_data(&if args.json {
        json::render_run_list(&listing)
    } else {
        let style = terminal::TerminalStyle {
            color: OutputStyle::for_stdout().color,
            // Into a file or a pipe everything goes whole.
            width: OutputStyle::stdout_columns().unwrap_or(u16::MAX),
        };
        terminal::render_run_list(&listing, style)
    })?;
    Ok(exit::OK)
}
