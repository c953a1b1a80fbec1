//! Apache Parquet, in its plainest form (github.com/apache/parquet-format): uncompressed data pages of
//! version 1, values plain, every column optional. Every reader of Parquet reads that.

use std::io::{self, BufRead, Write};

use sconce_record::{RecordError, RecordReader};

use super::cells::{CellValue, ColumnScan, ColumnType};
use super::thrift::{ThriftStruct, write_varint};
use super::{ExportError, ExportSummary, ExportTable, flat, walk};

const MAGIC: &[u8] = b"PAR1";
/// Rows that are held until they are written as a group.
const MAX_GROUP_ROWS: u64 = 16_384;
/// Bytes that are held at most; a page's size is an i32.
const MAX_GROUP_BYTES: usize = 64 << 20;

// The numbers of `parquet.thrift`.
const INT64: i32 = 2;
const BYTE_ARRAY: i32 = 6;
const OPTIONAL: i32 = 1;
const UTF8: i32 = 0;
const UINT_64: i32 = 14;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const UNCOMPRESSED: i32 = 0;
const DATA_PAGE: i32 = 0;

/// Writes a table of a record; `open` opens the record anew each time.
///
/// # Errors
/// [`ExportError`].
pub fn write_parquet<R: BufRead>(
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

    let mut file = File {
        out,
        at: 0,
        kinds: columns.columns.iter().map(|column| column.kind).collect(),
        names: columns
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect(),
        chunks: columns.columns.iter().map(|_| Chunk::default()).collect(),
        held: 0,
        held_bytes: 0,
        groups: Vec::new(),
        rows: 0,
    };
    file.write(MAGIC)?;
    let mut sink = columns.row_writer(|row| file.row(row));
    walk(open()?, lines, |line| {
        flat::write_rows(table, &started, line, &mut sink)
    })?;
    let rows = file.finish(&started.id)?;
    Ok(ExportSummary {
        rows,
        damaged_lines,
        columns_left_out: columns.left_out(),
    })
}

/// The values of one column in the present group.
#[derive(Debug, Default)]
struct Chunk {
    /// Whether each row has a value, as runs: (has one, rows).
    present: Vec<(bool, u64)>,
    values: Vec<u8>,
}

struct File<'a, W> {
    out: &'a mut W,
    /// Bytes written.
    at: u64,
    kinds: Vec<ColumnType>,
    names: Vec<&'a str>,
    chunks: Vec<Chunk>,
    /// Rows in the chunks, and bytes of their values.
    held: u64,
    held_bytes: usize,
    groups: Vec<ThriftStruct>,
    rows: u64,
}

impl<W: Write> File<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn row(&mut self, row: &[Option<CellValue>]) -> io::Result<()> {
        for (chunk, cell) in self.chunks.iter_mut().zip(row) {
            match chunk.present.last_mut() {
                Some((has, rows)) if *has == cell.is_some() => *rows += 1,
                _ => chunk.present.push((cell.is_some(), 1)),
            }
            let before = chunk.values.len();
            match cell {
                None => {}
                Some(CellValue::Number(number)) => chunk.values.extend(number.to_le_bytes()),
                Some(CellValue::Text(text)) => {
                    // A line of a record is shorter than 1 MiB.
                    chunk.values.extend((text.len() as u32).to_le_bytes());
                    chunk.values.extend(text.as_bytes());
                }
            }
            self.held_bytes += chunk.values.len() - before;
        }
        self.held += 1;
        if self.held == MAX_GROUP_ROWS || self.held_bytes >= MAX_GROUP_BYTES {
            self.group()?;
        }
        Ok(())
    }

    /// Writes the rows that are held.
    fn group(&mut self) -> io::Result<()> {
        let rows = self.held;
        let mut columns = Vec::with_capacity(self.chunks.len());
        let mut size = 0;
        for n in 0..self.chunks.len() {
            let chunk = std::mem::take(&mut self.chunks[n]);
            let mut page = levels(&chunk.present);
            page.extend(chunk.values);
            let mut header = ThriftStruct::default();
            header.write_i32(1, DATA_PAGE);
            header.write_i32(2, page.len() as i32);
            header.write_i32(3, page.len() as i32);
            let mut data = ThriftStruct::default();
            data.write_i32(1, rows as i32);
            data.write_i32(2, PLAIN);
            data.write_i32(3, RLE);
            data.write_i32(4, RLE);
            header.write_struct(5, data);

            let begin = self.at;
            self.write(&header.into_bytes())?;
            self.write(&page)?;
            let length = (self.at - begin) as i64;
            size += length;

            let mut about = ThriftStruct::default();
            about.write_i32(1, physical(self.kinds[n]));
            about.write_i32_list(2, &[PLAIN, RLE]);
            about.write_string_list(3, &[self.names[n]]);
            about.write_i32(4, UNCOMPRESSED);
            about.write_i64(5, rows as i64);
            about.write_i64(6, length);
            about.write_i64(7, length);
            about.write_i64(9, begin as i64);
            let mut column = ThriftStruct::default();
            column.write_i64(2, begin as i64);
            column.write_struct(3, about);
            columns.push(column);
        }
        let mut group = ThriftStruct::default();
        group.write_struct_list(1, columns.into_iter());
        group.write_i64(2, size);
        group.write_i64(3, rows as i64);
        self.groups.push(group);
        self.rows += rows;
        self.held = 0;
        self.held_bytes = 0;
        Ok(())
    }

    /// Writes what is held and the file's end; gives the rows of the file.
    fn finish(mut self, id: &str) -> io::Result<u64> {
        if self.held > 0 {
            self.group()?;
        }
        let mut root = ThriftStruct::default();
        root.write_string(4, "schema");
        root.write_i32(5, self.names.len() as i32);
        let columns = self.names.iter().zip(&self.kinds).map(|(name, kind)| {
            let mut column = ThriftStruct::default();
            column.write_i32(1, physical(*kind));
            column.write_i32(3, OPTIONAL);
            column.write_string(4, name);
            column.write_i32(
                6,
                if *kind == ColumnType::Text {
                    UTF8
                } else {
                    UINT_64
                },
            );
            column
        });
        let schema: Vec<ThriftStruct> = std::iter::once(root).chain(columns).collect();
        let mut about_run = ThriftStruct::default();
        about_run.write_string(1, "sconce.run");
        about_run.write_string(2, id);

        let mut end = ThriftStruct::default();
        end.write_i32(1, 1);
        end.write_struct_list(2, schema.into_iter());
        end.write_i64(3, self.rows as i64);
        end.write_struct_list(4, std::mem::take(&mut self.groups).into_iter());
        end.write_struct_list(5, std::iter::once(about_run));
        end.write_string(6, "sconce");
        let end = end.into_bytes();
        self.write(&end)?;
        self.write(&(end.len() as u32).to_le_bytes())?;
        self.write(MAGIC)?;
        Ok(self.rows)
    }
}

fn physical(kind: ColumnType) -> i32 {
    if kind == ColumnType::Text {
        BYTE_ARRAY
    } else {
        INT64
    }
}

/// Definition levels of 0 and 1 as runs of the RLE/bit-packed hybrid, their length before them.
fn levels(runs: &[(bool, u64)]) -> Vec<u8> {
    let mut levels = Vec::new();
    for (has, rows) in runs {
        write_varint(rows << 1, &mut levels);
        levels.push(u8::from(*has));
    }
    let mut page = (levels.len() as u32).to_le_bytes().to_vec();
    page.append(&mut levels);
    page
}
