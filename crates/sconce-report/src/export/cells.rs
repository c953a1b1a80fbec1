//! Cells of a table: who makes rows and who takes them.

use std::collections::HashMap;
use std::io;

/// Of a hostile record, a table has no more columns than this.
const MOST_COLUMNS: usize = 4096;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A figure that stands for itself.
    Gauge,
    /// A figure that counts since the beginning.
    Counter,
    /// A word.
    Text,
}

/// One cell that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Text(String),
}

/// Takes rows, cell by cell.
pub(super) trait Cells {
    /// A number, or its absence.
    fn number(&mut self, name: &str, kind: Kind, value: Option<u64>);
    /// A word, or its absence.
    fn text(&mut self, name: &str, value: Option<&str>);
    /// The row is whole.
    fn end(&mut self) -> io::Result<()>;

    fn gauge(&mut self, name: &str, value: Option<u64>) {
        self.number(name, Kind::Gauge, value);
    }

    fn counter(&mut self, name: &str, value: Option<u64>) {
        self.number(name, Kind::Counter, value);
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// Finds out which columns a table has, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    places: HashMap<String, usize>,
    left_out: std::collections::BTreeSet<String>,
}

impl Columns {
    fn see(&mut self, name: &str, kind: Kind) {
        if self.places.contains_key(name) {
            return;
        }
        if self.columns.len() == MOST_COLUMNS {
            if self.left_out.len() < MOST_COLUMNS {
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

    /// Columns that there was no room for; no more than [`MOST_COLUMNS`] are counted.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Gives each whole row to `take`: one cell a column.
    pub(super) fn rows<F: FnMut(&[Option<Value>]) -> io::Result<()>>(
        &self,
        take: F,
    ) -> Rows<'_, F> {
        Rows {
            columns: self,
            row: vec![None; self.columns.len()],
            take,
        }
    }
}

impl Cells for Columns {
    fn number(&mut self, name: &str, kind: Kind, _: Option<u64>) {
        self.see(name, kind);
    }

    fn text(&mut self, name: &str, _: Option<&str>) {
        self.see(name, Kind::Text);
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows of known columns.
pub(super) struct Rows<'a, F> {
    columns: &'a Columns,
    row: Vec<Option<Value>>,
    take: F,
}

impl<F> Rows<'_, F> {
    fn put(&mut self, name: &str, value: Option<Value>) {
        if let Some(&place) = self.columns.places.get(name) {
            self.row[place] = value;
        }
    }
}

impl<F: FnMut(&[Option<Value>]) -> io::Result<()>> Cells for Rows<'_, F> {
    fn number(&mut self, name: &str, _: Kind, value: Option<u64>) {
        self.put(name, value.map(Value::Number));
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        self.put(name, value.map(|text| Value::Text(text.to_owned())));
    }

    fn end(&mut self) -> io::Result<()> {
        (self.take)(&self.row)?;
        self.row.fill(None);
        Ok(())
    }
}
