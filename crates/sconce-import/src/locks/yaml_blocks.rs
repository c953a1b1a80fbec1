//! Large YAML that tools write, read in parts: a block is found by its indentation, and only what is wanted of it
//! is handed to the YAML reader, which holds all that it is given in many times its size.

use crate::ImportError;
use crate::yaml::{self, YamlNode};

/// The largest part that is read at once: no package of a lock has as much.
const MAX_PART_BYTES: usize = 64 << 10;
/// Values of one part.
const MAX_PART_VALUES: usize = 5000;

/// Some lines of a file with one indentation, and what is below them.
#[derive(Debug, Clone, Copy)]
pub(super) struct YamlBlock<'a> {
    text: &'a str,
    /// The number of the first line, from 1.
    pub(super) line: usize,
}

impl<'a> YamlBlock<'a> {
    /// A whole file.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, line: 1 }
    }

    fn indentation(self) -> usize {
        let first = self.text.lines().find(|line| !is_filler(line));
        first.map_or(0, indentation_of)
    }

    /// What is below `key:`, where it is a block of its own.
    pub(super) fn child(self, key: &str) -> Option<Self> {
        self.children()
            .find(|(name, _)| *name == key)
            .map(|(_, block)| block)
    }

    /// The keys whose values are blocks, each with its block.
    pub(super) fn children(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.split(|line| {
            let key = line.trim_end().strip_suffix(':')?;
            Some(key.trim_matches(['\'', '"']))
        })
        .filter_map(|(key, whole)| {
            let key = key?;
            let (_, below) = whole.text.split_once('\n')?;
            let line = whole.line + 1;
            Some((key, Self { text: below, line }))
        })
    }

    /// The value of `key: value` on one line.
    pub(super) fn text_of(self, key: &str) -> Option<&'a str> {
        let indentation = self.indentation();
        let mut lines = self.text.lines();
        lines.find_map(|line| {
            let rest = line
                .get(indentation..)?
                .strip_prefix(key)?
                .strip_prefix(':')?;
            Some(rest.trim().trim_matches(['\'', '"']))
        })
    }

    /// The elements of a list.
    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        self.split(|line| line.starts_with('-').then_some(line))
            .filter(|(first, _)| first.is_some())
            .map(|(_, item)| item)
    }

    /// Its text, to look into it before it is read.
    pub(super) fn as_text(self) -> &'a str {
        self.text
    }

    /// The element of a list that it is.
    ///
    /// # Errors
    /// It is no YAML, or larger than any such element.
    pub(super) fn parse_item(self) -> Result<Option<YamlNode>, ImportError> {
        let unread = |what| ImportError::Unread {
            line: self.line,
            what,
        };
        if self.text.len() > MAX_PART_BYTES {
            return Err(unread("so large an entry"));
        }
        let node = yaml::parse(self.text, MAX_PART_VALUES).map_err(|error| match error {
            ImportError::Yaml { line, message } => ImportError::Yaml {
                line: line + self.line - 1,
                message,
            },
            ImportError::Unread { line, what } => ImportError::Unread {
                line: line + self.line - 1,
                what,
            },
            other => other,
        })?;
        Ok(node.and_then(|node| node.as_list().first().cloned()))
    }

    /// Parts at the lines of its own indentation: each with what `begin` makes of its first line. A list may stand
    /// at the indentation of its key.
    fn split<T>(
        self,
        begin: impl Fn(&'a str) -> Option<T>,
    ) -> impl Iterator<Item = (Option<T>, Self)> {
        let indentation = self.indentation();
        let is_list = self.text.lines().find(|line| !is_filler(line));
        let is_list = is_list.is_some_and(|line| line.trim_start().starts_with('-'));
        let mut rest = self;
        std::iter::from_fn(move || {
            if rest.text.is_empty() {
                return None;
            }
            let mut end = 0;
            let mut count = 0;
            for line in rest.text.split_inclusive('\n') {
                let is_own = !is_filler(line)
                    && (indentation_of(line) < indentation
                        || indentation_of(line) == indentation
                            && (is_list || !line.trim_start().starts_with('-')));
                if is_own && end > 0 {
                    break;
                }
                end += line.len();
                count += 1;
            }
            let (part, after) = rest.text.split_at(end);
            let block = Self {
                text: part,
                line: rest.line,
            };
            rest = Self {
                text: after,
                line: rest.line + count,
            };
            let first = part.lines().next().unwrap_or_default();
            let first = (indentation_of(first) == indentation).then(|| first.trim_start());
            Some((first.and_then(&begin), block))
        })
    }
}

/// Nothing, or a comment.
fn is_filler(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line == "---"
}

fn indentation_of(line: &str) -> usize {
    line.bytes().take_while(|b| *b == b' ').count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# made\nversion: 6\nenvironments:\n  default:\n    channels:\n    - url: a\n    packages:\n      linux-64:\n      - conda: x\n      - pypi: y\n      win-64:\n      - conda: z\npackages:\n- conda: x\n  sha256: 01\n- pypi: y\n  requires_dist:\n  - numpy\n";

    #[test]
    fn blocks_are_found_by_their_indentation() {
        let root = YamlBlock::new(TEXT);
        assert_eq!(root.text_of("version"), Some("6"));
        let platforms = root
            .child("environments")
            .and_then(|all| all.child("default"));
        let platforms = platforms.and_then(|one| one.child("packages")).unwrap();
        let names: Vec<&str> = platforms.children().map(|(name, _)| name).collect();
        assert_eq!(names, ["linux-64", "win-64"]);
        let linux: Vec<&str> = platforms
            .child("linux-64")
            .unwrap()
            .items()
            .map(|item| item.as_text().trim())
            .collect();
        assert_eq!(linux, ["- conda: x", "- pypi: y"]);
        let packages: Vec<YamlBlock<'_>> = root.child("packages").unwrap().items().collect();
        assert_eq!((packages.len(), packages[1].line), (2, 16));
        let node = packages[1].parse_item().unwrap().unwrap();
        assert_eq!(node.get("pypi").and_then(YamlNode::as_text), Some("y"));
        assert_eq!(node.get("requires_dist").unwrap().as_list().len(), 1);
        assert!(root.child("gone").is_none());
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let root = YamlBlock::new("packages:\n- a: b\n- a: [\n");
        let items: Vec<YamlBlock<'_>> = root.child("packages").unwrap().items().collect();
        assert!(items[0].parse_item().is_ok());
        match items[1].parse_item() {
            Err(ImportError::Yaml { line, .. }) => assert!(line >= 3, "{line}"),
            other => panic!("{other:?}"),
        }
        let large = format!("packages:\n- a: [{}]\n", "a,".repeat(100_000));
        let item = YamlBlock::new(&large)
            .child("packages")
            .unwrap()
            .items()
            .next();
        let error = item.unwrap().parse_item().unwrap_err();
        assert!(matches!(error, ImportError::Unread { line: 2, .. }));
    }

    proptest! {
        #[test]
        fn every_line_is_in_one_part(text in "[-a: \n#é]{0,80}") {
            let block = YamlBlock::new(&text);
            let lines: usize = block.split(Some).map(|(_, part)| part.text.split_inclusive('\n').count()).sum();
            prop_assert_eq!(lines, text.split_inclusive('\n').count());
            for item in block.items() {
                let _ = item.parse_item();
            }
            for (_, child) in block.children() {
                let _ = child.text_of("a");
            }
        }
    }
}
