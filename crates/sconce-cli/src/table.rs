//! Columns that stand below each other.

use sconce_base::text::to_printable;

use crate::style::OutputStyle;

const GAP: &str = "  ";
/// A longer cell is cut: it is no name and no version.
const MAX_CELL_CHARS: usize = 60;
/// A column of which less is left on a terminal is left out: half of a time says nothing.
const MIN_COLUMN_WIDTH: usize = "2026-11-22 11:37".len();

/// The rows below their heads, one line each. Cells may hold text from anywhere: what a terminal
/// would obey is not shown.
pub(crate) fn format_table<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    style: &OutputStyle,
) -> String {
    laid(heads, tame(rows, MAX_CELL_CHARS), N, None, style)
}

/// As [`format_table`], of names in the first column and figures in all others, which stand at the right.
pub(crate) fn table_of_figures<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    style: &OutputStyle,
) -> String {
    laid(heads, tame(rows, MAX_CELL_CHARS), 1, None, style)
}

/// The same of rows whose first cell names them and is never cut. What does not fit on a terminal of
/// so many columns is cut or left out, from the last cell on; without a terminal nothing is.
pub(crate) fn format_list<const N: usize>(
    heads: [&str; N],
    rows: &[[String; N]],
    columns: Option<u16>,
    style: &OutputStyle,
) -> String {
    laid(heads, tame(rows, usize::MAX), N, columns, style)
}

fn tame<const N: usize>(rows: &[[String; N]], widest: usize) -> Vec<[String; N]> {
    let row = |row: &[String; N]| row.each_ref().map(|cell| to_printable(cell, widest));
    rows.iter().map(row).collect()
}

/// Columns from `figures` on are figures.
fn laid<const N: usize>(
    heads: [&str; N],
    cells: Vec<[String; N]>,
    figures: usize,
    columns: Option<u16>,
    style: &OutputStyle,
) -> String {
    let mut widths = heads.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    if let Some(columns) = columns {
        fit(&mut widths, usize::from(columns));
    }
    let line = |row: [&str; N]| {
        let shown = row.iter().zip(widths).enumerate();
        let padded = shown
            .filter(|(_, (_, width))| *width > 0)
            .map(|(at, (cell, width))| {
                let cell = to_printable(cell, width);
                match at < figures {
                    true => format!("{cell:width$}"),
                    false => format!("{cell:>width$}"),
                }
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

/// Makes the columns narrower, the last one first; one of no width is left out.
fn fit(widths: &mut [usize], columns: usize) {
    for at in (1..widths.len()).rev() {
        let shown = widths.iter().filter(|width| **width > 0);
        let all: usize = shown.map(|width| width + GAP.len()).sum();
        let over = all.saturating_sub(GAP.len() + columns);
        if over > 0 {
            let left = widths[at].saturating_sub(over);
            widths[at] = if left < MIN_COLUMN_WIDTH { 0 } else { left };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_fits_its_terminal_and_goes_whole_into_a_pipe() {
        let row = |a: &str, b: &str, c: &str| [a.to_owned(), b.to_owned(), c.to_owned()];
        let rows = [row("id-20261122-1137", &"b".repeat(70), "c")];
        let heads = ["RUN", "STATE", "CARDS"];
        let style = OutputStyle { color: false };
        let whole = format_list(heads, &rows, None, &style);
        assert!(
            whole.contains(&"b".repeat(70)) && whole.ends_with("  c"),
            "{whole}"
        );
        let cut = format_list(heads, &rows, Some(40), &style);
        let end = format!("id-20261122-1137  {}…", "b".repeat(21));
        assert_eq!(cut, format!("RUN               STATE\n{end}"));
        // The first column stays, whatever the terminal.
        assert_eq!(
            format_list(heads, &rows, Some(10), &style),
            "RUN\nid-20261122-1137"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let rows = [row("torch", "2.15.0"), row("é\x1b[2J", "–")];
        let text = format_table(["NAME", "NEWEST"], &rows, &OutputStyle { color: false });
        assert_eq!(text, "NAME   NEWEST\ntorch  2.15.0\né [2J  –");
    }

    #[test]
    fn figures_stand_at_the_right() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["all", "1000", ""]), row(["digits", "–", ""])];
        let text = table_of_figures(
            ["PROJECT", "RUNS", ""],
            &rows,
            &OutputStyle { color: false },
        );
        assert_eq!(text, "PROJECT  RUNS\nall      1000\ndigits      –");
    }
}
