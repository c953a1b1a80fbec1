//! Jupyter's notebooks (nbformat 3 and 4): the cells that install something.

use serde::Deserialize;

use super::super::readme::ReadmeBlock;

/// Cells that are read of one notebook.
const MAX_CELLS: usize = 500;

#[derive(Deserialize)]
struct Notebook {
    #[serde(default)]
    cells: Vec<NotebookCell>,
}

#[derive(Deserialize)]
struct NotebookCell {
    #[serde(default)]
    cell_type: String,
    #[serde(default)]
    source: CellSource,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CellSource {
    Lines(Vec<String>),
    Text(String),
}

impl Default for CellSource {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// The lines of cells that begin with `%` or `!`: what a shell gets. A block's line is the number of its cell;
/// all of a cell stand on one.
pub(super) fn read_install_cells(text: &str) -> Vec<ReadmeBlock> {
    let Ok(notebook) = serde_json::from_str::<Notebook>(text) else {
        return Vec::new();
    };
    let code = notebook.cells.into_iter().enumerate();
    let code = code
        .filter(|(_, cell)| cell.cell_type == "code")
        .take(MAX_CELLS);
    code.filter_map(|(number, cell)| {
        let text = match cell.source {
            CellSource::Lines(lines) => lines.concat(),
            CellSource::Text(text) => text,
        };
        let commands: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with(['!', '%']) && !line.starts_with("%%"))
            .filter(|line| line.contains("install"))
            .collect();
        (!commands.is_empty()).then(|| ReadmeBlock {
            line: number + 1,
            text: commands
                .join(" ; ")
                .replace("; !", "; ")
                .replace("; %", "; "),
            headings: Vec::new(),
            lead: String::new(),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_code_cells_are_read() {
        let text = r##"{"cells": [{"cell_type": "markdown", "source": ["!pip install a"]},
            {"cell_type": "code", "source": ["import os\n", "!pip install -q b\n", "%pip install c"]},
            {"cell_type": "code", "source": "print(1)"}, {"odd": 1}], "nbformat": 4}"##;
        let blocks = read_install_cells(text);
        assert_eq!(blocks.len(), 1);
        assert_eq!(
            (blocks[0].line, blocks[0].text.as_str()),
            (2, "!pip install -q b ; pip install c")
        );
        for text in ["", "[]", "{\"cells\": 1}", "{\"cells\": [1]}"] {
            assert_eq!(read_install_cells(text), [], "{text}");
        }
    }
}
