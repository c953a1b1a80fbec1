//! Many runs side by side: what was set otherwise among them, and what came of each.

use sconce_schema::Bytes;

use super::settings::{own_command, settings};
use super::{card_allocated, samples_per_s, tokens_per_s};
use crate::format::format_command;
use crate::model::{RunEnd, RunReport};
use crate::training::RankReport;

/// Runs, in the order in which they were named.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTable<'a> {
    /// A row for each.
    pub rows: Vec<RunTableRow<'a>>,
    /// What was set otherwise among them, beside the command.
    pub settings: Vec<SettingRow>,
}

/// What a run was given that others were not, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTableRow<'a> {
    /// Its id.
    pub id: &'a str,
    /// The words of its command that are not those of all runs.
    pub own_words: String,
    /// From its beginning to its end, µs.
    pub wall_us: u64,
    /// How it ended.
    pub end: RunEnd,
    /// Whether the kernel killed processes of it because memory ran out.
    pub is_out_of_memory: bool,
    /// Steps of training, of its first rank.
    pub steps: Option<u64>,
    /// The median of their times, µs.
    pub median_step_us: Option<f64>,
    /// Steps a second.
    pub steps_per_s: Option<f64>,
    /// Samples a second, of all ranks.
    pub samples_per_s: Option<f64>,
    /// Tokens a second, of all ranks.
    pub tokens_per_s: Option<f64>,
    /// The most main memory.
    pub memory_peak: Option<Bytes>,
    /// The most that tensors took on a card.
    pub card_peak: Option<Bytes>,
}

/// A setting that is not the same in all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    /// What it is.
    pub what: &'static str,
    /// In each run; `None` where that is not known.
    pub values: Vec<Option<String>>,
}

impl<'a> RunTable<'a> {
    /// Of reports.
    #[must_use]
    pub fn from_reports(reports: &'a [RunReport]) -> Self {
        let commands: Vec<&[String]> = reports
            .iter()
            .map(|one| own_command(&one.started.command))
            .collect();
        let (before, after) = common_ends(&commands);
        let rows = reports.iter().map(|report| {
            let words = own_command(&report.started.command);
            let own = &words[before..words.len() - after];
            row(report, format_command(own))
        });
        Self {
            rows: rows.collect(),
            settings: other_settings(reports),
        }
    }
}

fn row(report: &RunReport, own_words: String) -> RunTableRow<'_> {
    let first = report.training.first();
    RunTableRow {
        id: &report.started.id,
        own_words,
        wall_us: report.wall_us,
        end: report.end,
        is_out_of_memory: report.out_of_memory.is_some(),
        steps: first.map(|rank| rank.steps),
        median_step_us: first.and_then(|rank| Some(rank.step_times?.median_us)),
        steps_per_s: first.and_then(RankReport::steps_per_s),
        samples_per_s: samples_per_s(report),
        tokens_per_s: tokens_per_s(report),
        memory_peak: report
            .memory
            .peak
            .map(|peak| peak.value)
            .or(report.memory.pss_peak),
        card_peak: card_allocated(report),
    }
}

/// How many words all commands begin with, and end with. A value's own name stays with it: `--lr 0.1`.
fn common_ends(commands: &[&[String]]) -> (usize, usize) {
    let Some((first, others)) = commands.split_first() else {
        return (0, 0);
    };
    let shortest = commands.iter().map(|words| words.len()).min().unwrap_or(0);
    let is_common = |at: &usize| others.iter().all(|words| words[*at] == first[*at]);
    let mut before = (0..shortest).take_while(is_common).count();
    let is_common_end = |at: &usize| {
        let from_end = |words: &[String]| words[words.len() - 1 - at].clone();
        others
            .iter()
            .all(|words| from_end(words) == from_end(first))
    };
    let after = (0..shortest - before).take_while(is_common_end).count();
    let is_whole = commands.iter().all(|words| words.len() == before + after);
    if !is_whole && before > 0 && first[before - 1].starts_with('-') {
        before -= 1;
    }
    (before, after)
}

/// Settings that are not the same in all runs, without the command, which has a column of its own.
fn other_settings(reports: &[RunReport]) -> Vec<SettingRow> {
    let all: Vec<_> = reports.iter().map(settings).collect();
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let rows = first.iter().enumerate().filter_map(|(at, (what, value))| {
        let is_same = all.iter().all(|settings| settings[at].1 == *value);
        (!is_same && *what != "command").then(|| SettingRow {
            what,
            values: all.iter().map(|settings| settings[at].1.clone()).collect(),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_commands_have_is_left_out() {
        let own = |commands: &[&str]| -> Vec<String> {
            let commands: Vec<Vec<String>> = commands
                .iter()
                .map(|text| text.split(' ').map(str::to_owned).collect())
                .collect();
            let slices: Vec<&[String]> = commands.iter().map(Vec::as_slice).collect();
            let (before, after) = common_ends(&slices);
            let own = slices
                .iter()
                .map(|words| words[before..words.len() - after].join(" "));
            own.collect()
        };
        assert_eq!(
            own(&["python t.py --lr 1 --out x", "python t.py --lr 2 --out x"]),
            ["--lr 1", "--lr 2"]
        );
        assert_eq!(
            own(&["python a.py", "python b.py --lr 1"]),
            ["a.py", "b.py --lr 1"]
        );
        assert_eq!(own(&["python a.py", "python a.py"]), ["", ""]);
        assert_eq!(own(&["t a a", "t a"]), ["a", ""]);
        assert_eq!(own(&[]), [] as [String; 0]);
    }
}
