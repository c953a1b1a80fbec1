//! Faults that the driver reports in the kernel log: `xids.txt`.

use std::str::FromStr;
use std::sync::LazyLock;

use sconce_schema::finding::Weight;

use super::{Source, TableError, rows};

/// What a number means.
#[derive(Debug, Clone, Copy)]
pub struct Xid {
    /// NVIDIA's number.
    pub code: u32,
    /// What it means for the next run.
    pub weight: Weight,
    /// What helps.
    pub remedy: Remedy,
    /// What happened, as the end of a sentence.
    pub meaning: &'static str,
    /// Where that is from.
    pub source: Source,
}

/// What helps after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing needs to be done.
    None,
    /// The program is at fault: it is mended or started again.
    Program,
    /// The card must be reset.
    Reset,
    /// The machine must be started again.
    Reboot,
    /// Somebody must look at the hardware.
    Hardware,
    /// It needs a closer look: `nvidia-bug-report.sh` and the maker.
    Support,
}

impl FromStr for Remedy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "none" => Self::None,
            "program" => Self::Program,
            "reset" => Self::Reset,
            "reboot" => Self::Reboot,
            "hardware" => Self::Hardware,
            "support" => Self::Support,
            _ => return Err(()),
        })
    }
}

static XIDS: LazyLock<Vec<Xid>> =
    LazyLock::new(|| read().expect("the compiled-in table is read by a test"));

fn read() -> Result<Vec<Xid>, TableError> {
    let table = rows::read(include_str!("xids.txt"))?;
    let source = table.sources.values().next().copied();
    let row = |row: &rows::Row<'static>| {
        let weight = match row.text(1)? {
            "fails" => Weight::Fails,
            "warns" => Weight::Warns,
            "notes" => Weight::Notes,
            _ => return Err(row.broken()),
        };
        Ok(Xid {
            code: row.value(0)?,
            weight,
            remedy: row.value(2)?,
            meaning: row.text(3)?,
            source: source.ok_or_else(|| row.broken())?,
        })
    };
    table.rows.iter().map(row).collect()
}

/// What a number means, where the table has it.
#[must_use]
pub fn xid(code: u32) -> Option<&'static Xid> {
    XIDS.iter().find(|row| row.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_each_is_told_once() {
        let rows = read().unwrap();
        assert!(rows.is_sorted_by(|a, b| a.code < b.code));
        assert!(rows.iter().all(|row| !row.meaning.is_empty()));
        assert_eq!(xid(79).map(|row| row.remedy), Some(Remedy::Reboot));
        assert!(xid(9999).is_none());
    }
}
