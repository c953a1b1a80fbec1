//! `sconce report`.

use sconce_report::views::View;
use sconce_report::{Report, json, terminal};
use sconce_schema::exit;

use crate::args::{Global, ReportArgs};
use crate::failure::Result;
use crate::output;
use crate::places::Places;
use crate::style::Style;
use crate::{html, view};

pub(crate) fn report(args: &ReportArgs, global: &Global) -> Result<u8> {
    let places = Places::find(global)?;
    let path = sconce_record::find(&places.runs, &args.run)?;
    if let Some(file) = &args.html {
        let view = View::of(sconce_record::read(&path)?, view::POINTS);
        html::write(file, &view::file(&view, view::POINTS), global)?;
        return Ok(exit::OK);
    }
    let report = Report::of(sconce_record::read(&path)?);
    output::data(&if args.json {
        json::report(&report)
    } else {
        terminal::report(&report, Style::for_stdout().for_reports())
    })?;
    Ok(exit::OK)
}
