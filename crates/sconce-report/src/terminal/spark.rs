//! A figure over time in one line of text.

use crate::timeline::Timeline;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// With fewer readings a graph says less than the figures beside it.
const FEWEST: u64 = 4;
const WIDEST: usize = 60;

/// The timeline in at most `room` characters, from the run's beginning to its end; the highest
/// column is full, an empty place was not measured. `None` for too few readings or too little
/// room.
pub(super) fn spark(timeline: &Timeline, room: usize) -> Option<String> {
    let readings = timeline.readings();
    let columns = room
        .min(WIDEST)
        .min(usize::try_from(readings).unwrap_or(WIDEST));
    if readings < FEWEST || columns < FEWEST as usize {
        return None;
    }
    let columns = timeline.columns(columns);
    let top = columns.iter().flatten().copied().fold(0.0, f64::max);
    let level = |value: f64| {
        let eighths = if top > 0.0 { value / top * 8.0 } else { 0.0 };
        LEVELS[(eighths.ceil() as usize).clamp(1, 8) - 1]
    };
    Some(
        columns
            .into_iter()
            .map(|value| value.map_or(' ', level))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(values: &[f64]) -> Timeline {
        let mut timeline = Timeline::default();
        for (second, value) in (0_u64..).zip(values) {
            timeline.add(second * 1_000_000, *value);
        }
        timeline
    }

    #[test]
    fn it_rises_to_its_own_peak() {
        let rising: Vec<f64> = (0..8).map(f64::from).collect();
        assert_eq!(spark(&timeline(&rising), 60).unwrap(), "▁▂▃▄▅▆▇█");
        assert_eq!(spark(&timeline(&[0.0; 5]), 60).unwrap(), "▁▁▁▁▁");
        assert_eq!(
            spark(&timeline(&[1.0; 500]), 60).unwrap().chars().count(),
            60
        );
        assert_eq!(
            spark(&timeline(&[1.0; 500]), 20).unwrap().chars().count(),
            20
        );
    }

    #[test]
    fn few_readings_are_no_graph() {
        assert_eq!(spark(&timeline(&[1.0, 2.0, 3.0]), 60), None);
        assert_eq!(spark(&timeline(&[1.0; 9]), 3), None);
    }
}
