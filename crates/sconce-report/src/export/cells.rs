//! Cells of a table: who makes rows and who takes them.

use std::collections::HashMap;
use std::io;

/// Of a hostile record, a table has no more columns than this.
const MAX_COLUMNS: usize = 4096;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// A figure that stands for itself.
    Gauge,
    /// A figure that counts since the beginning.
    Counter,
    /// A word.
    Text,
}

/// One cell that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CellValue {
    Number(u64),
    Text(String),
}

/// Takes rows, cell by cell.
pub(super) trait RowSink {
    /// A number, or its absence.
    fn number(&mut self, name: &str, kind: ColumnType, value: Option<u64>);
    /// A word, or its absence.
    fn text(&mut self, name: &str, value: Option<&str>);
    /// The row is whole.
    fn end(&mut self) -> io::Result<()>;

    fn gauge(&mut self, name: &str, value: Option<u64>) {
        self.number(name, ColumnType::Gauge, value);
    }

    fn counter(&mut self, name: &str, value: Option<u64>) {
        self.number(name, ColumnType::Counter, value);
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: ColumnType,
}

/// Finds out which columns a table has, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct ColumnScan {
    pub(super) columns: Vec<Column>,
    places: HashMap<String, usize>,
    left_out: std::collections::BTreeSet<String>,
}

impl ColumnScan {
    fn see(&mut self, name: &str, kind: ColumnType) {
        if self.places.contains_key(name) {
            return;
        }
        if self.columns.len() == MAX_COLUMNS {
            if self.left_out.len() < MAX_COLUMNS {
                self.left_out.insert(name.to_owned());
            }
            return;
        }
        self.places.insert(name.to_owned(), self.columns.len());
        self.columns.push(Column {
            name: name.to_owned(),
            kind,
        });
    }

    /// Columns that there was no room for; no more than [`MAX_COLUMNS`] are counted.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Gives each whole row to `take`: one cell a column.
    pub(super) fn row_writer<F: FnMut(&[Option<CellValue>]) -> io::Result<()>>(
        &self,
        take: F,
    ) -> RowWriter<'_, F> {
        RowWriter {
            columns: self,
            row: vec![None; self.columns.len()],
            take,
        }
    }
}

impl RowSink for ColumnScan {
    fn number(&mut self, name: &str, kind: ColumnType, _: Option<u64>) {
        self.see(name, kind);
    }

    fn text(&mut self, name: &str, _: Option<&str>) {
        self.see(name, ColumnType::Text);
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows of known columns.
pub(super) struct RowWriter<'a, F> {
    columns: &'a ColumnScan,
    row: Vec<Option<CellValue>>,
    take: F,
}

impl<F> RowWriter<'_, F> {
    fn put(&mut self, name: &str, value: Option<CellValue>) {
        if let Some(&place) = self.columns.places.get(name) {
            self.row[place] = value;
        }
    }
}

impl<F: FnMut(&[Option<CellValue>]) -> io::Result<()>> RowSink for RowWriter<'_, F> {
    fn number(&mut self, name: &str, _: ColumnType, value: Option<u64>) {
        self.put(name, value.map(CellValue::Number));
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        self.put(name, value.map(|text| CellValue::Text(text.to_owned())));
    }

    fn end(&mut self) -> io::Result<()> {
        (self.take)(&self.row)?;
        self.row.fill(None);
        Ok(())
    }
}
