//! The simple commands of a shell script, as far as a Dockerfile's `RUN` lines need it (POSIX,
//! "Shell Command Language"). Nothing is run; what depends on the run is marked as such.

use std::collections::BTreeMap;

/// `ARG` and `ENV`, with a bound on what expanding them can produce.
#[derive(Debug, Clone)]
pub(super) struct ShellVariables {
    values: BTreeMap<String, String>,
    /// Bytes that expansion may still produce.
    budget: usize,
}

impl Default for ShellVariables {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            budget: 1 << 20,
        }
    }
}

/// The longest value of a variable, in bytes.
const MAX_VALUE_BYTES: usize = 8 << 10;

impl ShellVariables {
    pub(super) fn set(&mut self, name: &str, value: String) {
        if value.len() <= MAX_VALUE_BYTES && self.values.len() < 2000 {
            self.values.insert(name.to_owned(), value);
        }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let value = self.values.get(name)?;
        self.budget = self.budget.checked_sub(value.len() + 1)?;
        Some(value.clone())
    }

    /// `text` with its variables' values; `${NAME}` stays for one that is not known.
    pub(super) fn expand(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['$', '\\']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix('\\') {
                let next = after.chars().next();
                out.extend(next);
                rest = &after[next.map_or(0, char::len_utf8)..];
            } else {
                let (value, length) = self.variable(rest);
                out.push_str(&value);
                rest = &rest[length..];
            }
        }
        out.push_str(rest);
        out
    }

    /// What stands for the `$…` that `text` begins with, and how long that is.
    fn variable(&mut self, text: &str) -> (String, usize) {
        let after = &text[1..];
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if let Some(inner) = after.strip_prefix('{') {
            let Some(end) = inner.find('}') else {
                return (text.to_owned(), text.len());
            };
            let inner = &inner[..end];
            let length = end + 3;
            let name = &inner[..inner.find(|c| !word(c)).unwrap_or(inner.len())];
            let default = &inner[name.len()..];
            let value = self.take(name);
            let value = match (default.get(..2), value) {
                (_, Some(value)) if default.is_empty() => Some(value),
                (Some(":-"), Some(value)) if !value.is_empty() => Some(value),
                (Some(":-"), _) => Some(default[2..].to_owned()),
                (Some(":+"), Some(value)) if !value.is_empty() => Some(default[2..].to_owned()),
                (Some(":+"), _) => Some(String::new()),
                (_, Some(value)) if default.starts_with('-') => Some(value),
                (_, None) if default.starts_with('-') => Some(default[1..].to_owned()),
                _ => None,
            };
            let value = value.filter(|value| !value.contains('$'));
            return (value.unwrap_or_else(|| text[..length].to_owned()), length);
        }
        if after.starts_with('(') {
            // What a command prints is not known; brackets in quotes are counted too.
            let mut depth = 0_usize;
            for (at, c) in after.char_indices() {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    return ("${…}".to_owned(), at + 2);
                }
            }
            return ("${…}".to_owned(), text.len());
        }
        let end = after.find(|c| !word(c)).unwrap_or(after.len());
        let name = &after[..end];
        if name.is_empty() {
            return ("$".to_owned(), 1);
        }
        let value = self.take(name).unwrap_or_else(|| format!("${{{name}}}"));
        (value, end + 1)
    }
}

/// A simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellCommand {
    /// Where it begins in the script, in bytes.
    pub(super) place: usize,
    /// Without quotes, redirections and assignments.
    pub(super) words: Vec<String>,
    /// `NAME=value` before it.
    pub(super) assignments: Vec<(String, String)>,
    /// Whether it is run depends on another one.
    pub(super) conditional: bool,
    /// Its output or input is another's, or a file's.
    pub(super) redirected: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `;`, `&&`, `||`, `|`, `&`, a line's end, brackets.
    Operator(&'static str),
    /// It takes the word that follows.
    Redirect,
}

