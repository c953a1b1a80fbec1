//! A service: a program that runs beside others in a run, is watched, and is started again when it
//! ends. Everything has been decided: what a `sconce.toml` leaves out stands here as its default.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::request::{ContainerUser, PublishedPort};
use crate::units::{UnitError, serde_as_text};

/// One service of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunService {
    /// Unique in its run; see [`is_service_name`]. Also the name of its log.
    pub name: String,
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Variables beside the run's, which they go before. Never written into a record, so that a
    /// token may stand here.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory inside, absolute; the run's where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
    /// Who it is inside; the run's user where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
    /// When it is started again.
    #[serde(default)]
    pub restart: RestartPolicy,
    /// How long it may take to end after [`RunService::stop_signal`] before it is killed, seconds.
    #[serde(default = "ten")]
    pub grace_s: u32,
    /// What asks it to end.
    #[serde(default)]
    pub stop_signal: StopSignal,
    /// Where it listens. On the machine's own network both port numbers of one are the same, and
    /// the port has to be free before the run begins; on any other network they are published.
    #[serde(default)]
    pub ports: Vec<PublishedPort>,
    /// What a person opens (`http://127.0.0.1:8888/lab?token=…`) or types (`ssh -p 2222 …`) to
    /// use it, complete. It may hold a token: never written into a record.
    #[serde(default)]
    pub links: Vec<String>,
    /// How it is found out whether it does its work; where this is absent it counts as healthy
    /// while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    /// Services that have to be healthy before this one is started.
    #[serde(default)]
    pub after: Vec<String>,
}

fn ten() -> u32 {
    10
}

impl RunService {
    /// A service with every default.
    #[must_use]
    pub fn new(name: impl Into<String>, command: Vec<String>) -> Self {
        Self {
            name: name.into(),
            command,
            env: BTreeMap::new(),
            workdir: None,
            user: None,
            restart: RestartPolicy::default(),
            grace_s: ten(),
            stop_signal: StopSignal::default(),
            ports: Vec::new(),
            links: Vec::new(),
            health: None,
            after: Vec::new(),
        }
    }
}

/// Whether a service can have this name: lower-case letters, digits, `-` and `_`, 1 to 32, a letter
/// or digit first. `run` is the name of what is no service.
#[must_use]
pub fn is_service_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name != "run"
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

/// When a service that has ended is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// However it ended.
    Always,
    /// Not after exit code 0.
    #[default]
    OnFailure,
    /// Never.
    Never,
}

/// A check of a service's health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HealthCheck {
    /// What is done.
    pub check: HealthTest,
    /// Time between the end of one check and the next, milliseconds.
    #[serde(default = "HealthCheck::interval_default")]
    pub interval_ms: u64,
    /// How long one check may take, milliseconds.
    #[serde(default = "HealthCheck::timeout_default")]
    pub timeout_ms: u64,
    /// How many checks have to fail one after the other until the service counts as unhealthy; at
    /// least 1.
    #[serde(default = "HealthCheck::retries_default")]
    pub retries: u32,
    /// Time after a start in which a failed check is not counted, milliseconds.
    #[serde(default = "HealthCheck::start_period_default")]
    pub start_period_ms: u64,
    /// Whether a service that counts as unhealthy is stopped and started again, as one that failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

impl HealthCheck {
    /// A check with the default times: every 10 s (every half second until the first that
    /// succeeds), 5 s each, 3 failures, 60 s to start in.
    #[must_use]
    pub fn new(check: HealthTest) -> Self {
        Self {
            check,
            interval_ms: Self::interval_default(),
            timeout_ms: Self::timeout_default(),
            retries: Self::retries_default(),
            start_period_ms: Self::start_period_default(),
            restart: false,
        }
    }

    fn interval_default() -> u64 {
        10_000
    }

    fn timeout_default() -> u64 {
        5_000
    }

    fn retries_default() -> u32 {
        3
    }

    fn start_period_default() -> u64 {
        60_000
    }
}

/// What is done to find out whether a service is healthy. Done inside of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthTest {
    /// This program ends with exit code 0, run as the service's user in its folder.
    Command(Vec<String>),
    /// Something listens on this TCP port of the loopback address.
    Tcp(u16),
    /// `GET` of this path on this port of the loopback address is answered with a status of 200 to
    /// 399.
    Http {
        /// Port inside.
        port: u16,
        /// From `/` on.
        path: String,
    },
}

/// A signal that asks a service to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the signal of that name, signal(7)")]
pub enum StopSignal {
    #[default]
    Term,
    Int,
    Quit,
    Hup,
    Usr1,
    Usr2,
    Kill,
}

impl StopSignal {
    const ALL: [(Self, &'static str, i32); 7] = [
        (Self::Term, "TERM", 15),
        (Self::Int, "INT", 2),
        (Self::Quit, "QUIT", 3),
        (Self::Hup, "HUP", 1),
        (Self::Usr1, "USR1", 10),
        (Self::Usr2, "USR2", 12),
        (Self::Kill, "KILL", 9),
    ];

    /// Linux's number of it, the same on x86-64 and arm64.
    #[must_use]
    pub fn signal_number(self) -> i32 {
        let known = Self::ALL.iter().find(|(signal, ..)| *signal == self);
        known.map_or(15, |(.., number)| *number)
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.iter().find(|(signal, ..)| signal == self);
        f.write_str(known.map_or("TERM", |(_, name, _)| name))
    }
}

impl FromStr for StopSignal {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let known = Self::ALL.iter().find(|(_, known, _)| *known == name);
        known.map(|(signal, ..)| *signal).ok_or_else(|| UnitError {
            text: text.to_owned(),
            expected: "TERM, INT, QUIT, HUP, USR1, USR2 or KILL",
        })
    }
}

serde_as_text!(StopSignal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let text = r#"{"name":"web","command":["httpd"],"health":{"check":{"tcp":80}}}"#;
        let service: RunService = serde_json::from_str(text).unwrap();
        let mut expected = RunService::new("web", vec!["httpd".to_owned()]);
        expected.health = Some(HealthCheck::new(HealthTest::Tcp(80)));
        assert_eq!(service, expected);
        assert_eq!(
            (service.grace_s, service.stop_signal.signal_number()),
            (10, 15)
        );
        let again = serde_json::to_string(&service).unwrap();
        assert_eq!(serde_json::from_str::<RunService>(&again).unwrap(), service);
    }

    #[test]
    fn names_are_fit_for_files_and_flags() {
        for name in ["web", "a", "tensor-board_2", "0"] {
            assert!(is_service_name(name), "{name}");
        }
        for name in ["", "-a", "Web", "a/b", "..", "a b", "run", &"a".repeat(33)] {
            assert!(!is_service_name(name), "{name}");
        }
    }

    #[test]
    fn signals_have_names() {
        for (signal, name, number) in StopSignal::ALL {
            assert_eq!(name.parse(), Ok(signal));
            assert_eq!(format!("SIG{name}").parse(), Ok(signal));
            assert_eq!(
                (signal.to_string().as_str(), signal.signal_number()),
                (name, number)
            );
        }
        for text in ["", "term", "STOP", "15"] {
            assert!(text.parse::<StopSignal>().is_err(), "{text}");
        }
    }
}
