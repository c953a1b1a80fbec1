//! Trials with other values than the zeros of a virtual card.

use std::time::Duration;

use sconce_memory::forecast::seen::Seen;
use sconce_memory::forecast::values::{self, Answers, Judged};
use sconce_schema::exit;

use super::say;
use super::trial::{Asked, Done, Wanted};
use crate::failure::{Failure, Result};

/// What a trial with other values may take: so many times what the one with zeros took, and this in any
/// case, in seconds. A loop that waits for a value may never end.
const LONGER: u32 = 5;
const AT_LEAST: u32 = 60;

/// Whether the forecast of a trial hangs on values, which is tried where any are read.
pub(super) fn judge(
    asked: &mut Asked<'_>,
    wanted: &Wanted<'_>,
    zeros: &Seen,
    took: Duration,
) -> Result<Judged> {
    let took = u32::try_from(took.as_secs()).unwrap_or(u32::MAX);
    let seconds = took
        .saturating_mul(LONGER)
        .max(AT_LEAST)
        .min(asked.args.time);
    let mut tried = 0;
    values::judge(zeros, |answers: &Answers| {
        if tried == 0 {
            say(
                asked.global,
                "values of the card are read: trying others than zeros",
            );
        }
        tried += 1;
        let wanted = Wanted {
            answers: answers.clone(),
            seconds: Some(seconds),
            history: false,
            work: false,
            ..wanted.clone()
        };
        Ok::<_, Failure>(watched(asked.run(wanted))?.map(|done| done.seen.clone()))
    })
}

/// Nothing where the command left nothing: it failed by itself. That a trial could not be made is an error.
pub(super) fn watched(done: Result<Done>) -> Result<Option<Done>> {
    match done {
        Err(failure) if failure.exit_code() == exit::BAD_INPUT => Ok(None),
        done => done.map(Some),
    }
}
