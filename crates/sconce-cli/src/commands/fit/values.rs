//! Trials with other values than the zeros of a virtual card.

use std::time::Duration;

use sconce_memory::forecast::GpuBudget;
use sconce_memory::forecast::probe_report::{ProbeReport, SourceLine};
use sconce_memory::forecast::values::{self, SubstituteValues, TrialLength, ValueDependence};
use sconce_schema::exit;

use super::say;
use super::trial::{TrialContext, TrialOutput, TrialRequest};
use sconce_app::failure::{Failure, Result};

/// What a trial with other values may take: so many times what the one with zeros took, and this in any
/// case, in seconds. A loop that waits for a value may never end.
const TRIAL_TIME_FACTOR: u32 = 5;
const MIN_TRIAL_TIME_S: u32 = 60;

/// A command of which it is known that no memory hangs on values, with the lines that read some.
pub(super) struct Free {
    command: Vec<String>,
    lines: Vec<SourceLine>,
}

impl Free {
    pub(super) fn from_probe_report(command: &[String], seen: &ProbeReport) -> Self {
        Self {
            command: command.to_vec(),
            lines: lines(seen),
        }
    }

    /// Whether that holds of a trial on another card: scripts may do something else by what the card is, and then
    /// other lines read.
    pub(super) fn holds_of(&self, command: &[String], seen: &ProbeReport) -> bool {
        self.command == command && self.lines == lines(seen)
    }
}

fn lines(seen: &ProbeReport) -> Vec<SourceLine> {
    let mut lines: Vec<SourceLine> = seen.reads.iter().map(|read| read.at.clone()).collect();
    lines.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    lines.dedup();
    lines
}

/// Whether the forecast of a trial hangs on values, which is tried where any are read.
pub(super) fn classify_by_trials(
    asked: &mut TrialContext<'_>,
    card: &GpuBudget,
    wanted: &TrialRequest<'_>,
    zeros: &ProbeReport,
    took: Duration,
) -> Result<ValueDependence> {
    let took = u32::try_from(took.as_secs()).unwrap_or(u32::MAX);
    let seconds = took
        .saturating_mul(TRIAL_TIME_FACTOR)
        .max(MIN_TRIAL_TIME_S)
        .min(asked.args.time);
    let least_steps = asked.args.steps;
    let mut tried = 0;
    values::classify_dependence(card, zeros, |answers: &SubstituteValues, length| {
        if tried == 0 {
            say(
                asked.context,
                "values of the card are read: trying others than zeros",
            );
        }
        tried += 1;
        let wanted = TrialRequest {
            answers: answers.clone(),
            seconds: Some(seconds),
            steps: match length {
                TrialLength::AsAsked => None,
                TrialLength::AtLeast(steps) => Some(steps.max(least_steps)),
            },
            history: false,
            work: false,
            ..wanted.clone()
        };
        Ok::<_, Failure>(optional_output(asked.run_trial(wanted))?.map(|done| done.seen.clone()))
    })
}

/// Nothing where the command left nothing: it failed by itself. That a trial could not be made is an error.
pub(super) fn optional_output(done: Result<TrialOutput>) -> Result<Option<TrialOutput>> {
    match done {
        Err(failure) if failure.exit_code() == exit::BAD_INPUT => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[u32]) -> ProbeReport {
        let read = |line: &u32| {
            format!(
                r#"{{"file":"/w/a.py","line":{line},"use":"value","times":3,"by":null,"code":""}}"#
            )
        };
        let reads: Vec<String> = lines.iter().map(read).collect();
        let text = format!(
            r#"{{"format":1,"torch":"2.15.0","cuda":"13.2","python":"3.12.1","ended":"steps","wanted-steps":3,
            "steps":[],"optimizers":1,"used-cuda":true,"error":null,"devices":[],"holds":[],"reads":[{}]}}"#,
            reads.join(",")
        );
        ProbeReport::parse(&text).unwrap()
    }

    #[test]
    fn what_hangs_on_no_values_holds_where_the_same_lines_read() {
        let command = ["python".to_owned(), "a.py".to_owned()];
        let free = Free::from_probe_report(&command, &seen(&[3, 9]));
        assert!(free.holds_of(&command, &seen(&[9, 3, 3])));
        // As `if torch.cuda.get_device_capability() >= (9, 0)` leads elsewhere.
        assert!(!free.holds_of(&command, &seen(&[3, 12])));
        assert!(!free.holds_of(&command, &seen(&[3])));
        assert!(!free.holds_of(&command[..1], &seen(&[3, 9])));
    }
}
