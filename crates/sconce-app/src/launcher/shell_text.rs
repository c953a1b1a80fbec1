//! The simple commands of a text of shell, as far as they can be told without running it (POSIX, Shell Command
//! Language, 2.3 and 2.9): all that stand there, whether they are reached or not.

use std::collections::BTreeMap;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellWord {
    /// The word without its quotes; what is expanded stands as it is written.
    pub(super) text: String,
    /// Whether a part of it is what a shell makes of a variable or another command.
    pub(super) is_expanded: bool,
}

impl ShellWord {
    /// A word that says what it is.
    pub(super) fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            is_expanded: false,
        }
    }

    /// The last part of it as a path.
    pub(super) fn base_name(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or_default()
    }
}

/// What a text of shell runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShellText {
    /// Its simple commands, without assignments, redirections and the words of the language.
    pub(super) commands: Vec<Vec<ShellWord>>,
    /// Whether its quotes are closed.
    pub(super) is_whole: bool,
}

/// Words before which no command is over, and behind which one may begin.
const RESERVED: [&str; 12] = [
    "!", "{", "}", "if", "then", "else", "elif", "fi", "while", "until", "do", "done",
];
/// Programs of the shell that assign.
const ASSIGNING: [&str; 5] = ["declare", "export", "local", "readonly", "typeset"];

/// Reads a text of shell that has `arguments`, which are what `"$@"` stands for. A variable that the text sets itself
/// is what it was set to last before.
pub(super) fn read_shell_text(text: &str, arguments: &[ShellWord]) -> ShellText {
    let mut reader = Reader {
        chars: text.chars().collect(),
        at: 0,
        words: Vec::new(),
        commands: Vec::new(),
        documents: Vec::new(),
    };
    let is_whole = reader.read().is_some();
    let mut variables = BTreeMap::new();
    let commands = reader.commands.into_iter();
    let commands = commands.map(|words| simplify(words, arguments, &mut variables));
    ShellText {
        commands: commands.filter(|words| !words.is_empty()).collect(),
        is_whole,
    }
}

/// Whether a word assigns to a variable.
pub(super) fn is_assignment(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.trim_end_matches('+').chars().all(is_part)
    })
}

/// A command without what only the language says, with its first word as what it stands for. Keeps what is assigned.
fn simplify(
    words: Vec<ShellWord>,
    arguments: &[ShellWord],
    variables: &mut BTreeMap<String, String>,
) -> Vec<ShellWord> {
    let mut words = words.as_slice();
    let is_assigning = |word: &ShellWord| ASSIGNING.contains(&word.text.as_str());
    while let Some((first, rest)) = words.split_first() {
        let text = first.text.as_str();
        match text.split_once('=').filter(|_| is_assignment(text)) {
            Some((name, value)) => {
                variables.insert(name.to_owned(), value.to_owned());
            }
            None if ["for", "select", "case", "in", "function"].contains(&text) => {
                return Vec::new();
            }
            None if RESERVED.contains(&text) || is_assigning(first) => {}
            None => break,
        }
        words = rest;
    }
    let mut whole = Vec::new();
    let mut has_arguments = false;
    for (at, word) in words.iter().enumerate() {
        let name = variable_of(&word.text).filter(|_| word.is_expanded);
        // Whatever stands before a command stands for several words.
        match name {
            Some("@" | "*") if !has_arguments => {
                has_arguments = true;
                whole.extend(arguments.iter().cloned());
            }
            Some(name) if at == 0 || whole.first().is_some_and(is_before_command) => {
                match variables.get(name) {
                    Some(value) => whole.extend(value.split_whitespace().map(|part| ShellWord {
                        text: part.to_owned(),
                        is_expanded: part.contains(['$', '`']),
                    })),
                    None => whole.push(word.clone()),
                }
            }
            _ => whole.push(word.clone()),
        }
    }
    whole
}

fn is_before_command(word: &ShellWord) -> bool {
    ["eval", "exec", "time", "nohup"].contains(&word.text.as_str())
}

