//! The table of `check`: what runs on which machine.

use std::ops::Range;

use sconce_base::text::to_printable;
use sconce_compat::matrix::{Compatibility, CompatibilityBasis, Matrix, MatrixCell, MatrixRow};
use sconce_compat::tables::SourceQuality;

use crate::style::OutputStyle;
use crate::text_layout::TextLayout;

/// A column for each kind of machine, the reasons below the table, and the newest torch for all.
pub(super) fn render_matrix(matrix: &Matrix, page: &TextLayout) -> String {
    let style = &page.style;
    let kinds = kinds(matrix);
    let heads: Vec<String> = kinds.iter().map(|kind| head(kind, matrix)).collect();
    let name = |row: &MatrixRow| match row.cuda {
        Some(cuda) => format!("{}, CUDA {cuda}", brief(&row.name)),
        None => brief(&row.name),
    };
    let names = matrix.rows.iter().map(|row| name(row).chars().count());
    let first = names.max().unwrap_or(0);
    let mut notes: Vec<String> = Vec::new();
    let texts: Vec<Vec<String>> = matrix
        .rows
        .iter()
        .map(|row| {
            let cells = kinds.iter().filter_map(|kind| row.cells.get(kind[0]));
            cells.map(|cell| shown(cell, &mut notes)).collect()
        })
        .collect();
    let width = |(at, head): (usize, &String)| {
        let cells = texts.iter().filter_map(|row| row.get(at));
        let widest = cells.map(String::len).max().unwrap_or(0);
        head.chars().count().max(widest)
    };
    let widths: Vec<usize> = heads.iter().enumerate().map(width).collect();
    let mut tables: Vec<String> = Vec::new();
    for columns in side_by_side(&widths, first, page.columns) {
        let mut line = " ".repeat(first);
        for at in columns.clone() {
            line += &format!("  {:wide$}", heads[at], wide = widths[at]);
        }
        let mut table = style.dim(line.trim_end());
        for (row, texts) in matrix.rows.iter().zip(&texts) {
            table += &format!("\n{:first$}", name(row));
            for at in columns.clone() {
                let Some((cell, said)) = row.cells.get(kinds[at][0]).zip(texts.get(at)) else {
                    continue;
                };
                table += "  ";
                table += &painted(cell, said, widths[at], style);
            }
            table.truncate(table.trim_end().len());
        }
        tables.push(table);
    }
    let mut text = tables.join("\n\n");
    let leads = matrix.rows.iter().flat_map(|row| &row.cells).any(is_lead);
    if leads || !notes.is_empty() {
        text += "\n";
    }
    for (number, note) in notes.iter().enumerate() {
        let mark = mark(number);
        let indent = mark.len() + 2;
        text += &format!("\n{mark}  {}", page.wrap_text(note, indent, indent));
    }
    if leads {
        text += "\n~  inferred, not measured";
    }
    for (kind, head) in kinds.iter().zip(&heads).filter(|(kind, _)| kind.len() > 1) {
        let mut names: Vec<&str> = kind.iter().map(|&at| &*matrix.machines[at]).collect();
        names.dedup();
        if names.len() > 1 {
            let names = to_printable(&names.join(", "), 10 * super::MAX_NAME_CHARS);
            let line = format!("{head}: {names}");
            text += &format!("\n\n{}", page.wrap_text(&line, 0, 2));
        }
    }
    text + "\n\n" + &page.wrap_text(&newest(matrix), 0, 0)
}

fn newest(matrix: &Matrix) -> String {
    let of = match matrix.left_out.len() {
        0 => "all of them".to_owned(),
        out if out == matrix.machines.len() => {
            return "there is no card that is known to choose a torch for".to_owned();
        }
        out => {
            let judged = matrix.machines.len() - out;
            format!(
                "the {judged} of {} whose card is known",
                matrix.machines.len()
            )
        }
    };
    match &matrix.newest {
        Some(newest) => format!("newest for {of}: {}", newest.to_sentence()),
        None => format!("no torch that is known runs on {of}"),
    }
}

