//! `[services.NAME.health]`: how it is found out whether a service does its work.

use serde::{Deserialize, Serialize};

use super::super::SpecError;
use super::super::parse::validate_value;
use super::super::values::at_least_one;
use crate::service::{HealthCheck, HealthTest, RestartPolicy};

/// `[services.NAME.health]`: one of `http`, `tcp` and `command`, and how often. Times are in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct HealthCheckSpec {
    /// The path that is asked for, from `/` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// The port inside that `http` asks; the service's first where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The port inside that something has to listen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<u16>,
    /// A program that ends with exit code 0 if all is well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// From the end of one check to the next, at least 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "at_least_one"
    )]
    pub interval_s: Option<u64>,
    /// How long one check may take, at least 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "at_least_one"
    )]
    pub timeout_s: Option<u64>,
    /// Failures one after the other until it counts as unhealthy, at least 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "at_least_one"
    )]
    pub retries: Option<u64>,
    /// Time after a start in which failures are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_period_s: Option<u32>,
    /// Whether an unhealthy service is stopped and started again; it is not where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<bool>,
}

impl HealthCheckSpec {
    /// As a run has it, for a service whose first port inside is `first`. `None` for a check that says
    /// nothing, which a spec with it is refused for.
    pub(super) fn to_health_check(&self, first: Option<u16>) -> Option<HealthCheck> {
        let check = match (&self.http, self.tcp) {
            (Some(path), _) => HealthTest::Http {
                port: self.port.or(first)?,
                path: path.clone(),
            },
            (None, Some(port)) => HealthTest::Tcp(port),
            (None, None) if self.command.is_empty() => return None,
            (None, None) => HealthTest::Command(self.command.clone()),
        };
        let usual = HealthCheck::new(check);
        let ms = |seconds: Option<u64>, usual| seconds.map_or(usual, |s| s.saturating_mul(1000));
        Some(HealthCheck {
            interval_ms: ms(self.interval_s, usual.interval_ms),
            timeout_ms: ms(self.timeout_s, usual.timeout_ms),
            retries: self
                .retries
                .map_or(usual.retries, |n| u32::try_from(n).unwrap_or(u32::MAX)),
            start_period_ms: ms(self.start_period_s.map(u64::from), usual.start_period_ms),
            restart: self.restart.unwrap_or(usual.restart),
            ..usual
        })
    }

    /// The rules that a type cannot say, for a service that is restarted so and whose first port inside
    /// is `first`.
    pub(super) fn validate_for_service(
        &self,
        service: Option<RestartPolicy>,
        first: Option<u16>,
    ) -> Result<(), SpecError> {
        let given = [
            self.http.is_some(),
            self.tcp.is_some(),
            !self.command.is_empty(),
        ];
        let many = given.into_iter().filter(|given| *given).count();
        validate_value(
            "services.health",
            Some(match many {
                0 => "nothing",
                1 => "",
                _ => "several checks",
            }),
            str::is_empty,
            "give one of `http`, `tcp` and `command`",
        )?;
        validate_value(
            "services.health.http",
            self.http.as_deref(),
            |path| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()),
            "a path such as \"/health\"",
        )?;
        let no_port = self.to_health_check(first).is_none();
        validate_value(
            "services.health.http",
            self.http.as_deref().filter(|_| no_port),
            |_| false,
            "say which `port` it asks: the service has no `ports`",
        )?;
        let zero = [self.port, self.tcp].contains(&Some(0));
        validate_value(
            "services.health.port",
            zero.then_some("0"),
            |_| false,
            "1 to 65535",
        )?;
        validate_value(
            "services.health.port",
            self.port
                .filter(|_| self.http.is_none())
                .map(|port| port.to_string())
                .as_deref(),
            |_| false,
            "it goes with `http`; for a port alone write `tcp`",
        )?;
        let never = service == Some(RestartPolicy::Never) && self.restart == Some(true);
        validate_value(
            "services.health.restart",
            never.then_some("true"),
            |_| false,
            "the service says `restart = \"never\"`: leave one of the two out",
        )
    }
}
