//! What each training process does with its time.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::run::TrainingRate;
use super::{DASH, DIM, fit_to_width};

/// A letter and a colour for each phase, in the order of `Phases::by_name`: readable without colour.
const LETTERS: [(char, Color); 6] = [
    ('d', Color::Red),
    ('c', Color::Magenta),
    ('f', Color::Green),
    ('b', Color::Blue),
    ('o', Color::Cyan),
    ('·', Color::Gray),
];

pub(super) fn draw(paces: &[TrainingRate<'_>], area: Rect, frame: &mut Frame<'_>) {
    if area.height < 2 {
        return;
    }
    let head = format!(
        "{:<9}{:>8}{:>9}{:>11}  {}",
        "TRAINING", "STEP", "MS/STEP", "SAMPLES/S", "PHASES"
    );
    let mut lines = vec![Line::styled(head, DIM)];
    let room = usize::from(area.height) - 1;
    let shown = if paces.len() > room {
        room - 1
    } else {
        paces.len()
    };
    let bar = usize::from(area.width).saturating_sub(39 + 10).max(6);
    lines.extend(paces[..shown].iter().map(|pace| row(pace, bar)));
    if paces.len() > shown {
        lines.push(Line::styled(
            format!("and {} more", paces.len() - shown),
            DIM,
        ));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn row(pace: &TrainingRate<'_>, width: usize) -> Line<'static> {
    let who = match (pace.training.rank, pace.training.group) {
        (Some(rank), None) => format!("rank {rank}"),
        (Some(rank), Some(group)) => format!("rank {rank} g{group}"),
        (None, _) => match pace.training.cell {
            Some(cell) => format!("{} [{cell}]", pace.training.pid),
            None => format!("{}", pace.training.pid),
        },
    };
    let ms = pace
        .step_us()
        .map_or(DASH.to_owned(), |us| format!("{:.1}", us / 1e3));
    let samples = pace
        .samples_per_s
        .map_or(DASH.to_owned(), |samples| format!("{samples:.0}"));
    let text = format!(
        "{}{:>8}{ms:>9}{samples:>11}  ",
        fit_to_width(&who, 9),
        pace.training.steps
    );
    let mut spans = vec![Span::raw(text)];
    let sum = pace.phases.sum_us();
    if sum == 0 {
        spans.push(Span::raw(DASH));
        return Line::from(spans);
    }
    let (mut done, mut drawn) = (0_u64, 0);
    for ((_, us), (letter, color)) in pace.phases.by_name().into_iter().zip(LETTERS) {
        done = done.saturating_add(us);
        let to = (done as f64 / sum as f64 * width as f64).round() as usize;
        let part: String = std::iter::repeat_n(letter, to.saturating_sub(drawn)).collect();
        spans.push(Span::styled(part, Style::new().bg(color).fg(Color::Black)));
        drawn = drawn.max(to);
    }
    let waits = pace.phases.data_us as f64 / sum as f64 * 100.0;
    spans.push(Span::raw(format!(" data {waits:.0} %")));
    Line::from(spans)
}
