//! Secrets that are known by how they look.

use super::{MASKED, is_secret, name};

/// How tokens of a service begin, and how many characters follow at least. From what the services
/// publish for scanners of secrets.
const PREFIXES: [(&str, usize); 26] = [
    ("AIza", 30),
    ("AKIA", 16),
    ("ASIA", 16),
    ("api_org_", 20),
    ("dapi", 32),
    ("dckr_pat_", 20),
    ("dop_v1_", 32),
    ("gho_", 30),
    ("ghp_", 30),
    ("ghr_", 30),
    ("ghs_", 30),
    ("ghu_", 30),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("hf_", 20),
    ("npm_", 30),
    ("nvapi-", 20),
    ("pypi-", 32),
    ("sk-", 20),
    ("wandb_v1_", 20),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("ya29.", 20),
];

/// A byte of a token: of base64 in both alphabets and of what parts its pieces.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.+/=~".contains(&byte)
}

/// `-----BEGIN … PRIVATE KEY-----` to its end, or to the end of the text.
pub(super) fn private_keys(text: &str) -> String {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    const KIND: &str = "PRIVATE KEY";
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        told += before;
        let label = block[BEGIN.len()..]
            .find("-----")
            .map(|end| &block[BEGIN.len()..BEGIN.len() + end]);
        if !label.is_some_and(|label| label.len() < 64 && label.contains(KIND)) {
            told += BEGIN;
            rest = &block[BEGIN.len()..];
            continue;
        }
        told += MASKED;
        let end = block.find(END).map(|at| at + END.len());
        let end = end.and_then(|at| block[at..].find("-----").map(|more| at + more + 5));
        rest = end.map_or("", |end| &block[end..]);
    }
    told + rest
}

/// `https://(masked)@host` for `https://user:password@host`.
pub(super) fn mask_url_credentials(text: &str) -> String {
    let mut parts = text.split("://");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Not `,` and `'`: a password may hold them (RFC 3986, section 3.2.1).
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '`' | '<' | '>');
        let (authority, rest) = part.split_at(part.find(ends).unwrap_or(part.len()));
        told += "://";
        match authority.rsplit_once('@') {
            Some((_, host)) => told = told + MASKED + "@" + host,
            None => told += authority,
        }
        told += rest;
    }
    told
}

/// Tokens of known services, JSON web tokens, and what follows `Bearer` and `Basic`.
pub(super) fn mask_tokens(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut told = String::with_capacity(text.len());
    let (mut at, mut after) = (0, None);
    while at < bytes.len() {
        if !is_token(bytes[at]) {
            let next = (at + 1..=bytes.len()).find(|&next| text.is_char_boundary(next));
            let next = next.unwrap_or(bytes.len());
            told += &text[at..next];
            at = next;
            continue;
        }
        let end = (at..bytes.len())
            .find(|&end| !is_token(bytes[end]))
            .unwrap_or(bytes.len());
        let word = &text[at..end];
        let done = text[end..].starts_with(MASKED);
        match !done && after.is_some_and(|scheme| follows(scheme, word)) {
            true => told += MASKED,
            false => told += &inside(word),
        }
        after = Scheme::of(word);
        at = end;
    }
    told
}

/// The two schemes of HTTP whose credentials follow in plain text (RFC 6750, RFC 7617).
#[derive(Clone, Copy)]
enum Scheme {
    Bearer,
    Basic,
}

impl Scheme {
    fn of(word: &str) -> Option<Self> {
        if word.eq_ignore_ascii_case("bearer") {
            return Some(Self::Bearer);
        }
        word.eq_ignore_ascii_case("basic").then_some(Self::Basic)
    }
}

fn follows(scheme: Scheme, word: &str) -> bool {
    // In base64 only the end has `=`; otherwise it is a name and its value.
    let base = word.trim_end_matches('=');
    let mixed = word.bytes().any(|byte| !byte.is_ascii_lowercase()) && !base.contains('=');
    match scheme {
        Scheme::Bearer => word.len() >= 8 && mixed,
        // `user:password` in base64.
        Scheme::Basic => {
            word.len() >= 8 && mixed && word.len().is_multiple_of(4) && !word.contains(['-', '.'])
        }
    }
}

