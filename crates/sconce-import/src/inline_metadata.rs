//! The requirements that a Python program carries in a comment (PEP 723, now "Inline script metadata" of
//! the PyPA specifications):
//!
//! ```text
//! # /// script
//! # requires-python = ">=3.11"
//! # dependencies = ["torch"]
//! # ///
//! ```

/// Why the metadata of a program cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InlineMetadataError {
    /// The specification asks for an error.
    #[error("it has more than one `# /// script` block")]
    Several,
    /// The block is not TOML.
    #[error("line {line}: the `# /// script` block is not TOML: {why}")]
    Toml {
        /// The block's first line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// The table in the `script` block of a program's text; `None` where there is no such block.
///
/// # Errors
/// [`InlineMetadataError`].
pub fn read_inline_metadata(program: &str) -> Result<Option<toml::Table>, InlineMetadataError> {
    let lines: Vec<&str> = program.lines().map(str::trim_end).collect();
    let mut found = None;
    let mut at = 0;
    while at < lines.len() {
        let Some(end) = find_block_end(&lines, at) else {
            at += 1;
            continue;
        };
        if lines[at] == "# /// script" {
            if found.is_some() {
                return Err(InlineMetadataError::Several);
            }
            found = Some((at, end));
        }
        at = end + 1;
    }
    let Some((start, end)) = found else {
        return Ok(None);
    };
    let content = lines[start + 1..end].iter();
    let content = content.map(|line| line.strip_prefix("# ").unwrap_or_default());
    let text = content.fold(String::new(), |text, line| text + line + "\n");
    let table = text.parse::<toml::Table>();
    table.map(Some).map_err(|error| InlineMetadataError::Toml {
        line: start + 1,
        why: error.message().trim_end().replace('\n', "; "),
    })
}

/// The line that ends the block of any type that begins at `start`: the last `# ///` of the comment.
fn find_block_end(lines: &[&str], start: usize) -> Option<usize> {
    let kind = lines[start].strip_prefix("# /// ")?;
    let is_type = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if kind.is_empty() || !kind.bytes().all(is_type) {
        return None;
    }
    let is_comment = |line: &&&str| **line == "#" || line.starts_with("# ");
    let comment = lines[start + 1..].iter().take_while(is_comment).count();
    let is_end = |line: &usize| *lines[*line] == *"# ///";
    (start + 1..=start + comment).rev().find(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(program: &str) -> Option<Vec<String>> {
        let table = read_inline_metadata(program).unwrap()?;
        let list = table.get("dependencies")?.as_array()?;
        Some(
            list.iter()
                .map(|text| text.as_str().unwrap().to_owned())
                .collect(),
        )
    }

    #[test]
    fn a_block_is_read_wherever_it_stands() {
        let block =
            "# /// script\n# dependencies = [\n#   \"rich\",\n#\n#   \"torch>=2\",\n# ]\n# ///\n";
        let wanted = Some(vec!["rich".to_owned(), "torch>=2".to_owned()]);
        for program in [
            block.to_owned(),
            format!("#!/usr/bin/env python\n\n{block}import rich\n"),
            block.replace('\n', "\r\n"),
            format!("# /// other\n# a = 1\n# ///\n\n{block}"),
        ] {
            assert_eq!(dependencies(&program), wanted, "{program}");
        }
    }

    /// As the reference implementation of the specification has them.
    #[test]
    fn what_is_no_block_is_none() {
        for program in [
            "",
            "import torch\n",
            "# /// script\n# dependencies = []\n",
            "# /// script\ndependencies = []\n# ///\n",
            "# ///script\n# a = 1\n# ///\n",
            " # /// script\n # a = 1\n # ///\n",
            "# /// script\n#a = 1\n# ///\n",
        ] {
            assert_eq!(read_inline_metadata(program), Ok(None), "{program}");
        }
        // The last end of a comment counts.
        let embedded = "# /// script\n# text = \"\"\"\n# ///\n# \"\"\"\n# ///\n";
        let table = read_inline_metadata(embedded).unwrap().unwrap();
        assert_eq!(table["text"].as_str(), Some("///\n"));
    }

    #[test]
    fn two_blocks_and_what_is_no_toml_are_refused() {
        let block = "# /// script\n# a = 1\n# ///\n";
        let twice = format!("{block}\n{block}");
        assert_eq!(
            read_inline_metadata(&twice),
            Err(InlineMetadataError::Several)
        );
        let bad = read_inline_metadata("\n# /// script\n# a = \n# ///\n").unwrap_err();
        assert!(bad.to_string().starts_with("line 2: "), "{bad}");
    }
}
