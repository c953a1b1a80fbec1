//! The view on a screen. Everything that comes from a record is cleaned first.

mod meters;
mod tables;
mod timeline;
mod training;
mod verdicts;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use sconce_schema::event::ServiceState;

use super::{App, LiveRun, Screen, SignalRecipient};
use crate::format::{describe_signal, format_duration, format_workload, printable_text};
use crate::model::RunEnd;

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const BAD: Style = Style::new().fg(Color::Red);
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);

/// What stands for a figure that is not there.
pub(super) const DASH: &str = "–";

/// The rows that processes get before anything else grows.
const MIN_PROCESS_ROWS: u16 = 6;

const HELP: [&str; 18] = [
    "↑ ↓ PgUp PgDn Home End   move",
    "F2 r Esc                 list of runs, and back",
    "Enter                    show the run under the cursor",
    "F6 >                     sort by the next column",
    "P M G N                  sort by CPU, memory, card memory, PID",
    "I                        turn the order round",
    "v                        what is wrong with the run, and what to change",
    "F9 k                     end a process or a run; asks first",
    "F10 q Ctrl-C             quit; the runs go on",
    "",
    "Training: the last readings; of a run that has ended, all of it.",
    "d data: waiting for the loader   c copies to the card",
    "f forward   b backward   o optimizer   · other",
    "",
    "CPU of a process counts cores: 1.0 is one whole core.",
    "Tasks: processes/threads. R, W: read from and written to disks.",
    "",
    "Any key goes back.",
];

impl App {
    /// Draws the view on the whole screen.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let [top, body, bottom] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(area);
        frame.render_widget(self.title(), top);
        match (self.screen, &self.run) {
            (Screen::Run, Some(run)) if self.verdicts.is_some() => {
                self.page = usize::from(body.height.saturating_sub(1)).max(1);
                let last = verdicts::draw(run, self.verdicts.unwrap_or(0), body, frame);
                self.verdicts = self.verdicts.map(|at| at.min(last));
            }
            (Screen::Run, Some(run)) => {
                let rows = above(run, body, frame);
                self.page = usize::from(rows.height.saturating_sub(1)).max(1);
                self.draw_processes(rows, frame);
            }
            _ => {
                self.page = usize::from(body.height.saturating_sub(1)).max(1);
                self.draw_run_list(body, frame);
            }
        }
        frame.render_widget(self.footer(), bottom);
        if self.help {
            boxed(" Keys ", HELP.map(Line::from).to_vec(), frame);
        }
        if let Some(target) = &self.ask {
            ask(target, frame);
        }
        if !self.color {
            for cell in &mut frame.buffer_mut().content {
                cell.fg = Color::Reset;
                cell.bg = Color::Reset;
            }
        }
    }

    fn title(&self) -> Line<'static> {
        let (Screen::Run, Some(run)) = (self.screen, &self.run) else {
            let running = self.runs.iter().filter(|run| run.end == RunEnd::Running);
            let count = running.count();
            return Line::styled(format!("Runs: {}, running: {count}", self.runs.len()), BOLD);
        };
        let (state, style) = format_run_end(run.end, run.killed);
        Line::from(vec![
            Span::styled(printable_text(&run.start_event().id), BOLD),
            Span::raw("  "),
            Span::styled(state, style),
            Span::raw(format!("  {}  ", format_duration(run.t_us()))),
            Span::styled(
                printable_text(&format_workload(&run.start_event().command)),
                DIM,
            ),
        ])
    }

    fn footer(&self) -> Line<'static> {
        if let Some(message) = &self.message {
            return Line::styled(printable_text(message), WARN);
        }
        let keys: &[(&str, &str)] = match self.screen {
            Screen::Run if self.verdicts.is_some() => &[("↑ ↓", "Move"), ("Esc", "Back")],
            Screen::Run => &[
                ("F1", "Help"),
                ("F2", "Runs"),
                ("F6", "Sort"),
                ("F9", "Kill"),
                ("F10", "Quit"),
            ],
            Screen::Runs => &[
                ("F1", "Help"),
                ("Enter", "Show"),
                ("F9", "Kill"),
                ("F10", "Quit"),
            ],
        };
        let spans = keys.iter().flat_map(|(key, what)| {
            let reversed = Style::new().add_modifier(Modifier::REVERSED);
            [
                Span::raw(*key),
                Span::styled(format!("{what:<6}"), reversed),
                Span::raw(" "),
            ]
        });
        Line::from(spans.collect::<Vec<_>>())
    }
}

