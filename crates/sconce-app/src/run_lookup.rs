//! Runs that go on, and how others ended: found by what a person calls them.

use std::path::{Path, PathBuf};

use sconce_record::{RunEntry, RunState};
use sconce_run::control::{self, ControlError, ControlRequest, ControlResponse};
use sconce_schema::event::{ExitStatus, RecordEvent, ServiceEvent};
use sconce_schema::{Hint, exit};

use crate::dirs::SconceDirs;
use crate::failure::Result;

/// What keeps a run from being found or spoken to.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each is what its message says")]
pub enum LiveError {
    /// With the ids of those that go on in a terminal.
    #[error("no run goes on in the background")]
    None(Vec<String>),
    #[error("no run was in the background")]
    Never,
    #[error("no run that goes on is called `{0}`")]
    NotLive(String),
    #[error("several runs are meant: {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("run {id}")]
    Ask { id: String, source: ControlError },
    #[error("run {id}: {why}")]
    Refused { id: String, why: String },
    /// With the forms of a time ago.
    #[error("`{0}` is neither {1} ago, nor a time such as 2026-11-22T10:30")]
    Since(String, &'static str),
    #[error("run {id} has no log `{name}`; it has {}", .known.join(", "))]
    NoLog {
        id: String,
        name: String,
        known: Vec<String>,
    },
    #[error("run {id} has no service `{name}`; it has {}", .known.join(", "))]
    NoService {
        id: String,
        name: String,
        known: Vec<String>,
    },
    #[error("what run {0} wrote was not kept: it went to the terminal of its caller")]
    NotKept(String),
}

impl Hint for LiveError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::None(others) if !others.is_empty() => {
                let ids = others.join(", ");
                return Some(format!("one that goes on in a terminal is named: {ids}"));
            }
            Self::None(_) | Self::Never => {
                "`sconce up` starts services, `sconce run --detach` a command"
            }
            Self::NotKept(_) => {
                "`sconce run --detach` keeps it; `sconce report` says what the run used"
            }
            Self::NotLive(_) => "`sconce ps` lists those that go on, `sconce ps --all` every one",
            Self::Several(_) => "name one of them, or enough of the beginning of its id",
            Self::Ask {
                source: ControlError::Gone,
                ..
            } => "`sconce ps --all` says how it ended",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Ask { .. } | Self::Refused { .. } => exit::NO,
            Self::Since(..) => exit::USAGE,
            Self::None(_)
            | Self::Never
            | Self::NotLive(_)
            | Self::Several(_)
            | Self::NoLog { .. }
            | Self::NoService { .. }
            | Self::NotKept(_) => exit::BAD_INPUT,
        }
    }
}

/// The folder of a run.
pub fn run_dir(run: &RunEntry) -> &Path {
    run.path.parent().unwrap_or(&run.path)
}

/// The runs that go on, newest first.
pub fn going_on(places: &SconceDirs) -> Result<Vec<RunEntry>> {
    let mut runs = sconce_record::list_runs(&places.runs)?.runs;
    runs.retain(|run| run.state == RunState::Running);
    Ok(runs)
}

/// The run that goes on and is called `which`: its id, the beginning of it, or its environment's
/// name; without, the only one in the background: what a person watches in a terminal is meant by
/// its name alone.
pub fn find_live(places: &SconceDirs, which: Option<&str>) -> Result<RunEntry> {
    let going_on = going_on(places)?;
    Ok(match which {
        Some(which) => named(going_on, which)?,
        None => only(going_on.into_iter().partition(is_detached))?,
    })
}

fn is_detached(run: &RunEntry) -> bool {
    crate::detach::is_detached(run_dir(run))
}

/// The same of all runs that are known; without a name, the only one in the background that goes on,
/// or the newest that did.
pub fn find_any(places: &SconceDirs, which: Option<&str>) -> Result<RunEntry> {
    let all = sconce_record::list_runs(&places.runs)?.runs;
    let going_on = all.iter().filter(|run| run.state == RunState::Running);
    let going_on = going_on.cloned();
    let Some(which) = which else {
        return match only(going_on.partition(is_detached)) {
            Err(LiveError::None(others)) => {
                let newest = all.into_iter().find(is_detached);
                Ok(newest.ok_or(match others.is_empty() {
                    true => LiveError::Never,
                    false => LiveError::None(others),
                })?)
            }
            found => Ok(found?),
        };
    };
    match named(going_on.collect(), which) {
        Err(LiveError::NotLive(_)) => {
            let mut named =
                (all.into_iter()).filter(|run| run.started.name.as_deref() == Some(which));
            if let Some(newest) = named.next() {
                return Ok(newest);
            }
            let path = sconce_record::resolve_run(&places.runs, which)?;
            Ok(sconce_record::read_run_entry(&path)?)
        }
        found => Ok(found?),
    }
}

