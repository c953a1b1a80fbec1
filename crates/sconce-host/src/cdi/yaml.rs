//! The part of YAML that CDI files are made of: maps, lists, texts. Aliases are refused, so that
//! nothing can be larger than the file.

use saphyr_parser::{Event, Parser, StrInput};
use serde_json::{Map, Value};

/// Deeper than any CDI file.
const MAX_DEPTH: usize = 16;
/// More values than a file for eight split cards has.
const MAX_VALUES: usize = 200_000;

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

/// A value as YAML that any reader takes the same way: every text in quotes, which are JSON's.
pub(super) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => entries(map, 0, &mut out),
        Value::Array(list) if !list.is_empty() => items(list, 0, &mut out),
        plain => out = format!("{plain}\n"),
    }
    out
}

fn entries(map: &Map<String, Value>, depth: usize, out: &mut String) {
    for (at, (key, value)) in map.iter().enumerate() {
        // The first stands behind the dash of its list.
        if at > 0 || depth == 0 || out.ends_with('\n') {
            indent(depth, out);
        }
        out.push_str(&format!("{}:", Value::from(key.as_str())));
        nested(value, depth, out);
    }
}

fn items(list: &[Value], depth: usize, out: &mut String) {
    for value in list {
        indent(depth, out);
        out.push('-');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                entries(map, depth + 1, out);
            }
            value => nested(value, depth, out),
        }
    }
}

fn nested(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            entries(map, depth + 1, out);
        }
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            items(list, depth + 1, out);
        }
        plain => out.push_str(&format!(" {plain}\n")),
    }
}

fn indent(depth: usize, out: &mut String) {
    out.push_str(&"  ".repeat(depth));
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
        if self.values > MAX_VALUES {
            return unread("more values than are read");
        }
        if depth > MAX_DEPTH {
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
            parse(&"- a\n".repeat(MAX_VALUES + 1)),
            Err(YamlError::Unread { .. })
        ));
        assert!(matches!(parse("a: [1"), Err(YamlError::Syntax { .. })));
    }

    #[test]
    fn what_is_written_is_blocks() {
        let value = json!({ "a": "0.5.0", "b": [{ "c": "x: #y\n", "d": ["e", {}], "f": { "g": "h" } }, []] });
        let expected = "\
\"a\": \"0.5.0\"
\"b\":
  - \"c\": \"x: #y\\n\"
    \"d\":
      - \"e\"
      - {}
    \"f\":
      \"g\": \"h\"
  - []
";
        assert_eq!(super::to_string(&value), expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = "[ -~é\\n\\t\u{1}\u{2028}]{0,12}".prop_map(Value::from);
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~é]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in values()) {
            prop_assert_eq!(parse(&super::to_string(&value)), Ok(value));
        }

        #[test]
        fn no_text_panics(text in "[-a:?*&!|>#'\"{}\\[\\], \n%@é]{0,120}") {
            let _ = parse(&text);
        }
    }
}
