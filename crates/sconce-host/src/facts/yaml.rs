//! The part of YAML that CDI files are made of: maps, lists, texts. Aliases are refused, so that
//! nothing can be larger than the file.

use saphyr_parser::{Event, Parser, StrInput};
use serde_json::{Map, Value};

/// Deeper than any CDI file.
const DEEPEST: usize = 16;
/// More values than a file for eight split cards has.
const MOST: usize = 200_000;

/// Why a text is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum YamlError {
    /// No YAML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The parser's words.
        message: String,
    },
    /// YAML, and not of this part.
    #[error("line {line} has {what}, which is not read")]
    Unread {
        /// Counted from 1.
        line: usize,
        /// What it is.
        what: &'static str,
    },
}

/// The first document, every scalar as text; null where there is none.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        values: 0,
    };
    loop {
        match reader.next()? {
            (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Value::Null),
            (Event::StreamStart | Event::DocumentStart(_), _) => {}
            (event, line) => return reader.value(event, line, 0),
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), YamlError> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(YamlError::Syntax {
                line: error.marker().line().max(1),
                message: error.info().chars().take(200).collect(),
            }),
            None => Ok((Event::StreamEnd, 1)),
        }
    }

    fn value(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Value, YamlError> {
        let unread = |what| Err(YamlError::Unread { line, what });
        self.values += 1;
        if self.values > MOST {
            return unread("more values than are read");
        }
        if depth > DEEPEST {
            return unread("something nested too deeply");
        }
        match event {
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => return Ok(Value::Array(list)),
                        (event, line) => list.push(self.value(event, line, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Map::new();
                loop {
                    let (event, line) = self.next()?;
                    let key = match event {
                        Event::MappingEnd => return Ok(Value::Object(map)),
                        Event::Scalar(text, ..) => text.into_owned(),
                        _ => {
                            let what = "a key that is no text";
                            return Err(YamlError::Unread { line, what });
                        }
                    };
                    let (event, line) = self.next()?;
                    map.insert(key, self.value(event, line, depth + 1)?);
                }
            }
            Event::Alias(_) => unread("an alias (`*name`)"),
            _ => unread("something strange"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn values_are_texts() {
        let found = parse("---\na: 0.4.0\nb:\n- c: \"755\"\n  d:\n- []\n").unwrap();
        let expected = json!({ "a": "0.4.0", "b": [{ "c": "755", "d": "" }, []] });
        // What follows a key without a value is a null, which is an empty text here.
        let shown = found.to_string().replace("\"~\"", "\"\"");
        assert_eq!(shown, expected.to_string());
        assert_eq!(parse(""), Ok(Value::Null));
    }

    #[test]
    fn bombs_are_refused() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\n";
        let what = "an alias (`*name`)";
        assert_eq!(parse(bomb), Err(YamlError::Unread { line: 2, what }));
        for deep in ["[", "{a: ", "- ", "? "] {
            assert!(parse(&deep.repeat(20_000)).is_err(), "{deep}");
        }
        assert!(matches!(
            parse(&"- a\n".repeat(MOST + 1)),
            Err(YamlError::Unread { .. })
        ));
        assert!(matches!(parse("a: [1"), Err(YamlError::Syntax { .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-a:?*&!|>#'\"{}\\[\\], \n%@é]{0,120}") {
            let _ = parse(&text);
        }
    }
}
