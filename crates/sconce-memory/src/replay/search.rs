//! Which settings are tried, and which are the best.

use super::{CapacitySource, ReplayOutcome, UsableCapacity};
use crate::allocator::TorchVersion;

/// Outcomes whose peaks differ by less than this part are as good as each other.
const SAME: f64 = 0.01;

/// Values of one setting.
struct SearchedSetting {
    name: &'static str,
    values: &'static [&'static str],
    /// What has to go with it.
    with: &'static str,
}

/// The settings of the grid that a release knows.
fn keys(version: TorchVersion, room: Option<UsableCapacity>) -> Vec<SearchedSetting> {
    let mut keys = vec![
        SearchedSetting {
            name: "expandable_segments",
            values: &["True"],
            with: "",
        },
        SearchedSetting {
            name: "max_split_size_mb",
            values: &["32", "64", "128", "256", "512"],
            with: "",
        },
        SearchedSetting {
            name: "roundup_power2_divisions",
            values: &["4", "8", "16", "32"],
            with: "",
        },
    ];
    if version >= TorchVersion::new(2, 10) {
        keys.push(SearchedSetting {
            name: "large_segment_size_mb",
            values: &["40", "64", "128", "256"],
            with: "",
        });
        // Garbage is collected below a fraction alone, and a fraction is one of the whole card.
        if room.is_some_and(|room| room.source == CapacitySource::Given) {
            keys.push(SearchedSetting {
                name: "garbage_collection_threshold",
                values: &["0.6", "0.8"],
                with: ",per_process_memory_fraction:0.99",
            });
        }
    }
    keys
}

/// Tries settings: each value of each key alone, then the best values of several keys together.
pub(super) fn search_settings(
    version: TorchVersion,
    room: Option<UsableCapacity>,
    mut play: impl FnMut(&str) -> Option<ReplayOutcome>,
) -> Vec<ReplayOutcome> {
    let mut found: Vec<ReplayOutcome> = play("").into_iter().collect();
    let plain = found.first().map(ReplayOutcome::order);
    // The best value of each key that is better than none.
    let mut chosen: Vec<String> = Vec::new();
    for key in keys(version, room) {
        let confs = key.values.iter();
        let confs = confs.map(|value| format!("{}:{value}{}", key.name, key.with));
        let tried: Vec<ReplayOutcome> = confs.filter_map(|conf| play(&conf)).collect();
        let best = tried.iter().min_by_key(|one| one.order());
        chosen.extend(
            best.filter(|best| plain.is_none_or(|plain| best.order() < plain))
                .map(|best| best.conf.clone()),
        );
        found.extend(tried);
    }
    for mask in 1_u32..1 << chosen.len() {
        if mask.count_ones() < 2 {
            continue;
        }
        let parts = chosen.iter().enumerate();
        let parts = parts.filter(|(bit, _)| mask >> bit & 1 == 1);
        let parts: Vec<&str> = parts.map(|(_, conf)| conf.as_str()).collect();
        found.extend(play(&parts.join(",")));
    }
    found
}

/// The best of several: the fewest requests without memory, then the least reserved. Of those that
/// are as good, the one with the fewest settings.
pub(super) fn select_best(outcomes: &[ReplayOutcome]) -> Option<usize> {
    let least = outcomes.iter().min_by_key(|one| one.order())?;
    let peak = least.peak_reserved_bytes as f64 * (1.0 + SAME);
    let good = |one: &&(usize, &ReplayOutcome)| {
        one.1.failed_request_count() == least.failed_request_count()
            && one.1.peak_reserved_bytes as f64 <= peak
    };
    let outcomes: Vec<(usize, &ReplayOutcome)> = outcomes.iter().enumerate().collect();
    let simplest = outcomes
        .iter()
        .filter(good)
        .min_by_key(|(_, one)| (settings_in(&one.conf), one.order()));
    simplest.map(|(number, _)| *number)
}

fn settings_in(conf: &str) -> usize {
    conf.matches(':').count()
}
