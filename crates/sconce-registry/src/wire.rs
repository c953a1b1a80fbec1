//! One request and its answer: which hosts may be asked how, and when to ask again.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sconce_fetch::{Agents, FetchConfig, redact_url, retry_after};
use tracing::debug;
use ureq::http::request::Builder;
use ureq::http::{HeaderMap, Method, Request, Response, Uri};
use ureq::{Agent, AsSendBody, SendBody};

use super::error::{RegistryError, describe_error_body};

/// The most of a failure's body that is read, bytes.
const MAX_FAILURE_BYTES: u64 = 16 << 10;
/// Longest time for the whole body of an answer that is no blob: a server that sends a byte a minute
/// is never silent for long.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Longest time to find out whether a host without certificates speaks TLS.
const TLS_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections, and the rules of their use.
#[derive(Debug)]
pub(super) struct HttpTransport {
    pub(super) config: FetchConfig,
    agents: Agents,
    /// `HOST[:PORT]` that may be asked without TLS.
    insecure: Vec<String>,
    schemes: Mutex<HashMap<String, &'static str>>,
}

/// What goes with a request.
pub(super) enum RequestBody<'a> {
    /// Nothing, and no length either.
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// A part of a blob.
    Part(&'a mut dyn RewindableBody),
}

/// Bytes that can be sent more than once.
pub(super) trait RewindableBody: Read {
    /// Goes back to the first of them, and says how many there are.
    fn restart(&mut self) -> Result<u64, RegistryError>;
}

/// How long an answer may take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTimeouts {
    /// Longest time to its beginning, where it is another than the usual one.
    pub(super) answer: Option<Duration>,
    /// Whether its body may take as long as it likes.
    pub(super) is_bulk: bool,
}

/// An answer, whatever its status.
pub(super) struct RegistryResponse {
    /// Who gave it.
    pub(super) url: String,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    body: ureq::Body,
}

/// Scheme, host and port of a URL: whom a credential is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin(String, String, u16);

impl Origin {
    pub(super) fn from_uri(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?;
        let port = uri.port_u16().unwrap_or(match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        });
        let host = uri.host().filter(|host| !host.is_empty())?;
        Some(Self(scheme.to_owned(), host.to_ascii_lowercase(), port))
    }
}

impl HttpTransport {
    pub(super) fn new(config: FetchConfig, insecure: &[String]) -> Result<Self, RegistryError> {
        for host in insecure {
            super::reference::check_host(host).map_err(|why| RegistryError::Setting {
                setting: "insecure",
                why: format!("`{}`: {why}", super::error::printable_text(host, 100)),
            })?;
        }
        Ok(Self {
            agents: Agents::new(&config)?,
            config,
            insecure: insecure.iter().map(|h| h.to_ascii_lowercase()).collect(),
            schemes: Mutex::default(),
        })
    }

    /// Whether `HOST[:PORT]` may be asked without TLS: this machine itself, and where the settings
    /// say so.
    pub(super) fn may_be_plain(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        is_loopback(&host) || self.insecure.contains(&host)
    }

