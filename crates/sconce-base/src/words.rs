//! Words of a line, as a shell splits them, and words as a shell takes them.

/// A quote that is not closed, a `\` with nothing behind it, or a control character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not one line whose quotes are closed")]
pub struct WordError;

/// Splits a line into words as a shell does: blanks separate, quotes and `\` hold together (POSIX, Shell Command
/// Language, 2.2). Nothing is expanded: `$` stands for itself.
///
/// # Errors
/// It is no whole line of a shell.
pub fn split_words(line: &str) -> Result<Vec<String>, WordError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c.is_control() && c != '\t' {
            return Err(WordError);
        }
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"'), '\\') => {
                let next = chars.next().ok_or(WordError)?;
                let word = word.get_or_insert_default();
                if !matches!(next, '$' | '`' | '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (None, '\\') => word
                .get_or_insert_default()
                .push(chars.next().ok_or(WordError)?),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(WordError);
    }
    words.extend(word);
    Ok(words)
}

/// A text as one word of a shell (POSIX, Shell Command Language, 2.2.2): facts may come from anywhere, and what is
/// printed is typed by people.
#[must_use]
pub fn quote_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word() {
        for (word, quoted) in [
            ("--lr=1e-3", "--lr=1e-3"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
        ] {
            assert_eq!(quote_word(word), quoted);
            assert_eq!(split_words(quoted).unwrap(), [word]);
        }
    }

    #[test]
    fn words_are_a_shells() {
        for (line, words) in [
            ("", &[][..]),
            (" a  b\tc ", &["a", "b", "c"]),
            (
                "--lr=0.1 'a b' \"c \\\"d\\\" \\e\"",
                &["--lr=0.1", "a b", "c \"d\" \\e"],
            ),
            ("a\\ b '' $HOME", &["a b", "", "$HOME"]),
        ] {
            assert_eq!(split_words(line).unwrap(), words, "{line:?}");
        }
        for line in ["'a", "\"a", "a\\", "a\nb", "\u{1b}[1m"] {
            assert_eq!(split_words(line), Err(WordError), "{line:?}");
        }
    }
}
