//! Python source, as text: what a program imports and uses of it, and what a setup.py says. Nothing of it is run.

mod attributes;
mod brackets;
mod branches;
mod conditions;
mod imports;
mod lines;
mod values;

pub(super) use attributes::find_attribute_uses;
pub(super) use imports::{ImportStatement, find_imports};

pub(super) use brackets::{bracketed, split_commas};
pub(super) use lines::{LogicalLine, PythonToken, split_logical_lines};
pub(super) use values::{ConstantTable, PythonValue, UNKNOWN_ARGUMENTS, UndecidedList};

/// Larger files are data that is written as code.
pub(super) const MAX_SOURCE_BYTES: usize = 512 << 10;
