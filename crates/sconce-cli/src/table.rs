//! Columns that stand below each other.

use sconce_resolve::upkeep::printable;

use crate::style::Style;

const GAP: &str = "  ";
/// A longer cell is cut: it is no name and no version.
const WIDEST: usize = 60;

/// The rows below their heads, one line each. Cells may hold text from anywhere: what a terminal
/// would obey is not shown.
pub(crate) fn table<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    style: &Style,
) -> String {
    aligned(heads, rows, N, style)
}

/// As [`table`], of names in the first column and figures in all others, which stand at the right.
pub(crate) fn table_of_figures<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    style: &Style,
) -> String {
    aligned(heads, rows, 1, style)
}

/// Columns from `figures` on are figures.
fn aligned<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    figures: usize,
    style: &Style,
) -> String {
    let cells = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| printable(cell, WIDEST)));
    let cells: Vec<[String; N]> = cells.collect();
    let mut widths = heads.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: [&str; N]| {
        let padded = row
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(at, (cell, width))| match at < figures {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            });
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let head = style.dim(&line(heads));
    let lines = cells
        .iter()
        .map(|row| line(row.each_ref().map(String::as_str)));
    std::iter::once(head)
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let rows = [row("torch", "2.15.0"), row("é\x1b[2J", "–")];
        let text = table(["NAME", "NEWEST"], &rows, &Style { color: false });
        assert_eq!(text, "NAME   NEWEST\ntorch  2.15.0\né [2J  –");
    }

    #[test]
    fn figures_stand_at_the_right() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["all", "1000", ""]), row(["digits", "–", ""])];
        let text = table_of_figures(["PROJECT", "RUNS", ""], &rows, &Style { color: false });
        assert_eq!(text, "PROJECT  RUNS\nall      1000\ndigits      –");
    }
}
