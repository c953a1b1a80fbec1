//! Events of verbs, as text on standard error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sconce_lease::QueueEntry;
use sconce_report::terminal;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::{Finding, Progress};

use crate::commands::explain;
use crate::commands::lease::format_queue_position;
use crate::commands::logs::Follower;
use crate::failure::render_failure;
use crate::output::{format_path, print_message, tell_fifo_wait};
use crate::progress::TerminalProgress;
use crate::style::OutputStyle;
use crate::text_layout::TextLayout;
use sconce_app::failure::with_causes;
use sconce_app::reporter::{AppEvent, Reporter};
use sconce_app::run_lookup::format_service_event;
use sconce_app::virtual_gpu;

/// Prints events.
#[derive(Default)]
pub(crate) struct TerminalReporter {
    /// Shows what the services of a run write, while that is all there is to be seen.
    follower: Mutex<Option<Follower>>,
    /// Whether keys that are not known were told: the configuration is read more than once.
    has_told_keys: AtomicBool,
}

impl Reporter for TerminalReporter {
    fn report(&self, event: &AppEvent<'_>) {
        let style = OutputStyle::for_stderr();
        match event {
            AppEvent::LimitsNotEnforced(limits) => print_unenforced(limits, style),
            AppEvent::RunNotRecorded(error) => {
                let causes = with_causes(*error);
                print_message(&style.warn(&format!("this run is not recorded: {causes}")));
            }
            AppEvent::RecordIncomplete(error) => {
                let causes = with_causes(*error);
                print_message(&style.warn(&format!("the record is incomplete: {causes}")));
            }
            AppEvent::LeftBehind(path) => {
                let shown = format_path(path);
                print_message(&style.warn(&format!("could not remove {shown}")));
            }
            AppEvent::Service(event) => print_message(&format_service_event(event)),
            AppEvent::ServiceLink { service, link } => print_message(&format!("{service}: {link}")),
            AppEvent::ServiceNote(note) | AppEvent::JobRemark(note) => print_message(note),
            AppEvent::OnlyServicesRun {
                directory,
                services,
            } => {
                *self.follower() = Follower::start(directory.to_path_buf(), services.to_vec());
            }
            AppEvent::ProcessesEnded => {
                if let Some(follower) = self.follower().take() {
                    follower.finish();
                }
            }
            AppEvent::RunEnded(report) => print_message(&format!(
                "\n{}",
                terminal::render_report(report, style.for_reports()).trim_end()
            )),
            AppEvent::RunExplained(explained) => print_message(&format!(
                "\n{}",
                explain::render_first_cause(explained, &TextLayout::for_stderr()).trim_end()
            )),
            AppEvent::NoGpu => print_message(
                &style.dim("gpus: this machine has no NVIDIA card; running on the CPU"),
            ),
            AppEvent::LeaseQueued(entry) => print_queue_position(entry),
            AppEvent::LeaseUnused => {
                print_message("lease: the cards are not used, and will be taken back");
            }
            AppEvent::LeaseEnded => print_message("lease: it is over, the run ends"),
            AppEvent::KernelsNotKept(failure) => {
                print_message(
                    &style.dim("kernels that are compiled are not kept for the next run:"),
                );
                print_message(&render_failure(failure, &style));
            }
            AppEvent::WillFail(findings) => print_findings(findings, style),
            AppEvent::VirtualGpuSize(chosen) => {
                print_message(&style.dim(&virtual_gpu::format_chosen_size(chosen)));
            }
            AppEvent::OutputWritten(path) => {
                print_message(&format!("written: {}", format_path(path)));
            }
            AppEvent::FifoWait(path) => tell_fifo_wait(path),
            AppEvent::ImageNote(note) => print_message(&style.dim(&format!("image: {note}"))),
            AppEvent::UnpublishedPorts(ports) => print_message(&style.dim(&format!(
                "image: it may listen on {}; only what -p names is published",
                ports.join(", ")
            ))),
            AppEvent::UnknownConfigKeys { path, keys } => {
                if !self.has_told_keys.swap(true, Ordering::Relaxed) {
                    let (path, keys) = (format_path(path), keys.join("`, `"));
                    print_message(&style.warn(&format!(
                        "{path}: this Sconce does not know `{keys}`, and goes on without"
                    )));
                }
            }
            AppEvent::EndsWithLogin(warning) => print_message(&style.warn(warning)),
            AppEvent::BuildStep { kind, line } => {
                print_message(&format!("{} {line}", style.dim(kind)));
            }
            AppEvent::BuildStepLimit(limit) => {
                print_message(&format!("{}: {}", limit.what, limit.why));
            }
        }
    }

    fn start_progress(&self) -> Box<dyn Progress> {
        Box::new(TerminalProgress::new())
    }
}

impl TerminalReporter {
    fn follower(&self) -> std::sync::MutexGuard<'_, Option<Follower>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn print_unenforced(limits: &[UnenforcedLimit], style: OutputStyle) {
    for limit in limits {
        let what = format!("not enforced here: {}", limit.what);
        print_message(&format!("{}: {}", style.warn(&what), limit.why));
    }
    // What keeps one limit from being enforced mostly keeps them all.
    let mut said: Vec<&String> = Vec::new();
    for hint in limits.iter().filter_map(|limit| limit.hint.as_ref()) {
        if !said.contains(&hint) {
            print_message(&format!("{} {hint}", style.hint("hint:")));
            said.push(hint);
        }
    }
}

fn print_queue_position(entry: &QueueEntry) {
    print_message(&format_queue_position(entry));
}

/// Prints a line each of what will fail.
fn print_findings(findings: &[Finding], style: OutputStyle) {
    for finding in findings {
        print_message(&style.warn(&format!("warning: {}", finding.what)));
    }
    print_message("`sconce check` says why, and how to mend it");
}
