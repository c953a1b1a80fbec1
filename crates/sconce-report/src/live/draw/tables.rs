//! The tables: processes of a run, and runs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::{App, Sort};
use super::{BOLD, DASH, DIM, fit_to_width, format_run_end};
use crate::format::{format_duration, format_workload, printable_text};

const CURSOR: Style = Style::new().add_modifier(Modifier::REVERSED);

impl App {
    pub(super) fn draw_processes(&self, area: Rect, frame: &mut Frame<'_>) {
        let mark = |sort: Sort, name: &str| {
            let arrow = if self.reversed { '▲' } else { '▼' };
            if self.sort == sort {
                format!("{name}{arrow}")
            } else {
                name.to_owned()
            }
        };
        let head = format!(
            "{:>8} {:<7}{:>6}{:>10}{:>10}{:>5}  {}",
            mark(Sort::Pid, "PID"),
            "ROLE",
            mark(Sort::Cpu, "CPU"),
            mark(Sort::Memory, "RSS"),
            mark(Sort::Card, "CARD"),
            "THR",
            mark(Sort::Name, "NAME"),
        );
        let rows = self.sorted();
        let cursor = self
            .selected_pid
            .and_then(|pid| rows.iter().position(|row| row.sample.pid == pid));
        let lines = rows.iter().map(|row| {
            let process = row.sample;
            let cores = row
                .cores
                .map_or(DASH.to_owned(), |cores| format!("{cores:.1}"));
            let card = row.card.map_or(DASH.to_owned(), |card| card.to_string());
            let role = process
                .role
                .as_deref()
                .map_or(DASH.to_owned(), printable_text);
            format!(
                "{:>8} {}{cores:>6}{:>10}{card:>10}{:>5}  {}",
                process.pid,
                fit_to_width(&role, 7),
                process.rss.to_string(),
                process.threads,
                printable_text(&process.name),
            )
        });
        let lines: Vec<Line<'_>> = lines.map(Line::from).collect();
        let empty = "No reading has told of processes.";
        table(Line::styled(head, DIM), lines, cursor, empty, area, frame);
    }

    pub(super) fn draw_run_list(&self, area: Rect, frame: &mut Frame<'_>) {
        let wide = (self.runs.iter())
            .map(|run| Line::from(printable_text(&run.id)).width())
            .max();
        let wide = wide
            .unwrap_or(0)
            .clamp(3, usize::from(area.width / 2).max(3));
        let head = format!(
            "{} {:<14}{:>14}{:>10}  COMMAND",
            fit_to_width("RUN", wide),
            "STATE",
            "TOOK",
            "MEMORY"
        );
        let lines = self.runs.iter().map(|run| {
            let (state, style) = format_run_end(run.end, run.out_of_memory == Some(true));
            let took = run.wall_us.map_or(DASH.to_owned(), format_duration);
            let memory = run
                .peak_memory
                .map_or(DASH.to_owned(), |peak| peak.to_string());
            Line::from(vec![
                Span::styled(fit_to_width(&printable_text(&run.id), wide), BOLD),
                Span::raw(" "),
                Span::styled(fit_to_width(&state, 14), style),
                Span::raw(format!("{took:>14}{memory:>10}  ")),
                Span::raw(printable_text(&format_workload(&run.command))),
            ])
        });
        let lines: Vec<Line<'_>> = lines.collect();
        let empty = "No run has been recorded. `sconce run` records one.";
        table(
            Line::styled(head, DIM),
            lines,
            Some(self.selected_run),
            empty,
            area,
            frame,
        );
    }
}

/// A head and rows below it, scrolled so that the cursor is seen.
fn table(
    head: Line<'_>,
    mut lines: Vec<Line<'_>>,
    cursor: Option<usize>,
    empty: &'static str,
    area: Rect,
    frame: &mut Frame<'_>,
) {
    let room = usize::from(area.height.saturating_sub(1));
    if lines.is_empty() {
        let lines = vec![head, Line::styled(empty, DIM)];
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    if let Some(line) = cursor.and_then(|at| lines.get_mut(at)) {
        let fill = usize::from(area.width).saturating_sub(line.width());
        line.push_span(Span::raw(" ".repeat(fill)));
        *line = std::mem::take(line).patch_style(CURSOR);
    }
    let first = cursor.map_or(0, |at| (at + 1).saturating_sub(room));
    let shown = lines.into_iter().skip(first).take(room);
    let lines: Vec<Line<'_>> = std::iter::once(head).chain(shown).collect();
    frame.render_widget(Paragraph::new(lines), area);
}