/// The variable that a word is: `$NAME`, `${NAME}`.
fn variable_of(word: &str) -> Option<&str> {
    let name = word.strip_prefix('$')?;
    let name = name
        .strip_prefix('{')
        .and_then(|name| name.strip_suffix('}'))
        .unwrap_or(name);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = name.strip_suffix("[@]").unwrap_or(name);
    (matches!(name, "@" | "*") || !name.is_empty() && name.chars().all(is_part)).then_some(name)
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    words: Vec<ShellWord>,
    commands: Vec<Vec<ShellWord>>,
    /// The ends of here-documents that begin with the next line.
    documents: Vec<String>,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += 1;
        next
    }

    fn end_command(&mut self) {
        self.commands.push(std::mem::take(&mut self.words));
    }

    /// Reads all of it; `None` where a quote is not closed.
    fn read(&mut self) -> Option<()> {
        while let Some(c) = self.peek() {
            match c {
                '\n' => {
                    self.at += 1;
                    self.end_command();
                    self.skip_documents();
                }
                ';' | '&' | '|' | '(' | ')' => {
                    self.at += 1;
                    self.end_command();
                }
                '<' | '>' => self.skip_redirection()?,
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                c if c.is_whitespace() => self.at += 1,
                '\\' if self.chars.get(self.at + 1) == Some(&'\n') => self.at += 2,
                _ => {
                    let word = self.read_word()?;
                    // The number of a file that is redirected.
                    let is_number = word.text.chars().all(|c| c.is_ascii_digit());
                    if !(is_number && matches!(self.peek(), Some('<' | '>'))) {
                        self.words.push(word);
                    }
                }
            }
        }
        self.end_command();
        Some(())
    }

    fn skip_documents(&mut self) {
        for end in std::mem::take(&mut self.documents) {
            while self.at < self.chars.len() {
                let rest = &self.chars[self.at..];
                let line: String = rest.iter().take_while(|c| **c != '\n').collect();
                self.at += line.chars().count() + 1;
                if line.trim_start_matches('\t') == end {
                    break;
                }
            }
        }
    }

    /// `>file`, `2>&1`, `<<END`, `<(command)`.
    fn skip_redirection(&mut self) -> Option<()> {
        let mut operator = String::new();
        while let Some(c) = self.peek().filter(|c| matches!(c, '<' | '>' | '&' | '|')) {
            operator.push(c);
            self.at += 1;
        }
        let is_document = operator == "<<";
        while self
            .peek()
            .is_some_and(|c| c == ' ' || is_document && c == '-')
        {
            self.at += 1;
        }
        if self.peek().is_none_or(|c| matches!(c, '\n' | ';' | '(')) {
            return Some(());
        }
        let word = self.read_word()?;
        if is_document {
            self.documents.push(word.text);
        }
        Some(())
    }

    fn read_word(&mut self) -> Option<ShellWord> {
        let mut word = ShellWord::plain("");
        while let Some(c) = self.peek() {
            match c {
                c if c.is_whitespace() => break,
                ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\\' => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') | None => {}
                        Some(c) => word.text.push(c),
                    }
                }
                '\'' => {
                    self.at += 1;
                    loop {
                        match self.next()? {
                            '\'' => break,
                            c => word.text.push(c),
                        }
                    }
                }
                '"' => self.read_double_quoted(&mut word)?,
                '$' | '`' => self.read_expansion(&mut word)?,
                c => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
        Some(word)
    }

    fn read_double_quoted(&mut self, word: &mut ShellWord) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                '"' => {
                    self.at += 1;
                    return Some(());
                }
                '\\' => {
                    self.at += 1;
                    match self.next()? {
                        '\n' => {}
                        c if matches!(c, '$' | '`' | '"' | '\\') => word.text.push(c),
                        c => word.text.extend(['\\', c]),
                    }
                }
                '$' | '`' => self.read_expansion(word)?,
                c => {
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
    }

    /// `$NAME`, `${…}`, `$(…)` and `` `…` ``, as they are written.
    fn read_expansion(&mut self, word: &mut ShellWord) -> Option<()> {
        let first = self.next()?;
        word.text.push(first);
        let open = self.peek();
        let (open, close) = match (first, open) {
            ('`', _) => (None, '`'),
            (_, Some('(')) => (Some('('), ')'),
            (_, Some('{')) => (Some('{'), '}'),
            (_, Some(c)) if c.is_ascii_alphanumeric() || "_@*#?$!-".contains(c) => {
                word.is_expanded = true;
                // The name is read as the rest of the word; of the special ones, here.
                if !c.is_ascii_alphanumeric() && c != '_' {
                    word.text.push(c);
                    self.at += 1;
                }
                return Some(());
            }
            // A `$` alone, or before a quote.
            _ => return Some(()),
        };
        word.is_expanded = true;
        let mut depth = usize::from(open.is_none());
        loop {
            let c = self.next()?;
            word.text.push(c);
            if Some(c) == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    return Some(());
                }
            }
        }
    }
}
