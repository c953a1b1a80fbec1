//! What many runs used together: GPU-hours held and used, CPU-hours, energy, cost.
//!
//! *Held* is a card given to a run times the run's length; *used* is the share of that in which a kernel
//! ran. A figure that some runs do not tell is the sum of those that do, with how many do not.

mod prices;

pub use prices::{PriceError, Prices};

use std::collections::BTreeMap;

use crate::format;
use crate::model::{RunEnd, RunReport};

/// By what runs are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// Whose runs they are.
    User,
    /// The environment's name, or the folder's with `--host`.
    Project,
    /// The cards' product names. What is not a card's is shared evenly among a run's cards.
    Card,
    /// The day on which they began, UTC.
    Day,
}

/// A sum of figures of which some are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PartialSum {
    /// The known ones; `None` where none is.
    pub known: Option<f64>,
    /// How many were not.
    pub unknown: u64,
}

impl PartialSum {
    fn add(&mut self, value: Option<f64>, share: f64) {
        match value {
            Some(value) => self.known = Some(self.known.unwrap_or(0.0) + value * share),
            None => self.unknown += 1,
        }
    }
}

/// What a group of runs used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageRow {
    /// The user, project, card or day.
    pub name: String,
    /// Runs.
    pub runs: u64,
    /// Of them, those that go on or were interrupted: counted up to their last line.
    pub open: u64,
    /// Hours from their beginning to their end.
    pub wall_h: f64,
    /// Hours of cards held.
    pub gpu_held_h: f64,
    /// Hours of cards used.
    pub gpu_used_h: PartialSum,
    /// Hours held of cards whose use is known: what [`UsageRow::idle_share`] is a share of.
    held_known_h: f64,
    /// Hours of cores used.
    pub cpu_h: PartialSum,
    /// Mean memory times hours, GiB-hours.
    pub gib_h: PartialSum,
    /// Of the cards, watt-hours.
    pub energy_wh: PartialSum,
    /// In the price file's currency; absent without one. Unknown are the parts that it has no price for
    /// or that were not measured.
    pub cost: Option<PartialSum>,
}

impl UsageRow {
    /// Of the hours held, the share in which no kernel ran, 0 to 1.
    #[must_use]
    pub fn idle_share(&self) -> Option<f64> {
        let used = self.gpu_used_h.known?;
        (self.held_known_h > 0.0).then(|| (1.0 - used / self.held_known_h).clamp(0.0, 1.0))
    }
}

/// What of one run is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct RunUsage {
    id: String,
    user: String,
    project: String,
    unix_ms: u64,
    wall_h: f64,
    open: bool,
    cpu_h: Option<f64>,
    gib_h: Option<f64>,
    cards: Vec<RunGpu>,
}

/// One card of a run.
#[derive(Debug, Clone, PartialEq)]
struct RunGpu {
    name: String,
    used_h: Option<f64>,
    energy_wh: Option<f64>,
}

const HOUR_US: f64 = 3.6e9;
const GIB: f64 = (1_u64 << 30) as f64;
/// What runs without a card are called among cards.
const NO_CARD: &str = "no card";

impl RunUsage {
    /// What a run of `user` used. Cards that were played take nobody's.
    #[must_use]
    pub fn from_report(report: &RunReport, user: &str) -> Self {
        let started = &report.started;
        let wall_h = report.wall_us as f64 / HOUR_US;
        let folder = || {
            let name = started.folder.file_name();
            name.map_or_else(
                || "/".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            )
        };
        let mean = report.memory.timeline.column_means(1, report.wall_us);
        let cards = report.cards.iter();
        let held = cards
            .filter(|card| !card.summary.name.is_empty() && !is_virtual(&card.summary.uuid))
            .map(|card| RunGpu {
                name: card.summary.name.clone(),
                used_h: card.utilisation_mean.map(|share| share * wall_h),
                energy_wh: card.energy.map(|energy| energy.watt_hours),
            });
        Self {
            id: started.id.clone(),
            user: user.to_owned(),
            project: started.name.clone().unwrap_or_else(folder),
            unix_ms: started.unix_ms,
            wall_h,
            open: matches!(report.end, RunEnd::Running | RunEnd::Interrupted),
            cpu_h: report.cpu.used_us.map(|us| us as f64 / HOUR_US),
            gib_h: mean.first().map(|bytes| bytes / GIB * wall_h),
            cards: held.collect(),
        }
    }

