//! One card's readings into its part of the view model.

use std::collections::BTreeMap;

use sconce_schema::Bytes;
use sconce_schema::event::{GpuSample, GpuSummary};

use super::{MAX_REPORT_ITEMS, raise, raise_at};
use crate::model::{Energy, GpuReport, Timestamped};
use crate::timeline::Timeline;

#[derive(Debug, Clone)]
pub(super) struct GpuFold {
    summary: GpuSummary,
    samples: u64,
    utilisation: Mean,
    idle: Mean,
    memory_peak_run: Option<Timestamped<Bytes>>,
    memory_peak_all: Option<Timestamped<Bytes>>,
    power_w: Mean,
    /// The energy counter, first and last, millijoules.
    counter_mj: Option<(u64, u64)>,
    /// The draw read last, and when; and the energy summed from such readings, joules.
    power_before: Option<Timestamped<u32>>,
    summed_j: Option<f64>,
    temperature_peak_c: Option<u32>,
    sm_clock_mhz: Mean,
    throttled: BTreeMap<String, u64>,
    /// Readings that told whether the clocks were held down.
    throttle_read: u64,
    timeline: Timeline,
}

impl GpuFold {
    pub(super) fn new(summary: GpuSummary) -> Self {
        Self {
            summary,
            samples: 0,
            utilisation: Mean::default(),
            idle: Mean::default(),
            memory_peak_run: None,
            memory_peak_all: None,
            power_w: Mean::default(),
            counter_mj: None,
            power_before: None,
            summed_j: None,
            temperature_peak_c: None,
            sm_clock_mhz: Mean::default(),
            throttled: BTreeMap::new(),
            throttle_read: 0,
            timeline: Timeline::default(),
        }
    }

    /// A card that only samples name.
    pub(super) fn from_index(index: u32) -> Self {
        Self::new(GpuSummary {
            index,
            uuid: String::new(),
            name: String::new(),
            memory: None,
        })
    }

    pub(super) fn add_sample(&mut self, t_us: u64, reading: &GpuSample) {
        self.samples += 1;
        if let Some(percent) = reading.utilisation_percent {
            let share = f64::from(percent.min(100)) / 100.0;
            self.utilisation.add(share);
            self.idle.add(f64::from(u8::from(percent == 0)));
            self.timeline.add(t_us, share);
        }
        // No process of the run on the card and a driver that does not tell look the same.
        let ours = (!reading.memory_by_pid.is_empty()).then(|| {
            let bytes = reading.memory_by_pid.values();
            Bytes(bytes.fold(0, |sum, bytes| sum.saturating_add(bytes.0)))
        });
        raise_at(&mut self.memory_peak_run, t_us, ours);
        raise_at(&mut self.memory_peak_all, t_us, reading.memory_used);
        raise(&mut self.temperature_peak_c, reading.temperature_c);
        if let Some(mhz) = reading.sm_clock_mhz {
            self.sm_clock_mhz.add(f64::from(mhz));
        }
        self.energy(t_us, reading);
        self.throttle_read += u64::from(reading.throttle.is_some());
        for reason in reading.throttle.iter().flatten() {
            if let Some(times) = self.throttled.get_mut(reason) {
                *times += 1;
            } else if self.throttled.len() < MAX_REPORT_ITEMS {
                self.throttled.insert(reason.clone(), 1);
            }
        }
    }

    fn energy(&mut self, t_us: u64, reading: &GpuSample) {
        if let Some(now) = reading.energy_mj {
            let (first, _) = self.counter_mj.unwrap_or((now, now));
            self.counter_mj = Some((first, now));
        }
        let Some(now_mw) = reading.power_mw else {
            return;
        };
        self.power_w.add(f64::from(now_mw) / 1e3);
        if let Some(before) = self.power_before
            && let Some(passed_us) = t_us.checked_sub(before.t_us)
        {
            let mean_w = (f64::from(before.value) + f64::from(now_mw)) / 2e3;
            *self.summed_j.get_or_insert(0.0) += mean_w * passed_us as f64 / 1e6;
        }
        self.power_before = Some(Timestamped {
            value: now_mw,
            t_us,
        });
    }

    pub(super) fn finish(self) -> GpuReport {
        // A counter that went back (the driver was loaded anew), or that was read once, tells
        // nothing.
        let counted = (self.counter_mj)
            .and_then(|(first, last)| last.checked_sub(first))
            .filter(|mj| *mj > 0)
            .map(|mj| Energy {
                watt_hours: mj as f64 / 3.6e6,
                estimated: false,
            });
        let summed = self.summed_j.map(|j| Energy {
            watt_hours: j / 3.6e3,
            estimated: true,
        });
        let mut throttled: Vec<(String, f64)> = (self.throttled.into_iter())
            .map(|(reason, times)| (reason, times as f64 / self.throttle_read as f64))
            .collect();
        throttled.sort_by(|a, b| b.1.total_cmp(&a.1));
        GpuReport {
            summary: self.summary,
            samples: self.samples,
            utilisation_mean: self.utilisation.get(),
            idle_share: self.idle.get(),
            memory_peak_run: self.memory_peak_run,
            memory_peak_all: self.memory_peak_all,
            power_mean_w: self.power_w.get(),
            energy: counted.or(summed),
            temperature_peak_c: self.temperature_peak_c,
            sm_clock_mean_mhz: self.sm_clock_mhz.get(),
            throttled: (self.throttle_read > 0).then_some(throttled),
            timeline: self.timeline,
        }
    }
}

/// A mean that knows when nothing was read.
#[derive(Debug, Clone, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}
