//! Why a registry gave or took nothing.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sconce_fetch::FetchError;
use sconce_schema::{Hint, exit};
use serde::Deserialize;

use sconce_oci::{Digest, DocumentError};

/// A failure with a registry. URLs in it carry no user, password or query; what a server said is
/// cut, escaped, and without the credentials that it was sent.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Something has to be asked of a registry and the caller said not to.
    #[error("{url} would be asked, and the network is off")]
    Offline {
        /// The URL.
        url: String,
    },
    /// Plain http to another machine.
    #[error("{url} would be asked without encryption")]
    Plain {
        /// The URL.
        url: String,
    },
    /// The settings of the connection.
    #[error("the registry client cannot be set up")]
    Setup(#[from] FetchError),
    /// A setting of the registry client.
    #[error("the registry client's setting `{setting}` is unusable: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Why.
        why: String,
    },
    /// 401 or 403.
    #[error("the registry refused {url} (HTTP {status}){}", words(said.as_deref()))]
    Refused {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// What the registry said to it.
        said: Option<String>,
        /// Whether a login was sent.
        login: bool,
        /// Why no login could be had, where that was tried in vain.
        trouble: Option<String>,
    },
    /// 404.
    #[error("the registry has no {url}{}", words(said.as_deref()))]
    NotFound {
        /// The URL.
        url: String,
        /// What the registry said to it.
        said: Option<String>,
    },
    /// 429, and it stayed so for every retry.
    #[error("the registry wants fewer requests (HTTP 429 at {url}), tried {tries} times{}", words(said.as_deref()))]
    TooMany {
        /// The URL.
        url: String,
        /// How often it was asked.
        tries: u32,
        /// What the registry said to it.
        said: Option<String>,
        /// What the last answer's `Retry-After` said.
        retry_after: Option<Duration>,
    },
    /// Any other status that is no answer to what was asked.
    #[error("the registry answered {url} with HTTP {status}, tried {tries} times{}", words(said.as_deref()))]
    Status {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// How often it was asked.
        tries: u32,
        /// What the registry said to it.
        said: Option<String>,
        /// What the last answer's `Retry-After` said.
        retry_after: Option<Duration>,
    },
    /// No connection, a broken one, or a time-out, and it stayed so for every retry.
    #[error("no answer from {url}, tried {tries} times")]
    Transport {
        /// The URL.
        url: String,
        /// How often it was tried.
        tries: u32,
        /// The last failure.
        source: Box<ureq::Error>,
    },
    /// The connection kept breaking in the middle of a blob.
    #[error("{url} broke off at byte {at} of {total}, tried {tries} times")]
    BrokeOff {
        /// The URL.
        url: String,
        /// How many bytes got through.
        at: u64,
        /// How many there are.
        total: u64,
        /// How often it was tried without getting further.
        tries: u32,
        /// The last failure; absent when the server just stopped.
        source: Option<io::Error>,
    },
    /// A redirect that is not followed.
    #[error("a redirect from {url} is not followed: {why}")]
    Redirect {
        /// The URL.
        url: String,
        /// Why not.
        why: &'static str,
    },
    /// The answer is against the distribution specification.
    #[error("the registry's answer to {url} cannot be used: {why}")]
    Protocol {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The token server's answer cannot be used.
    #[error("the token server {url} gave no token: {why}")]
    Token {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More bytes than a document may have.
    #[error("{url} is larger than {limit} bytes")]
    TooLarge {
        /// The URL.
        url: String,
        /// The limit, bytes.
        limit: u64,
    },
    /// Other bytes than the digest says.
    #[error("{url} has the digest {found}, not {wanted}")]
    Digest {
        /// The URL or the file.
        url: String,
        /// The digest that was asked for.
        wanted: Digest,
        /// The digest of what came.
        found: Digest,
    },
    /// Another size than the descriptor says.
    #[error("{url} has {found} bytes, not {wanted}")]
    Size {
        /// The URL or the file.
        url: String,
        /// The size of the descriptor, bytes.
        wanted: u64,
        /// The size that was found, bytes.
        found: u64,
    },
    /// A manifest, index or configuration that does not read.
    #[error("{url} is not usable")]
    Document {
        /// The URL.
        url: String,
        /// Why.
        source: DocumentError,
    },
    /// A document of a kind that is not known, or that says two different things about itself.
    #[error("{url} is of the kind `{kind}`, which cannot be used here")]
    Kind {
        /// The URL.
        url: String,
        /// Its media type, cut and escaped.
        kind: String,
    },
    /// The image is there for other machines only.
    #[error("{reference} is not there for {wanted}; it is for {offered}")]
    Platform {
        /// The image.
        reference: String,
        /// The machine it is wanted for: `linux/amd64`.
        wanted: String,
        /// The machines it is there for, cut and escaped.
        offered: String,
    },
    /// A blob's file to push cannot be read.
    #[error("cannot read {}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A blob's file to push has other bytes than its descriptor says.
    #[error("{} is not the blob {wanted}", path.display())]
    ChangedSource {
        /// The file.
        path: PathBuf,
        /// The digest of the descriptor.
        wanted: Digest,
    },
    /// A pulled blob cannot be written.
    #[error("cannot write {}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's own sink for a pulled blob failed.
    #[error("{what} cannot be passed on")]
    Sink {
        /// The digest.
        what: Digest,
        /// What the sink said.
        source: io::Error,
    },
    /// What is to be pushed does not hang together.
    #[error("what is to be pushed to {reference} does not hang together: {why}")]
    Incomplete {
        /// Where it was to go.
        reference: String,
        /// What is missing or differs.
        why: String,
    },
    /// Another blob failed first.
    #[error("stopped, as something else failed")]
    Stopped,
}

fn words(said: Option<&str>) -> String {
    said.map_or_else(String::new, |said| format!(": {said}"))
}

impl RegistryError {
    /// Whether asking again may help.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::TooMany { .. } | Self::Transport { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 500..=599),
            _ => false,
        }
    }

    /// Whether a registry says of a manifest that it does not have a blob of it, or that the digest is
    /// another one (distribution specification, "Error codes").
    pub(super) fn misses_blobs(&self) -> bool {
        let (Self::Status {
            status: 400,
            said: Some(said),
            ..
        }
        | Self::NotFound {
            said: Some(said), ..
        }) = self
        else {
            return false;
        };
        let codes = ["DIGEST_INVALID", "BLOB_UNKNOWN", "MANIFEST_BLOB_UNKNOWN"];
        said.split([' ', ';']).any(|word| codes.contains(&word))
    }

    /// How long the server asks to wait.
    pub(super) fn wait_asked(&self) -> Option<Duration> {
        match self {
            Self::TooMany { retry_after, .. } | Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same error after `count` attempts.
    pub(super) fn with_attempt_count(mut self, count: u32) -> Self {
        if let Self::TooMany { tries, .. }
        | Self::Status { tries, .. }
        | Self::Transport { tries, .. } = &mut self
        {
            *tries = count;
        }
        self
    }
}

impl Hint for RegistryError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Setup(e) => return e.hint(),
            Self::Offline { .. } => "run it once without `--offline`",
            Self::Plain { .. } => {
                "use the registry's https address, or say that this registry may be asked without \
                 encryption if you trust everything on the way to it"
            }
            Self::Refused {
                trouble: Some(trouble),
                ..
            } => {
                return Some(format!(
                    "no login was sent, as {trouble}; mend that or log in to the registry again"
                ));
            }
            Self::Refused { login: false, .. } => {
                "no login for this registry was found; log in to it with `docker login` or \
                 `podman login`, and check the name of the image"
            }
            Self::Refused { .. } => {
                "check that the login is still good and may do this with this repository"
            }
            Self::NotFound { .. } => {
                "check the name, the tag and the digest; a registry also says this of what the \
                 login may not see"
            }
            Self::TooMany { .. } => "try again later, log in, or use a mirror",
            Self::Status { status: 413, .. } => {
                "something on the way allows no request of this size; let blobs be sent in \
                 smaller pieces"
            }
            Self::Status {
                status: 500..=599, ..
            } => "the registry itself failed; try again later or ask who runs it",
            Self::Transport { .. } | Self::BrokeOff { .. } => {
                "check the network, the proxy and the certificates; what is already there is not \
                 sent again"
            }
            Self::Redirect { .. } => {
                "use the address that the registry redirects to, if you trust it"
            }
            Self::Token { .. } | Self::Protocol { .. } => {
                "this may be no registry, or a proxy on the way changes its answers"
            }
            Self::TooLarge { .. } | Self::Digest { .. } | Self::Size { .. } => {
                "nothing of it was kept; a mirror or proxy on the way may change what it passes on"
            }
            Self::Kind { .. } | Self::Document { .. } => {
                "only images of the OCI form and of Docker's second form can be used"
            }
            Self::Platform { .. } => "ask for one of these machines, or use another image",
            Self::Setting { .. }
            | Self::Status { .. }
            | Self::Source { .. }
            | Self::ChangedSource { .. }
            | Self::Disk { .. }
            | Self::Sink { .. }
            | Self::Incomplete { .. }
            | Self::Stopped => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Setup(e) => e.exit_code(),
            Self::Setting { .. } | Self::Plain { .. } | Self::Incomplete { .. } => exit::BAD_INPUT,
            Self::Source { .. } => exit::BAD_INPUT,
            Self::Disk { .. } | Self::Sink { .. } => exit::STORE,
            Self::Digest { .. }
            | Self::Size { .. }
            | Self::ChangedSource { .. }
            | Self::Document { .. } => exit::VERIFY,
            Self::Platform { .. } => exit::NO_SOLUTION,
            Self::Offline { .. }
            | Self::Refused { .. }
            | Self::NotFound { .. }
            | Self::TooMany { .. }
            | Self::Status { .. }
            | Self::Transport { .. }
            | Self::BrokeOff { .. }
            | Self::Redirect { .. }
            | Self::Protocol { .. }
            | Self::Token { .. }
            | Self::TooLarge { .. }
            | Self::Kind { .. }
            | Self::Stopped => exit::FETCH,
        }
    }
}

