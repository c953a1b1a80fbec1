//! URL to bytes, over a network that drops, stalls, redirects and lies.
//!
//! The fetcher promises that what it gives is one gapless stream of what the server holds under
//! the URL, however often the connection broke on the way. Whether these are the right bytes is
//! for the SHA-256 to say, which the caller checks.
#![forbid(unsafe_code)]

mod agents;
mod body;
mod client;
mod error;
mod names;
mod range;
mod url;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

pub use agents::Agents;
pub use body::FetchBody;
use client::FetchClient;
pub use error::FetchError;
pub use range::{ContentRange, content_range, retry_after};
pub use url::{file_path, file_url, join_url, redact_url};

/// User and password for one host.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// Host name, without port.
    pub host: String,
    /// User.
    pub user: String,
    /// Password or token.
    pub password: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.host)
    }
}

/// Proxies, as `http_proxy`, `https_proxy` and `no_proxy` name them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Proxy for `http:` URLs.
    pub http: Option<String>,
    /// Proxy for `https:` URLs.
    pub https: Option<String>,
    /// Hosts that are asked directly: `example.org` (with all below it), `.example.org`, `*`.
    pub bypass: Vec<String>,
}

impl std::fmt::Debug for Proxies {
    // A proxy's URL can hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxies")
            .field("http", &self.http.as_deref().map(redact_url))
            .field("https", &self.https.as_deref().map(redact_url))
            .field("bypass", &self.bypass)
            .finish()
    }
}

/// How to fetch.
#[derive(Debug, Clone)]
pub struct FetchConfig {
    /// Refuse everything that is not a `file:` URL.
    pub offline: bool,
    /// How often a failed request or a broken connection is tried again without getting further.
    pub retries: u32,
    /// The first pause before trying again; each further one is twice as long.
    pub pause: Duration,
    /// The longest pause, also when the server asks for a longer one.
    pub longest_pause: Duration,
    /// Longest time to make a connection, TLS included.
    pub connect_timeout: Duration,
    /// Longest silence of a server, before its answer and in the middle of it.
    pub idle_timeout: Duration,
    /// Sent to their own host only, also after a redirect.
    pub credentials: Vec<Credential>,
    /// A PEM file of certificate authorities to trust besides the system's.
    pub extra_ca: Option<PathBuf>,
    /// Proxies. The fetcher does not read the environment.
    pub proxies: Proxies,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            offline: false,
            retries: 4,
            pause: Duration::from_millis(300),
            longest_pause: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(60),
            credentials: Vec::new(),
            extra_ca: None,
            proxies: Proxies::default(),
        }
    }
}

/// Brings the bytes under a URL. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Fetcher {
    client: Arc<FetchClient>,
}

impl Fetcher {
    /// A fetcher with these settings.
    ///
    /// # Errors
    /// [`FetchError::Setting`] for a proxy that is no URL and for certificates that cannot be read.
    pub fn new(config: FetchConfig) -> Result<Self, FetchError> {
        Ok(Self {
            client: Arc::new(FetchClient::new(config)?),
        })
    }

    /// A small document, whole.
    ///
    /// # Errors
    /// [`FetchError::TooLarge`] beyond `limit_bytes`, and everything that [`Fetcher::open`] and
    /// [`FetchBody::read_some`] can fail with.
    pub fn get(&self, url: &str, limit_bytes: u64) -> Result<Vec<u8>, FetchError> {
        let mut body = self.open(url, 0)?;
        let too_large = || FetchError::TooLarge {
            url: redact_url(url),
            limit: limit_bytes,
        };
        if body.total_bytes().is_some_and(|total| total > limit_bytes) {
            return Err(too_large());
        }
        let mut out = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let n = body.read_some(&mut chunk)?;
            if n == 0 {
                debug!(
                    url = redact_url(url),
                    bytes = out.len(),
                    "fetched a document"
                );
                return Ok(out);
            }
            if (out.len() + n) as u64 > limit_bytes {
                return Err(too_large());
            }
            out.extend_from_slice(&chunk[..n]);
        }
    }

    /// The size in bytes of what `url` names, where the server tells it without sending it. Asked
    /// once: a size is a help for planning, and its absence is no failure.
    ///
    /// # Errors
    /// Every [`FetchError`] that says why there is no answer.
    pub fn request_size(&self, url: &str) -> Result<Option<u64>, FetchError> {
        self.client.request_size(url)
    }

    /// The bytes under `url` from `from_offset` on, as a stream that mends itself.
    ///
    /// # Errors
    /// Every [`FetchError`] that says why there is no answer.
    pub fn open(&self, url: &str, from_offset: u64) -> Result<FetchBody, FetchError> {
        FetchBody::open(Arc::clone(&self.client), url, from_offset)
    }
}

/// What bytes are read from.
type Source = Box<dyn Read + Send>;
