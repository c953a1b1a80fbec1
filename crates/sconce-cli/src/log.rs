//! The log: what the program did and decided, for whoever looks for a fault.
//!
//! Crates write events (`tracing`); without `-v` and `SCONCE_LOG` nothing takes them, and an event costs
//! one comparison. The first process of a container never gets here, so nothing inside writes any.

use std::fmt::{self, Write as _};
use std::time::Instant;

use sconce_base::Env;
use sconce_base::{secrets, text};
use sconce_schema::{Hint, exit};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::output;

/// Says which events are shown, where no flag does.
const VARIABLE: &str = "SCONCE_LOG";
/// The crates that write events, which is what the variable can name.
const TARGETS: [&str; 10] = [
    "sconce_app",
    "sconce_cli",
    "sconce_fetch",
    "sconce_host",
    "sconce_image",
    "sconce_registry",
    "sconce_resolve",
    "sconce_run",
    "sconce_store",
    "sconce_submit",
];

/// The most that is shown of a message or a field, characters.
const MAX_VALUE_CHARS: usize = 2000;

/// Why [`VARIABLE`] cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFilterError {
    #[error("{VARIABLE}: `{level}` is no level")]
    Level { level: String },
    #[error("{VARIABLE}: no part of Sconce is named `{target}`")]
    Target { target: String },
}

impl Hint for LogFilterError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Level { .. } => "levels are error, warn, info, debug, trace and off; \
                 `sconce_store=trace,info` gives one part a level of its own"
                .to_owned(),
            Self::Target { .. } => format!("parts are {}", TARGETS.join(", ")),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Shows events on standard error from now on, if `-v` (given `verbose` times) or [`VARIABLE`] asks for
/// any. The flag wins over the variable.
///
/// # Errors
/// [`LogFilterError`] for a variable that cannot be followed.
pub(crate) fn install(verbose: u8, env: &Env) -> Result<(), LogFilterError> {
    let filter = match verbose {
        0 => match env.var_os(VARIABLE) {
            Some(text) if !text.is_empty() => parse_filter(&text.to_string_lossy())?,
            _ => return Ok(()),
        },
        1 => Targets::new().with_default(LevelFilter::INFO),
        2 => Targets::new().with_default(LevelFilter::DEBUG),
        _ => Targets::new().with_default(LevelFilter::TRACE),
    };
    let lines = LogLines {
        start: Instant::now(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    // It fails only where there is one already, and this is called once.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// `debug`, `sconce_store=trace`, or several with commas between them. A target of tracing's own kind that
/// nobody writes events for is an error here: it would show nothing, and not say why.
fn parse_filter(text: &str) -> Result<Targets, LogFilterError> {
    let mut filter = Targets::new();
    for directive in text.split(',').map(str::trim) {
        filter = match directive.split_once('=') {
            None => filter.with_default(parse_level(directive)?),
            Some((target, level)) if is_target(target) => {
                filter.with_target(target, parse_level(level)?)
            }
            Some((target, _)) => {
                let target = target.to_owned();
                return Err(LogFilterError::Target { target });
            }
        };
    }
    Ok(filter)
}

fn parse_level(text: &str) -> Result<LevelFilter, LogFilterError> {
    Ok(match text {
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        "off" => LevelFilter::OFF,
        _ => {
            let level = text.to_owned();
            return Err(LogFilterError::Level { level });
        }
    })
}

/// Whether it is a crate that writes events, or a module of one.
fn is_target(text: &str) -> bool {
    let name = text.split("::").next().unwrap_or(text);
    TARGETS.contains(&name)
}

/// Writes each event as a line: seconds since the start, level, target, message, fields.
struct LogLines {
    start: Instant,
}

impl<S: Subscriber> Layer<S> for LogLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let (metadata, seconds) = (event.metadata(), self.start.elapsed().as_secs_f64());
        let (level, target) = (metadata.level().as_str(), metadata.target());
        let EventText { message, fields } = text;
        output::log_line(&format!(
            "{seconds:9.3} {level:<5} {target}: {message}{fields}"
        ));
    }
}

/// What an event says.
#[derive(Default)]
struct EventText {
    message: String,
    /// ` name=value` for each field.
    fields: String,
}

impl EventText {
    fn add(&mut self, field: &Field, value: &str) {
        let value = printable(value);
        match field.name() {
            "message" => self.message = value,
            // Writing into memory does not fail.
            name => drop(write!(self.fields, " {name}={value}")),
        }
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }
}

/// One line without secrets, and without what a terminal would obey: names of files, packages and servers
/// are anyone's text.
fn printable(text: &str) -> String {
    text::to_printable(&secrets::mask_text(text), MAX_VALUE_CHARS)
}

#[cfg(test)]
mod tests;