    /// Reads a URL and refuses those that must not be asked.
    pub(super) fn parse_permitted_url(&self, url: &str) -> Result<Uri, RegistryError> {
        let bad = |why| RegistryError::Protocol {
            url: redact_url(url),
            why,
        };
        let uri: Uri = url
            .parse()
            .map_err(|_| bad("it names an address that is no URL"))?;
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("it names an address with a login"));
        }
        match uri.scheme_str() {
            Some("https") => Ok(uri),
            Some("http") if self.may_be_plain(authority.as_str()) => Ok(uri),
            Some("http") => Err(RegistryError::Plain {
                url: redact_url(url),
            }),
            _ => Err(bad("it names an address that is neither http nor https")),
        }
    }

    /// Sends one request, once. Redirects are answers too.
    pub(super) fn send_request(
        &self,
        method: &Method,
        url: &str,
        headers: &[(&'static str, String)],
        payload: &mut RequestBody<'_>,
        times: RequestTimeouts,
    ) -> Result<RegistryResponse, RegistryError> {
        if self.config.offline {
            return Err(RegistryError::Offline {
                url: redact_url(url),
            });
        }
        let uri = self.parse_permitted_url(url)?;
        let broken = |source| RegistryError::Transport {
            url: redact_url(url),
            tries: 1,
            source: Box::new(source),
        };
        // What stays on this machine goes through no proxy: it may be a login in plain text.
        let agent = match uri.host() {
            Some(host) if is_loopback(host) => Some(self.agents.direct_agent()),
            _ => self.agents.agent_for(&uri),
        };
        let agent = agent.ok_or_else(|| RegistryError::Plain {
            url: redact_url(url),
        })?;
        let mut request = Request::builder().method(method.clone()).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let answer = times.answer.unwrap_or(self.config.idle_timeout);
        let wait = (answer, (!times.is_bulk).then_some(DOCUMENT_TIMEOUT));
        let response = match payload {
            RequestBody::None => run(agent, request, (), wait),
            RequestBody::Bytes(bytes) => run(agent, request, *bytes, wait),
            RequestBody::Part(part) => {
                let request = request.header("content-length", part.restart()?);
                run(agent, request, SendBody::from_reader(part), wait)
            }
        };
        let (parts, body) = response.map_err(broken)?.into_parts();
        debug!(%method, url = redact_url(url), status = parts.status.as_u16(), "a registry answered");
        Ok(RegistryResponse {
            url: url.to_owned(),
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    /// Does it again, after a pause, while that may help.
    pub(super) fn retry_transient<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut tries = 0;
        loop {
            let error = match attempt() {
                Err(e) if e.may_pass() => e,
                other => return other,
            };
            tries += 1;
            if tries > self.config.retries {
                return Err(error.with_attempt_count(tries));
            }
            debug!(tries, %error, "it is asked again");
            self.sleep_before_retry(tries, error.wait_asked());
        }
    }

    /// Waits before attempt `tries + 1`.
    pub(super) fn sleep_before_retry(&self, tries: u32, asked: Option<Duration>) {
        let own = self
            .config
            .pause
            .saturating_mul(1 << tries.saturating_sub(1).min(16));
        let longest = self.config.longest_pause;
        std::thread::sleep(asked.unwrap_or(own).max(own).min(longest));
    }

    /// How `HOST[:PORT]` is asked. A host that need not have a certificate is tried with TLS first,
    /// without any login.
    pub(super) fn detect_scheme(&self, host: &str) -> Result<&'static str, RegistryError> {
        if !self.may_be_plain(host) {
            return Ok("https");
        }
        let known = || self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scheme) = known().get(host) {
            return Ok(scheme);
        }
        let times = RequestTimeouts {
            answer: Some(TLS_ATTEMPT_TIMEOUT),
            is_bulk: false,
        };
        let ask = |scheme| {
            let url = format!("{scheme}://{host}/v2/");
            self.send_request(&Method::GET, &url, &[], &mut RequestBody::None, times)
        };
        let scheme = self.retry_transient(|| match ask("https") {
            Ok(_) => Ok("https"),
            Err(e @ RegistryError::Transport { .. }) => match ask("http") {
                // What a server says that wants TLS.
                Ok(reply) if reply.status != 400 => Ok("http"),
                _ => Err(e),
            },
            Err(e) => Err(e),
        })?;
        known().insert(host.to_owned(), scheme);
        Ok(scheme)
    }
}

impl RegistryResponse {
    /// The URL as it may be shown.
    pub(super) fn redacted_url(&self) -> String {
        redact_url(&self.url)
    }

    /// A header, where it is one line of text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The length of the body, where it was told.
    pub(super) fn content_length(&self) -> Option<u64> {
        self.header("content-length")?.trim().parse().ok()
    }

    /// Reads what is left of a small body, so that the connection serves again.
    pub(super) fn drain_body(self) {
        let body = self.body.into_reader();
        let _ = std::io::copy(&mut body.take(MAX_FAILURE_BYTES), &mut std::io::sink());
    }

    /// The body as a stream.
    pub(super) fn into_reader(self) -> impl Read + Send + use<> {
        self.body.into_reader()
    }

    /// The body, whole.
    pub(super) fn into_bytes(self, limit: u64) -> Result<Vec<u8>, RegistryError> {
        let url = self.redacted_url();
        if self.content_length().is_some_and(|length| length > limit) {
            return Err(RegistryError::TooLarge { url, limit });
        }
        let mut bytes = Vec::new();
        self.body
            .into_reader()
            .take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| RegistryError::Transport {
                url: url.clone(),
                tries: 1,
                source: Box::new(ureq::Error::Io(e)),
            })?;
        if bytes.len() as u64 > limit {
            return Err(RegistryError::TooLarge { url, limit });
        }
        Ok(bytes)
    }

    /// The failure that this answer is. `hidden` is blotted out of what the server says.
    pub(super) fn into_error(
        self,
        hidden: &[String],
        login: bool,
        trouble: Option<String>,
    ) -> RegistryError {
        let (url, status) = (self.redacted_url(), self.status);
        let retry_after = self.header("retry-after").and_then(retry_after);
        let mut body = Vec::new();
        // What cannot be read of it was not important.
        let _ = self
            .body
            .into_reader()
            .take(MAX_FAILURE_BYTES)
            .read_to_end(&mut body);
        let said = describe_error_body(&body, hidden);
        match status {
            401 | 403 => RegistryError::Refused {
                url,
                status,
                said,
                login,
                trouble,
            },
            404 => RegistryError::NotFound { url, said },
            429 => RegistryError::TooMany {
                url,
                tries: 1,
                said,
                retry_after,
            },
            _ => RegistryError::Status {
                url,
                status,
                tries: 1,
                said,
                retry_after,
            },
        }
    }
}

