//! One JSON object with everything: how the run began, its tables, and its other events as they
//! stand in the record. A figure that was not measured is `null`.

use std::io::{self, BufRead, Write};

use sconce_record::{RecordError, RecordReader};
use sconce_schema::event::RecordEvent;

use super::cells::{ColumnType, RowSink};
use super::{ExportError, ExportSummary, ExportTable, flat, walk};

/// The format of the object.
const FORMAT: u32 = 1;

/// Writes a record; `open` opens it anew each time.
///
/// # Errors
/// [`ExportError`].
pub fn write_json<R: BufRead>(
    open: impl Fn() -> Result<RecordReader<R>, RecordError>,
    out: &mut impl Write,
) -> Result<ExportSummary, ExportError> {
    let record = open()?;
    let started = record.started.clone();
    write!(out, "{{\"format\":{FORMAT},\n\"run\":")?;
    serde_json::to_writer(&mut *out, &started).map_err(io::Error::from)?;

    out.write_all(b",\n\"events\":[")?;
    let mut first = true;
    let (lines, damaged_lines) = walk(record, u64::MAX, |line| {
        if matches!(line.event, RecordEvent::Sample(_)) {
            return Ok(());
        }
        out.write_all(separator(&mut first))?;
        Ok(serde_json::to_writer(&mut *out, line)?)
    })?;
    out.write_all(b"]")?;

    let mut rows = 0;
    for (name, table) in [
        ("readings", ExportTable::Readings),
        ("steps", ExportTable::Steps),
        ("processes", ExportTable::Processes),
    ] {
        write!(out, ",\n\"{name}\":[")?;
        let mut sink = Objects {
            out: &mut *out,
            first: true,
            row: serde_json::Map::new(),
            rows: 0,
        };
        walk(open()?, lines, |line| {
            flat::write_rows(table, &started, line, &mut sink)
        })?;
        rows += sink.rows;
        out.write_all(b"]")?;
    }
    out.write_all(b"}\n")?;
    Ok(ExportSummary {
        rows,
        damaged_lines,
        columns_left_out: 0,
    })
}

/// What stands before the next element of an array.
pub(super) fn separator(first: &mut bool) -> &'static [u8] {
    if std::mem::take(first) { b"\n" } else { b",\n" }
}

struct Objects<'a, W> {
    out: &'a mut W,
    first: bool,
    row: serde_json::Map<String, serde_json::Value>,
    rows: u64,
}

impl<W: Write> RowSink for Objects<'_, W> {
    fn number(&mut self, name: &str, _: ColumnType, value: Option<u64>) {
        self.row.insert(name.to_owned(), value.into());
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        self.row.insert(name.to_owned(), value.into());
    }

    fn end(&mut self) -> io::Result<()> {
        self.rows += 1;
        self.out.write_all(separator(&mut self.first))?;
        serde_json::to_writer(&mut *self.out, &self.row)?;
        self.row.clear();
        Ok(())
    }
}
