//! Why there is no forecast.

use sconce_memory::forecast::{
    self,
    probe_report::{ObservationEnd, ProbeReport, ValueUse},
};
use sconce_schema::{Bytes, Hint, exit};

use super::ended::SignalledEnd;
use super::text;
use super::trial::TrialOutput;
use crate::commands::memory::format::format_count;

/// Why there is no forecast.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum FitError {
    #[error("no card was named, and this machine has none that is known")]
    NoCards,
    #[error("the command ended with {code}, and no process of it had imported torch")]
    NoTorch { code: u8 },
    #[error(
        "the command ended with {code} before its steps were taken, and not by Python's own exit"
    )]
    NoExitHandlers { code: u8 },
    #[error("the command ended with {}: it, or what it started, was {} {}", .0.code, .0.describe_signal(), .0.describe_progress())]
    Signalled(SignalledEnd),
    #[error("the command failed by itself after {}, with {kind}", format_count(*.steps as u64, "optimizer step"))]
    Failed {
        steps: usize,
        kind: String,
        /// What was asked of the virtual card that it does not know.
        unknown: Vec<String>,
        /// The line that lets most hang on values, which are zeros.
        read: Option<String>,
    },
    #[error("the command never took an optimizer step{}: {}", when(*.ended), had(*.reserved))]
    NoSteps {
        ended: ObservationEnd,
        /// What the allocator had at most.
        reserved: Option<Bytes>,
        /// The line that lets most hang on values, which are zeros.
        read: Option<String>,
    },
    #[error("the plan {plan} was not applied: {why}")]
    NotApplied { plan: String, why: String },
    #[error("no history of the card's memory was recorded")]
    NoSnapshot,
    #[error("the steps were taken without a card: nothing was put on `cuda`")]
    NoCuda,
}

fn when(ended: ObservationEnd) -> &'static str {
    match ended {
        ObservationEnd::Time => " before its time was up",
        ObservationEnd::Steps | ObservationEnd::Exit => "",
    }
}

fn had(reserved: Option<Bytes>) -> String {
    match reserved {
        Some(bytes) => format!("PyTorch had reserved {bytes} of the card at most"),
        None => "nothing was put on a card".to_owned(),
    }
}

impl Hint for FitError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoCards => "name one: --gpu h100, or --gpu \"RTX 3070\"".to_owned(),
            Self::NoTorch { .. } => "it must start Python without -I and -E, which hide the \
                 probe, and import torch"
                .to_owned(),
            Self::NoExitHandlers { .. } => "it called `os._exit`, or a process that it started \
                 was killed"
                .to_owned(),
            Self::Signalled(end) => return end.hint(),
            Self::Failed { unknown, .. } if !unknown.is_empty() => format!(
                "what the virtual card does not know may be the reason: {}",
                unknown.join(", ")
            ),
            Self::Failed {
                read: Some(read), ..
            }
            | Self::NoSteps {
                read: Some(read), ..
            } => read.clone(),
            Self::Failed { .. } | Self::NoSnapshot | Self::NotApplied { .. } => return None,
            Self::NoSteps {
                ended: ObservationEnd::Time,
                ..
            } => "--time gives it more seconds".to_owned(),
            Self::NoSteps { .. } => "steps are those of torch.optim's optimizers".to_owned(),
            Self::NoCuda => {
                "the command chooses the CPU; mostly an option of it, such as --device \
                 cuda, changes that"
                    .to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NoCards => exit::USAGE,
            Self::NoTorch { .. }
            | Self::NoExitHandlers { .. }
            | Self::Signalled(_)
            | Self::Failed { .. }
            | Self::NoSteps { .. }
            | Self::NotApplied { .. }
            | Self::NoSnapshot
            | Self::NoCuda => exit::BAD_INPUT,
        }
    }
}

/// Refuses a trial that says nothing of training.
pub(super) fn validate_trial(done: &TrialOutput) -> Result<(), FitError> {
    of(&done.seen, done.code)
}

