//! Logical lines and tokens of Python (The Python Language Reference, "Lexical analysis"), read tolerantly:
//! every text has some, of whatever version of Python it is.

/// More tokens than any file that people write has.
const MAX_TOKENS: usize = 200_000;

/// A statement, or the head of a compound one, with its indentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogicalLine<'a> {
    /// Where it begins, from 1.
    pub(crate) line: usize,
    /// Columns before it, a tab to the next multiple of eight.
    pub(crate) indent: usize,
    pub(crate) tokens: Vec<PythonToken<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PythonToken<'a> {
    /// A name or a keyword.
    Name(&'a str),
    Number(&'a str),
    /// What a string literal stands for; that of an f-string as it is written.
    Text(String),
    /// An operator or a delimiter, one character each.
    Sign(char),
}

impl<'a> PythonToken<'a> {
    pub(crate) fn is_sign(&self, sign: char) -> bool {
        *self == PythonToken::Sign(sign)
    }

    pub(crate) fn as_name(&self) -> Option<&'a str> {
        match self {
            PythonToken::Name(name) => Some(name),
            _ => None,
        }
    }
}

/// Takes `text` apart. Brackets and backslashes join lines, a semicolon parts one.
pub(crate) fn split_logical_lines(text: &str) -> Vec<LogicalLine<'_>> {
    let mut reader = SourceReader {
        text,
        at: 0,
        line: 1,
        tokens: 0,
    };
    let mut lines = Vec::new();
    while reader.at < text.len() && reader.tokens < MAX_TOKENS {
        reader.read_line(&mut lines);
    }
    lines
}

/// A line that has anything on it. What Python 3.15 is told to import when it is first used (PEP 810,
/// `lazy import a`) is imported as well: the word is left out.
fn finished(mut line: LogicalLine<'_>) -> Option<LogicalLine<'_>> {
    if let [
        PythonToken::Name("lazy"),
        PythonToken::Name("import" | "from"),
        ..,
    ] = &line.tokens[..]
    {
        line.tokens.remove(0);
    }
    (!line.tokens.is_empty()).then_some(line)
}

struct SourceReader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    tokens: usize,
}

