//! `sconce report`.

use sconce_report::views::View;
use sconce_report::{Report, json, terminal};
use sconce_schema::exit;

use crate::args::{Global, ReportArgs};
use crate::failure::Result;
use crate::output;
use crate::outputs::{self, Form};
use crate::places::Places;
use crate::style::Style;
use crate::view;

pub(crate) fn report(args: &ReportArgs, global: &Global) -> Result<u8> {
    let page = outputs::find_some(args.html.as_deref(), Form::Text)?;
    outputs::share(&[page.as_ref()], args.json)?;
    let places = Places::find(global)?;
    let path = sconce_record::find(&places.runs, &args.run)?;
    if let Some(page) = page {
        let view = View::of(sconce_record::read(&path)?, view::POINTS);
        outputs::write(page, view::file(&view, view::POINTS).as_bytes(), global)?;
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
