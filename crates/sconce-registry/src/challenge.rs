//! `WWW-Authenticate`: what a registry says it wants (RFC 9110, section 11; RFC 6750, section 3;
//! distribution's token authentication).

/// The most challenges that are read from one answer.
const MAX_CHALLENGES: usize = 16;
/// The most parameters that are read from one challenge.
const MAX_PARAMETERS: usize = 16;
/// The longest header that is read, in bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// One way to say who one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The scheme in lower case: `basic`, `bearer`.
    pub scheme: String,
    /// Parameters in order; their names in lower case, their values unquoted.
    pub parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The first parameter of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads one `WWW-Authenticate` header, which can hold several challenges. Reading ends at the
/// first byte that is against the grammar; what was read before it counts.
#[must_use]
pub fn parse_challenges(header: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    let Some(header) = header.get(..header.len().min(MAX_HEADER_BYTES)) else {
        return found; // The cut falls into a character, and no header has such.
    };
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = token(rest) else {
            return found;
        };
        if let Some((value, after)) = value(after) {
            let Some(last) = found.last_mut() else {
                return found; // A parameter of nothing.
            };
            if last.parameters.len() < MAX_PARAMETERS {
                last.parameters.push((name.to_ascii_lowercase(), value));
            }
            rest = after;
        } else if found.len() < MAX_CHALLENGES && !after.starts_with('=') {
            found.push(Challenge {
                scheme: name.to_ascii_lowercase(),
                parameters: Vec::new(),
            });
            rest = token68(after).unwrap_or(after);
        } else {
            return found;
        }
    }
}

/// A token of RFC 9110, section 5.6.2, and what follows.
fn token(text: &str) -> Option<(&str, &str)> {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let end = text.bytes().position(|b| !is_part(b)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// `= value`, a token or quoted, and what follows.
fn value(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let text = text.trim_start_matches([' ', '\t']);
    let Some(quoted) = text.strip_prefix('"') else {
        // Some servers leave out the quotes round a URL: take what is before the comma.
        let end = text.find([',', ' ', '\t', '"']).unwrap_or(text.len());
        let ends_well = end > 0 && !text[..end].bytes().all(|b| b == b'=');
        return ends_well.then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut out = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &quoted[at + 1..])),
            '\\' => out.push(chars.next()?.1),
            c => out.push(c),
        }
    }
    None
}

/// Skips a scheme's single credential, as in `Negotiate abc==`, which nobody here uses.
fn token68(text: &str) -> Option<&str> {
    let start = text.trim_start_matches(' ');
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    let body = start
        .bytes()
        .position(|b| !is_part(b))
        .unwrap_or(start.len());
    let after = start[body..].trim_start_matches('=');
    let ended = after.trim_start_matches([' ', '\t']);
    // `realm=x` begins like one; one ends its challenge.
    (body > 0 && start.len() < text.len() && (ended.is_empty() || ended.starts_with(',')))
        .then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn challenges_read() {
        // The form of distribution's documentation of token authentication.
        let bearer = "Bearer realm=\"https://auth.example.org/token\",service=\"registry.example.org\",\
                      scope=\"repository:team/image:pull,push\"";
        let read = parse_challenges(bearer);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].scheme, "bearer");
        assert_eq!(read[0].get("realm"), Some("https://auth.example.org/token"));
        assert_eq!(
            read[0].get("scope"),
            Some("repository:team/image:pull,push")
        );
        assert_eq!(read[0].get("error"), None);

        let names = |text: &str| -> Vec<_> {
            let read = parse_challenges(text);
            read.into_iter()
                .map(|c| (c.scheme, c.parameters.len()))
                .collect()
        };
        let one = |scheme: &str, count| vec![(scheme.to_owned(), count)];
        assert_eq!(names("Basic realm=\"a, \\\"b\\\" c\""), one("basic", 1));
        assert_eq!(names("BASIC"), one("basic", 0));
        assert_eq!(
            names("Bearer realm = https://x/t , service=s"),
            one("bearer", 2)
        );
        assert_eq!(
            names("Negotiate abc==, Basic realm=\"x\""),
            [("negotiate".to_owned(), 0), ("basic".to_owned(), 1)]
        );
        assert_eq!(
            names("Basic realm=x, Bearer realm=\"y\", scope=\"a b\""),
            [("basic".to_owned(), 1), ("bearer".to_owned(), 2)]
        );
        assert_eq!(names("realm=\"x\""), []);
        assert_eq!(names("Bearer realm=\"never ends"), one("bearer", 0));
        assert_eq!(names(", , Basic"), one("basic", 0));
        assert_eq!(names("\"Basic\""), []);
        let escaped = parse_challenges("Basic realm=\"a\\\"b\\\\c\"");
        assert_eq!(escaped[0].get("realm"), Some("a\"b\\c"));
    }

    #[test]
    fn there_is_an_end_to_it() {
        assert_eq!(parse_challenges(&"a, ".repeat(5000)).len(), MAX_CHALLENGES);
        let many = format!("Bearer {}", "a=b,".repeat(3000));
        assert_eq!(parse_challenges(&many)[0].parameters.len(), MAX_PARAMETERS);
        assert!(parse_challenges(&"é".repeat(MAX_HEADER_BYTES)).is_empty());
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "\\PC{0,60}") {
            let _ = parse_challenges(&text);
        }

        #[test]
        fn quoting_is_undone(value in "[ -~]{0,30}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let read = parse_challenges(&format!("Bearer a=b, realm=\"{quoted}\", c=\"d\""));
            prop_assert_eq!(read[0].get("realm"), Some(value.as_str()));
            prop_assert_eq!(read[0].get("c"), Some("d"));
        }

        #[test]
        fn mutations_do_not_panic(at in 0usize..120, byte in any::<char>()) {
            let mut text = "Bearer realm=\"https://a.example.org/t\",service=\"r\",scope=\"repository:a:pull,push\", Basic realm=\"x\"".to_owned();
            if text.is_char_boundary(at.min(text.len())) {
                text.insert(at.min(text.len()), byte);
            }
            let _ = parse_challenges(&text);
        }
    }
}
