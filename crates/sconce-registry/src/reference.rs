//! Image references: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.
//!
//! The grammar is that of the reference package of distribution (its `reference/reference.go`
//! states it) and of the distribution specification, "Pulling manifests": what one tool takes as a
//! reference, every other must take for the same image.

use std::fmt;
use std::net::Ipv6Addr;

use sconce_schema::{Hint, exit};

use super::error::printable_text;
use sconce_oci::Digest;

/// The longest path in characters (distribution: `RepositoryNameTotalLengthMax`).
const MAX_PATH_BYTES: usize = 255;
/// The longest host, RFC 1035.
const MAX_HOST_BYTES: usize = 253;
/// The longest text that is looked at.
const MAX_REFERENCE_BYTES: usize = 2048;

/// Where an image is, or where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    host: String,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Why a text is not a reference. Every text in it is cut and escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// No registry is named, and no default was given.
    #[error("`{text}` names no registry")]
    NoHost {
        /// The text.
        text: String,
    },
    /// It begins like a URL.
    #[error("`{text}` is a URL, not an image reference")]
    Scheme {
        /// The text.
        text: String,
    },
    /// One of its parts is against the grammar.
    #[error("`{text}` is not an image reference: {why}")]
    Part {
        /// The text.
        text: String,
        /// Which part, and its rule.
        why: &'static str,
    },
}

impl Hint for ReferenceError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoHost { .. } => "name the registry first, as in registry.example.org/team/\
                                    image:tag, or give a default registry in the settings"
                .to_owned(),
            Self::Scheme { .. } => "leave out the scheme".to_owned(),
            Self::Part { .. } => "a reference is HOST[:PORT]/PATH[:TAG][@sha256:DIGEST]".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::USAGE
    }
}

