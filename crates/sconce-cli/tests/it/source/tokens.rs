//! Splits Rust source into the tokens that the tests of this folder look at. Comments are left out, and what is
//! in a string is never taken for code.

/// A token of Rust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier or a keyword, without `r#`.
    Word(String),
    /// The value of a string literal, its escapes resolved.
    Text(String),
    /// One sign of punctuation.
    Sign(char),
    /// A number, a character or a lifetime.
    Other,
}

impl Token {
    /// Returns the name or keyword.
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns the string's value.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Sign('(' | '[' | '{'))
    }

    pub(crate) fn is_close(&self) -> bool {
        matches!(self, Self::Sign(')' | ']' | '}'))
    }
}

/// Splits a whole file, which compiles, into tokens.
pub(crate) fn tokenize(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let mut cursor = Cursor { chars, at: 0 };
    let mut tokens = Vec::new();
    while let Some(first) = cursor.peek(0) {
        if first.is_whitespace() {
            cursor.at += 1;
        } else if first == '/' && cursor.peek(1) == Some('/') {
            cursor.take_while(|c| c != '\n');
        } else if first == '/' && cursor.peek(1) == Some('*') {
            cursor.skip_block_comment();
        } else {
            tokens.push(cursor.token(first));
        }
    }
    tokens
}

/// Returns the position after the bracket that closes the one at `open`.
pub(crate) fn after_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += i32::from(token.is_open()) - i32::from(token.is_close());
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Whether the tokens from `at` on are these, words and signs as they are written.
pub(crate) fn starts_with(tokens: &[Token], at: usize, written: &[&str]) -> bool {
    let tokens = tokens.get(at..at + written.len());
    tokens.is_some_and(|tokens| {
        tokens
            .iter()
            .zip(written)
            .all(|(token, written)| match token {
                Token::Word(word) => word == written,
                Token::Sign(sign) => written.chars().eq([*sign]),
                _ => false,
            })
    })
}

struct Cursor {
    chars: Vec<char>,
    at: usize,
}

impl Cursor {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
        self.chars[from..self.at].iter().collect()
    }

    /// They nest.
    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while let Some(first) = self.peek(0) {
            match (first, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                break;
            }
        }
    }

    fn token(&mut self, first: char) -> Token {
        match first {
            '"' => self.string(),
            '\'' => self.quote(),
            c if c.is_ascii_digit() => self.number(),
            c if is_of_word(c) => self.word(),
            sign => {
                self.at += 1;
                Token::Sign(sign)
            }
        }
    }

    /// A name, a keyword, or the prefix of a string.
    fn word(&mut self) -> Token {
        let word = self.take_while(is_of_word);
        match (word.as_str(), self.peek(0), self.peek(1)) {
            ("r" | "br" | "cr", Some('"'), _) | ("r" | "br" | "cr", Some('#'), Some('"' | '#')) => {
                self.raw_string()
            }
            ("b" | "c", Some('"'), _) => self.string(),
            ("b", Some('\''), _) => self.quote(),
            ("r", Some('#'), Some(_)) => {
                self.at += 1;
                Token::Word(self.take_while(is_of_word))
            }
            _ => Token::Word(word),
        }
    }

    /// `0..n` is a number and two dots.
    fn number(&mut self) -> Token {
        self.take_while(is_of_word);
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            self.take_while(is_of_word);
        }
        Token::Other
    }

    /// A character or a lifetime.
    fn quote(&mut self) -> Token {
        self.at += 1;
        if self.peek(0) == Some('\\') {
            self.at += 2;
            self.take_while(|c| c != '\'');
            self.at += 1;
        } else if self.peek(1) == Some('\'') {
            self.at += 2;
        } else {
            self.take_while(is_of_word);
        }
        Token::Other
    }

    fn raw_string(&mut self) -> Token {
        let end: String = format!("\"{}", self.take_while(|c| c == '#'));
        self.at += 1;
        let from = self.at;
        let end: Vec<char> = end.chars().collect();
        while self.at < self.chars.len() && !self.chars[self.at..].starts_with(&end) {
            self.at += 1;
        }
        let text = self.chars[from..self.at].iter().collect();
        self.at += end.len();
        Token::Text(text)
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut text = String::new();
        while let Some(next) = self.peek(0) {
            self.at += 1;
            match next {
                '"' => break,
                '\\' => text.extend(self.escape()),
                plain => text.push(plain),
            }
        }
        Token::Text(text)
    }

    /// What stands for a backslash and what follows it: nothing for the end of a line.
    fn escape(&mut self) -> Option<char> {
        let kind = self.peek(0)?;
        self.at += 1;
        match kind {
            '\n' => {
                self.take_while(char::is_whitespace);
                None
            }
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            '0' => Some('\0'),
            'x' => {
                let digits: String = self.chars[self.at..self.at + 2].iter().collect();
                self.at += 2;
                u8::from_str_radix(&digits, 16).ok().map(char::from)
            }
            'u' => {
                self.at += 1;
                let digits = self.take_while(|c| c != '}').replace('_', "");
                self.at += 1;
                u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32)
            }
            plain => Some(plain),
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn strings_comments_and_characters_are_told_apart() {
    let source = r##"
        // "a comment" /* with a beginning
        /* one /* in another */ with "a string" */
        let r#type: &'static str = "a \"b\" // no comment \
            \n\x41\u{42}";
        call('"', b'\'', r#"raw "text""#, br"\n", 0..9, 1.5e3);
    "##;
    let tokens = tokenize(source);
    let texts: Vec<&str> = tokens.iter().filter_map(Token::text).collect();
    assert_eq!(texts, ["a \"b\" // no comment \nAB", "raw \"text\"", "\\n"]);
    let words: Vec<&str> = tokens.iter().filter_map(Token::word).collect();
    assert_eq!(words, ["let", "type", "str", "call"]);
    let dots = tokens.iter().filter(|token| **token == Token::Sign('.'));
    assert_eq!(dots.count(), 2);
}

#[test]
fn a_group_ends_at_its_own_bracket() {
    let tokens = tokenize("a { b(c) [d] } e");
    let after = after_group(&tokens, 1);
    assert!(tokens[after].is_word("e"));
    assert!(starts_with(&tokens, 2, &["b", "(", "c"]));
    assert!(!starts_with(&tokens, after, &["e", "f"]));
}
