//! What is told of a card by comparing readings: links, Xid errors.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{Device, EventSet, Nvml};
use sconce_schema::Bytes;
use sconce_schema::event::GpuInstance;

use super::counters::{self, Counters, TransferBytes};

/// Xids of one card that one reading tells; a card that is ill tells the same ones again and again.
const MAX_XIDS_PER_READING: usize = 16;
/// Time between two readings of a card's energy in a series.
const ENERGY_INTERVAL: Duration = Duration::from_secs(10);
/// NVML's word for an Xid that it does not know.
const UNKNOWN_XID: u64 = 999;

/// What is kept of the cards from reading to reading.
#[derive(Default)]
pub(super) struct GpuWatchState {
    before: BTreeMap<u32, PreviousCounters>,
    /// Where each card's events arrive; `None` where it has none for the caller. One set a card: a card
    /// that refuses takes its set along.
    events: BTreeMap<u32, Option<EventSet<'static>>>,
    /// The cards without counters of PCIe, and when each was watched last; those that cannot be watched
    /// are left out.
    throughput: BTreeMap<u32, Option<Instant>>,
    /// When each card's energy was due last.
    energy_due: BTreeMap<u32, Instant>,
}

/// The last reading of a card's links, and the first.
struct PreviousCounters {
    at: Instant,
    counters: Counters,
    first: Counters,
}

/// A card's links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LinkCounters {
    pub(super) pcie_per_s: Option<TransferBytes>,
    /// Since the first reading.
    pub(super) nvlink: Option<TransferBytes>,
}

impl GpuWatchState {
    /// Whether a series reads the card's energy now. NVML takes 3 to 6 ms of a processor for it, more than for all
    /// else together (an H200, driver 580.159), and it is a counter: what it counts is not lost.
    pub(super) fn is_energy_due(&mut self, index: u32) -> bool {
        let now = Instant::now();
        let last = self.energy_due.get(&index);
        let is_due = last.is_none_or(|at| now.duration_since(*at) >= ENERGY_INTERVAL);
        if is_due {
            self.energy_due.insert(index, now);
        }
        is_due
    }

    pub(super) fn sample_links(&mut self, index: u32, device: &Device<'_>) -> LinkCounters {
        let (at, counters) = (Instant::now(), counters::read(device));
        let first = self.before.get(&index).map_or(counters, |old| old.first);
        let now = PreviousCounters {
            at,
            counters,
            first,
        };
        let old = self.before.insert(index, now);
        let since = |now: Option<TransferBytes>, then: Option<TransferBytes>| {
            let (now, then) = now.zip(then)?;
            Some(TransferBytes {
                received: now.received.checked_sub(then.received)?,
                sent: now.sent.checked_sub(then.sent)?,
            })
        };
        let rate = |old: PreviousCounters| {
            let us = u64::try_from(at.duration_since(old.at).as_micros()).ok()?;
            let moved = since(counters.pcie, old.counters.pcie)?;
            let per_s = |bytes: u64| bytes.saturating_mul(1_000_000).checked_div(us);
            Some(TransferBytes {
                received: per_s(moved.received)?,
                sent: per_s(moved.sent)?,
            })
        };
        let pcie_per_s = match counters.pcie {
            Some(_) => old.and_then(rate),
            None => self.throughput(index, device),
        };
        LinkCounters {
            pcie_per_s,
            nvlink: since(counters.nvlink, first.nvlink),
        }
    }

    /// NVML watches the link for 20 ms and sleeps meanwhile, for each direction: one card a reading, the
    /// one that waited longest.
    fn throughput(&mut self, index: u32, device: &Device<'_>) -> Option<TransferBytes> {
        /// Cards of one reading follow each other faster, readings do not.
        const MIN_READING_GAP: Duration = Duration::from_millis(90);
        let own = *self.throughput.entry(index).or_insert_with(|| None);
        let newest = self.throughput.values().flatten().max();
        if newest.is_some_and(|at| at.elapsed() < MIN_READING_GAP)
            || self.throughput.values().any(|other| *other < own)
        {
            return None;
        }
        let per_s = |counter| {
            let kilobytes = device.pcie_throughput(counter).ok()?;
            Some(u64::from(kilobytes) * 1000)
        };
        let pair = per_s(PcieUtilCounter::Receive).zip(per_s(PcieUtilCounter::Send));
        match pair {
            Some(_) => self.throughput.insert(index, Some(Instant::now())),
            None => self.throughput.remove(&index),
        };
        pair.map(|(received, sent)| TransferBytes { received, sent })
    }

    /// Xids since the last reading; nothing is waited for.
    pub(super) fn poll_xids(&mut self, index: u32, nvml: &'static Nvml) -> Vec<u64> {
        let set = self.events.entry(index).or_insert_with(|| {
            let (set, device) = (
                nvml.create_event_set().ok()?,
                nvml.device_by_index(index).ok()?,
            );
            device
                .register_events(EventTypes::CRITICAL_XID_ERROR, set)
                .ok()
        });
        let Some(set) = set else {
            return Vec::new();
        };
        let told = std::iter::from_fn(|| set.wait(0).ok()).take(MAX_XIDS_PER_READING);
        told.filter_map(|event| match event.event_data? {
            XidError::Value(xid) => Some(xid),
            XidError::Unknown => Some(UNKNOWN_XID),
        })
        .collect()
    }
}

/// The parts of a card that is split; none of one that is not.
pub(super) fn mig_devices<'n>(device: &Device<'n>) -> Vec<Device<'n>> {
    let parts = numbered_parts(device).into_iter();
    parts.map(|(_, part)| part).collect()
}

/// The parts of a divided card with their numbers.
pub(super) fn numbered_parts<'n>(device: &Device<'n>) -> Vec<(u32, Device<'n>)> {
    /// `NVML_DEVICE_MIG_ENABLE`.
    const SPLIT: u32 = 1;
    if !device.mig_mode().is_ok_and(|mode| mode.current == SPLIT) {
        return Vec::new();
    }
    // Their numbers have holes.
    let most = device.mig_device_count().unwrap_or(0).min(16);
    (0..most)
        .filter_map(|index| Some((index, device.mig_device_by_index(index).ok()?)))
        .collect()
}

pub(super) fn sample_instance(part: &Device<'_>) -> Option<GpuInstance> {
    let memory = part.memory_info().ok();
    Some(GpuInstance {
        uuid: part.uuid().ok()?,
        memory_used: memory.as_ref().map(|memory| Bytes(memory.used)),
        memory: memory.map(|memory| Bytes(memory.total)),
    })
}