/// The only one of those in the background; the others are those in terminals.
fn only((mut runs, others): (Vec<RunEntry>, Vec<RunEntry>)) -> Result<RunEntry, LiveError> {
    match runs.len() {
        0 => Err(LiveError::None(ids(others))),
        1 => Ok(runs.swap_remove(0)),
        _ => Err(LiveError::Several(ids(runs))),
    }
}

fn named(mut runs: Vec<RunEntry>, which: &str) -> Result<RunEntry, LiveError> {
    if let Some(at) = runs.iter().position(|run| run.started.id == which) {
        return Ok(runs.swap_remove(at));
    }
    runs.retain(|run| {
        run.started.id.starts_with(which) || run.started.name.as_deref() == Some(which)
    });
    match runs.len() {
        0 => Err(LiveError::NotLive(which.to_owned())),
        1 => Ok(runs.swap_remove(0)),
        _ => Err(LiveError::Several(ids(runs))),
    }
}

fn ids(runs: Vec<RunEntry>) -> Vec<String> {
    runs.into_iter().map(|run| run.started.id).collect()
}

/// Asks a run.
pub fn send_request(run: &RunEntry, ask: &ControlRequest) -> Result<ControlResponse, LiveError> {
    let id = || run.started.id.clone();
    match control::send_request(run_dir(run), ask) {
        Ok(ControlResponse::Refused(why)) => Err(LiveError::Refused { id: id(), why }),
        Ok(answer) => Ok(answer),
        Err(source) => Err(LiveError::Ask { id: id(), source }),
    }
}

/// What a run says of itself, where it answers.
pub fn request_status(run: &RunEntry) -> Option<control::RunStatus> {
    match send_request(run, &ControlRequest::State) {
        Ok(ControlResponse::State(state)) => Some(state),
        _ => None,
    }
}

/// Waits until a run's record is complete; gives the run as it is then.
pub fn until_ended(run: &RunEntry) -> Result<RunEntry> {
    let id = || run.started.id.clone();
    control::wait_for_end(run_dir(run)).map_err(|source| LiveError::Ask { id: id(), source })?;
    loop {
        // Its last line is written soon after its socket is closed; a run that cannot be spoken to
        // is looked at now and then.
        let now = sconce_record::read_run_entry(&run.path)?;
        if now.state != RunState::Running {
            return Ok(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// How a run that does not go on ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTermination {
    /// It ended so.
    As(ExitStatus),
    /// The machine went down, or was restarted, while it went on.
    WithTheMachine,
    /// Its Sconce was killed.
    Killed,
}

impl RunTermination {
    /// `boot_id` is the machine's present one.
    pub fn from_entry(run: &RunEntry, boot_id: Option<&str>) -> Option<Self> {
        match (run.state, &run.last) {
            (RunState::Running, _) => None,
            (RunState::Ended, Some(line)) => match &line.event {
                RecordEvent::Ended(ended) => Some(Self::As(ended.exit)),
                _ => Some(Self::Killed),
            },
            _ => Some(match (run.started.host.boot_id.as_deref(), boot_id) {
                (Some(then), Some(now)) if then != now => Self::WithTheMachine,
                _ => Self::Killed,
            }),
        }
    }

    /// Returns it in words.
    pub fn to_text(self) -> String {
        match self {
            Self::As(exit) => exit_text(exit),
            Self::WithTheMachine => match restarted() {
                Some(since) => format!("ended with the machine (restarted {since})"),
                None => "ended with the machine".to_owned(),
            },
            Self::Killed => "its sconce was killed".to_owned(),
        }
    }

    /// The exit code to tell it with.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::As(exit) => exit.exit_code(),
            // As if it had been told: 128 + SIGKILL.
            Self::WithTheMachine | Self::Killed => 137,
        }
    }
}

fn exit_text(exit: ExitStatus) -> String {
    match exit {
        ExitStatus::Code(code) => format!("exit code {code}"),
        ExitStatus::Signal(signal) => format!("signal {signal}"),
    }
}

/// Which boot of the machine this is.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// When the machine was started, as a date and a time (UTC).
fn restarted() -> Option<String> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    let ms = seconds.trim().parse::<u64>().ok()?.checked_mul(1_000)?;
    Some(format_utc(ms))
}

/// A date and a time of the day, UTC.
pub fn format_utc(unix_ms: u64) -> String {
    let stamp = sconce_run::logs::stamp_of(unix_ms);
    let minute: String = stamp.chars().take(16).collect();
    minute.replace('T', " ")
}