/// Everything above the processes; gives the rows that are left for them.
fn above(run: &LiveRun, area: Rect, frame: &mut Frame<'_>) -> Rect {
    let cards = run.latest_sample().map_or(0, |now| now.gpus.len());
    let paces = run.training_rates();
    let spare = area.height.saturating_sub(MIN_PROCESS_ROWS);
    let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    // In 24 rows: 4 of meters, 3 of two ranks, 5 of memory over time, 10 of processes.
    let meters = lines(cards).clamp(4, (spare / 3).max(4));
    let training = match lines(paces.len()) {
        0 => 0,
        ranks => 1 + ranks.min((spare / 4).max(2)),
    };
    let warnings = u16::from(run.out_of_memory.is_some() || run.damaged_lines > 0)
        + u16::from(!run.services.is_empty())
        + u16::from(!run.verdicts.is_empty() || run.waits_for_more().is_some());
    let timeline = match spare.saturating_sub(meters + training + warnings) {
        0..3 => 0,
        room => room.clamp(3, 5 + (area.height / 12)),
    };
    let [warned, top, middle, graph, rest] = Layout::vertical([
        Constraint::Length(warnings),
        Constraint::Length(meters),
        Constraint::Length(training),
        Constraint::Length(timeline),
        Constraint::Fill(1),
    ])
    .areas(area);
    let mut lines = Vec::new();
    if run.out_of_memory.is_some() || run.damaged_lines > 0 {
        lines.push(warning(run));
    }
    lines.extend(services(run));
    lines.extend(verdicts::summary_line(run, usize::from(area.width)));
    frame.render_widget(Paragraph::new(lines), warned);
    meters::draw(run, top, frame);
    training::draw(&paces, middle, frame);
    timeline::draw(run, graph, frame);
    rest
}

/// How a run ended, in a word or two.
pub(super) fn format_run_end(end: RunEnd, killed: bool) -> (String, Style) {
    match end {
        _ if killed => ("out of memory".to_owned(), BAD),
        RunEnd::Running => ("running".to_owned(), GOOD),
        RunEnd::Exited(0) => ("exit 0".to_owned(), GOOD),
        RunEnd::Exited(code) => (format!("exit {code}"), BAD),
        RunEnd::Signalled(number) => (describe_signal(number).0, BAD),
        RunEnd::Interrupted => ("interrupted".to_owned(), BAD),
    }
}

/// Each service and what it is doing.
fn services(run: &LiveRun) -> Option<Line<'static>> {
    let mut spans = vec![Span::styled("Services", DIM)];
    for service in &run.services {
        let style = match service.state {
            ServiceState::Failed | ServiceState::Unhealthy => BAD,
            ServiceState::Restarting => WARN,
            _ => Style::new(),
        };
        let text = format!(
            "  {} {}",
            printable_text(&service.name),
            service.state.label()
        );
        spans.push(Span::styled(text, style));
    }
    (!run.services.is_empty()).then(|| Line::from(spans))
}

fn warning(run: &LiveRun) -> Line<'static> {
    let text = match &run.out_of_memory {
        Some(at) => {
            let asked = at
                .value
                .asked
                .map_or(String::new(), |asked| format!(", {asked} asked for"));
            let (device, when) = (at.value.device, format_duration(at.t_us));
            format!(
                "Card {device} ran out of memory after {when}, in step {}{asked}",
                at.value.step
            )
        }
        None => format!(
            "Lines of the record that cannot be read: {}",
            run.damaged_lines
        ),
    };
    Line::styled(text, BAD)
}

fn ask(target: &SignalRecipient, frame: &mut Frame<'_>) {
    let what = match target {
        SignalRecipient::Process { pid, name } => {
            format!("End process {pid}, {}?", printable_text(name))
        }
        SignalRecipient::Run(id) => format!("End the run {}?", printable_text(id)),
    };
    let lines = [
        what.as_str(),
        "",
        "y  yes, ask it to end (SIGTERM)",
        "9  end it at once (SIGKILL)",
        "any other key: no",
    ];
    let lines = lines.map(|line| Line::from(line.to_owned()));
    boxed(" Kill ", lines.to_vec(), frame);
}

/// Lines in a frame in the middle of the screen.
fn boxed(title: &'static str, lines: Vec<Line<'_>>, frame: &mut Frame<'_>) {
    let area = frame.area();
    let wide = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let high = lines.len() as u16 + 2;
    let (width, height) = (wide.min(area.width), high.min(area.height));
    let area = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered()
        .title(title)
        .padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// A text of exactly so many columns: cut with an ellipsis, or filled up.
pub(super) fn fit_to_width(text: &str, columns: usize) -> String {
    let line = Line::from(text);
    if line.width() <= columns {
        return format!("{text}{}", " ".repeat(columns - line.width()));
    }
    let mut kept = String::new();
    for letter in text.chars() {
        let more = format!("{kept}{letter}");
        if Line::from(more.as_str()).width() >= columns {
            break;
        }
        kept = more;
    }
    let width = Line::from(kept.as_str()).width();
    format!("{kept}{}", if columns > width { "…" } else { "" })
        + &" ".repeat(columns.saturating_sub(width + 1))
}
