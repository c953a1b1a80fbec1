//! Keys, as htop has them.

use super::{App, AppAction, KeyPress, Screen, Signal, SignalRecipient, Sort};

impl App {
    /// Takes a key; says what the program shall do, if anything.
    pub fn handle_key(&mut self, key: KeyPress) -> Option<AppAction> {
        self.message = None;
        if key == KeyPress::Control('c') {
            return Some(AppAction::Quit);
        }
        if self.ask.take().is_some() {
            // What is not a clear yes is a no.
            return match key {
                KeyPress::Char('y' | 'Y') => Some(AppAction::Kill(Signal::Term)),
                KeyPress::Char('9') => Some(AppAction::Kill(Signal::Kill)),
                _ => None,
            };
        }
        if std::mem::take(&mut self.help) {
            return None;
        }
        if let Some(at) = self.verdicts {
            let page = u16::try_from(self.page).unwrap_or(u16::MAX);
            self.verdicts = match key {
                KeyPress::Down => Some(at.saturating_add(1)),
                KeyPress::Up => Some(at.saturating_sub(1)),
                KeyPress::PageDown | KeyPress::Char(' ') => Some(at.saturating_add(page)),
                KeyPress::PageUp => Some(at.saturating_sub(page)),
                KeyPress::Home => Some(0),
                KeyPress::Char('q' | 'Q') | KeyPress::F(10) => return Some(AppAction::Quit),
                _ => None,
            };
            return None;
        }
        match key {
            KeyPress::Char('v' | 'V') if self.screen == Screen::Run => {
                if self
                    .run
                    .as_ref()
                    .is_some_and(|run| !run.verdicts.is_empty())
                {
                    self.verdicts = Some(0);
                } else {
                    self.message = self.run.as_ref().map(super::LiveRun::without_verdicts);
                }
            }
            KeyPress::Char('q' | 'Q') | KeyPress::F(10) => return Some(AppAction::Quit),
            KeyPress::Char('h' | '?') | KeyPress::F(1) => self.help = true,
            KeyPress::Escape | KeyPress::Char('r') | KeyPress::F(2) => {
                self.screen = match self.screen {
                    Screen::Runs if self.run.is_some() => Screen::Run,
                    Screen::Run | Screen::Runs => Screen::Runs,
                };
            }
            KeyPress::Up => self.go(-1),
            KeyPress::Down => self.go(1),
            KeyPress::PageUp => self.go(-(self.page as isize)),
            KeyPress::PageDown => self.go(self.page as isize),
            KeyPress::Home => self.go(isize::MIN),
            KeyPress::End => self.go(isize::MAX),
            KeyPress::Char('k') | KeyPress::F(9) => return self.aim(),
            KeyPress::Enter if self.screen == Screen::Runs => {
                let run = self.runs.get(self.selected_run)?;
                return Some(AppAction::Open(run.id.clone()));
            }
            KeyPress::Char('P') => self.sort_by(Sort::Cpu),
            KeyPress::Char('M') => self.sort_by(Sort::Memory),
            KeyPress::Char('G') => self.sort_by(Sort::Card),
            KeyPress::Char('N') => self.sort_by(Sort::Pid),
            KeyPress::Char('I') => self.reversed = !self.reversed,
            KeyPress::F(6) | KeyPress::Char('>') => self.sort_by(match self.sort {
                Sort::Cpu => Sort::Memory,
                Sort::Memory => Sort::Card,
                Sort::Card => Sort::Pid,
                Sort::Pid => Sort::Name,
                Sort::Name => Sort::Cpu,
            }),
            _ => {}
        }
        None
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.reversed = false;
    }

    /// Moves the cursor by so many rows.
    fn go(&mut self, by: isize) {
        let moved =
            |at: usize, count: usize| at.saturating_add_signed(by).min(count.saturating_sub(1));
        match self.screen {
            Screen::Runs => self.selected_run = moved(self.selected_run, self.runs.len()),
            Screen::Run => {
                let pids: Vec<u32> = self.sorted().iter().map(|row| row.sample.pid).collect();
                let at = self
                    .selected_pid
                    .and_then(|pid| pids.iter().position(|it| *it == pid));
                // The first key puts the cursor on the first row.
                let to = at.map_or_else(
                    || moved(0, pids.len()).min(if by == 1 { 0 } else { usize::MAX }),
                    |at| moved(at, pids.len()),
                );
                self.selected_pid = pids.get(to).copied();
            }
        }
    }

    /// Asks whether to end what is under the cursor.
    fn aim(&mut self) -> Option<AppAction> {
        let target = match self.screen {
            Screen::Runs => {
                let run = self.runs.get(self.selected_run)?;
                if run.end != crate::model::RunEnd::Running {
                    self.message = Some("this run has ended".to_owned());
                    return None;
                }
                SignalRecipient::Run(run.id.clone())
            }
            Screen::Run => {
                if !self.run.as_ref()?.is_running() {
                    self.message = Some("this run has ended".to_owned());
                    return None;
                }
                let rows = self.sorted();
                let row = rows
                    .iter()
                    .find(|row| Some(row.sample.pid) == self.selected_pid);
                let Some(row) = row else {
                    self.message = Some("choose a process first: ↑ ↓".to_owned());
                    return None;
                };
                SignalRecipient::Process {
                    pid: row.sample.pid,
                    name: row.sample.name.clone(),
                }
            }
        };
        self.ask = Some(target.clone());
        Some(AppAction::Aim(target))
    }
}
