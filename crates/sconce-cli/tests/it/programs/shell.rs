//! The first words of the commands of a shell script.
//!
//! It reads as much of the shell's grammar (POSIX.1-2024, XCU 2, and bash's arrays and `[[`) as the scripts
//! here use. What stands in single quotes is not read: it is mostly for a container or another machine.

use std::collections::BTreeSet;

/// What a script starts and defines.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Line, name, and the words that follow it as far as they are literal.
    pub(crate) commands: Vec<Command>,
    pub(crate) functions: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

/// Programs after which another command stands: how many words of their own come first.
const WRAPPERS: [(&str, usize); 11] = [
    ("exec", 0),
    ("command", 0),
    ("env", 0),
    ("sudo", 0),
    ("as_root", 0),
    ("nohup", 0),
    ("xargs", 0),
    ("nice", 0),
    ("setsid", 0),
    ("unshare", 0),
    ("timeout", 1),
];
/// The same of the functions of our scripts, which have no options.
const FUNCTIONS: [(&str, usize); 10] = [
    ("quiet", 0),
    ("refused", 0),
    ("beside", 1),
    ("check", 1),
    ("exits", 1),
    ("says", 1),
    ("step", 1),
    ("yes", 1),
    ("fails", 2),
    ("no", 2),
];
/// Their options that take a word.
const WITH_VALUE: [&str; 6] = ["--propagation", "-u", "-s", "-I", "-n", "-P"];
const GO_ON: [&str; 10] = [
    "if", "then", "else", "elif", "do", "while", "until", "!", "{", "time",
];

pub(crate) fn read(text: &str) -> Script {
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
        line: 1,
        heredocs: Vec::new(),
        in_backticks: false,
        script: Script::default(),
    };
    while reader.at < reader.text.len() {
        reader.list(None);
        // A parenthesis that closes nothing.
        reader.at += 1;
    }
    reader.script
}

/// A word, and whether it says what it means without variables and substitutions.
struct Word {
    text: String,
    literal: bool,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    /// What ends the here-documents that begin after this line.
    heredocs: Vec<String>,
    /// Whether a backtick ends what is read.
    in_backticks: bool,
    script: Script,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> u8 {
        let byte = self.peek(0);
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        byte
    }

    fn is_at(&self, what: &str) -> bool {
        self.text[self.at.min(self.text.len())..].starts_with(what.as_bytes())
    }