/// A run of a token's bytes, in which one may begin after `=`, `/` or `.`.
fn inside(word: &str) -> String {
    let starts = std::iter::once(0).chain(
        word.match_indices(['=', '/', '+', '~'])
            .map(|(at, _)| at + 1),
    );
    for start in starts {
        let rest = &word[start..];
        let name = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || b"_-.".contains(b))
            .count();
        let one = &rest[..name];
        let known = |(prefix, more): &(&str, usize)| {
            one.strip_prefix(prefix).is_some_and(|rest| {
                rest.len() >= *more
                    && rest
                        .bytes()
                        .any(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
            })
        };
        if PREFIXES.iter().any(known) || is_web_token(one) {
            return format!("{}{MASKED}{}", &word[..start], inside(&rest[name..]));
        }
    }
    word.to_owned()
}

/// A JSON web token (RFC 7519): three parts in base64, of which the first is an object.
fn is_web_token(word: &str) -> bool {
    let mut parts = word.split('.');
    let (head, body) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    head.starts_with("eyJ") && head.len() >= 12 && body.len() >= 8 && parts.next().is_some()
}

/// `password=X`, `&token=X`, `"api_key": "X"`, `Authorization: X`: what stands after the name of a secret.
pub(super) fn mask_assignments(text: &str) -> String {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let bytes = text.as_bytes();
    let mut told = String::with_capacity(text.len());
    let (mut from, mut at) = (0, 0);
    while at < bytes.len() {
        if !is_name(bytes[at]) {
            at += 1;
            continue;
        }
        let end = (at..bytes.len())
            .find(|&end| !is_name(bytes[end]))
            .unwrap_or(bytes.len());
        let name = &text[at..end];
        match value_after(text, end, name) {
            Some((start, stop)) if hides(name, text, (start, stop)) => {
                told += &text[from..start];
                told += MASKED;
                (from, at) = (stop, stop);
            }
            _ => at = end,
        }
    }
    told += &text[from..];
    told
}

/// What is masked already stays as it is.
fn hides(name: &str, text: &str, (start, stop): (usize, usize)) -> bool {
    !text[start..].starts_with(MASKED) && name::should_mask(name, &text[start..stop])
}

/// Where the value of `name`, which ends at `end`, begins and stops.
fn value_after(text: &str, end: usize, name: &str) -> Option<(usize, usize)> {
    if !is_secret(name) {
        return None;
    }
    let bytes = text.as_bytes();
    let quoted = matches!(bytes.get(end), Some(b'"' | b'\''));
    let mut at = end + usize::from(quoted);
    let blank = |at: usize| matches!(bytes.get(at), Some(b' ' | b'\t'));
    while quoted && blank(at) {
        at += 1;
    }
    let header = name.eq_ignore_ascii_case("authorization");
    let compound = name.contains(['_', '-']);
    let pass = name.to_ascii_lowercase().contains("pass");
    match bytes.get(at)? {
        b'=' => {}
        // `token: 3` may be a sentence; a name of two words, a quoted one or a header is none.
        b':' if quoted || header || compound || pass => {}
        _ => return None,
    }
    at += 1;
    let colon = bytes[at - 1] == b':';
    while (colon || quoted) && blank(at) {
        at += 1;
    }
    let quote = bytes
        .get(at)
        .copied()
        .filter(|byte| matches!(byte, b'"' | b'\''));
    at += usize::from(quote.is_some());
    let ends = |byte: &u8| match quote {
        Some(quote) => *byte == quote,
        // The whole header: the scheme is no secret, but what follows it is.
        None if header => matches!(byte, b'\n' | b'\r' | b'"' | b'\''),
        None => byte.is_ascii_whitespace() || b"&;,\"'`)}]>".contains(byte),
    };
    let stop = bytes[at..]
        .iter()
        .position(ends)
        .map_or(bytes.len(), |more| at + more);
    // "no password: No such file" is a sentence.
    let sentence = colon && !(quoted || header || compound || quote.is_some());
    let word = text[at..stop]
        .bytes()
        .all(|byte| byte.is_ascii_alphabetic());
    (at < stop && !(sentence && word)).then_some((at, stop))
}
