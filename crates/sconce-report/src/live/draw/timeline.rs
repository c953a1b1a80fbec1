//! Memory from the run's beginning to now.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::Sparkline;
use sconce_schema::Bytes;

use super::super::LiveRun;
use super::super::run::{memory_in_use, memory_measure};
use super::{DASH, DIM};
use crate::timeline::Timeline;

pub(super) fn draw(run: &LiveRun, area: Rect, frame: &mut Frame<'_>) {
    if area.height < 2 {
        return;
    }
    let size = |size: Option<Bytes>| size.map_or(DASH.to_owned(), |size| size.to_string());
    let now = run.latest_sample().and_then(memory_in_use);
    let kind = run.latest_sample().and_then(memory_measure);
    let kind = kind.map_or(String::new(), |kind| format!(" ({})", kind.short_label()));
    let text = format!("MEMORY {}{kind}, peak {}", size(now), size(run.memory_peak));
    let memory = (&run.memory, text, Color::Green);
    if run.card_memory_peak.is_none() {
        graph(run, memory, area, frame);
        return;
    }
    let [left, _, right] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    graph(run, memory, left, frame);
    let text = format!("CARD MEMORY, peak {}", size(run.card_memory_peak));
    graph(run, (&run.card_memory, text, Color::Blue), right, frame);
}

fn graph(run: &LiveRun, what: (&Timeline, String, Color), area: Rect, frame: &mut Frame<'_>) {
    let (timeline, text, color) = what;
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Line::styled(text, DIM), head);
    let columns = timeline.column_means(area.width.into(), run.t_us());
    let top = columns.iter().copied().fold(0.0, f64::max);
    let data: Vec<u64> = columns.iter().map(|value| *value as u64).collect();
    let line = Sparkline::default().data(data).max((top as u64).max(1));
    frame.render_widget(line.style(Style::new().fg(color)), body);
}
