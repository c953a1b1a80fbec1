//! This machine's GPUs, read when somebody asks.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sconce_host::{GpuMonitor, NvmlGpu, NvmlMonitor};
use sconce_report::metrics::MachineGpuSample;

/// Readings are not made more often than this, whoever asks.
const MIN_READING_INTERVAL: Duration = Duration::from_millis(500);

/// The GPUs, where there are any.
pub struct ServedGpus {
    hostname: String,
    inner: Mutex<Option<Inner>>,
}

struct Inner {
    gpus: NvmlMonitor,
    driver: Option<String>,
    cards: Vec<NvmlGpu>,
    read: Option<(Instant, Vec<MachineGpuSample>)>,
}

impl ServedGpus {
    /// Asks NVML for them; without it there are none. `hostname` is told with each sample.
    #[must_use]
    pub fn load_nvml(hostname: String) -> Self {
        let inner = NvmlMonitor::load().map(|gpus| Inner {
            driver: gpus.driver(),
            cards: gpus.cards(),
            gpus,
            read: None,
        });
        Self {
            hostname,
            inner: Mutex::new(inner),
        }
    }

    pub(super) fn hostname(&self) -> &str {
        &self.hostname
    }

    pub(super) fn read_samples(&self) -> Vec<MachineGpuSample> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(inner) = inner.as_mut() else {
            return Vec::new();
        };
        if let Some((when, readings)) = &inner.read
            && when.elapsed() < MIN_READING_INTERVAL
        {
            return readings.clone();
        }
        let reading = |card: &NvmlGpu| MachineGpuSample {
            uuid: card.uuid.clone(),
            name: card.name.clone(),
            bus_id: card.bus_id.clone(),
            memory: card.memory,
            hostname: self.hostname.clone(),
            driver: inner.driver.clone(),
            sample: inner.gpus.sample(card.index),
        };
        let readings: Vec<MachineGpuSample> = inner.cards.iter().map(reading).collect();
        inner.read = Some((Instant::now(), readings.clone()));
        readings
    }
}
