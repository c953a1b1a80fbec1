//! Text that comes from outside, as it may be shown and kept.

use std::error::Error;
use std::fmt::Write as _;

use crate::secrets;

/// Whether a character of text from outside may not be shown as it is: control characters, which terminals obey; those
/// that turn the direction of writing (Unicode TR 9), by which a text looks like another; those that nobody sees. It is
/// the one rule for all that is shown; line ends and tabs are among them.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text that comes from outside as it may be shown: without what [`is_unprintable`]; at most `most` characters.
#[must_use]
pub fn to_printable(text: &str, most: usize) -> String {
    let fit = |c| if is_unprintable(c) { ' ' } else { c };
    let mut shown: String = text.chars().take(most).map(fit).collect();
    if text.chars().nth(most).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// Returns an error with its causes, which its own text does not repeat: without secrets, and without what a terminal
/// would obey.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    tame(secrets::mask_text(&text))
}

/// Returns text without what a terminal would obey, line by line as it was: names of files and images are anyone's
/// text.
#[must_use]
pub fn tame(text: String) -> String {
    let tame = |c: char| match c {
        '\n' | '\t' => c,
        c if is_unprintable(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(tame).collect()
}

/// JSON with what [`is_unprintable`] escaped (`\u202e`): the same for who reads it, and nothing for a terminal to
/// obey. Line ends and tabs between its parts stay; within a text JSON has none.
#[must_use]
pub fn escape_json(json: String) -> String {
    let escaped = |c: char| is_unprintable(c) && !matches!(c, '\n' | '\r' | '\t');
    if !json.contains(escaped) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match escaped(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

/// `text` with user and password taken out of every URL in it.
#[must_use]
pub fn redact_url_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        // Not `,` and `'`: a password may hold them (RFC 3986, section 3.2.1).
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '`' | '<' | '>');
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        let host = authority.rfind('@').map_or(0, |at| at + 1);
        rest = &after[host..];
    }
    out.push_str(rest);
    out
}

/// The text, which begins with an address that git or pip takes (`git+ssh://git@host/x`), as
/// [`redact_url_credentials`] has it, but with the user of ssh: all have the same, and the host wants it.
#[must_use]
pub fn redact_git_credentials(text: &str) -> String {
    let clean = redact_url_credentials(text);
    let Some((scheme, rest)) = text.split_once("://").filter(|(s, _)| s.ends_with("ssh")) else {
        return clean;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let login = authority.rsplit_once('@').map_or("", |(login, _)| login);
    let user = login.split(':').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !user.is_empty() && !user.starts_with('-') && user.chars().all(is_plain) {
        true => format!("{scheme}://{user}@{}", &clean[scheme.len() + 3..]),
        false => clean,
    }
}

/// `url` without user, password, query and fragment: a query can hold a token.
#[must_use]
pub fn without_credentials(url: &str) -> String {
    let url = url.split(['#', '?']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The last `@` ends the credentials: a password may hold one.
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::{
        escape_json, is_unprintable, redact_git_credentials, redact_url_credentials, to_printable,
    };
    use proptest::prelude::*;

    #[test]
    fn urls_lose_their_credentials() {
        for (text, clean) in [
            (
                "see `https://me:s3cret@example.org/simple`.",
                "see `https://example.org/simple`.",
            ),
            ("a://u@h b://u:p@ss@h:1/@x", "a://h b://h:1/@x"),
            ("'https://me:s3,cr'et@example.org'", "'https://example.org'"),
            (
                "me@example.org, https://example.org/@scope",
                "me@example.org, https://example.org/@scope",
            ),
            ("no url", "no url"),
            ("://", "://"),
        ] {
            assert_eq!(redact_url_credentials(text), clean);
        }
    }

    #[test]
    fn the_user_of_ssh_is_no_credential() {
        for (text, clean) in [
            (
                "git+ssh://git@example.org/a@v1",
                "git+ssh://git@example.org/a@v1",
            ),
            (
                "x @ git+ssh://git@example.org/a",
                "x @ git+ssh://git@example.org/a",
            ),
            (
                "ssh://git:s3cret@example.org:22/a",
                "ssh://git@example.org:22/a",
            ),
            (
                "ssh://-oProxyCommand=x@example.org/a",
                "ssh://example.org/a",
            ),
            ("ssh://:s3cret@example.org/a", "ssh://example.org/a"),
            ("ssh://example.org/a@v1", "ssh://example.org/a@v1"),
            (
                "https://me:s3cret@example.org/ssh://a",
                "https://example.org/ssh://a",
            ),
            ("git+https://me@example.org/a", "git+https://example.org/a"),
        ] {
            assert_eq!(redact_git_credentials(text), clean, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_before_the_host_stays(user in "[a-z]{1,8}", secret in "[A-Z0-9@:]{1,12}", host in "[a-z]{1,8}") {
            let text = redact_url_credentials(&format!("error: https://{user}:{secret}@{host}.example/simple failed"));
            prop_assert_eq!(text, format!("error: https://{host}.example/simple failed"));
        }
    }

    /// All that Unicode has to turn the direction of writing (TR 9).
    const BIDI: [char; 12] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
        '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];

    #[test]
    fn what_turns_the_direction_of_writing_is_not_shown() {
        assert!(BIDI.into_iter().all(is_unprintable));
        assert!(!"aä漢ع א–…┌".chars().any(is_unprintable));
    }

    #[test]
    fn json_stays_the_same_and_a_terminal_obeys_nothing_of_it() {
        let json = "{\n\t\"a\": \"fl\u{202e}ash\u{9b}31m\u{7f}é\"\n}".to_owned();
        assert_eq!(
            escape_json(json),
            "{\n\t\"a\": \"fl\\u202eash\\u009b31m\\u007fé\"\n}"
        );
        for c in BIDI {
            let escaped = escape_json(format!("\"{c}\""));
            assert_eq!(escaped, format!("\"\\u{:04x}\"", u32::from(c)));
        }
    }

    #[test]
    fn what_terminals_obey_is_not_shown() {
        assert_eq!(to_printable("a\x1b[31mb\u{202e}c\nd", 99), "a [31mb c d");
        assert_eq!(to_printable("abcdef", 4), "abc…");
        assert_eq!(to_printable("abcd", 4), "abcd");
    }
}
