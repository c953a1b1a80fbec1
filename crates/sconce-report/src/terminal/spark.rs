//! A figure over time in one line of text.

use crate::model::RunReport;
use crate::timeline::Timeline;

/// Without the full block, which would touch the line above.
const LEVELS: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];
/// With fewer readings a graph says less than the figures beside it.
const MIN_COLUMNS: usize = 6;
const MAX_COLUMNS: usize = 60;

/// The timeline in at most `room` characters, from the run's beginning to its end, so that the
/// graphs of one report stand below each other; the highest column is full. `None` for too few
/// readings or too little room.
pub(super) fn render_sparkline(
    timeline: &Timeline,
    report: &RunReport,
    room: usize,
) -> Option<String> {
    let samples = usize::try_from(report.samples).unwrap_or(MAX_COLUMNS);
    let columns = room.min(MAX_COLUMNS).min(samples);
    if columns < MIN_COLUMNS {
        return None;
    }
    let columns = timeline.column_means(columns, report.wall_us);
    let top = columns.iter().copied().fold(0.0, f64::max);
    let level = |value: f64| {
        let height = if top > 0.0 {
            value / top * LEVELS.len() as f64
        } else {
            0.0
        };
        LEVELS[(height.ceil() as usize).clamp(1, LEVELS.len()) - 1]
    };
    let line: String = columns.into_iter().map(level).collect();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use sconce_record::RecordReader;

    /// A run with one reading of memory each second.
    fn drawn(mib: &[u64], room: usize) -> Option<String> {
        let started = include_str!("../../tests/records/digits.jsonl")
            .lines()
            .next();
        let mut text = format!("{}\n", started.unwrap());
        for (second, mib) in (1..).zip(mib) {
            let memory = mib << 20;
            text +=
                &format!("{{\"t_us\":{second}000000,\"event\":\"sample\",\"memory\":{memory}}}\n");
        }
        let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl")).unwrap();
        let report = RunReport::from_record(record);
        render_sparkline(&report.memory.timeline, &report, room)
    }

    #[test]
    fn it_rises_to_its_own_peak() {
        assert_eq!(drawn(&[0, 1, 2, 3, 4, 5, 6, 7], 60).unwrap(), "▁▁▂▃▄▅▆▇");
        assert_eq!(drawn(&[0; 6], 60).unwrap(), "▁▁▁▁▁▁");
        assert_eq!(drawn(&[1; 500], 60).unwrap().chars().count(), 60);
        assert_eq!(drawn(&[1; 500], 20).unwrap().chars().count(), 20);
    }

    #[test]
    fn few_readings_are_no_graph() {
        assert_eq!(drawn(&[1, 2, 3, 4, 5], 60), None);
        assert_eq!(drawn(&[1; 9], 5), None);
    }
}
