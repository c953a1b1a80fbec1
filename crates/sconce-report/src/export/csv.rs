//! Comma-separated values (RFC 4180), in UTF-8, with one line of names.

use std::io::{self, BufRead, Write};

use sconce_record::{RecordError, RecordReader};

use super::cells::{CellValue, ColumnScan};
use super::{ExportError, ExportSummary, ExportTable, flat, walk};

/// Writes a table of a record; `open` opens the record anew each time.
///
/// # Errors
/// [`ExportError`].
pub fn write_csv<R: BufRead>(
    open: impl Fn() -> Result<RecordReader<R>, RecordError>,
    table: ExportTable,
    out: &mut impl Write,
) -> Result<ExportSummary, ExportError> {
    let mut columns = ColumnScan::default();
    let record = open()?;
    let started = record.started.clone();
    flat::declare_columns(table, &started, &mut columns)?;
    let (lines, damaged_lines) = walk(record, u64::MAX, |line| {
        flat::write_rows(table, &started, line, &mut columns)
    })?;

    for (n, column) in columns.columns.iter().enumerate() {
        out.write_all(if n == 0 { b"" } else { b"," })?;
        name(&column.name, out)?;
    }
    out.write_all(b"\r\n")?;
    let mut rows = 0;
    let mut sink = columns.row_writer(|row| {
        rows += 1;
        for (n, cell) in row.iter().enumerate() {
            out.write_all(if n == 0 { b"" } else { b"," })?;
            match cell {
                None => {}
                Some(CellValue::Number(number)) => write!(out, "{number}")?,
                Some(CellValue::Text(text)) => quoted(text, out)?,
            }
        }
        out.write_all(b"\r\n")
    });
    walk(open()?, lines, |line| {
        flat::write_rows(table, &started, line, &mut sink)
    })?;
    Ok(ExportSummary {
        rows,
        damaged_lines,
        columns_left_out: columns.left_out(),
    })
}

/// A column's name: as it is where it has nothing but letters, digits and `._-`, else as a word. Parts of
/// names come from the record.
fn name(name: &str, out: &mut impl Write) -> io::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.chars().all(plain) && !name.starts_with('-') {
        return out.write_all(name.as_bytes());
    }
    quoted(name, out)
}

/// A word in quotation marks: an empty one is not a missing one. What a spreadsheet would take for a
/// formula gets an apostrophe before it (OWASP, "CSV Injection"): names of processes are anyone's.
fn quoted(text: &str, out: &mut impl Write) -> io::Result<()> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let mark = if formula { "'" } else { "" };
    write!(out, "\"{mark}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_are_fields_and_no_formulas() {
        let told = |write: fn(&str, &mut Vec<u8>) -> io::Result<()>, text: &str| {
            let mut out = Vec::new();
            write(text, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        for (text, field) in [
            ("card.0.power_mw", "card.0.power_mw"),
            ("card.0.a,b", "\"card.0.a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("=1+1", "\"'=1+1\""),
            ("-1", "\"'-1\""),
            ("a\nb", "\"a\nb\""),
        ] {
            assert_eq!(told(name, text), field);
        }
        assert_eq!(told(quoted, "@x"), "\"'@x\"");
        assert_eq!(told(quoted, "\n=x"), "\"'\n=x\"");
        assert_eq!(told(quoted, ""), "\"\"");
    }
}
