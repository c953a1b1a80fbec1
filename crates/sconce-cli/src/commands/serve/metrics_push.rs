//! The flags for metrics that are sent to a collector, and what is said of that.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use sconce_fetch::FetchConfig;
use sconce_schema::{Hint, duration, exit};
use sconce_web::otlp::{CollectorUrl, InvalidCollectorUrl, OtlpCollector, PushEvent};
use ureq::http::{HeaderMap, HeaderName, HeaderValue};

use crate::output;
use sconce_app::failure::Result;
use sconce_app::input;

/// More of a header's value is not taken.
const MAX_HEADER_VALUE_BYTES: u64 = 16 << 10;

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

struct Header(HeaderName, HeaderValue);

fn target(text: &str) -> std::result::Result<CollectorUrl, String> {
    text.parse().map_err(|error| match error {
        InvalidCollectorUrl::HasUser => {
            format!("{error}; --otlp-header authorization=@FILE has secrets")
        }
        InvalidCollectorUrl::Malformed | InvalidCollectorUrl::NotWeb => error.to_string(),
    })
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
                input::open_stream(Path::new(path), &output::tell_fifo_wait).map_err(unreadable)?;
            let mut line = String::new();
            BufReader::new(file.take(MAX_HEADER_VALUE_BYTES))
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
        let target = target(to).map_err(unusable("--otlp"))?;
        Ok(Some(OtlpCollector::new(
            target, headers, self.every, network,
        )?))
    }
}

/// Says that metrics do not get to a collector, and when they do again.
pub(super) fn print_event(event: &PushEvent, quiet: bool) {
    match event {
        PushEvent::Failing { collector, why } => output::print_message(&format!(
            "Metrics did not get to {collector}: {why}. Sconce goes on trying."
        )),
        PushEvent::Recovered { collector } if !quiet => {
            output::print_message(&format!("{collector} takes metrics again."));
        }
        PushEvent::Recovered { .. } => {}
    }
}

#[cfg(test)]
mod tests;
