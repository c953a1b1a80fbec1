//! `sconce report`.

use sconce_report::views::RecordView;
use sconce_report::{RunReport, json, terminal};
use sconce_schema::exit;

use crate::args::{GlobalArgs, ReportArgs};
use crate::failure::Result;
use crate::output;
use crate::outputs::{self, OutputForm};
use crate::places::SconceDirs;
use crate::style::OutputStyle;
use crate::view;

pub(crate) fn report(args: &ReportArgs, global: &GlobalArgs) -> Result<u8> {
    let page = outputs::find_some(args.html.as_deref(), OutputForm::Text)?;
    outputs::share(&[page.as_ref()], args.json)?;
    let places = SconceDirs::find(global)?;
    let path = sconce_record::find(&places.runs, &args.run)?;
    if let Some(page) = page {
        let view = RecordView::of(sconce_record::read(&path)?, view::POINTS);
        outputs::write(page, view::file(&view, view::POINTS).as_bytes(), global)?;
        return Ok(exit::OK);
    }
    let report = RunReport::of(sconce_record::read(&path)?);
    output::data(&if args.json {
        json::report(&report)
    } else {
        terminal::report(&report, OutputStyle::for_stdout().for_reports())
    })?;
    Ok(exit::OK)
}
