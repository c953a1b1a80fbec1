//! The part of YAML that tools' files are made of: maps, lists, texts. Aliases are refused, so that no value can
//! be larger than the file.

use saphyr_parser::{Event, Parser};

use super::ImportError;

/// A value with the line that it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlNode {
    pub(super) line: usize,
    pub(super) value: YamlValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum YamlValue {
    /// Numbers and nulls too, as they are written.
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<(String, YamlNode)>),
}

/// Deeper than any file that is read.
const MAX_DEPTH: usize = 16;

impl YamlNode {
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> &[YamlNode] {
        match &self.value {
            YamlValue::List(list) => list,
            _ => &[],
        }
    }

    pub(super) fn as_map(&self) -> &[(String, YamlNode)] {
        match &self.value {
            YamlValue::Map(map) => map,
            _ => &[],
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        let pair = self.as_map().iter().find(|(name, _)| name == key)?;
        Some(&pair.1)
    }
}

/// The first document of `text`, of `max_values` at most; `None` for an empty one.
pub(super) fn parse(text: &str, max_values: usize) -> Result<Option<YamlNode>, ImportError> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        values: 0,
        max_values,
    };
    loop {
        let (event, line) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(None),
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::DocumentEnd => return Ok(None),
            event => return reader.node(event, line, 0).map(Some),
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    values: usize,
    max_values: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), ImportError> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(ImportError::Yaml {
                line: error.marker().line().max(1),
                message: super::note::redacted_line(error.info()),
            }),
            None => Ok((Event::StreamEnd, 1)),
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        line: usize,
        depth: usize,
    ) -> Result<YamlNode, ImportError> {
        self.values += 1;
        let unread = |what| ImportError::Unread { line, what };
        if self.values > self.max_values {
            return Err(unread("a file with so many values"));
        }
        if depth > MAX_DEPTH {
            return Err(unread("anything nested so deeply"));
        }
        let value = match event {
            Event::Scalar(text, ..) => YamlValue::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break YamlValue::List(list),
                        (event, line) => list.push(self.node(event, line, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, _) => break YamlValue::Map(map),
                        (Event::Scalar(text, ..), _) => text.into_owned(),
                        (_, line) => {
                            let what = "a key that is no text";
                            return Err(ImportError::Unread { line, what });
                        }
                    };
                    let (event, line) = self.next()?;
                    map.push((key, self.node(event, line, depth + 1)?));
                }
            }
            Event::Alias(_) => return Err(unread("an alias (`*name`)")),
            _ => return Err(unread("this")),
        };
        Ok(YamlNode { line, value })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_VALUES: usize = 1000;

    fn parse(text: &str) -> Result<Option<YamlNode>, ImportError> {
        super::parse(text, MAX_VALUES)
    }

    #[test]
    fn values_have_their_lines() {
        let root = parse("name: net\nlist:\n  - a=1\n  - b: [c, 'd']\n")
            .unwrap()
            .unwrap();
        assert_eq!(root.get("name").and_then(YamlNode::as_text), Some("net"));
        let list = root.get("list").unwrap().as_list();
        assert_eq!((list[0].line, list[0].as_text()), (3, Some("a=1")));
        assert_eq!(list[1].get("b").unwrap().as_list()[1].as_text(), Some("d"));
        assert_eq!(parse(""), Ok(None));
        let empty = parse("# nothing\n---\n").unwrap();
        assert_eq!(empty.as_ref().and_then(YamlNode::as_text), Some(""));
    }

    #[test]
    fn bombs_are_refused() {
        let mut text = "a: &a [x, x]\n".to_owned();
        for level in 'b'..='z' {
            let below = char::from_u32(u32::from(level) - 1).unwrap();
            text += &format!("{level}: &{level} [*{below}, *{below}]\n");
        }
        assert_eq!(
            parse(&text),
            Err(ImportError::Unread {
                line: 2,
                what: "an alias (`*name`)"
            })
        );
        for deep in ["[", "{a: ", "- ", "? "] {
            assert!(parse(&deep.repeat(20_000)).is_err(), "{deep}");
        }
        let wide = "- a\n".repeat(MAX_VALUES + 1);
        assert!(matches!(parse(&wide), Err(ImportError::Unread { .. })));
        assert!(matches!(parse("a: [1"), Err(ImportError::Yaml { .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-a:?*&!|>#'\"{}\\[\\], \n%@é]{0,120}") {
            let _ = parse(&text);
        }
    }
}