fn of(seen: &ProbeReport, code: u8) -> Result<(), FitError> {
    if let Some((plan, why)) = seen.plan.iter().flat_map(|plan| &plan.problems).next() {
        return Err(FitError::NotApplied {
            plan: plan.clone(),
            why: why.clone(),
        });
    }
    if forecast::ran_out(seen) {
        return Ok(());
    }
    if seen.ended == ObservationEnd::Exit && (code != 0 || seen.error.is_some()) {
        let kind = seen.error.as_ref().map(|error| error.kind.clone());
        return Err(FitError::Failed {
            steps: seen.step_count(),
            kind: kind.unwrap_or_else(|| format!("code {code}")),
            unknown: seen.unknown.clone(),
            read: read(seen),
        });
    }
    if seen.step_count() == 0 {
        let device = seen.fullest_gpu().map(|(_, device)| device);
        let reserved = device.and_then(|device| device.stat_value("reserved_bytes.all.peak"));
        return Err(FitError::NoSteps {
            ended: seen.ended,
            reserved: reserved.map(Bytes),
            read: read(seen),
        });
    }
    match seen.used_cuda {
        true => Ok(()),
        false => Err(FitError::NoCuda),
    }
}

/// What may have led a program astray.
fn read(seen: &ProbeReport) -> Option<String> {
    let reads = seen.reads.iter();
    let read = reads
        .filter(|read| read.done != ValueUse::Value)
        .max_by_key(|read| read.times)?;
    Some(format!(
        "values may be the reason: {}",
        text::format_value_read(read)
    ))
}

#[cfg(test)]
mod tests {
    use sconce_memory::forecast::probe_report::AppliedPlans;

    use super::*;

    fn seen(ended: &str, steps: usize, used: bool, error: &str) -> ProbeReport {
        let step = r#"{"optimizer":0,"begin-us":1,"end-us":2}"#;
        let steps = vec![step; steps].join(",");
        let text = format!(
            r#"{{"format":1,"torch":"2.15.0","cuda":null,"python":"3.12.1","ended":"{ended}",
            "wanted-steps":3,"steps":[{steps}],"optimizers":1,"used-cuda":{used},"error":{error},
            "devices":[{{"name":"A","total-bytes":9,"outside-bytes":1,
            "stats":{{"reserved_bytes.all.peak":2048}}}}],"holds":[]}}"#
        );
        ProbeReport::parse(&text).unwrap()
    }

    #[test]
    fn what_says_nothing_of_training_is_refused() {
        assert_eq!(of(&seen("steps", 3, true, "null"), 0), Ok(()));
        assert_eq!(of(&seen("exit", 1, true, "null"), 0), Ok(()));
        let memory = r#"{"type":"OutOfMemoryError","message":"","out-of-memory":true}"#;
        assert_eq!(of(&seen("exit", 0, true, memory), 1), Ok(()));
        assert_eq!(
            of(&seen("steps", 3, false, "null"), 0),
            Err(FitError::NoCuda)
        );
        let other = r#"{"type":"ValueError","message":"no","out-of-memory":false}"#;
        let failed = of(&seen("exit", 2, true, other), 1).unwrap_err();
        assert_eq!(
            failed.to_string(),
            "the command failed by itself after 2 optimizer steps, with ValueError"
        );
        let mut other = seen("steps", 3, true, "null");
        let why = ("8-bit".to_owned(), "it is not installed".to_owned());
        other.plan = Some(AppliedPlans {
            notes: Default::default(),
            problems: vec![why],
        });
        assert_eq!(
            of(&other, 0).unwrap_err().to_string(),
            "the plan 8-bit was not applied: it is not installed"
        );
        let mut led = seen("time", 0, true, "null");
        let read = r#"{"file":"/w/a\u001b.py","line":3,"use":"branch","times":9,"by":null,"code":"while x > 0:"}"#;
        led.reads.push(serde_json::from_str(read).unwrap());
        assert_eq!(
            of(&led, 0).unwrap_err().hint().unwrap(),
            "values may be the reason: a .py:3 branches on a value of the card, which is 0 here: while x > 0:"
        );
        assert!(of(&seen("exit", 1, true, "null"), 7).is_err());
        let never = of(&seen("time", 0, true, "null"), 0).unwrap_err();
        assert_eq!(
            never.to_string(),
            "the command never took an optimizer step before its time was up: PyTorch had reserved \
             2 KiB of the card at most"
        );
        assert_eq!(never.exit_code(), exit::BAD_INPUT);
    }
}