    /// The rows that it belongs to, each with its share of what is not a card's and its cards.
    fn rows(&self, by: GroupBy) -> Vec<(String, f64, Vec<&RunGpu>)> {
        let all = self.cards.iter().collect();
        let whole = |name: String| vec![(name, 1.0, all)];
        match by {
            GroupBy::User => whole(self.user.clone()),
            GroupBy::Project => whole(self.project.clone()),
            GroupBy::Day => {
                let date = format::format_date_time(self.unix_ms);
                whole(date.split(' ').next().unwrap_or_default().to_owned())
            }
            GroupBy::Card if self.cards.is_empty() => whole(NO_CARD.to_owned()),
            GroupBy::Card => {
                let mut kinds: BTreeMap<&str, Vec<&RunGpu>> = BTreeMap::new();
                for card in &self.cards {
                    kinds.entry(&card.name).or_default().push(card);
                }
                let share = |cards: usize| cards as f64 / self.cards.len() as f64;
                let kinds = kinds.into_iter();
                kinds
                    .map(|(name, cards)| (name.to_owned(), share(cards.len()), cards))
                    .collect()
            }
        }
    }
}

/// Whether `sconce run --virtual-gpu` played the card.
fn is_virtual(uuid: &str) -> bool {
    uuid.starts_with("virtual") || uuid.is_empty()
}