/// The commands of `script`, in their order. `sh -c "…"` is not looked into.
pub(super) fn parse_commands(script: &str, variables: &mut ShellVariables) -> Vec<ShellCommand> {
    let mut commands = Vec::new();
    let mut depth = 0_usize;
    let mut or = false;
    let mut open: Option<ShellCommand> = None;
    let mut redirect = false;
    for (place, token) in tokens(script, variables) {
        match token {
            Token::Redirect => {
                redirect = true;
                if let Some(command) = &mut open {
                    command.redirected = true;
                }
            }
            Token::Word(_) if redirect => redirect = false,
            Token::Operator(operator) => {
                redirect = false;
                let mut command = open.take();
                if operator == "|"
                    && let Some(command) = &mut command
                {
                    command.redirected = true;
                }
                commands.extend(command);
                or = match operator {
                    "||" => true,
                    "&&" | "|" => or,
                    _ => false,
                };
            }
            Token::Word(word) => {
                let first = open.as_ref().is_none_or(|c| c.words.is_empty());
                if first {
                    match word.as_str() {
                        "if" | "while" | "until" | "for" | "case" => depth += 1,
                        "fi" | "done" | "esac" => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    let keyword = [
                        "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "esac",
                        "{", "}", "!", "time",
                    ];
                    if keyword.contains(&word.as_str()) {
                        continue;
                    }
                }
                let command = open.get_or_insert_with(|| ShellCommand {
                    place,
                    words: Vec::new(),
                    assignments: Vec::new(),
                    conditional: depth > 0 || or,
                    redirected: false,
                });
                match assignment(&word).filter(|_| first) {
                    Some((name, value)) => command.assignments.push((name, value)),
                    None => command.words.push(word),
                }
            }
        }
    }
    commands.extend(open);
    commands
}

fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (begins && plain).then(|| (name.to_owned(), value.to_owned()))
}

/// `A=1 B="two words"` as `ENV` has it: words with no operators among them.
pub(super) fn parse_assignments(
    text: &str,
    variables: &mut ShellVariables,
) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (word, length) = word(&text[at..], variables, char::is_whitespace);
        at += length.max(1);
        pairs.extend(assignment(&word));
    }
    pairs
}

fn tokens(script: &str, variables: &mut ShellVariables) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = script[at..].chars().next() {
        let rest = &script[at..];
        if c == '\n' {
            tokens.push((at, Token::Operator(";")));
            at += 1;
        } else if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(redirect) = redirect(rest) {
            tokens.push((at, Token::Redirect));
            at += redirect;
        } else if let Some(operator) = operator(rest) {
            tokens.push((at, Token::Operator(operator)));
            at += operator.len();
        } else {
            let ends = |c: char| c.is_whitespace() || ";|&()<>".contains(c);
            let (word, length) = word(rest, variables, ends);
            // A backslash at a line's end alone is nothing.
            if length > 2 || !rest.starts_with("\\\n") {
                tokens.push((at, Token::Word(word)));
            }
            at += length.max(1);
        }
    }
    tokens
}

/// The length of `>`, `2>&1`, `&>`, `<` at the beginning; what it names is the next word.
fn redirect(rest: &str) -> Option<usize> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let after = &rest[digits.min(1)..];
    let length = [
        "&>>", "&>", ">>", ">|", ">&", "<<<", "<<-", "<<", "<&", ">", "<",
    ]
    .iter()
    .find(|sign| after.starts_with(**sign))?
    .len();
    (digits < 2).then_some(digits + length)
}

fn operator(rest: &str) -> Option<&'static str> {
    ["&&", "||", ";;", ";", "|", "&", "(", ")"]
        .into_iter()
        .find(|operator| rest.starts_with(operator))
}

/// The word that `rest` begins with, and its length; outside quotes it ends where `ends` says.
fn word(
    rest: &str,
    variables: &mut ShellVariables,
    ends: impl Fn(char) -> bool,
) -> (String, usize) {
    let mut out = String::new();
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        let after = &rest[at + c.len_utf8()..];
        match c {
            '\'' => {
                let end = after.find('\'').unwrap_or(after.len());
                out.push_str(&after[..end]);
                at += (end + 2).min(rest.len() - at);
            }
            '"' => {
                let end = double_quoted(after);
                out.push_str(&quoted(&after[..end], variables));
                at += (end + 2).min(rest.len() - at);
            }
            '\\' => {
                let next = after.chars().next();
                out.extend(next.filter(|c| *c != '\n'));
                at += 1 + next.map_or(0, char::len_utf8);
            }
            '$' => {
                let (value, length) = variables.variable(&rest[at..]);
                out.push_str(&value);
                at += length;
            }
            '`' => {
                let end = after.find('`').unwrap_or(after.len());
                out.push_str("${…}");
                at += (end + 2).min(rest.len() - at);
            }
            c if ends(c) => break,
            c => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    (out, at)
}

/// Where the closing quote is.
fn double_quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    text.len()
}