    /// Reads commands to the end, or to the byte that closes them, which is left.
    fn list(&mut self, end: Option<u8>) {
        let mut state = State::default();
        while self.at < self.text.len() {
            let byte = self.peek(0);
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'\\' if self.peek(1) == b'\n' => {
                    self.next();
                    self.next();
                }
                b'\n' => {
                    self.next();
                    self.skip_heredocs();
                    state.begin();
                }
                b'#' => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                b')' if state.in_pattern => {
                    self.at += 1;
                    state.in_pattern = false;
                    state.begin();
                }
                _ if Some(byte) == end => return,
                b')' => return,
                b'(' if state.in_pattern => self.at += 1,
                b'(' if self.is_at("((") => self.arithmetic(),
                b'(' => {
                    self.at += 1;
                    self.list(Some(b')'));
                    self.at += 1;
                    state.in_command();
                }
                b';' if matches!(self.peek(1), b';' | b'&') => {
                    self.at += 2;
                    state.in_pattern = state.cases > 0;
                }
                b'&' if self.peek(1) == b'>' => self.redirection(&mut state),
                b'|' if state.in_pattern => self.at += 1,
                b';' | b'&' | b'|' => {
                    self.at += 1;
                    state.begin();
                }
                b'<' | b'>' => self.redirection(&mut state),
                _ => {
                    let line = self.line;
                    let word = self.word();
                    self.place(word, line, &mut state);
                }
            }
        }
    }

    /// What a word is where it stands.
    fn place(&mut self, word: Word, line: usize, state: &mut State) {
        let number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        if number && matches!(self.peek(0), b'<' | b'>') {
            return;
        }
        if std::mem::take(&mut state.after_redirection) {
            return;
        }
        if state.in_pattern {
            if word.text == "esac" {
                state.cases -= 1;
                state.in_pattern = false;
                state.in_command();
            }
            return;
        }
        if !state.expects_command {
            self.argument(&word, state);
            return;
        }
        if self.is_at("()") && word.literal {
            self.at += 2;
            self.script.functions.insert(word.text);
            return;
        }
        let text = word.text.as_str();
        match text {
            _ if GO_ON.contains(&text) && state.wrapper.is_none() => {}
            "[[" => {
                self.condition();
                state.in_command();
            }
            "esac" => {
                state.cases = state.cases.saturating_sub(1);
                state.in_command();
            }
            _ if is_assignment(text) => self.array(),
            _ if state.skip_option_value => state.skip_option_value = false,
            _ if state.has_options && text.starts_with('-') => {
                state.skip_option_value = WITH_VALUE.contains(&text);
            }
            _ if state.wrapper.is_some_and(|left| left > 0) => {
                state.wrapper = state.wrapper.map(|left| left - 1);
            }
            _ => {
                state.awaits_in = text == "case";
                let words = |list: &[(&str, usize)]| {
                    let found = list.iter().find(|(name, _)| *name == text);
                    found.map(|(_, words)| *words)
                };
                state.has_options = words(&WRAPPERS).is_some();
                state.wrapper = words(&WRAPPERS).or_else(|| words(&FUNCTIONS));
                state.expects_command = state.wrapper.is_some();
                state.recorded = word.literal;
                if word.literal {
                    self.script.commands.push(Command {
                        line,
                        name: word.text,
                        words: Vec::new(),
                    });
                }
            }
        }
    }

    fn argument(&mut self, word: &Word, state: &mut State) {
        if state.awaits_in && word.text == "in" {
            state.awaits_in = false;
            state.cases += 1;
            state.in_pattern = true;
        }
        if state.recorded && word.literal {
            let last = self.script.commands.last_mut();
            last.unwrap().words.push(word.text.clone());
        }
    }

    /// `<`, `>` and what follows: a substitution, a here-document, or a word that is no command.
    fn redirection(&mut self, state: &mut State) {
        if self.peek(1) == b'(' {
            self.at += 2;
            self.list(Some(b')'));
            self.at += 1;
            return;
        }
        let is_document = self.is_at("<<") && !self.is_at("<<<");
        while matches!(self.peek(0), b'<' | b'>' | b'&' | b'|') {
            self.at += 1;
        }
        if !is_document {
            state.after_redirection = true;
            return;
        }
        while matches!(self.peek(0), b'-' | b' ') {
            self.at += 1;
        }
        let end = self.word().text;
        self.heredocs.push(end);
    }

    fn skip_heredocs(&mut self) {
        for end in std::mem::take(&mut self.heredocs) {
            while self.at < self.text.len() {
                let from = self.at;
                while self.at < self.text.len() && self.next() != b'\n' {}
                let line = String::from_utf8_lossy(&self.text[from..self.at]);
                if line.trim() == end {
                    break;
                }
            }
        }
    }

    /// `((…))`, also after a `$`.
    fn arithmetic(&mut self) {
        let mut depth = 0_i32;
        loop {
            match self.next() {
                b'(' => depth += 1,
                b')' => depth -= 1,
                0 => return,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// `[[ … ]]`.
    fn condition(&mut self) {
        while self.at < self.text.len() && !self.is_at("]]") {
            match self.peek(0) {
                b'\'' | b'"' | b'$' | b'`' => {
                    self.word();
                }
                _ => {
                    self.next();
                }
            }
        }
        self.at += 2;
    }

    /// `(…)` after `name=`: words, which may hold substitutions.
    fn array(&mut self) {
        if self.peek(0) != b'(' {
            return;
        }
        self.at += 1;
        while self.at < self.text.len() && self.peek(0) != b')' {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b'(' | b'<' | b'>' => {
                    self.next();
                }
                _ => {
                    self.word();
                }
            }
        }
        self.at += 1;
    }

    fn word(&mut self) -> Word {
        let mut word = Word {
            text: String::new(),
            literal: true,
        };
        while self.at < self.text.len() {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'\'' => self.single(&mut word),
                b'"' => {
                    self.at += 1;
                    while self.at < self.text.len() && self.peek(0) != b'"' {
                        self.part(&mut word);
                    }
                    self.at += 1;
                }
                b'`' if self.in_backticks => break,
                _ => self.part(&mut word),
            }
        }
        if word.text.is_empty() && word.literal {
            word.literal = false;
        }
        word
    }

    fn single(&mut self, word: &mut Word) {
        self.at += 1;
        while self.at < self.text.len() && self.peek(0) != b'\'' {
            let byte = self.next();
            word.text.push(char::from(byte));
        }
        self.at += 1;
    }

    /// A byte of a word, or what is put in its place.
    fn part(&mut self, word: &mut Word) {
        match self.peek(0) {
            b'\\' => {
                self.at += 1;
                let byte = self.next();
                word.text.push(char::from(byte));
            }
            b'`' => {
                self.at += 1;
                self.in_backticks = true;
                self.list(Some(b'`'));
                self.in_backticks = false;
                self.at += 1;
                word.literal = false;
            }
            b'$' => {
                word.literal = false;
                self.at += 1;
                match self.peek(0) {
                    b'(' if self.is_at("((") => self.arithmetic(),
                    b'(' => {
                        self.at += 1;
                        self.list(Some(b')'));
                        self.at += 1;
                    }
                    b'{' => self.parameter(),
                    b'\'' => self.escaped(),
                    _ => {}
                }
            }
            _ => {
                let byte = self.next();
                word.text.push(char::from(byte));
            }
        }
    }

    /// `{…}` after a `$`.
    fn parameter(&mut self) {
        let mut ignored = Word {
            text: String::new(),
            literal: true,
        };
        self.at += 1;
        while self.at < self.text.len() && self.peek(0) != b'}' {
            self.part(&mut ignored);
        }
        self.at += 1;
    }

    /// `'…'` after a `$`, in which a quote can be escaped.
    fn escaped(&mut self) {
        self.at += 1;
        while self.at < self.text.len() && self.peek(0) != b'\'' {
            if self.next() == b'\\' {
                self.next();
            }
        }
        self.at += 1;
    }
}

/// Where in a command the reader is.
struct State {
    expects_command: bool,
    /// The words of its own that a wrapper still takes before its command.
    wrapper: Option<usize>,
    has_options: bool,
    skip_option_value: bool,
    after_redirection: bool,
    /// Whether the words of this command are kept.
    recorded: bool,
    awaits_in: bool,
    cases: usize,
    in_pattern: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            expects_command: true,
            wrapper: None,
            has_options: false,
            skip_option_value: false,
            after_redirection: false,
            recorded: false,
            awaits_in: false,
            cases: 0,
            in_pattern: false,
        }
    }
}

impl State {
    fn begin(&mut self) {
        *self = Self {
            awaits_in: self.awaits_in,
            cases: self.cases,
            in_pattern: self.in_pattern,
            ..Self::default()
        };
    }

    fn in_command(&mut self) {
        self.expects_command = false;
        self.recorded = false;
    }
}

/// `name=…`, `name+=…`, `name[…]=…`.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else {
        return false;
    };
    let name = name.split('[').next().unwrap_or_default();
    let name = name.strip_suffix('+').unwrap_or(name);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(fits) && !name.as_bytes()[0].is_ascii_digit()
}
