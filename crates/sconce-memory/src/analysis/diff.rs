//! Two reports side by side.
//!
//! Lines move when code changes: what was allocated is compared by file and function. The files' folders
//! are left out where that is no loss, so that runs of two checkouts can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{DeviceReport, MemoryBreakdown, SnapshotReport};

/// Places that are listed.
const MAX_CHANGES: usize = 200;

/// What a card's memory comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MemoryTotals {
    /// The most that was live; what was live at the end where no history was recorded.
    pub peak_bytes: u64,
    /// The most that was reserved, or what was reserved at the end.
    pub peak_reserved_bytes: u64,
    /// Live at the end.
    pub live_bytes: u64,
    /// Reserved at the end.
    pub reserved_bytes: u64,
    /// Free at the end, and kept by live blocks in the same segment.
    pub stuck_bytes: u64,
    /// Requests that failed.
    pub ooms: u64,
}

/// What was allocated from one function at the peaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FunctionChange {
    /// `model.py forward`; absent where nothing was recorded.
    pub place: Option<String>,
    /// Bytes before; absent where there was nothing.
    pub before_bytes: Option<u64>,
    /// Bytes after; absent where there is nothing.
    pub after_bytes: Option<u64>,
}

impl FunctionChange {
    /// How much it grew.
    #[must_use]
    pub fn growth_bytes(&self) -> i128 {
        i128::from(self.after_bytes.unwrap_or(0)) - i128::from(self.before_bytes.unwrap_or(0))
    }
}

/// One card in both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceDiff {
    /// Its number.
    pub device: u64,
    /// Figures before; absent where the card is in the second alone.
    pub before: Option<MemoryTotals>,
    /// Figures after; absent where the card is in the first alone.
    pub after: Option<MemoryTotals>,
    /// What differs at the peaks, the largest difference first.
    pub changes: Vec<FunctionChange>,
}

/// Two reports side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReportDiff {
    /// [`super::VERSION`].
    pub version: u32,
    /// Settings that differ: name, before, after.
    pub settings: Vec<(String, Option<String>, Option<String>)>,
    /// Cards of either.
    pub devices: Vec<DeviceDiff>,
}

impl ReportDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let same = |device: &DeviceDiff| device.before == device.after && device.changes.is_empty();
        self.settings.is_empty() && self.devices.iter().all(same)
    }
}

/// What differs from the first to the second.
#[must_use]
pub fn diff_reports(before: &SnapshotReport, after: &SnapshotReport) -> ReportDiff {
    let by_number = |report: &'_ SnapshotReport| -> BTreeSet<u64> {
        report.devices.iter().map(|one| one.device).collect()
    };
    let of = |report: &SnapshotReport, number: u64| -> Option<DeviceReport> {
        report
            .devices
            .iter()
            .find(|one| one.device == number)
            .cloned()
    };
    let numbers = by_number(before).into_iter().chain(by_number(after));
    let numbers: BTreeSet<u64> = numbers.collect();
    let devices = numbers.into_iter().map(|device| {
        let (first, second) = (of(before, device), of(after, device));
        DeviceDiff {
            device,
            before: first.as_ref().map(figures),
            after: second.as_ref().map(figures),
            changes: changes(first.as_ref().map(peak), second.as_ref().map(peak)),
        }
    });
    ReportDiff {
        version: super::VERSION,
        settings: settings(before, after),
        devices: devices.collect(),
    }
}

fn peak(device: &DeviceReport) -> &MemoryBreakdown {
    let traced = device.traced.as_ref();
    traced.map_or(&device.now, |traced| &traced.peak.filled)
}

fn figures(device: &DeviceReport) -> MemoryTotals {
    let fragments = &device.fragments;
    let traced = device.traced.as_ref();
    let reserved = fragments.reserved_bytes;
    MemoryTotals {
        peak_bytes: peak(device).bytes,
        peak_reserved_bytes: traced.map_or(reserved, |traced| traced.peak_reserved_bytes),
        live_bytes: device.now.bytes,
        reserved_bytes: reserved,
        stuck_bytes: fragments.stuck_bytes,
        ooms: traced.map_or(0, |traced| traced.oom_count as u64),
    }
}

fn by_function(filled: Option<&MemoryBreakdown>) -> BTreeMap<Option<String>, u64> {
    let mut sums: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for group in filled.map_or(&[][..], |filled| &filled.places) {
        let name = group.place.as_ref().map(|place| {
            let file = place.file.rsplit('/').next().unwrap_or(&place.file);
            format!("{file} {}", place.function)
        });
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(group.bytes);
    }
    sums
}

fn changes(
    before: Option<&MemoryBreakdown>,
    after: Option<&MemoryBreakdown>,
) -> Vec<FunctionChange> {
    let (before, after) = (by_function(before), by_function(after));
    let places: BTreeSet<&Option<String>> = before.keys().chain(after.keys()).collect();
    let changes = places.into_iter().map(|place| FunctionChange {
        place: place.clone(),
        before_bytes: before.get(place).copied(),
        after_bytes: after.get(place).copied(),
    });
    let mut changes: Vec<FunctionChange> = changes
        .filter(|change| change.before_bytes != change.after_bytes)
        .collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.growth_bytes().unsigned_abs()));
    changes.truncate(MAX_CHANGES);
    changes
}

fn settings(
    before: &SnapshotReport,
    after: &SnapshotReport,
) -> Vec<(String, Option<String>, Option<String>)> {
    let named = |report: &SnapshotReport| -> BTreeMap<String, String> {
        let json = serde_json::to_value(&report.settings).unwrap_or_default();
        let fields = json.as_object().cloned().unwrap_or_default().into_iter();
        let fields = fields.filter(|(_, value)| !value.is_null());
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            value => value.to_string(),
        };
        fields.map(|(name, value)| (name, text(value))).collect()
    };
    let (before, after) = (named(before), named(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let pairs = differing.map(|name| {
        let values = (before.get(name).cloned(), after.get(name).cloned());
        (name.clone(), values.0, values.1)
    });
    pairs.collect()
}
