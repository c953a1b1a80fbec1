//! Why bytes could not be had.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sconce_schema::{Hint, exit};

/// Why a URL gave no bytes. URLs in it carry no user, password or query.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Something has to be fetched and the caller said not to.
    #[error("{url} is not in the store and fetching is off")]
    Offline {
        /// The URL.
        url: String,
    },
    /// Not a URL that can be fetched.
    #[error("cannot fetch `{url}`: {why}")]
    BadUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// 401 or 403.
    #[error("the server refused {url} (HTTP {status})")]
    Refused {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// 404 or 410.
    #[error("the server has no {url} (HTTP {status})")]
    NotFound {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// 429, and it stayed so for every retry.
    #[error("the server of {url} wants fewer requests (HTTP 429), tried {tries} times")]
    TooMany {
        /// The URL.
        url: String,
        /// How often it was asked.
        tries: u32,
        /// What the last answer's `Retry-After` said.
        retry_after: Option<Duration>,
    },
    /// 5xx, and it stayed so for every retry.
    #[error("the server of {url} failed (HTTP {status}), tried {tries} times")]
    Server {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// How often it was asked.
        tries: u32,
        /// What the last answer's `Retry-After` said.
        retry_after: Option<Duration>,
    },
    /// Any other status that is not the bytes.
    #[error("the server answered {url} with HTTP {status}")]
    Status {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// No connection, a broken one, or a time-out, and it stayed so for every retry.
    #[error("{url} could not be fetched, tried {tries} times")]
    Transport {
        /// The URL.
        url: String,
        /// How often it was tried.
        tries: u32,
        /// The last failure.
        source: Box<ureq::Error>,
    },
    /// The connection kept breaking in the middle.
    #[error("{url} broke off at byte {at}{}, tried {tries} times", of(*total))]
    BrokeOff {
        /// The URL.
        url: String,
        /// How many bytes had arrived.
        at: u64,
        /// How many there should be, where the server told it.
        total: Option<u64>,
        /// How often it was tried without getting further.
        tries: u32,
        /// The last failure; absent when the server just stopped.
        source: Option<io::Error>,
    },
    /// The answer to a ranged request is not the range that was asked for.
    #[error("the server of {url} was asked for bytes from {wanted} and sent `{said}`")]
    WrongRange {
        /// The URL.
        url: String,
        /// Offset that was asked for.
        wanted: u64,
        /// Its `Content-Range`, or what stood in its place.
        said: String,
    },
    /// The size changed between two answers.
    #[error("the server of {url} first told a size of {first} bytes, then {then}")]
    SizeChanged {
        /// The URL.
        url: String,
        /// The first size, bytes.
        first: u64,
        /// The other, bytes.
        then: u64,
    },
    /// The server compressed what must arrive as it is.
    #[error("the server of {url} sent it encoded as `{encoding}`, which was not asked for")]
    Encoded {
        /// The URL.
        url: String,
        /// Its `Content-Encoding`.
        encoding: String,
    },
    /// A redirect that is not followed.
    #[error("a redirect from {url} is not followed: {why}")]
    Redirect {
        /// The URL.
        url: String,
        /// Why not.
        why: &'static str,
    },
    /// More bytes than the caller allows.
    #[error("{url} is larger than {limit} bytes")]
    TooLarge {
        /// The URL.
        url: String,
        /// The caller's limit, bytes.
        limit: u64,
    },
    /// A `file:` URL's file.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's own settings.
    #[error("the fetcher's setting `{setting}` is unusable: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Why.
        why: String,
    },
}

fn of(total: Option<u64>) -> String {
    total.map_or_else(String::new, |total| format!(" of {total}"))
}

impl FetchError {
    /// Whether asking again may help.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::TooMany { .. } | Self::Server { .. } | Self::Transport { .. }
        )
    }

    /// How long the server asks to wait.
    pub(super) fn wait_asked(&self) -> Option<Duration> {
        match self {
            Self::TooMany { retry_after, .. } | Self::Server { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same error after `count` attempts.
    pub(super) fn with_attempt_count(mut self, count: u32) -> Self {
        if let Self::TooMany { tries, .. }
        | Self::Server { tries, .. }
        | Self::Transport { tries, .. } = &mut self
        {
            *tries = count;
        }
        self
    }
}

impl Hint for FetchError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Offline { .. } => "run it once without `--offline`",
            Self::BadUrl { .. } => "http, https and file URLs can be fetched",
            Self::Refused { .. } => {
                "give a login for this host in ~/.netrc or in the index's or mirror's address \
                 (https://USER:PASSWORD@HOST/…), or check that it may be read"
            }
            Self::NotFound { .. } => "the file was removed or moved; make the lock anew",
            Self::TooMany { .. } | Self::Server { .. } => "try again later, or use a mirror",
            Self::Transport { .. } | Self::BrokeOff { .. } => {
                "check the network, the proxy and the certificates; what is in the store is kept"
            }
            Self::WrongRange { .. } | Self::SizeChanged { .. } | Self::Encoded { .. } => {
                "a proxy or mirror on the way changes files; use another one"
            }
            Self::Redirect { .. } => "use the URL that the server redirects to, if you trust it",
            Self::TooLarge { .. } => "this is not the document that was expected at this URL",
            Self::Status { .. } | Self::File { .. } | Self::Setting { .. } => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Setting { .. } | Self::BadUrl { .. } => exit::BAD_INPUT,
            Self::Offline { .. }
            | Self::Refused { .. }
            | Self::NotFound { .. }
            | Self::TooMany { .. }
            | Self::Server { .. }
            | Self::Status { .. }
            | Self::Transport { .. }
            | Self::BrokeOff { .. }
            | Self::WrongRange { .. }
            | Self::SizeChanged { .. }
            | Self::Encoded { .. }
            | Self::Redirect { .. }
            | Self::TooLarge { .. }
            | Self::File { .. } => exit::FETCH,
        }
    }
}