/// All runs in rows, those that held the most cards first, then those that used the most cores; and
/// their sum, named `all`.
#[must_use]
pub fn group_usage(
    spent: &[RunUsage],
    by: GroupBy,
    prices: Option<&Prices>,
) -> (Vec<UsageRow>, UsageRow) {
    let mut rows: BTreeMap<String, UsageRow> = BTreeMap::new();
    let mut all = UsageRow {
        name: "all".to_owned(),
        ..UsageRow::default()
    };
    // Floating-point sums hang on their order, which is the runs' own here, not that in which they were read.
    let mut in_order: Vec<&RunUsage> = spent.iter().collect();
    in_order.sort_by(|a, b| {
        let of_a = (a.unix_ms, &a.id, &a.user);
        let then = of_a.cmp(&(b.unix_ms, &b.id, &b.user));
        then.then_with(|| a.wall_h.total_cmp(&b.wall_h))
    });
    for run in in_order {
        for (name, share, cards) in run.rows(by) {
            let row = rows.entry(name.clone()).or_insert_with(|| UsageRow {
                name,
                ..UsageRow::default()
            });
            row.add(run, share, &cards, prices);
        }
        all.add(run, 1.0, &run.cards.iter().collect::<Vec<_>>(), prices);
    }
    let mut rows: Vec<UsageRow> = rows.into_values().collect();
    if by == GroupBy::Day {
        rows.reverse();
    } else {
        let most = |row: &UsageRow| (row.gpu_held_h, row.cpu_h.known.unwrap_or(0.0));
        rows.sort_by(|a, b| {
            most(b)
                .partial_cmp(&most(a))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    (rows, all)
}

impl UsageRow {
    fn add(&mut self, run: &RunUsage, share: f64, cards: &[&RunGpu], prices: Option<&Prices>) {
        self.runs += 1;
        self.open += u64::from(run.open);
        self.wall_h += run.wall_h;
        self.cpu_h.add(run.cpu_h, share);
        self.gib_h.add(run.gib_h, share);
        for card in cards {
            self.gpu_held_h += run.wall_h;
            self.gpu_used_h.add(card.used_h, 1.0);
            if card.used_h.is_some() {
                self.held_known_h += run.wall_h;
            }
            self.energy_wh.add(card.energy_wh, 1.0);
        }
        let Some(prices) = prices else { return };
        let cost = self.cost.get_or_insert_default();
        let mut part = |price: Option<f64>, amount: Option<f64>, share: f64| {
            if let Some(price) = price {
                cost.add(amount.map(|amount| amount * price), share);
            }
        };
        part(prices.cpu_hour, run.cpu_h, share);
        part(prices.gib_hour, run.gib_h, share);
        for card in cards {
            part(prices.kwh, card.energy_wh.map(|wh| wh / 1000.0), 1.0);
        }
        if prices.has_cards() {
            for card in cards {
                let price = prices.of_card(&card.name);
                cost.add(price.map(|price| price * run.wall_h), 1.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(project: &str, wall_h: f64, cards: &[(&str, Option<f64>)]) -> RunUsage {
        let held = |(name, used_h): &(&str, Option<f64>)| RunGpu {
            name: (*name).to_owned(),
            used_h: *used_h,
            energy_wh: used_h.map(|hours| hours * 300.0),
        };
        RunUsage {
            id: format!("{project}-{wall_h}"),
            user: "ada".to_owned(),
            project: project.to_owned(),
            unix_ms: 1_795_221_240_000,
            wall_h,
            open: project == "open",
            cpu_h: Some(wall_h * 2.0),
            gib_h: None,
            cards: cards.iter().map(held).collect(),
        }
    }

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    #[test]
    fn sums_and_what_is_unknown() {
        let runs = [
            run("a", 2.0, &[("H100", Some(1.0)), ("H100", None)]),
            run("open", 1.0, &[("L4", Some(1.0))]),
            run("a", 4.0, &[]),
        ];
        let prices: Prices = "currency = \"EUR\"\nkwh = 1.0\n[gpu-hour]\n\"H*\" = 2.0\n"
            .parse()
            .unwrap();
        let (rows, all) = group_usage(&runs, GroupBy::Project, Some(&prices));
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["a", "open"]);
        let a = &rows[0];
        assert_eq!((a.runs, a.open, a.wall_h, a.gpu_held_h), (2, 0, 6.0, 4.0));
        assert_eq!(
            a.gpu_used_h,
            PartialSum {
                known: Some(1.0),
                unknown: 1
            }
        );
        assert_eq!(a.idle_share(), Some(0.5));
        assert!(close(a.cpu_h.known, 12.0));
        assert_eq!(
            a.gib_h,
            PartialSum {
                known: None,
                unknown: 2
            }
        );
        // Two H100 for two hours, and 0.3 kWh; the energy of one card is not known.
        assert!(close(a.cost.unwrap().known, 8.3));
        assert_eq!(a.cost.unwrap().unknown, 1);
        assert_eq!(rows[1].open, 1);
        assert_eq!(all.cost.unwrap().unknown, 2, "an L4 has no price");
        assert_eq!(all.runs, 3);
        assert_eq!(group_usage(&[], GroupBy::Card, None).1.idle_share(), None);
    }

    /// Sums of floating-point numbers hang on their order, and records are read by several threads.
    #[test]
    fn sums_are_the_same_in_whatever_order_runs_come() {
        let mut runs: Vec<RunUsage> = (1..40)
            .map(|n| {
                let hours = 1.0 / f64::from(n);
                let cards = [("H100", Some(hours / 3.0)), ("L4", Some(hours / 7.0))];
                run(if n % 3 == 0 { "a" } else { "b" }, hours, &cards)
            })
            .collect();
        let prices: Prices = "currency = \"EUR\"\ncpu-hour = 0.1\nkwh = 0.3\n"
            .parse()
            .unwrap();
        let sums = |runs: &[RunUsage]| {
            [GroupBy::User, GroupBy::Project, GroupBy::Card, GroupBy::Day]
                .map(|by| group_usage(runs, by, Some(&prices)))
        };
        let first = sums(&runs);
        runs.reverse();
        assert_eq!(sums(&runs), first);
        runs.rotate_left(17);
        runs.swap(3, 29);
        assert_eq!(sums(&runs), first);
    }

    #[test]
    fn a_run_with_two_kinds_of_cards_is_shared() {
        let runs = [
            run("a", 2.0, &[("H100", None), ("L4", None)]),
            run("b", 1.0, &[]),
        ];
        let (rows, _) = group_usage(&runs, GroupBy::Card, None);
        let cpu: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.cpu_h.known))
            .collect();
        assert_eq!(
            cpu,
            [
                ("H100", Some(2.0)),
                ("L4", Some(2.0)),
                ("no card", Some(2.0))
            ]
        );
        let (rows, _) = group_usage(&runs, GroupBy::Day, None);
        assert_eq!((rows.len(), rows[0].name.as_str()), (1, "2026-11-21"));
        assert_eq!(group_usage(&runs, GroupBy::User, None).0[0].name, "ada");
    }
}
