//! `sconce logs`.

mod merged_logs;
mod source;

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use sconce_record::RunState;
use sconce_schema::{duration, exit};

pub(crate) use self::merged_logs::{Follower, last_lines};
use self::merged_logs::{LOG_POLL_INTERVAL, MergedLogs, format_line};
use self::source::LogLine;
use super::job_logs::{PREPARATION, print_job_logs};
use super::named_job::find_named_job;
use crate::output;
use sconce_app::context::AppContext;
use sconce_app::detach;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::enter::find_task_of_rank;
use sconce_app::job::lookup::{JobLookupError, KnownJob};
use sconce_app::run_lookup::{self, LiveError};

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// An id of a run or of a job, its beginning, or the name of an environment; without, the only run in
    /// the background, the job that was submitted in this directory, or the newest run that was.
    pub(crate) run: Option<String>,
    /// One of its services, or `run` for its command; of a job, `preparation` for what makes its environment before.
    /// All of them where none is given.
    pub(crate) service: Option<String>,
    /// Go on with what is written from now on, until the run has ended.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only what was written since: 30s, 10m, 1h30m or 1d ago, or a time such as 2026-11-22T10:30.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Of a job, one task alone: the process that its scheduler started with this number.
    #[arg(long, value_name = "N")]
    pub(crate) task: Option<u32>,
    /// Of a job, the task alone that has this rank; under torchrun that prints what all ranks of its node do.
    #[arg(long, value_name = "R", conflicts_with = "task")]
    pub(crate) rank: Option<u32>,
    /// Print the time of each line.
    #[arg(long, short)]
    pub(crate) timestamps: bool,
}

pub(crate) fn logs(args: &LogsArgs, context: &AppContext) -> Result<u8> {
    let since = args.since.as_deref().map(since).transpose()?;
    let places = SconceDirs::find(context)?;
    if let Some(job) = find_named_job(args.run.as_deref(), &places, context)? {
        let job = match args.service.as_deref() {
            None => job,
            Some(name) => find_job_log(&job, name)?,
        };
        let of_rank = args.rank.map(|rank| find_task_of_rank(&job, rank));
        let task = args.task.or(of_rank.transpose()?);
        return print_job_logs(&job, task, args.follow, &places, context);
    }
    let run = run_lookup::find_any(&places, args.run.as_deref())?;
    let folder = run_lookup::run_dir(&run);
    let detached = detach::is_detached(folder);
    // And whether that is all: a run that has only just begun may have nothing to show yet.
    let names = || match run_lookup::request_status(&run) {
        Some(state) => {
            // In a terminal a command's output is the terminal's.
            let command = (state.command && detached).then(|| "run".to_owned());
            let services = state.services.into_iter().map(|service| service.name);
            (command.into_iter().chain(services).collect(), true)
        }
        None => (run_lookup::list_log_names(folder), false),
    };
    let (mut chosen, mut all): (Vec<String>, bool) = names();
    if chosen.is_empty() && !detached {
        return Err(LiveError::NotKept(run.started.id.clone()).into());
    }
    if let Some(name) = &args.service {
        if !chosen.contains(name) {
            return Err(LiveError::NoLog {
                id: run.started.id.clone(),
                name: name.clone(),
                known: chosen,
            }
            .into());
        }
        (chosen, all) = (vec![name.clone()], true);
    }
    let mut logs = MergedLogs::open(folder, chosen);
    let mut silent = true;
    let mut print = |line: &LogLine, name: &str, several: bool| {
        if since
            .as_deref()
            .is_some_and(|since| line.stamp.as_str() < since)
        {
            return Ok(true);
        }
        silent = false;
        output::write_bytes(&format_line(several.then_some(name), args.timestamps, line))
    };
    loop {
        // Looked at first: what a run wrote before it ended is read below.
        let goes_on =
            args.follow && sconce_record::read_run_entry(&run.path)?.state == RunState::Running;
        if args.follow && !all {
            let found;
            (found, all) = names();
            logs.add_new_logs(folder, found);
        }
        let several = logs.are_several();
        while let Some((name, line)) = logs.next(!goes_on) {
            if !print(&line, name, several)? {
                return Ok(exit::OK);
            }
        }
        if !goes_on {
            if silent && !context.quiet {
                let since = args.since.as_ref().map_or("", |_| " since then");
                output::print_message(&format!("nothing was written{since}: {}", run.started.id));
            }
            return Ok(exit::OK);
        }
        std::thread::sleep(LOG_POLL_INTERVAL);
    }
}

/// What of a job has the log `name`, beside its tasks.
fn find_job_log(job: &KnownJob, name: &str) -> Result<KnownJob, JobLookupError> {
    let preparation = job.preparation().filter(|_| name == PREPARATION);
    preparation.ok_or_else(|| JobLookupError::NoLog {
        job: job.request.token.clone(),
        name: name.to_owned(),
    })
}

/// The beginning of the time that is meant, as it stands before lines.
fn since(text: &str) -> Result<String, LiveError> {
    let looks_like_a_time = text.len() >= 10
        && text.len() <= 24
        && text
            .bytes()
            .zip(*b"0000-00-00T00:00:00.000Z")
            .all(|(byte, like)| match like {
                b'0' => byte.is_ascii_digit(),
                like => byte == like,
            });
    if looks_like_a_time {
        return Ok(text.to_owned());
    }
    let ago = duration::parse_milliseconds(text)
        .map_err(|error| LiveError::Since(text.to_owned(), error.expected))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let then = now.as_secs().saturating_sub(ago / 1_000);
    Ok(sconce_run::logs::stamp_of(then.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_two_ways() {
        for text in ["2026-11-22", "2026-11-22T10:30", "2026-11-22T10:30:00.000Z"] {
            assert_eq!(since(text).unwrap(), text);
        }
        let (before, after) = (since("2h").unwrap(), since("1s").unwrap());
        assert!(before < after && after.ends_with('Z'), "{before} {after}");
        for text in [
            "",
            "h",
            "1",
            "1y",
            "-1h",
            "2026-1-22",
            "é",
            "99999999999999999999d",
        ] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
