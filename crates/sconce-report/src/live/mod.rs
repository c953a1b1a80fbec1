//! The live view in a terminal: what `sconce top` shows.
//!
//! An [`App`] is fed with the list of runs, the lines of one record and keys; it draws itself on any
//! ratatui backend and says what the program shall do as an [`AppAction`]. It asks nobody and starts
//! nothing.

mod draw;
mod keys;
mod run;

pub use run::LiveRun;

use crate::model::RunRow;

/// A key, whatever terminal it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "a key is what it is called")]
pub enum KeyPress {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    /// F1 to F12.
    F(u8),
    Char(char),
    /// Control and a letter.
    Control(char),
}

/// What the program shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppAction {
    /// End.
    Quit,
    /// Show this run.
    Open(String),
    /// Find this process and hold on to it: the question whether to end it is on the screen.
    Aim(SignalRecipient),
    /// End what was aimed at.
    Kill(Signal),
}

/// What a signal is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalRecipient {
    /// A process of the run that is shown.
    Process {
        /// In the host's numbering.
        pid: u32,
        /// The kernel's name of it.
        name: String,
    },
    /// A whole run, by its id: its `sconce`, which ends the command.
    Run(String),
}

/// The signals that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// Which table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    Run,
    Runs,
}

/// By which column processes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Cpu,
    Memory,
    Card,
    Pid,
    Name,
}

/// The whole view.
#[derive(Debug)]
pub struct App {
    /// Colours may be used.
    color: bool,
    screen: Screen,
    runs: Vec<RunRow>,
    run: Option<LiveRun>,
    selected_run: usize,
    /// The process under the cursor stays so when rows move.
    selected_pid: Option<u32>,
    sort: Sort,
    reversed: bool,
    ask: Option<SignalRecipient>,
    help: bool,
    /// All verdicts are shown, from this line on.
    verdicts: Option<u16>,
    /// Said in the last row until the next key.
    message: Option<String>,
    /// Rows of the table that was drawn last: a page.
    page: usize,
}

impl App {
    /// An empty view.
    #[must_use]
    pub fn new(color: bool) -> Self {
        Self {
            color,
            screen: Screen::Runs,
            runs: Vec::new(),
            run: None,
            selected_run: 0,
            selected_pid: None,
            sort: Sort::Cpu,
            reversed: false,
            ask: None,
            help: false,
            verdicts: None,
            message: None,
            page: 10,
        }
    }

    /// The runs there are, newest first.
    pub fn set_runs(&mut self, runs: Vec<RunRow>) {
        let selected = self.runs.get(self.selected_run).map(|run| run.id.clone());
        self.runs = runs;
        if let Some(at) = selected.and_then(|id| self.runs.iter().position(|run| run.id == id)) {
            self.selected_run = at;
        }
        self.selected_run = self.selected_run.min(self.runs.len().saturating_sub(1));
    }

    /// Shows a run.
    pub fn show_run(&mut self, run: LiveRun) {
        let id = &run.start_event().id;
        if let Some(at) = self.runs.iter().position(|row| &row.id == id) {
            self.selected_run = at;
        }
        self.run = Some(run);
        self.selected_pid = None;
        self.screen = Screen::Run;
    }

    /// The run that is shown, for its next lines.
    pub fn run_mut(&mut self) -> Option<&mut LiveRun> {
        self.run.as_mut()
    }

    /// Says something in the last row. What was asked is asked no longer.
    pub fn show_message(&mut self, text: String) {
        self.ask = None;
        self.message = Some(text);
    }

    /// Processes of the run in the order of the table.
    fn sorted(&self) -> Vec<run::LiveProcess<'_>> {
        let Some(run) = &self.run else {
            return Vec::new();
        };
        let mut rows = run.processes();
        let most = |a: Option<f64>, b: Option<f64>| {
            b.partial_cmp(&a).unwrap_or(a.is_none().cmp(&b.is_none()))
        };
        rows.sort_by(|a, b| {
            let by = match self.sort {
                Sort::Cpu => most(a.cores, b.cores),
                Sort::Memory => b.sample.rss.cmp(&a.sample.rss),
                Sort::Card => b.card.cmp(&a.card),
                Sort::Pid => a.sample.pid.cmp(&b.sample.pid),
                Sort::Name => a.sample.name.cmp(&b.sample.name),
            };
            let by = if self.reversed { by.reverse() } else { by };
            by.then(a.sample.pid.cmp(&b.sample.pid))
        });
        rows
    }
}
