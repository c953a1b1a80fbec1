//! What is wrong with a run: the heaviest in one line, and all of it on a screen of its own.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::LiveRun;
use super::{BAD, DIM, WARN, fit_to_width};
use crate::format::printable_text;
use crate::terminal;
use crate::verdict::VerdictSeverity;

/// The heaviest verdict, how many more there are, and the key that shows them.
pub(super) fn summary_line(run: &LiveRun, width: usize) -> Option<Line<'static>> {
    let Some(first) = run.verdicts.first() else {
        let waits = run.waits_for_more()?;
        return Some(Line::styled(
            fit_to_width(&format!("not judged yet: {waits}"), width),
            DIM,
        ));
    };
    let style = match first.weight {
        VerdictSeverity::Fatal => BAD,
        VerdictSeverity::Costly | VerdictSeverity::Note => WARN,
    };
    let more = match run.verdicts.len() - 1 {
        0 => "  v: more".to_owned(),
        more => format!("  v: and {more} more"),
    };
    let room = width.saturating_sub(more.chars().count());
    let said = format!("{}: {}", first.weight.label(), printable_text(&first.title));
    Some(Line::styled(
        format!("{}{more}", fit_to_width(&said, room)),
        style,
    ))
}

/// All verdicts as the report has them, from line `at` on; gives the last line from which there is
/// something to see.
pub(super) fn draw(run: &LiveRun, at: u16, area: Rect, frame: &mut Frame<'_>) -> u16 {
    let style = terminal::TerminalStyle {
        color: false,
        width: area.width,
    };
    // The report's text is clean.
    let text = terminal::verdicts(&run.verdicts, &run.card_oom, style);
    let lines: Vec<Line<'_>> = text.trim_matches('\n').lines().map(Line::from).collect();
    let last = lines.len().saturating_sub(usize::from(area.height));
    let last = u16::try_from(last).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(lines).scroll((at.min(last), 0)), area);
    last
}