/// Machines with the same cards and driver, of which the same is said, by their places.
fn kinds(matrix: &Matrix) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for at in 0..matrix.machines.len() {
        let same = |kind: &&mut Vec<usize>| {
            let said = |row: &MatrixRow| row.cells.get(kind[0]) == row.cells.get(at);
            matrix.alike.get(kind[0]) == matrix.alike.get(at) && matrix.rows.iter().all(said)
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(at),
            None => kinds.push(vec![at]),
        }
    }
    kinds
}

/// What stands above a column: `H100`, `node1 and 7 more`.
fn head(kind: &[usize], matrix: &Matrix) -> String {
    let first = short(&matrix.machines[kind[0]]);
    match kind.len() {
        1 => first,
        several => format!("{first} and {} more", several - 1),
    }
}

/// Which columns stand beside each other where all are too wide for the terminal.
fn side_by_side(widths: &[usize], first: usize, terminal: Option<usize>) -> Vec<Range<usize>> {
    const GAP: usize = 2;
    let mut tables = Vec::new();
    let (mut begin, mut wide) = (0, first);
    for (at, width) in widths.iter().enumerate() {
        if at > begin && terminal.is_some_and(|most| wide + GAP + width > most) {
            tables.push(begin..at);
            (begin, wide) = (at, first);
        }
        wide += GAP + width;
    }
    tables.push(begin..widths.len());
    tables
}

/// `yes`, `no a`, `yes~`: the letter leads to the reason.
fn shown(cell: &MatrixCell, notes: &mut Vec<String>) -> String {
    let word = match cell.verdict {
        Compatibility::Runs | Compatibility::Warns => "yes",
        Compatibility::Unknown => "?",
        Compatibility::Fails => "no",
    };
    let lead = if is_lead(cell) { "~" } else { "" };
    let instead = cell
        .instead
        .map(|cuda| format!("; built with CUDA {cuda} it runs"));
    let reason = format!("{}{}", cell.reason, instead.unwrap_or_default());
    let reason = to_printable(&reason, super::MAX_NAME_CHARS);
    let mut text = format!("{word}{lead}");
    if !reason.is_empty() {
        let number = notes
            .iter()
            .position(|note| *note == reason)
            .unwrap_or_else(|| {
                notes.push(reason);
                notes.len() - 1
            });
        text += &format!(" {}", mark(number));
    }
    text
}

/// A cell in its colour, and blanks up to its column's width.
fn painted(cell: &MatrixCell, text: &str, width: usize, style: &OutputStyle) -> String {
    let padding = " ".repeat(width.saturating_sub(text.chars().count()));
    let painted = match cell.verdict {
        Compatibility::Fails => style.error(text),
        Compatibility::Warns => style.warn(text),
        Compatibility::Runs | Compatibility::Unknown => text.to_owned(),
    };
    painted + &padding
}

fn is_lead(cell: &MatrixCell) -> bool {
    cell.basis == CompatibilityBasis::Table(SourceQuality::Lead)
}

/// `a` to `z`, then `aa`.
fn mark(number: usize) -> String {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    match number {
        0..26 => letter(number).to_string(),
        _ => format!("{}{}", letter(number / 26 - 1), letter(number)),
    }
}

/// The end of a long path: a table has one column for it.
fn brief(name: &str) -> String {
    const MAX_PATH_CHARS: usize = 32;
    let name = &to_printable(name, super::MAX_NAME_CHARS);
    let ends = name.match_indices('/').map(|(at, _)| &name[at..]);
    let mut short = ends.filter(|end| end.chars().count() < MAX_PATH_CHARS);
    match short.next() {
        Some(end) if name.chars().count() > MAX_PATH_CHARS => format!("…{end}"),
        _ => name.clone(),
    }
}

