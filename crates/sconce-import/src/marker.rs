//! Environment markers (PEP 508), decided for CPython on Linux.

use super::specifier::{evaluate_specifiers, parse_numbers};

/// What markers are decided by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MarkerEnvironment {
    /// CPython's version.
    pub(super) python: [u32; 3],
    /// As the kernel names the architecture.
    pub(super) machine: &'static str,
    /// What `extra` is; none: the empty text.
    pub(super) extras: Vec<String>,
    /// Dependency groups that are asked for (PEP 751).
    pub(super) groups: Vec<String>,
}

/// Markers deeper than this are not decided.
const MAX_DEPTH: usize = 32;
/// Nor are longer ones.
const MAX_MARKER_BYTES: usize = 10_000;

/// Whether the marker holds in `environment`; `None` where that cannot be told.
pub(super) fn evaluate_marker(marker: &str, environment: &MarkerEnvironment) -> Option<bool> {
    if marker.len() > MAX_MARKER_BYTES {
        return None;
    }
    let mut parser = Parser {
        tokens: tokens(marker)?,
        at: 0,
        environment,
    };
    let value = parser.any(0).ok()?;
    (parser.at == parser.tokens.len()).then_some(value)?
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'a> {
    Open,
    Close,
    Word(&'a str),
    Text(&'a str),
    Operator(&'a str),
}

fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '\'' | '"' => {
                let end = rest[1..].find(first)? + 1;
                (Token::Text(&rest[1..end]), end + 1)
            }
            '<' | '>' | '=' | '!' | '~' => {
                let end = rest.find(|c| !"<>=!~".contains(c)).unwrap_or(rest.len());
                (Token::Operator(&rest[..end]), end)
            }
            c if c.is_ascii_alphanumeric() || c == '_' || c == '.' => {
                let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
                let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
            }
            _ => return None,
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

/// The marker is malformed.
struct MalformedMarker;

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    environment: &'a MarkerEnvironment,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        Some(token)
    }

    fn take(&mut self, token: &Token<'_>) -> bool {
        let is = self.tokens.get(self.at) == Some(token);
        self.at += usize::from(is);
        is
    }

    /// Terms joined by `or`: true if one is, unknown if one is that could make it true.
    fn any(&mut self, depth: usize) -> Result<Option<bool>, MalformedMarker> {
        let mut value = self.all(depth)?;
        while self.take(&Token::Word("or")) {
            value = match (value, self.all(depth)?) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            };
        }
        Ok(value)
    }

    fn all(&mut self, depth: usize) -> Result<Option<bool>, MalformedMarker> {
        let mut value = self.term(depth)?;
        while self.take(&Token::Word("and")) {
            value = match (value, self.term(depth)?) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            };
        }
        Ok(value)
    }

    fn term(&mut self, depth: usize) -> Result<Option<bool>, MalformedMarker> {
        if self.take(&Token::Open) {
            if depth >= MAX_DEPTH {
                return Err(MalformedMarker);
            }
            let value = self.any(depth + 1)?;
            return if self.take(&Token::Close) {
                Ok(value)
            } else {
                Err(MalformedMarker)
            };
        }
        let left = self.next().ok_or(MalformedMarker)?;
        let operator = match self.next().ok_or(MalformedMarker)? {
            Token::Operator(operator) | Token::Word(operator @ "in") => operator,
            Token::Word("not") if self.take(&Token::Word("in")) => "not in",
            _ => return Err(MalformedMarker),
        };
        let right = self.next().ok_or(MalformedMarker)?;
        match (left, right) {
            (Token::Word(variable), Token::Text(value)) => {
                Ok(self.compare(variable, operator, value))
            }
            (Token::Text(value), Token::Word(variable)) => {
                let turned = match operator {
                    "<" => ">",
                    ">" => "<",
                    "<=" => ">=",
                    ">=" => "<=",
                    "==" | "!=" => operator,
                    // PEP 751: `'cpu' in extras`
                    "in" | "not in" if matches!(variable, "extras" | "dependency_groups") => {
                        let all = match variable {
                            "extras" => &self.environment.extras,
                            _ => &self.environment.groups,
                        };
                        let is_there = all.iter().any(|one| one == value);
                        return Ok(Some(is_there == (operator == "in")));
                    }
                    // `'win' in sys_platform`
                    "in" => return Ok(self.value(variable).map(|is| is.contains(value))),
                    "not in" => return Ok(self.value(variable).map(|is| !is.contains(value))),
                    _ => return Ok(None),
                };
                Ok(self.compare(variable, turned, value))
            }
            _ => Err(MalformedMarker),
        }
    }

    fn compare(&self, variable: &str, operator: &str, value: &str) -> Option<bool> {
        if variable == "extra" {
            let extras = &self.environment.extras;
            let is_one = extras.iter().any(|extra| extra == value);
            let is_empty = value.is_empty() && extras.is_empty();
            return match operator {
                "==" => Some(is_one || is_empty),
                "!=" => Some(!is_one && !is_empty),
                _ => None,
            };
        }
        let is = self.value(variable)?;
        let versions = [
            "python_version",
            "python_full_version",
            "implementation_version",
        ];
        match operator {
            "in" => Some(value.split([',', ' ']).any(|one| one == is)),
            "not in" => Some(!value.split([',', ' ']).any(|one| one == is)),
            _ if versions.contains(&variable) => {
                evaluate_specifiers(&parse_numbers(&is)?, &format!("{operator}{value}"))
            }
            "==" => Some(is == value),
            "!=" => Some(is != value),
            _ => None,
        }
    }

    fn value(&self, variable: &str) -> Option<String> {
        let value = match variable {
            "sys_platform" => "linux",
            "platform_system" => "Linux",
            "os_name" => "posix",
            "platform_machine" => self.environment.machine,
            "implementation_name" => "cpython",
            "platform_python_implementation" => "CPython",
            "python_version" => {
                let [major, minor, _] = self.environment.python;
                return Some(format!("{major}.{minor}"));
            }
            "python_full_version" | "implementation_version" => {
                return Some(self.environment.python.map(|n| n.to_string()).join("."));
            }
            _ => return None,
        };
        Some(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn environment() -> MarkerEnvironment {
        MarkerEnvironment {
            python: [3, 13, 5],
            machine: "x86_64",
            extras: Vec::new(),
            groups: Vec::new(),
        }
    }

    #[test]
    fn markers_are_decided_for_linux() {
        let holds = |marker| evaluate_marker(marker, &environment());
        for yes in [
            "sys_platform == 'linux'",
            "platform_machine == 'x86_64' and sys_platform == \"linux\"",
            "python_full_version >= '3.12' or sys_platform == 'win32'",
            "(python_version < '3.10' or implementation_name == 'cpython')",
            "'3.10' <= python_version",
            "'linux' in sys_platform",
            "platform_machine in 'x86_64, aarch64'",
            "extra != 'cpu'",
            "sys_platform == 'linux' or platform_release == '5'",
            "python_full_version < '3.14'",
        ] {
            assert_eq!(holds(yes), Some(true), "{yes}");
        }
        for no in [
            "sys_platform == 'darwin'",
            "extra == 'extra-4-demo-cpu'",
            "platform_machine not in 'x86_64 amd64'",
            "platform_release == '5' and os_name == 'nt'",
            "python_version == '3.11.*'",
        ] {
            assert_eq!(holds(no), Some(false), "{no}");
        }
        for unknown in [
            "",
            "platform_release == '5'",
            "sys_platform",
            "sys_platform == ",
            "sys_platform == 'linux",
            "sys_platform = 'linux'",
            "sys_platform == 'linux' 'x'",
            "(sys_platform == 'linux'",
            "python_version > 'three'",
        ] {
            assert_eq!(holds(unknown), None, "{unknown}");
        }
        assert_eq!(holds(&"(".repeat(5000)), None);
    }

    #[test]
    fn what_is_asked_for_by_name_holds() {
        let environment = MarkerEnvironment {
            python: [3, 12, 4],
            machine: "aarch64",
            extras: vec!["cpu".to_owned(), "x".to_owned()],
            groups: vec!["dev".to_owned()],
        };
        let holds = |marker| evaluate_marker(marker, &environment);
        for yes in [
            "extra == 'cpu' and extra == 'x' and extra != 'gpu'",
            "'cpu' in extras and 'gpu' not in extras",
            "'dev' in dependency_groups",
            "platform_machine == 'aarch64' and python_full_version == '3.12.4'",
            "python_version == '3.12'",
        ] {
            assert_eq!(holds(yes), Some(true), "{yes}");
        }
        for no in ["extra == ''", "'cpu' in dependency_groups", "extra != 'x'"] {
            assert_eq!(holds(no), Some(false), "{no}");
        }
        assert_eq!(holds("extra > 'x'"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z_ ()'<=>!.0-9é]{0,80}") {
            let _ = evaluate_marker(&text, &environment());
        }
    }
}
