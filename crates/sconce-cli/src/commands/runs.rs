//! `sconce runs`.

use sconce_report::{json, terminal};
use sconce_schema::exit;

use crate::args::{Global, RunsArgs};
use crate::failure::Result;
use crate::output;
use crate::places::Places;
use crate::style::Style;

pub(crate) fn runs(args: &RunsArgs, global: &Global) -> Result<u8> {
    let listing = sconce_record::list(&Places::find(global)?.runs)?;
    output::data(&if args.json {
        json::runs(&listing)
    } else {
        terminal::runs(&listing, Style::for_stdout().for_reports())
    });
    Ok(exit::OK)
}
