//! The rows about a run's services.

use super::layout::{TextPage, Tone, plain_span, styled_span};
use crate::format::{describe_signal, format_count, format_duration};
use crate::model::{RunEnd, RunReport, ServiceReport};
use sconce_schema::event::{ExitStatus, ServiceState};

/// A row for each: what it was doing last, how often it was started again, where it is reached, and why.
pub(super) fn write_rows(page: &mut TextPage, report: &RunReport) {
    for (n, service) in report.services.iter().enumerate() {
        let tone = match service.state {
            ServiceState::Failed | ServiceState::Unhealthy => Tone::Bad,
            ServiceState::Restarting => Tone::Warning,
            _ => Tone::Plain,
        };
        let mut parts = vec![
            plain_span(&service.name),
            styled_span(service.state.label(), tone),
            plain_span(format!("since {}", format_duration(service.since_us))),
        ];
        let again = service.restarts();
        parts.extend((again > 0).then(|| {
            let times = format_count(again.into(), "time", "times");
            styled_span(format!("started again {times}"), Tone::Warning)
        }));
        parts.extend(service.open.iter().map(plain_span));
        let last = service
            .exit
            .map(|exit| format!("last end: {}", ended(exit)));
        parts.extend(last.map(plain_span));
        parts.extend(service.why.iter().map(plain_span));
        page.write_row(if n == 0 { "services" } else { "" }, parts);
    }
}

/// Why a run of services alone did not end well; nothing of a run that had a command.
pub(crate) fn describe_failed_services(report: &RunReport) -> Option<String> {
    let alone = report.started.command.is_empty() && matches!(report.end, RunEnd::Exited(_));
    let failed = |service: &&ServiceReport| service.state == ServiceState::Failed;
    let names: Vec<&str> = (report.services.iter().filter(failed))
        .filter(|_| alone)
        .map(|service| service.name.as_str())
        .collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("the service {one} failed")),
        many => Some(format!("the services {} failed", many.join(", "))),
    }
}

fn ended(exit: ExitStatus) -> String {
    match exit {
        ExitStatus::Code(code) => format!("exit code {code}"),
        ExitStatus::Signal(number) => describe_signal(number).0,
    }
}