impl<'a> SourceReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// One logical line, or several that semicolons part.
    fn read_line(&mut self, lines: &mut Vec<LogicalLine<'a>>) {
        let indent = self.skip_indent();
        let mut current = LogicalLine {
            line: self.line,
            indent,
            tokens: Vec::new(),
        };
        let mut depth = 0_usize;
        while let Some(c) = self.rest().chars().next() {
            if self.tokens >= MAX_TOKENS {
                break;
            }
            match c {
                '\n' => {
                    self.at += 1;
                    self.line += 1;
                    if depth == 0 {
                        break;
                    }
                }
                '#' => {
                    let end = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += end;
                }
                '\\' => self.skip_continuation(),
                c if c.is_whitespace() || c == '\u{feff}' => self.at += c.len_utf8(),
                ';' if depth == 0 => {
                    self.at += 1;
                    let line = self.line;
                    let done = std::mem::replace(
                        &mut current,
                        LogicalLine {
                            line,
                            indent,
                            tokens: Vec::new(),
                        },
                    );
                    lines.extend(finished(done));
                }
                c => {
                    if current.tokens.is_empty() {
                        current.line = self.line;
                    }
                    match c {
                        '(' | '[' | '{' => depth += 1,
                        ')' | ']' | '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    let token = self.read_token(c);
                    self.tokens += 1;
                    current.tokens.push(token);
                }
            }
        }
        lines.extend(finished(current));
    }

    fn skip_indent(&mut self) -> usize {
        let mut columns = 0;
        for c in self.rest().chars() {
            match c {
                ' ' => columns += 1,
                '\t' => columns = columns / 8 * 8 + 8,
                '\u{c}' => columns = 0,
                '\u{feff}' => {}
                _ => break,
            }
            self.at += c.len_utf8();
        }
        columns
    }

    fn skip_continuation(&mut self) {
        self.at += 1;
        let rest = self.rest();
        let rest = rest.strip_prefix('\r').unwrap_or(rest);
        if rest.starts_with('\n') {
            self.at = self.text.len() - rest.len() + 1;
            self.line += 1;
        }
    }

    fn read_token(&mut self, first: char) -> PythonToken<'a> {
        let rest = self.rest();
        let end_of = |is: &dyn Fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        if first == '"' || first == '\'' {
            return self.read_text("");
        }
        if first.is_alphabetic() || first == '_' {
            let end = end_of(&|c: char| c.is_alphanumeric() || c == '_');
            let name = &rest[..end];
            let prefix = name.len() <= 2 && name.chars().all(|c| "rRbBuUfFtT".contains(c));
            if prefix && rest[end..].starts_with(['"', '\'']) {
                self.at += end;
                return self.read_text(name);
            }
            self.at += end;
            return PythonToken::Name(name);
        }
        if first.is_ascii_digit() {
            let end = end_of(&|c: char| c.is_alphanumeric() || c == '_' || c == '.');
            self.at += end;
            return PythonToken::Number(&rest[..end]);
        }
        self.at += first.len_utf8();
        PythonToken::Sign(first)
    }

    /// A string literal behind its prefix. One that does not end goes to the end of its line, or of the text
    /// where it has three quotes.
    fn read_text(&mut self, prefix: &str) -> PythonToken<'a> {
        let rest = self.rest();
        let quote = &rest[..1];
        let triple = quote.repeat(3);
        let long = rest.starts_with(&triple);
        let opening = if long { 3 } else { 1 };
        let as_written = prefix.contains(['r', 'R', 'f', 'F', 't', 'T']);
        let body = &rest[opening..];
        let mut value = String::new();
        let mut chars = body.char_indices();
        let mut end = body.len();
        let mut closing = 0;
        while let Some((at, c)) = chars.next() {
            if long && body[at..].starts_with(&triple) || !long && body[at..].starts_with(quote) {
                (end, closing) = (at, opening);
                break;
            }
            match c {
                '\n' if !long => {
                    end = at;
                    break;
                }
                '\\' => {
                    let Some((_, next)) = chars.next() else { break };
                    match next {
                        _ if as_written => value.extend(['\\', next]),
                        '\n' => {}
                        'n' => value.push('\n'),
                        't' => value.push('\t'),
                        '\\' | '\'' | '"' => value.push(next),
                        next => value.extend(['\\', next]),
                    }
                }
                c => value.push(c),
            }
        }
        self.line += body[..end].matches('\n').count();
        self.at += opening + end + closing;
        PythonToken::Text(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn show(text: &str) -> Vec<String> {
        let shown = |token: &PythonToken<'_>| match token {
            PythonToken::Name(name) | PythonToken::Number(name) => (*name).to_owned(),
            PythonToken::Text(text) => format!("'{text}'"),
            PythonToken::Sign(sign) => sign.to_string(),
        };
        split_logical_lines(text)
            .iter()
            .map(|line| {
                let tokens: Vec<String> = line.tokens.iter().map(shown).collect();
                format!("{} {} {}", line.line, line.indent, tokens.join(" "))
            })
            .collect()
    }

    #[test]
    fn lines_are_joined_and_parted_as_in_python() {
        for (text, expected) in [
            ("a = 1 # x\n\nb", &["1 0 a = 1", "3 0 b"][..]),
            ("f(\n  a,  # x\n b)\nc", &["1 0 f ( a , b )", "4 0 c"]),
            ("a = \\\n  b\nc", &["1 0 a = b", "3 0 c"]),
            (
                "if x: import a; import b",
                &["1 0 if x : import a", "1 0 import b"],
            ),
            ("  x\n\ty", &["1 2 x", "2 8 y"]),
            ("'''a\nb''' ; c", &["1 0 'a\nb'", "2 0 c"]),
            (
                "r'\\d' 'it\\'s' f'{a}' 'open\nz",
                &["1 0 '\\d' 'it's' '{a}' 'open'", "2 0 z"],
            ),
            ("x = [\n", &["1 0 x = ["]),
            ("x)\ny", &["1 0 x )", "2 0 y"]),
            (
                "lazy import a; lazy from b import c\nlazy = 1\nlazy (a)",
                &[
                    "1 0 import a",
                    "1 0 from b import c",
                    "2 0 lazy = 1",
                    "3 0 lazy ( a )",
                ],
            ),
            ("", &[]),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z'\"\\\\#(){}\\[\\];:é\u{feff} \t\r\n=,.0-9]{0,120}") {
            let lines = text.split('\n').count();
            for line in split_logical_lines(&text) {
                prop_assert!(line.line >= 1 && line.line <= lines);
            }
        }
    }
}
