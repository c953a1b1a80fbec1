//! Keys, as htop has them.

use super::{Action, App, Key, Screen, Signal, Sort, Target};

impl App {
    /// Takes a key; says what the program shall do, if anything.
    pub fn key(&mut self, key: Key) -> Option<Action> {
        self.message = None;
        if key == Key::Control('c') {
            return Some(Action::Quit);
        }
        if self.ask.take().is_some() {
            // What is not a clear yes is a no.
            return match key {
                Key::Char('y' | 'Y') => Some(Action::Kill(Signal::Term)),
                Key::Char('9') => Some(Action::Kill(Signal::Kill)),
                _ => None,
            };
        }
        if std::mem::take(&mut self.help) {
            return None;
        }
        if let Some(at) = self.verdicts {
            let page = u16::try_from(self.page).unwrap_or(u16::MAX);
            self.verdicts = match key {
                Key::Down => Some(at.saturating_add(1)),
                Key::Up => Some(at.saturating_sub(1)),
                Key::PageDown | Key::Char(' ') => Some(at.saturating_add(page)),
                Key::PageUp => Some(at.saturating_sub(page)),
                Key::Home => Some(0),
                Key::Char('q' | 'Q') | Key::F(10) => return Some(Action::Quit),
                _ => None,
            };
            return None;
        }
        match key {
            Key::Char('v' | 'V') if self.screen == Screen::Run => {
                if self
                    .run
                    .as_ref()
                    .is_some_and(|run| !run.verdicts.is_empty())
                {
                    self.verdicts = Some(0);
                } else {
                    self.message = self.run.as_ref().map(super::Run::without_verdicts);
                }
            }
            Key::Char('q' | 'Q') | Key::F(10) => return Some(Action::Quit),
            Key::Char('h' | '?') | Key::F(1) => self.help = true,
            Key::Escape | Key::Char('r') | Key::F(2) => {
                self.screen = match self.screen {
                    Screen::Runs if self.run.is_some() => Screen::Run,
                    Screen::Run | Screen::Runs => Screen::Runs,
                };
            }
            Key::Up => self.go(-1),
            Key::Down => self.go(1),
            Key::PageUp => self.go(-(self.page as isize)),
            Key::PageDown => self.go(self.page as isize),
            Key::Home => self.go(isize::MIN),
            Key::End => self.go(isize::MAX),
            Key::Char('k') | Key::F(9) => return self.aim(),
            Key::Enter if self.screen == Screen::Runs => {
                let run = self.runs.get(self.selected_run)?;
                return Some(Action::Open(run.id.clone()));
            }
            Key::Char('P') => self.sort_by(Sort::Cpu),
            Key::Char('M') => self.sort_by(Sort::Memory),
            Key::Char('G') => self.sort_by(Sort::Card),
            Key::Char('N') => self.sort_by(Sort::Pid),
            Key::Char('I') => self.reversed = !self.reversed,
            Key::F(6) | Key::Char('>') => self.sort_by(match self.sort {
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
    fn aim(&mut self) -> Option<Action> {
        let target = match self.screen {
            Screen::Runs => {
                let run = self.runs.get(self.selected_run)?;
                if run.end != crate::model::End::Running {
                    self.message = Some("this run has ended".to_owned());
                    return None;
                }
                Target::Run(run.id.clone())
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
                Target::Process {
                    pid: row.sample.pid,
                    name: row.sample.name.clone(),
                }
            }
        };
        self.ask = Some(target.clone());
        Some(Action::Aim(target))
    }
}
