//! One request: proxies, credentials, redirects, and what its answer means.

use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use base64::Engine as _;
use tracing::debug;
use ureq::http::{HeaderMap, Uri};

use super::agents::Agents;
use super::range::{content_range, retry_after};
use super::url::{file_path, join_url, redact_url, split_user};
use super::{FetchConfig, FetchError, Source};

/// A redirect chain longer than this is a loop.
const MAX_REDIRECTS: usize = 10;

/// The agents and what they were made from.
pub(super) struct FetchClient {
    pub(super) config: FetchConfig,
    agents: Agents,
}

impl std::fmt::Debug for FetchClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.config.fmt(f)
    }
}

/// What is asked of a server.
#[derive(Debug, Clone, Copy)]
enum Method {
    /// The bytes from an offset on.
    Get {
        /// The offset.
        from: u64,
    },
    /// The headers alone.
    Head,
}

/// An answer whose status was good.
pub(super) struct FetchResponse {
    /// Offset of the first byte that `source` gives.
    pub(super) first: u64,
    /// Size of the whole file, where the server told it.
    pub(super) total: Option<u64>,
    pub(super) source: Source,
}

impl FetchClient {
    pub(super) fn new(config: FetchConfig) -> Result<Self, FetchError> {
        Ok(Self {
            agents: Agents::new(&config)?,
            config,
        })
    }

    /// The pause before attempt `tries + 1`.
    pub(super) fn retry_delay(&self, tries: u32, asked: Option<Duration>) -> Duration {
        let own = self
            .config
            .pause
            .saturating_mul(1 << tries.saturating_sub(1).min(16));
        asked.unwrap_or(own).max(own).min(self.config.longest_pause)
    }

    /// Asks once for `url` from offset `from` on.
    pub(super) fn request_once(&self, url: &str, from: u64) -> Result<FetchResponse, FetchError> {
        if url.starts_with("file:") {
            return open_file(url, from);
        }
        if self.config.offline {
            return Err(FetchError::Offline {
                url: redact_url(url),
            });
        }
        let response = self.follow(Method::Get { from }, url)?;
        let (parts, body) = response.into_parts();
        let status = parts.status.as_u16();
        check_status(url, status, &parts.headers)?;
        let header = |name: &str| {
            parts
                .headers
                .get(name)
                .map(|v| String::from_utf8_lossy(v.as_bytes()))
        };
        if let Some(encoding) = header("content-encoding")
            && !encoding.eq_ignore_ascii_case("identity")
        {
            return Err(FetchError::Encoded {
                url: redact_url(url),
                encoding: encoding.into_owned(),
            });
        }
        let length = body.content_length();
        if status == 200 {
            return Ok(FetchResponse {
                first: 0,
                total: length,
                source: Box::new(body.into_reader()),
            });
        }
        let said = header("content-range").unwrap_or("206 without Content-Range".into());
        match content_range(&said) {
            Some(range) if from > 0 && range.first == from => Ok(FetchResponse {
                first: from,
                total: range.total,
                source: Box::new(body.into_reader().take(range.last - range.first + 1)),
            }),
            _ => Err(FetchError::WrongRange {
                url: redact_url(url),
                wanted: from,
                said: said.into_owned(),
            }),
        }
    }

    /// The size of what `url` names, where the server tells it without sending it.
    pub(super) fn request_size(&self, url: &str) -> Result<Option<u64>, FetchError> {
        if url.starts_with("file:") {
            return Ok(open_file(url, 0)?.total);
        }
        if self.config.offline {
            return Err(FetchError::Offline {
                url: redact_url(url),
            });
        }
        let response = self.follow(Method::Head, url)?;
        check_status(url, response.status().as_u16(), response.headers())?;
        let length = response.headers().get("content-length");
        Ok(length
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse().ok()))
    }

    /// Sends the request and follows redirects. Each hop gets the credentials of its own host and
    /// no others.
    fn follow(
        &self,
        method: Method,
        url: &str,
    ) -> Result<ureq::http::Response<ureq::Body>, FetchError> {
        let (mut at, mut own) = split_user(url);
        let bad = |why| FetchError::BadUrl {
            url: redact_url(url),
            why,
        };
        let no = |why| FetchError::Redirect {
            url: redact_url(url),
            why,
        };
        for _ in 0..MAX_REDIRECTS {
            let uri: Uri = at.parse().map_err(|_| bad("it is not a URL"))?;
            let host = uri.host().ok_or_else(|| bad("it names no host"))?;
            let agent = self
                .agents
                .agent_for(&uri)
                .ok_or_else(|| bad("its scheme is not http, https or file"))?;
            let mut request = match method {
                Method::Get { .. } => agent.get(&uri),
                Method::Head => agent.head(&uri),
            };
            if let Method::Get { from: from @ 1.. } = method {
                request = request.header("range", format!("bytes={from}-"));
            }
            if let Some(basic) = self.basic(host, own.as_ref()) {
                request = request.header("authorization", basic);
            }
            let response = request.call().map_err(|source| FetchError::Transport {
                url: redact_url(url),
                tries: 1,
                source: Box::new(source),
            })?;
            let status = response.status().as_u16();
            debug!(url = redact_url(&at), status, "a server answered");
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let location = response
                .headers()
                .get("location")
                .and_then(|v| v.to_str().ok())
                .ok_or_else(|| no("it names no target"))?;
            let (target, user) = split_user(
                &join_url(&uri, location).ok_or_else(|| no("its target is not http or https"))?,
            );
            let next: Uri = target.parse().map_err(|_| no("its target is not a URL"))?;
            if uri.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(no("it leads from https to http"));
            }
            let same = next.authority().is_some() && next.authority() == uri.authority();
            own = user.or(own.filter(|_| same));
            at = target;
        }
        Err(no("there are too many in a row"))
    }

    /// The `Authorization` header for `host`.
    fn basic(&self, host: &str, own: Option<&(String, String)>) -> Option<String> {
        let (user, password) = match own {
            Some((user, password)) => (user, password),
            None => self
                .config
                .credentials
                .iter()
                .find(|c| c.host.eq_ignore_ascii_case(host))
                .map(|c| (&c.user, &c.password))?,
        };
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        Some(format!("Basic {text}"))
    }
}

fn check_status(url: &str, status: u16, headers: &HeaderMap) -> Result<(), FetchError> {
    let url = redact_url(url);
    let retry_after = headers
        .get("retry-after")
        .and_then(|v| v.to_str().ok())
        .and_then(retry_after);
    Err(match status {
        200 | 206 => return Ok(()),
        401 | 403 => FetchError::Refused { url, status },
        404 | 410 => FetchError::NotFound { url, status },
        429 => FetchError::TooMany {
            url,
            tries: 1,
            retry_after,
        },
        500..=599 => FetchError::Server {
            url,
            status,
            tries: 1,
            retry_after,
        },
        _ => FetchError::Status { url, status },
    })
}

fn open_file(url: &str, from: u64) -> Result<FetchResponse, FetchError> {
    let path = file_path(url).ok_or_else(|| FetchError::BadUrl {
        url: redact_url(url),
        why: "a file URL names an absolute path on this machine",
    })?;
    let open = || -> io::Result<FetchResponse> {
        let mut file = std::fs::File::open(&path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        file.seek(SeekFrom::Start(from))?;
        Ok(FetchResponse {
            first: from,
            total: Some(meta.len()),
            source: Box::new(file),
        })
    };
    open().map_err(|source| FetchError::File {
        path: path.clone(),
        source,
    })
}
