//! The tables' form: one row a line, its kind first, cells between bars.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::{SourceQuality, TableError, TableSource};

/// A row: `toolkit 12.4 | 550.54.14 | release-notes` has the kind `toolkit` and three cells.
pub(super) struct TableRow<'a> {
    pub(super) kind: &'a str,
    pub(super) cells: Vec<&'a str>,
    pub(super) line: usize,
}

/// A table's rows and its sources by key.
pub(super) struct TableRows<'a> {
    pub(super) rows: Vec<TableRow<'a>>,
    pub(super) sources: BTreeMap<&'a str, TableSource>,
}

/// Splits a table's text.
pub(super) fn parse_table(text: &'static str) -> Result<TableRows<'static>, TableError> {
    let mut rows = Vec::new();
    let mut sources = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let broken = || TableError {
            line: at + 1,
            text: line.to_owned(),
        };
        let (kind, rest) = line.split_once(' ').ok_or_else(broken)?;
        if kind == "source" {
            let mut words = rest.splitn(3, ' ');
            let (Some(key), Some(sure), Some(what)) = (words.next(), words.next(), words.next())
            else {
                return Err(broken());
            };
            let sure = sure.parse::<SourceQuality>().map_err(|()| broken())?;
            sources.insert(key, TableSource { sure, what });
            continue;
        }
        rows.push(TableRow {
            kind,
            cells: rest.split('|').map(str::trim).collect(),
            line: at + 1,
        });
    }
    Ok(TableRows { rows, sources })
}

impl<'a> TableRow<'a> {
    /// What is wrong with this row.
    pub(super) fn to_error(&self) -> TableError {
        TableError {
            line: self.line,
            text: self.cells.join(" | "),
        }
    }

    /// A cell's text.
    pub(super) fn text(&self, at: usize) -> Result<&'a str, TableError> {
        self.cells.get(at).copied().ok_or_else(|| self.to_error())
    }

    /// A cell that must hold a value.
    pub(super) fn value<T: FromStr>(&self, at: usize) -> Result<T, TableError> {
        self.text(at)?.parse().map_err(|_| self.to_error())
    }

    /// A cell that may be empty.
    pub(super) fn option<T: FromStr>(&self, at: usize) -> Result<Option<T>, TableError> {
        match self.text(at)? {
            "" => Ok(None),
            _ => self.value(at).map(Some),
        }
    }

    /// A cell of several values with spaces between them.
    pub(super) fn values<T: FromStr>(&self, at: usize) -> Result<Vec<T>, TableError> {
        let words = self.text(at)?.split_whitespace();
        let values: Result<_, _> = words.map(str::parse).collect();
        values.map_err(|_| self.to_error())
    }

    /// The row's source, from the cell that holds its key.
    pub(super) fn source(
        &self,
        at: usize,
        sources: &BTreeMap<&str, TableSource>,
    ) -> Result<TableSource, TableError> {
        let found = sources.get(self.text(at)?);
        found.copied().ok_or_else(|| self.to_error())
    }
}