/// Without what every card's name begins with: `8 × H100`.
fn short(name: &str) -> String {
    let makers = ["NVIDIA ", "GeForce ", "Tesla "];
    let name = to_printable(name, super::MAX_NAME_CHARS);
    let (times, card) = match name.split_once(" × ") {
        Some((times, card)) => (format!("{times} × "), card),
        None => (String::new(), name.as_str()),
    };
    let card = makers
        .iter()
        .find_map(|maker| card.strip_prefix(maker))
        .unwrap_or(card);
    format!("{times}{card}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::CudaVersion;

    #[test]
    fn of_a_long_path_the_end_is_shown() {
        for (name, shown) in [
            ("venv", "venv"),
            ("/a/b", "/a/b"),
            (
                "/home/ada/work/venv/lib/python3.11/site-packages",
                "…/lib/python3.11/site-packages",
            ),
            (&"é".repeat(40), &"é".repeat(40)),
        ] {
            assert_eq!(brief(name), shown);
        }
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let cell = |verdict, reason: &str, sure| MatrixCell {
            verdict,
            reason: reason.to_owned(),
            basis: CompatibilityBasis::Table(sure),
            instead: None,
        };
        let row = |name: &str, cells| MatrixRow {
            name: name.to_owned(),
            cuda: Some(CudaVersion::new(12, 8)),
            cells,
        };
        let runs = cell(Compatibility::Runs, "", SourceQuality::Measured);
        let mut matrix = Matrix {
            machines: vec!["Tesla P100".to_owned(), "8 × NVIDIA H100".to_owned()],
            rows: vec![
                row(
                    "torch 2.7.1",
                    vec![
                        cell(Compatibility::Fails, "no code", SourceQuality::Lead),
                        runs.clone(),
                    ],
                ),
                row(
                    "torch 2.8.0",
                    vec![
                        cell(Compatibility::Fails, "no code", SourceQuality::Measured),
                        runs.clone(),
                    ],
                ),
            ],
            newest: None,
            left_out: Vec::new(),
            alike: vec![0, 1],
        };
        let mut page = TextLayout::for_file();
        assert_eq!(
            render_matrix(&matrix, &page),
            "                        P100   8 × H100
torch 2.7.1, CUDA 12.8  no~ a  yes
torch 2.8.0, CUDA 12.8  no a   yes

a  no code
~  inferred, not measured

no torch that is known runs on all of them"
        );
        matrix.rows = vec![row("torch 2.8.0", vec![runs.clone(), runs])];
        assert_eq!(
            render_matrix(&matrix, &page),
            "                        P100  8 × H100
torch 2.8.0, CUDA 12.8  yes   yes

no torch that is known runs on all of them"
        );
        // Too wide for the terminal: one below the other.
        page.columns = Some(34);
        assert_eq!(
            render_matrix(&matrix, &page),
            "                        P100
torch 2.8.0, CUDA 12.8  yes

                        8 × H100
torch 2.8.0, CUDA 12.8  yes

no torch that is known runs on all
of them"
        );
        // A fleet of equal machines, and one without a card.
        page.columns = None;
        let mut row = matrix.rows[0].clone();
        let nothing = cell(Compatibility::Unknown, "no card", SourceQuality::Measured);
        row.cells = vec![row.cells[0].clone(), nothing, row.cells[0].clone()];
        let names = ["node1", "login", "node2"];
        let fleet = Matrix {
            machines: names.map(str::to_owned).to_vec(),
            rows: vec![row],
            newest: None,
            left_out: vec!["login".to_owned()],
            alike: vec![0, 1, 0],
        };
        assert_eq!(
            render_matrix(&fleet, &page),
            "                        node1 and 1 more  login
torch 2.8.0, CUDA 12.8  yes               ? a

a  no card

node1 and 1 more: node1, node2

no torch that is known runs on the 2 of 3 whose card is known"
        );
    }
}
