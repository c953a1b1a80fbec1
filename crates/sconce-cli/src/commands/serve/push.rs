//! Metrics sent to an OpenTelemetry collector, by OTLP over HTTP in JSON.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sconce_fetch::{Agents, FetchConfig, redact_url, retry_after};
use sconce_schema::{Hint, duration, exit};
use serde::Deserialize;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::server::WebServer;
use crate::failure::{Result, with_causes};
use crate::input;
use crate::output;
use std::path::Path;

/// In which time a collector must have answered.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest that a collector may ask to be left alone.
const LONGEST_REST: Duration = Duration::from_secs(600);
/// How often the end of the server is looked for.
const BEAT: Duration = Duration::from_millis(100);
/// More of an answer is not read.
const LARGEST_ANSWER: u64 = 64 << 10;
/// More of a header's value is not taken.
const LARGEST_VALUE: u64 = 16 << 10;

#[derive(Args)]
pub(super) struct MetricsPushArgs {
    /// Send the metrics to an OpenTelemetry collector: OTLP over HTTP in JSON, to URL/v1/metrics where URL
    /// has no path.
    #[arg(long = "otlp", value_name = "URL")]
    to: Option<String>,
    /// A header for the collector; @FILE as its value is the first line of FILE, which nobody sees in the
    /// list of processes.
    #[arg(long = "otlp-header", value_name = "NAME=VALUE", requires = "to")]
    headers: Vec<String>,
    /// How often they are sent: 1s to 60m.
    #[arg(long = "otlp-every", value_name = "TIME", default_value = "10s", value_parser = every, requires = "to")]
    every: Duration,
}

/// The URL and the headers can hold secrets. For the same reason clap does not read them: it shows what it
/// cannot read.
impl fmt::Debug for MetricsPushArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushArgs").finish_non_exhaustive()
    }
}

/// An option that cannot be used, said without its value.
#[derive(Debug, thiserror::Error)]
#[error("{option} cannot be used: {why}")]
struct OptionError {
    option: &'static str,
    why: String,
}

impl Hint for OptionError {
    fn hint(&self) -> Option<String> {
        Some("docs/metrics.md has an example".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::USAGE
    }
}

/// Where metrics go; shown without a query, which can carry secrets.
#[derive(Clone, PartialEq, Eq)]
struct CollectorUrl(Uri);

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

struct Header(HeaderName, HeaderValue);

fn target(text: &str) -> std::result::Result<CollectorUrl, String> {
    let uri: Uri = text.parse().map_err(|_| "it is not a URL".to_owned())?;
    let web = matches!(uri.scheme_str(), Some("http" | "https"));
    let host = uri.host().is_some_and(|host| !host.is_empty());
    if !web || !host {
        return Err("a URL that begins with http:// or https:// and a host".to_owned());
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(
            "a URL without a user; --otlp-header authorization=@FILE has secrets".to_owned(),
        );
    }
    if uri.path() != "/" {
        return Ok(CollectorUrl(uri));
    }
    let query = uri.query().map(|query| format!("?{query}"));
    let whole = format!(
        "{}://{authority}/v1/metrics{}",
        uri.scheme_str().unwrap_or_default(),
        query.unwrap_or_default()
    );
    whole
        .parse()
        .map(CollectorUrl)
        .map_err(|_| "it is not a URL".to_owned())
}

/// What is wrong is said without the value.
fn header(text: &str) -> std::result::Result<Header, String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE")?;
    let name: HeaderName = name
        .trim()
        .parse()
        .map_err(|_| "NAME is no header's name")?;
    let value = match value.strip_prefix('@') {
        None => value.to_owned(),
        Some(path) => {
            let unreadable = |error: std::io::Error| format!("{path}: {error}");
            let file =
                input::open_stream(Path::new(path), output::tell_fifo_wait).map_err(unreadable)?;
            let mut line = String::new();
            BufReader::new(file.take(LARGEST_VALUE))
                .read_line(&mut line)
                .map_err(unreadable)?;
            line.trim().to_owned()
        }
    };
    let mut value: HeaderValue = value.parse().map_err(|_| "VALUE is no header's value")?;
    value.set_sensitive(true);
    Ok(Header(name, value))
}

fn every(text: &str) -> std::result::Result<Duration, String> {
    let ms =
        duration::parse_milliseconds(text).map_err(|error| format!("not {}", error.expected))?;
    match (1_000..=3_600_000).contains(&ms) {
        true => Ok(Duration::from_millis(ms)),
        false => Err("not from 1s to 60m".to_owned()),
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

/// A collector.
pub(super) struct OtlpCollector {
    target: CollectorUrl,
    headers: HeaderMap,
    every: Duration,
    agents: Agents,
}

impl MetricsPushArgs {
    /// The collector that was named, if any.
    ///
    /// # Errors
    /// For options and settings of the network that cannot be used.
    pub(super) fn build_collector(&self, network: &FetchConfig) -> Result<Option<OtlpCollector>> {
        let Some(to) = &self.to else {
            return Ok(None);
        };
        let unusable = |option| move |why| OptionError { option, why };
        let mut headers = HeaderMap::new();
        for text in &self.headers {
            let Header(name, value) = header(text).map_err(unusable("--otlp-header"))?;
            headers.insert(name, value);
        }
        Ok(Some(OtlpCollector {
            target: target(to).map_err(unusable("--otlp"))?,
            headers,
            every: self.every,
            agents: Agents::new(network)?,
        }))
    }
}

impl OtlpCollector {
    /// Sends until the server ends. A failure is said once, and its end too. What was not sent is not kept:
    /// counters count from their start, so the next request tells the same.
    pub(super) fn send_until_shutdown(&self, server: &Arc<WebServer>, quiet: bool) {
        let mut failing = false;
        loop {
            let began = Instant::now();
            let sent = (server.site.otlp_metrics().map_err(PushError::Runs))
                .and_then(|body| self.send(&body));
            let mut rest = self.every;
            match sent {
                Ok(()) if failing => {
                    failing = false;
                    if !quiet {
                        output::print_message(&format!(
                            "{} takes metrics again.",
                            self.target.shown()
                        ));
                    }
                }
                Ok(()) => {}
                Err(error) => {
                    if !failing {
                        let why = with_causes(&error);
                        let to = self.target.shown();
                        output::print_message(&format!(
                            "Metrics did not get to {to}: {why}. Sconce goes on trying."
                        ));
                    }
                    failing = true;
                    if let PushError::Status {
                        rest: Some(asked), ..
                    } = error
                    {
                        rest = rest.max(asked.min(LONGEST_REST));
                    }
                }
            }
            while began.elapsed() < rest {
                if server.ending.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(BEAT.min(rest));
            }
        }
    }

    fn send(&self, body: &str) -> std::result::Result<(), PushError> {
        let failed = |error| PushError::Transport(Box::new(error));
        let agent = self.agents.agent_for(&self.target.0);
        let agent = agent.unwrap_or_else(|| self.agents.direct_agent());
        let mut request = agent
            .post(&self.target.0)
            .config()
            .timeout_global(Some(PATIENCE))
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
        let limited = answer.body_mut().with_config().limit(LARGEST_ANSWER);
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
