//! `sconce runs`.

use sconce_report::{json, terminal};
use sconce_schema::exit;

use crate::args::{Global, RunsArgs};
use crate::failure::Result;
use crate::output;
use crate::places::Places;
use crate::style::Style;

pub(crate) fn runs(args: &RunsArgs, global: &Global) -> Result<u8> {
    let folder = Places::find(global)?.runs;
    if let Some(keep) = args.prune {
        let gone = sconce_record::prune(&folder, keep)?;
        if !global.quiet {
            output::say(&format!("records removed: {}", gone.len()));
        }
    }
    let listing = sconce_record::list(&folder)?;
    output::data(&if args.json {
        json::runs(&listing)
    } else {
        let style = terminal::Style {
            color: Style::for_stdout().color,
            // Into a file or a pipe everything goes whole.
            width: Style::stdout_columns().unwrap_or(u16::MAX),
        };
        terminal::runs(&listing, style)
    })?;
    Ok(exit::OK)
}