/// How often a service was started again, where it was: `(2 restarts)`.
pub fn format_restarts(starts: u32) -> Option<String> {
    match starts.saturating_sub(1) {
        0 => None,
        1 => Some("1 restart".to_owned()),
        count => Some(format!("{count} restarts")),
    }
}

/// One line about a service that has changed.
pub fn format_service_event(what: &ServiceEvent) -> String {
    let mut text = format!("{}: {}", what.name, what.state.label());
    let exit = what.exit.map(exit_text);
    let again = what
        .again_ms
        .map(|ms| format!("again in {} s", ms.div_ceil(1_000)));
    let more: Vec<String> = exit
        .into_iter()
        .chain(what.why.clone())
        .chain(again)
        .collect();
    if !more.is_empty() {
        text = format!("{text} ({})", more.join("; "));
    }
    text.chars()
        .map(|c| {
            if sconce_base::text::is_unprintable(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// The logs that a run has, by name.
pub fn list_log_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join(sconce_run::logs::FOLDER));
    let paths = entries.into_iter().flatten().flatten().map(|e| e.path());
    let log = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        Some(name.strip_suffix(".log")?.to_owned())
    };
    let mut names: Vec<String> = paths.filter_map(log).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use sconce_schema::event::ServiceState;

    use super::*;

    fn entry(id: &str, name: &str, boot: &str) -> RunEntry {
        let text = format!(
            r#"{{"format":2,"id":"{id}","name":"{name}","unix-ms":0,"command":[],"folder":"/","mode":"host","sconce-pid":1,"limits":{{}},"host":{{"hostname":"sun","kernel":"6","cpus":1,"memory":1,"boot-id":"{boot}"}},"gpus":[]}}"#
        );
        RunEntry {
            path: PathBuf::from("/runs").join(id).join("events.jsonl"),
            started: serde_json::from_str(&text).unwrap(),
            state: RunState::Running,
            last: None,
        }
    }

    #[test]
    fn a_run_is_found_by_id_beginning_and_name() {
        let runs = || vec![entry("a-1", "a", "x"), entry("a-12", "b", "x")];
        let id = |which| named(runs(), which).map(|run| run.started.id);
        assert_eq!(id("a-1").unwrap(), "a-1");
        assert_eq!(id("b").unwrap(), "a-12");
        assert!(matches!(id("a-"), Err(LiveError::Several(ids)) if ids.len() == 2));
        assert!(matches!(id("c"), Err(LiveError::NotLive(_))));
    }

    #[test]
    fn without_a_name_a_run_in_a_terminal_is_never_meant() {
        let run = |id| entry(id, "a", "x");
        let none = only((Vec::new(), vec![run("a-1")])).unwrap_err();
        assert!(matches!(&none, LiveError::None(ids) if ids == &["a-1"]));
        assert!(none.hint().unwrap().contains("a-1"));
        let one = only((vec![run("a-1")], vec![run("a-2")]));
        assert_eq!(one.unwrap().started.id, "a-1");
        let two = only((vec![run("a-1"), run("a-2")], Vec::new()));
        assert!(matches!(two, Err(LiveError::Several(_))));
    }

    #[test]
    fn a_run_that_a_reboot_ended_is_told_from_one_that_was_killed() {
        let mut run = entry("a", "a", "before");
        assert_eq!(RunTermination::from_entry(&run, Some("now")), None);
        run.state = RunState::Interrupted;
        assert_eq!(
            RunTermination::from_entry(&run, Some("now")),
            Some(RunTermination::WithTheMachine)
        );
        assert_eq!(
            RunTermination::from_entry(&run, Some("before")),
            Some(RunTermination::Killed)
        );
        assert_eq!(
            RunTermination::from_entry(&run, None),
            Some(RunTermination::Killed)
        );
        assert_eq!(RunTermination::Killed.exit_code(), 137);
        assert!(
            RunTermination::WithTheMachine
                .to_text()
                .starts_with("ended with the machine")
        );
    }

    #[test]
    fn what_is_said_of_a_service_is_one_tame_line() {
        let what = ServiceEvent {
            name: "web".to_owned(),
            state: ServiceState::Restarting,
            starts: 1,
            exit: Some(ExitStatus::Code(3)),
            why: Some("a\nb".to_owned()),
            again_ms: Some(1_000),
            open: Vec::new(),
        };
        assert_eq!(
            format_service_event(&what),
            "web: restarting (exit code 3; a\u{fffd}b; again in 1 s)"
        );
    }
}
