//! `sconce top`.

mod process_handle;
mod record_follower;
mod screen;

use std::path::Path;
use std::time::{Duration, Instant};

use sconce_record::{RunEntry, RunState};
use sconce_report::RunRow;
use sconce_report::live::{App, AppAction};
use sconce_schema::exit;

use self::process_handle::ProcessHandle;
use self::record_follower::RecordFollower;
use self::screen::Screen;
use crate::error::CliError;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{AppError, Failure, Result, with_causes};
use sconce_app::file_action::FileAction;

/// How often the runs are listed, where that is cheap.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Of the time, listing takes no more than one part in so many.
const LIST_COST_FACTOR: u32 = 20;
/// How long a key is waited for.
const KEY_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// A run's id, the beginning of one, or `last`; without one, the newest that goes on.
    pub(crate) run: Option<String>,
}

pub(crate) fn top(args: &TopArgs, context: &AppContext) -> Result<u8> {
    let runs = SconceDirs::find(context)?.runs;
    let style = OutputStyle::for_stdout();
    let mut app = App::new(style.color);
    let mut follow = None;
    let entries = sconce_record::list_runs(&runs)?.runs;
    let first = match &args.run {
        Some(which) => Some(sconce_record::resolve_run(&runs, which)?),
        None => (entries.iter())
            .find(|run| run.state == RunState::Running)
            .map(|run| run.path.clone()),
    };
    app.set_runs(entries.iter().map(RunRow::from).collect());
    if let Some(path) = first {
        follow = Some(open(&path, &mut app)?);
    }
    let screen = Screen::open().map_err(|source| match source {
        None => Failure::from(CliError::NoTerminal),
        Some(source) => Failure::from(AppError::File {
            action: FileAction::Use,
            path: "the terminal".into(),
            source,
        }),
    })?;
    let mut view = View {
        runs: &runs,
        app,
        follow,
        entries,
        aim: None,
    };
    view.watch(screen)
}

fn open(path: &Path, app: &mut App) -> Result<RecordFollower> {
    let (follow, run) = RecordFollower::open(path)?;
    app.show_run(run);
    Ok(follow)
}

struct View<'a> {
    runs: &'a Path,
    app: App,
    follow: Option<RecordFollower>,
    entries: Vec<RunEntry>,
    /// What the question on the screen is about.
    aim: Option<ProcessHandle>,
}

impl View<'_> {
    /// Shows runs until somebody wants no more; gives the exit code.
    fn watch(&mut self, mut screen: Screen) -> Result<u8> {
        let failed = |source| AppError::File {
            action: FileAction::Use,
            path: "the terminal".into(),
            source,
        };
        let mut list_at = Instant::now() + LIST_INTERVAL;
        loop {
            if Instant::now() >= list_at {
                let began = Instant::now();
                self.list();
                list_at = Instant::now() + LIST_INTERVAL.max(began.elapsed() * LIST_COST_FACTOR);
            }
            let more = match (&mut self.follow, self.app.run_mut()) {
                (Some(follow), Some(run)) => {
                    let more = follow.read_new_lines(run);
                    // A long record is read first.
                    if !more {
                        run.update_verdicts();
                    }
                    more
                }
                _ => false,
            };
            screen.draw(&mut self.app).map_err(failed)?;
            // A long record is read between keys.
            let wait = if more { Duration::ZERO } else { KEY_TIMEOUT };
            if let Some(key) = screen.poll_key(wait).map_err(failed)?
                && let Some(action) = self.app.handle_key(key)
                && self.act(action)
            {
                return Ok(exit::OK);
            }
            if let Some(signal) = screen.received_signal() {
                return Ok(exit::code_for_signal(signal));
            }
        }
    }

    /// What the view asks for; true when it is to end.
    fn act(&mut self, action: AppAction) -> bool {
        match action {
            AppAction::Quit => return true,
            AppAction::Open(id) => {
                let found = self.entries.iter().find(|run| run.started.id == id);
                let Some(path) = found.map(|run| run.path.clone()) else {
                    return false;
                };
                match RecordFollower::open(&path) {
                    Ok((follow, run)) => {
                        self.follow = Some(follow);
                        self.app.show_run(run);
                    }
                    Err(error) => self.app.show_message(with_causes(&error)),
                }
            }
            AppAction::Aim(target) => {
                let shown = self.app.run_mut().map(|run| run.start_event().id.clone());
                match ProcessHandle::open_process(&target, shown.as_deref(), &self.entries) {
                    Ok(aim) => self.aim = Some(aim),
                    Err(error) => self.app.show_message(error.to_string()),
                }
            }
            AppAction::Kill(signal) => {
                if let Some(aim) = self.aim.take() {
                    match aim.send_signal(signal) {
                        Ok(()) => self.app.show_message(format!(
                            "{} was sent",
                            process_handle::signal_name(signal)
                        )),
                        Err(error) => self.app.show_message(error.to_string()),
                    }
                }
            }
        }
        false
    }

    /// Looks which runs there are, and whether the one that is shown goes on.
    fn list(&mut self) {
        match sconce_record::list_runs(self.runs) {
            Ok(listing) => self.entries = listing.runs,
            Err(error) => {
                self.app.show_message(with_causes(&error));
                return;
            }
        }
        self.app
            .set_runs(self.entries.iter().map(RunRow::from).collect());
        let (Some(follow), Some(run)) = (&mut self.follow, self.app.run_mut()) else {
            return;
        };
        let entry = (self.entries.iter()).find(|entry| entry.started.id == run.start_event().id);
        if let Some(entry) = entry {
            follow.reconcile_with_entry(entry, run);
        }
    }
}