/// The inside of double quotes: a backslash stays, but for those before `$`, `"`, `` ` `` and `\`.
fn quoted(text: &str, variables: &mut ShellVariables) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('\\') {
            let next = rest[1..].chars().next();
            match next {
                Some(c @ ('$' | '"' | '`' | '\\')) => out.push(c),
                Some('\n') => {}
                Some(c) => out.extend(['\\', c]),
                None => out.push('\\'),
            }
            rest = &rest[1 + next.map_or(0, char::len_utf8)..];
        } else {
            let (value, length) = variables.variable(rest);
            out.push_str(&value);
            rest = &rest[length..];
        }
    }
    out.push_str(rest);
    out
}

/// Whether a text's words are what a shell would make of them, without knowing more than `RUN`
/// does: one command, nothing that only a run can tell.
pub(super) fn plain_words(script: &str, variables: &mut ShellVariables) -> Option<Vec<String>> {
    let mut all = parse_commands(script, variables);
    let one = all.pop().filter(|_| all.is_empty())?;
    let plain = !one.conditional && !one.redirected && one.assignments.is_empty();
    let unknown = one
        .words
        .iter()
        .any(|word| word.contains(['$', '*', '?', '~']));
    let more = script.trim_end().ends_with('&') || script.contains(['(', '`']);
    (plain && !unknown && !more && !one.words.is_empty()).then_some(one.words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(script: &str) -> Vec<String> {
        let mut variables = ShellVariables::default();
        variables.set("V", "2.6".to_owned());
        parse_commands(script, &mut variables)
            .into_iter()
            .map(|c| {
                let mark = if c.conditional { "? " } else { "" };
                format!("{mark}{}", c.words.join("|"))
            })
            .collect()
    }

    #[test]
    fn scripts_are_lists_of_commands() {
        for (script, expected) in [
            ("a && b; c | d\ne &", &["a", "b", "c", "d", "e"][..]),
            (
                "pip install 'torch>=2' \"x[y]==$V\" z\\ z",
                &["pip|install|torch>=2|x[y]==2.6|z z"],
            ),
            ("pip install torch>=2", &["pip|install|torch"]),
            ("A=1 B=2 pip install x > log 2>&1", &["pip|install|x"]),
            ("a || b && c; d", &["a", "? b", "? c", "d"]),
            (
                "if [ -f x ]; then pip install y; fi; z",
                &["? [|-f|x|]", "? pip|install|y", "z"],
            ),
            (
                "for p in a b; do pip install $p; done; z",
                &["? for|p|in|a|b", "? pip|install|${p}", "z"],
            ),
            (
                "echo $(pip install x) `y` ${V:-z} ${W:-w} '$V'",
                &["echo|${…}|${…}|2.6|w|$V"],
            ),
            ("a # pip install x\nb", &["a", "b"]),
            ("(cd /x && make)", &["cd|/x", "make"]),
            ("{ a; }", &["a"]),
            ("'open", &["open"]),
        ] {
            assert_eq!(words(script), expected, "{script}");
        }
    }

    #[test]
    fn a_command_is_plain_where_a_shell_adds_nothing() {
        let plain = |script| plain_words(script, &mut ShellVariables::default());
        assert_eq!(plain("python train.py --lr 0.1").map(|w| w.len()), Some(4));
        for script in [
            "a && b", "a > b", "A=1 b", "a $B", "a *.py", "a &", "(a)", "", "a | b", "a `b`",
        ] {
            assert_eq!(plain(script), None, "{script}");
        }
    }

    #[test]
    fn variables_do_not_fill_the_memory() {
        let mut variables = ShellVariables::default();
        variables.set("A", "a".repeat(MAX_VALUE_BYTES));
        let all = variables.expand(&"$A".repeat(10_000));
        assert!(all.len() < 2 << 20);
        variables.set("B", "b".repeat(MAX_VALUE_BYTES + 1));
        assert_eq!(variables.expand("$B"), "${B}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-a-z${}()<>=&|;:'\"`#é \n\\\\]{0,80}") {
            let mut variables = ShellVariables::default();
            variables.set("a", "é$".to_owned());
            let all = parse_commands(&text, &mut variables);
            prop_assert!(all.iter().all(|c| text.is_char_boundary(c.place)));
            let _ = variables.expand(&text);
            let _ = plain_words(&text, &mut variables);
        }
    }
}
