//! Metrics sent to an OpenTelemetry collector, by OTLP over HTTP in JSON.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sconce_base::text::with_causes;
use sconce_fetch::{Agents, FetchConfig, FetchError, redact_url, retry_after};
use serde::Deserialize;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{HeaderMap, HeaderValue, Uri};

use crate::server::WebServer;

/// In which time a collector must have answered.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that a collector may ask to be left alone.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);
/// How often the end of the server is looked for.
const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// More of an answer is not read.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// Where metrics go; shown without a query, which can carry secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectorUrl(Uri);

/// Why a text is no URL of a collector. It does not say the text, which can carry secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCollectorUrl {
    /// It cannot be read.
    #[error("it is not a URL")]
    Malformed,
    /// It leads to no web server.
    #[error("a URL that begins with http:// or https:// and a host")]
    NotWeb,
    /// It has a user, and perhaps a password.
    #[error("a URL without a user")]
    HasUser,
}

impl FromStr for CollectorUrl {
    type Err = InvalidCollectorUrl;

    /// Reads a URL; one without a path gets that of metrics (OTLP specification, "OTLP/HTTP Request").
    fn from_str(text: &str) -> Result<Self, InvalidCollectorUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidCollectorUrl::Malformed)?;
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.host().is_some_and(|host| !host.is_empty());
        if !web || !host {
            return Err(InvalidCollectorUrl::NotWeb);
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(InvalidCollectorUrl::HasUser);
        }
        if uri.path() != "/" {
            return Ok(Self(uri));
        }
        let query = uri.query().map(|query| format!("?{query}"));
        let whole = format!(
            "{}://{authority}/v1/metrics{}",
            uri.scheme_str().unwrap_or_default(),
            query.unwrap_or_default()
        );
        let whole = whole.parse();
        whole.map(Self).map_err(|_| InvalidCollectorUrl::Malformed)
    }
}

impl fmt::Debug for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl CollectorUrl {
    fn shown(&self) -> String {
        redact_url(&self.0.to_string())
    }
}

/// Why a collector did not take metrics.
#[derive(Debug, thiserror::Error)]
enum PushError {
    #[error("no answer")]
    Transport(#[source] Box<ureq::Error>),
    #[error("it answered {status}")]
    Status { status: u16, rest: Option<Duration> },
    #[error("it left {count} figures out")]
    Partial { count: i64 },
    #[error("the runs cannot be read")]
    Runs(#[source] sconce_record::RecordError),
}

/// What happens while metrics are sent, told when it changes.
#[derive(Debug)]
pub enum PushEvent {
    /// They do not get there; sending goes on.
    Failing {
        /// The collector's URL, as it may be shown.
        collector: String,
        /// Why, with all causes.
        why: String,
    },
    /// They get there again.
    Recovered {
        /// The collector's URL, as it may be shown.
        collector: String,
    },
}

/// A collector.
pub struct OtlpCollector {
    target: CollectorUrl,
    headers: HeaderMap,
    every: Duration,
    agents: Agents,
}

impl OtlpCollector {
    /// Makes one that is sent metrics each `every`, with `headers` beside those of the protocol.
    ///
    /// # Errors
    /// For settings of the network that cannot be used.
    pub fn new(
        target: CollectorUrl,
        headers: HeaderMap,
        every: Duration,
        network: &FetchConfig,
    ) -> Result<Self, FetchError> {
        Ok(Self {
            target,
            headers,
            every,
            agents: Agents::new(network)?,
        })
    }

    /// Sends until the server ends. A failure is told once, and its end too. What was not sent is not kept:
    /// counters count from their start, so the next request tells the same.
    pub fn send_until_shutdown(&self, server: &Arc<WebServer>, tell: &dyn Fn(PushEvent)) {
        let mut failing = false;
        loop {
            let began = Instant::now();
            let sent = (server.site.otlp_metrics().map_err(PushError::Runs))
                .and_then(|body| self.send(&body));
            let mut rest = self.every;
            match sent {
                Ok(()) if failing => {
                    failing = false;
                    tell(PushEvent::Recovered {
                        collector: self.target.shown(),
                    });
                }
                Ok(()) => {}
                Err(error) => {
                    if !failing {
                        tell(PushEvent::Failing {
                            collector: self.target.shown(),
                            why: with_causes(&error),
                        });
                    }
                    failing = true;
                    if let PushError::Status {
                        rest: Some(asked), ..
                    } = error
                    {
                        rest = rest.max(asked.min(MAX_RETRY_DELAY));
                    }
                }
            }
            while began.elapsed() < rest {
                if server.ending.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(SHUTDOWN_POLL_INTERVAL.min(rest));
            }
        }
    }

    fn send(&self, body: &str) -> Result<(), PushError> {
        let failed = |error| PushError::Transport(Box::new(error));
        let agent = self.agents.agent_for(&self.target.0);
        let agent = agent.unwrap_or_else(|| self.agents.direct_agent());
        let mut request = agent
            .post(&self.target.0)
            .config()
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .build();
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let mut answer = request.send(body).map_err(failed)?;
        let status = answer.status();
        if !status.is_success() {
            let asked = answer.headers().get(RETRY_AFTER);
            let rest = asked.and_then(|asked| retry_after(asked.to_str().ok()?));
            return Err(PushError::Status {
                status: status.as_u16(),
                rest,
            });
        }
        // Whoever took it may say so in any words, or none.
        let limited = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        match left_out(&limited.read_to_string().unwrap_or_default()) {
            0 => Ok(()),
            count => Err(PushError::Partial { count }),
        }
    }
}

/// How many figures a collector says that it did not take: `partialSuccess` of its answer, a 64-bit number
/// as text or as a number.
fn left_out(answer: &str) -> i64 {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct PushResponse {
        partial_success: Partial,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Partial {
        rejected_data_points: Count,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Number(i64),
        Text(String),
    }
    impl Default for Count {
        fn default() -> Self {
            Self::Number(0)
        }
    }
    let answer: PushResponse = serde_json::from_str(answer).unwrap_or_default();
    let count = match answer.partial_success.rejected_data_points {
        Count::Number(count) => count,
        Count::Text(text) => text.parse().unwrap_or(0),
    };
    count.max(0)
}

#[cfg(test)]
mod tests;