fn run(
    agent: &Agent,
    request: Builder,
    body: impl AsSendBody,
    (answer, whole): (Duration, Option<Duration>),
) -> Result<Response<ureq::Body>, ureq::Error> {
    let request = agent.configure_request(request.body(body)?);
    let request = request.timeout_recv_response(Some(answer));
    agent.run(request.timeout_recv_body(whole).build())
}

/// Whether `HOST[:PORT]` is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => address.to_canonical().is_loopback(),
        // RFC 6761, section 6.3.
        Err(_) => name == "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_goes_without_tls() {
        for (host, is) in [
            ("127.0.0.1", true),
            ("127.8.9.1:5000", true),
            ("localhost:5000", true),
            ("[::1]:5000", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.example.org", false),
            ("127.0.0.1.example.org", false),
            ("10.0.0.1:5000", false),
            ("[2001:db8::1]", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), is, "{host}");
        }
        let insecure = ["lab.example.org:5000".to_owned()];
        let wire = HttpTransport::new(FetchConfig::default(), &insecure).unwrap();
        for (url, good) in [
            ("https://registry.example.org/v2/", true),
            ("http://registry.example.org/v2/", false),
            ("http://lab.example.org:5000/v2/", true),
            ("http://lab.example.org/v2/", false),
            ("http://127.0.0.1:9/v2/", true),
            ("https://me:pass@registry.example.org/", false),
            ("ftp://registry.example.org/", false),
            ("/v2/", false),
            ("file:///etc/passwd", false),
        ] {
            assert_eq!(wire.parse_permitted_url(url).is_ok(), good, "{url}");
        }
        assert!(HttpTransport::new(FetchConfig::default(), &["http://x".to_owned()]).is_err());
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let of = |text: &str| Origin::from_uri(&text.parse().unwrap());
        assert_eq!(
            of("https://A.example.org/x"),
            of("https://a.example.org:443/y?z")
        );
        assert_ne!(of("https://a.example.org"), of("http://a.example.org"));
        assert_ne!(
            of("https://a.example.org"),
            of("https://a.example.org:8443")
        );
        assert_eq!(of("/x"), None);
    }
}
