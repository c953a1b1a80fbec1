//! Why a command failed, by what it wrote last.

use std::path::Path;

use sconce_compat::explain::{Explanation, LogEnvironment, explain};
use sconce_host::{HostProfile, Roots, facts};
use sconce_record::RunEntry;
use sconce_run::RunOutcome;
use sconce_schema::HostFacts;
use sconce_schema::event::ExitStatus;
use sconce_schema::finding::Certainty;

use super::project_source::ProjectSource;
use crate::inspect::InspectedEnvironment;
use crate::project::Project;

/// SIGHUP, SIGINT, SIGTERM: what somebody ends a run with.
const ASKED: [i32; 3] = [1, 2, 15];

/// Explains the failure; `None` where it is none, where somebody asked for the end, or where no cause is
/// known that is more than possible.
pub(super) fn explain_failure(
    outcome: &RunOutcome,
    host: Option<&HostFacts>,
    environment: impl FnOnce() -> LogEnvironment,
) -> Option<Explanation> {
    explain_output(outcome.exit, &outcome.last_output, host, environment)
}

/// The same of a run in the background that has ended, by the end of its log. The project is the one that lies in
/// the run's folder now.
pub fn explain_ended_run(run: &RunEntry, exit: ExitStatus, log: &[u8]) -> Option<Explanation> {
    let host = facts::without_nvml(&HostProfile::read(&Roots::default()));
    explain_output(exit, log, host.as_ref(), || {
        let project = Project::open(Path::new(&run.started.folder)).ok();
        let project = project.filter(|project| run.started.name.as_ref() == Some(&project.name));
        let lock = project
            .as_ref()
            .and_then(|project| project.load_lock().ok()?);
        let mut environment = match (&project, lock) {
            (Some(project), Some(lock)) => {
                InspectedEnvironment::log_environment(&lock, project.spec.system.compiler)
            }
            _ => LogEnvironment::default(),
        };
        let source = project.map(|project| ProjectSource::new(&project));
        environment.project = source.map(|source| source.read(&environment.packages));
        environment
    })
}

fn explain_output(
    exit: ExitStatus,
    output: &[u8],
    host: Option<&HostFacts>,
    environment: impl FnOnce() -> LogEnvironment,
) -> Option<Explanation> {
    let code = exit.exit_code();
    let is_asked = match exit {
        ExitStatus::Signal(signal) => ASKED.contains(&signal),
        ExitStatus::Code(_) => ASKED.iter().any(|signal| 128 + signal == i32::from(code)),
    };
    if code == 0 || is_asked || output.is_empty() {
        return None;
    }
    let explained = explain(output, host, &environment());
    let is_known = explained.unknown.is_none()
        && (explained.causes.first()).is_some_and(|cause| cause.certainty != Certainty::Possible);
    is_known.then_some(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_cause(exit: ExitStatus, output: &str) -> Option<String> {
        let outcome = RunOutcome {
            exit,
            asked_to_end: false,
            out_of_memory: None,
            used: None,
            last_output: output.as_bytes().to_owned(),
            lost_output: None,
            left_behind: Vec::new(),
        };
        let explained = explain_failure(&outcome, None, LogEnvironment::default);
        explained.map(|explained| explained.causes[0].code.clone())
    }

    #[test]
    fn a_known_error_is_explained_and_no_other() {
        let missing = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import cv2\n\
                       ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n";
        let failed = ExitStatus::Code(1);
        let known = first_cause(failed, missing);
        assert!(known.is_some());
        assert_eq!(first_cause(ExitStatus::Signal(11), missing), known);
        assert_eq!(
            first_cause(ExitStatus::Code(0), missing),
            None,
            "it went well"
        );
        assert_eq!(first_cause(ExitStatus::Signal(2), missing), None, "Ctrl-C");
        assert_eq!(first_cause(ExitStatus::Code(143), missing), None, "stop");
        let other = "Traceback (most recent call last):\n  File \"a.py\", line 9, in <module>\n\
                     my_package.OwnError: the door is closed\n";
        assert_eq!(first_cause(failed, other), None);
        assert_eq!(first_cause(failed, ""), None);
    }
}