/// `text` as it may be shown: at most `most` characters, and none that a terminal obeys or that
/// changes the order of the others.
pub(super) fn printable_text(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(most) {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

/// What a registry says in the body of a failure (distribution specification, "Error codes"), and
/// what a token server says (RFC 6749, section 5.2). `hidden` is blotted out of it.
pub(super) fn describe_error_body(body: &[u8], hidden: &[String]) -> Option<String> {
    #[derive(Deserialize)]
    struct One {
        code: Option<String>,
        message: Option<String>,
    }
    #[derive(Deserialize)]
    struct Body {
        errors: Option<Vec<One>>,
        error: Option<String>,
        error_description: Option<String>,
        details: Option<String>,
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    let one = |code: Option<String>, message: Option<String>| {
        let parts = [code, message].into_iter().flatten().map(|part| {
            let mut part = part;
            for secret in hidden.iter().filter(|secret| secret.len() > 3) {
                part = part.replace(secret.as_str(), "***");
            }
            printable_text(&part, 200)
        });
        let text = parts.collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then_some(text)
    };
    let errors = body.errors.unwrap_or_default().into_iter().take(3);
    let mut all: Vec<String> = errors.filter_map(|e| one(e.code, e.message)).collect();
    if all.is_empty() {
        all.extend(one(body.error, body.error_description.or(body.details)));
    }
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_short_and_harmless() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no \u001b[31m access","detail":{}},
            {"code":"UNKNOWN"},{"message":"c"},{"message":"d"}]}"#;
        assert_eq!(
            describe_error_body(body, &[]).as_deref(),
            Some("DENIED no \\u{1b}[31m access; UNKNOWN; c")
        );
        let oauth = br#"{"error":"invalid_grant","error_description":"bad token hunter22"}"#;
        assert_eq!(
            describe_error_body(oauth, &["hunter22".to_owned()]).as_deref(),
            Some("invalid_grant bad token ***")
        );
        for nothing in [
            "",
            "<html>",
            "{}",
            "[]",
            r#"{"errors":[{}]}"#,
            r#"{"errors":5}"#,
        ] {
            assert_eq!(
                describe_error_body(nothing.as_bytes(), &[]),
                None,
                "{nothing}"
            );
        }
        let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(5000));
        assert_eq!(
            describe_error_body(long.as_bytes(), &[]).map(|text| text.chars().count()),
            Some(201)
        );
        assert_eq!(printable_text("a\u{202e}b\n'", 9), "a\\u{202e}b\\n'");
    }
}