impl Reference {
    /// Reads `text`. Where it names no host, `default_host` is taken; Sconce itself prefers no
    /// registry.
    ///
    /// The first part is a host when it has a dot or a colon, is `localhost`, or has an upper-case
    /// letter, which no path may have.
    ///
    /// # Errors
    /// [`ReferenceError`].
    pub fn parse(text: &str, default_host: Option<&str>) -> Result<Self, ReferenceError> {
        let part = |why| ReferenceError::Part {
            text: printable_text(text, 300),
            why,
        };
        if text.len() > MAX_REFERENCE_BYTES {
            return Err(part("it is too long"));
        }
        if text.contains("://") {
            return Err(ReferenceError::Scheme {
                text: printable_text(text, 300),
            });
        }
        let (rest, digest) = match text.split_once('@') {
            None => (text, None),
            Some((rest, digest)) => {
                let digest = digest.parse().map_err(|_| {
                    part("a digest is `sha256:` and 64 lower-case hexadecimal digits")
                })?;
                (rest, Some(digest))
            }
        };
        let (host, rest) = match rest.split_once('/') {
            Some((first, rest)) if looks_like_host(first) => (first, rest),
            _ => match default_host {
                Some(host) => (host, rest),
                None => {
                    // A wrong path is the better news.
                    split_tag(rest).map_err(part)?;
                    return Err(ReferenceError::NoHost {
                        text: printable_text(text, 300),
                    });
                }
            },
        };
        check_host(host).map_err(part)?;
        let (path, tag) = split_tag(rest).map_err(part)?;
        Ok(Self {
            host: host.to_owned(),
            path: path.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// The registry as written: `HOST` or `HOST:PORT`, an IPv6 address in its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The repository within the registry.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The tag, where one is said.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, where one is said. With both, the digest counts and the tag is a remark.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// What the manifest is asked by: the digest, else the tag, else `latest`.
    #[must_use]
    pub fn tag_or_digest(&self) -> String {
        match (self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }

    /// The same repository's image with this digest.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            tag: None,
            digest: Some(digest),
            ..self.clone()
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn looks_like_host(first: &str) -> bool {
    first.contains(['.', ':'])
        || first == "localhost"
        || first.bytes().any(|b| b.is_ascii_uppercase())
}

/// Checks `HOST[:PORT]`.
pub(super) fn check_host(text: &str) -> Result<(), &'static str> {
    const RULE: &str = "a host has letters, digits, dots and inner dashes, or is [IPv6], \
                        and a port is a number up to 65535";
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or(RULE)?;
            // No zone: it names an interface of this machine, not a registry.
            address.parse::<Ipv6Addr>().map_err(|_| RULE)?;
            match after {
                "" => ("ipv6", None),
                after => ("ipv6", Some(after.strip_prefix(':').ok_or(RULE)?)),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let plain = |b: &u8| b.is_ascii_alphanumeric();
        bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
            && bytes.iter().all(|b| plain(b) || *b == b'-')
    };
    let is_port = |port: &str| {
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        digits && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let good = host.len() <= MAX_HOST_BYTES && host.split('.').all(is_label);
    (good && port.is_none_or(is_port)).then_some(()).ok_or(RULE)
}

/// Splits `PATH[:TAG]` and checks both.
fn split_tag(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    // A path has no colon, so the first one begins the tag.
    let (path, tag) = match text.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (text, None),
    };
    check_path(path)?;
    if let Some(tag) = tag
        && !is_tag(tag)
    {
        return Err(
            "a tag has up to 128 letters, digits, `_`, `.` and `-`, the first of them no \
                    `.` or `-`",
        );
    }
    Ok((path, tag))
}

/// Checks a repository's path.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.len() > MAX_PATH_BYTES {
        return Err("its path is longer than 255 characters");
    }
    if path.split('/').all(is_component) {
        return Ok(());
    }
    Err("parts of the path have lower-case letters and digits, joined by `.`, `_`, `__` or dashes")
}

fn is_component(part: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut separator = String::new();
    let mut seen = false;
    for byte in part.bytes() {
        if word(byte) {
            let joined = matches!(separator.as_str(), "" | "." | "_" | "__")
                || separator.bytes().all(|b| b == b'-');
            if !joined || (!seen && !separator.is_empty()) {
                return false;
            }
            separator.clear();
            seen = true;
        } else if matches!(byte, b'.' | b'_' | b'-') {
            separator.push(byte as char);
        } else {
            return false;
        }
    }
    seen && separator.is_empty()
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = tag.as_bytes();
    bytes.len() <= 128
        && bytes.first().copied().is_some_and(word)
        && bytes.iter().all(|b| word(*b) || matches!(b, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parts(text: &str) -> Option<(String, String, Option<String>, bool)> {
        let read = Reference::parse(text, None).ok()?;
        let tag = read.tag().map(str::to_owned);
        Some((
            read.host().to_owned(),
            read.path().to_owned(),
            tag,
            read.digest().is_some(),
        ))
    }

    #[test]
    fn references_read() {
        for (text, host, path, tag, digest) in [
            ("example.org/a", "example.org", "a", None, false),
            (
                "Example.ORG/a/b_c:V1.0",
                "Example.ORG",
                "a/b_c",
                Some("V1.0"),
                false,
            ),
            ("localhost/a", "localhost", "a", None, false),
            (
                "localhost:5000/a:_x",
                "localhost:5000",
                "a",
                Some("_x"),
                false,
            ),
            (
                "127.0.0.1:5000/a--b__c.d:t",
                "127.0.0.1:5000",
                "a--b__c.d",
                Some("t"),
                false,
            ),
            ("[::1]:5000/a/b", "[::1]:5000", "a/b", None, false),
            ("[2001:db8::1]/a", "[2001:db8::1]", "a", None, false),
            ("LAB/a", "LAB", "a", None, false),
            ("r:1/a:5000", "r:1", "a", Some("5000"), false),
        ] {
            let want = (
                host.to_owned(),
                path.to_owned(),
                tag.map(str::to_owned),
                digest,
            );
            assert_eq!(parts(text), Some(want), "{text}");
        }
        let both = Reference::parse(&format!("example.org/a:t@{DIGEST}"), None).unwrap();
        assert_eq!(both.tag_or_digest(), DIGEST);
        assert_eq!(both.to_string(), format!("example.org/a:t@{DIGEST}"));
        let none = Reference::parse("example.org/a", None).unwrap();
        assert_eq!(none.tag_or_digest(), "latest");
        assert_eq!(
            none.with_digest(both.digest().unwrap()).tag_or_digest(),
            DIGEST
        );
    }

    #[test]
    fn what_is_no_reference() {
        let long = format!("example.org/{}", "a".repeat(256));
        let long_tag = format!("example.org/a:{}", "t".repeat(129));
        let long_host = format!("{}.org/a", "a.".repeat(150));
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "example.org/",
            "example.org/A",
            "example.org/a b",
            "example.org/a//b",
            "example.org/a/",
            "example.org/-a",
            "example.org/a-",
            "example.org/a___b",
            "example.org/a._b",
            "example.org/a..b",
            "example.org/../b",
            "example.org/a:",
            "example.org/a:.t",
            "example.org/a:-t",
            "example.org/a:t:t",
            "example.org/a:t/u",
            "example.org/a@",
            "example.org/a@sha256:00",
            "example.org/a@md5:d41d8cd98f00b204e9800998ecf8427e",
            "https://example.org/a",
            "user@example.org/a",
            "example.org:/a",
            "example.org:0/a",
            "example.org:+1/a",
            "example.org:99999/a",
            "-x.org/a",
            "x-.org/a",
            "x..org/a",
            ".org/a",
            "[::1/a",
            "[::1]x/a",
            "[fe80::1%eth0]/a",
            "[]/a",
            "exa mple.org/a",
            "exämple.org/a",
            &long,
            &long_tag,
            &long_host,
        ] {
            let error = Reference::parse(text, None).expect_err(text);
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn a_registry_is_named_or_given() {
        let error = Reference::parse("team/image:tag", None).unwrap_err();
        assert!(matches!(error, ReferenceError::NoHost { .. }), "{error}");
        let read = Reference::parse("team/image:tag", Some("registry.example.org")).unwrap();
        assert_eq!(read.to_string(), "registry.example.org/team/image:tag");
        assert!(Reference::parse("team/image", Some("https://example.org")).is_err());
        // The texts of errors obey no terminal.
        let error = Reference::parse("example.org/\u{1b}[31m", None).unwrap_err();
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_read_reads_the_same(text in "(localhost|[a-zA-Z0-9.-]{1,8}|\\[[0-9:]{1,6}\\])?(:[0-9]{1,5})?/[a-z0-9._/-]{1,12}(:[a-zA-Z0-9._-]{1,6})?") {
            if let Ok(read) = Reference::parse(&text, None) {
                let again = Reference::parse(&read.to_string(), None);
                prop_assert_eq!(again, Ok(read));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = Reference::parse(&text, Some("example.org"));
        }
    }
}
