//! The rows about a run's services.

use super::layout::{TextPage, Tone, plain, toned};
use crate::model::{RunEnd, RunReport, ServiceReport};
use crate::words::{count, duration, signal};
use sconce_schema::event::{ExitStatus, ServiceState};

/// A row for each: what it was doing last, how often it was started again, where it is reached, and why.
pub(super) fn rows(page: &mut TextPage, report: &RunReport) {
    for (n, service) in report.services.iter().enumerate() {
        let tone = match service.state {
            ServiceState::Failed | ServiceState::Unhealthy => Tone::Bad,
            ServiceState::Restarting => Tone::Warning,
            _ => Tone::Plain,
        };
        let mut parts = vec![
            plain(&service.name),
            toned(service.state.word(), tone),
            plain(format!("since {}", duration(service.since_us))),
        ];
        let again = service.restarts();
        parts.extend((again > 0).then(|| {
            let times = count(again.into(), "time", "times");
            toned(format!("started again {times}"), Tone::Warning)
        }));
        parts.extend(service.open.iter().map(plain));
        let last = service
            .exit
            .map(|exit| format!("last end: {}", ended(exit)));
        parts.extend(last.map(plain));
        parts.extend(service.why.iter().map(plain));
        page.row(if n == 0 { "services" } else { "" }, parts);
    }
}

/// Why a run of services alone did not end well; nothing of a run that had a command.
pub(crate) fn failed(report: &RunReport) -> Option<String> {
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
        ExitStatus::Signal(number) => signal(number).0,
    }
}
