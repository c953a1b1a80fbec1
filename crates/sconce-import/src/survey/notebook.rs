//! Jupyter's notebooks (nbformat 3 and 4): the cells that install something.

use serde::Deserialize;

use super::super::python::{ImportStatement, find_imports};
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

impl CellSource {
    fn text(self) -> String {
        match self {
            Self::Lines(lines) => lines.concat(),
            Self::Text(text) => text,
        }
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
        let text = cell.source.text();
        let is_shell = is_shell_cell(&text);
        let commands: Vec<String> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("%%") && (is_shell || line.starts_with(['!', '%'])))
            .filter(|line| line.contains("install") && !line.starts_with('#'))
            // IPython puts the value there.
            .map(|line| line.replace("{sys.executable}", "python"))
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

/// Whether all of a cell is the shell's (IPython's cell magics).
fn is_shell_cell(text: &str) -> bool {
    let first = text.trim_start().lines().next().unwrap_or_default();
    let mut words = first.split_whitespace();
    let shells = ["bash", "sh", "shell"];
    match words.next() {
        Some("%%script" | "%%system") => words.next().is_none_or(|word| shells.contains(&word)),
        Some(word) => shells
            .iter()
            .any(|shell| word.strip_prefix("%%") == Some(shell)),
        None => false,
    }
}

/// What the cells of code import, each with the number of its cell.
pub(super) fn read_imports(text: &str) -> Vec<ImportStatement> {
    let Ok(notebook) = serde_json::from_str::<Notebook>(text) else {
        return Vec::new();
    };
    let cells = notebook.cells.into_iter().enumerate().take(MAX_CELLS);
    let code = cells.filter(|(_, cell)| cell.cell_type == "code");
    code.flat_map(|(number, cell)| {
        let text = cell.source.text();
        // Those are the shell's and the notebook's.
        let python = text
            .lines()
            .filter(|line| !line.trim_start().starts_with(['!', '%']));
        let python: String = python.flat_map(|line| [line, "\n"]).collect();
        let numbered = move |one: ImportStatement| ImportStatement {
            line: number + 1,
            ..one
        };
        find_imports(&python).into_iter().map(numbered)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_code_cells_are_read() {
        let text = r##"{"cells": [{"cell_type": "markdown", "source": "import a"},
            {"cell_type": "code", "source": ["%matplotlib inline\n", "import b\n", "!ls\n", "from c import d"]}]}"##;
        let found = read_imports(text);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.line, one.module.as_str()))
            .collect();
        assert_eq!(found, [(2, "b"), (2, "c")]);
    }

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
        let text = r##"{"cells": [{"cell_type": "code", "source": "!{sys.executable} -m pip install a"},
            {"cell_type": "code", "source": "%%bash -e\n# install\ncd x\npip install b"},
            {"cell_type": "code", "source": "%%html\npip install c"}]}"##;
        let blocks = read_install_cells(text);
        let found: Vec<_> = blocks
            .iter()
            .map(|one| (one.line, one.text.as_str()))
            .collect();
        assert_eq!(
            found,
            [(1, "!python -m pip install a"), (2, "pip install b")]
        );
        for text in ["", "[]", "{\"cells\": 1}", "{\"cells\": [1]}"] {
            assert_eq!(read_install_cells(text), [], "{text}");
        }
    }
}
