//! What a run waited for beside CPU time and memory: pressure, swap, network, the cards' links and errors.

use std::collections::BTreeMap;

use sconce_schema::Bytes;
use sconce_schema::event::{GpuSample, Pressure, Sample};

use crate::model::Timestamped;

/// Of errors, no more than this many are kept.
const MAX_XIDS: usize = 64;
/// Nor of cards.
const MAX_CARDS: usize = 64;

/// What a run waited for. `None` is "not measured" everywhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContentionReport {
    /// Time in which tasks of the run waited for CPU, memory, disks; µs at the last reading.
    pub pressure: Option<Pressure>,
    /// The most swap that it held.
    pub swap_peak: Option<Bytes>,
    /// Bytes received and sent by its own network.
    pub network: Option<(u64, u64)>,
    /// Each card's links, by index.
    pub links: BTreeMap<u32, LinkTraffic>,
    /// Xid errors of its cards, with the card's index; the first 64.
    pub xids: Vec<Timestamped<(u32, u64)>>,
}

/// What went over a card's links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    /// The most bytes a second over PCIe to the card and from it.
    pub pcie_peak_per_s: Option<(u64, u64)>,
    /// Bytes received and sent over NVLink.
    pub nvlink: Option<(u64, u64)>,
}

impl ContentionReport {
    pub(crate) fn add_sample(&mut self, t_us: u64, sample: &Sample) {
        self.pressure = sample.pressure.or(self.pressure);
        self.swap_peak = self.swap_peak.max(sample.swap);
        let network = sample.received_bytes.zip(sample.sent_bytes);
        self.network = network.or(self.network);
        for card in &sample.gpus {
            self.card(t_us, card);
        }
    }

    fn card(&mut self, t_us: u64, card: &GpuSample) {
        for &xid in &card.xids {
            if self.xids.len() < MAX_XIDS {
                let value = (card.index, xid);
                self.xids.push(Timestamped { value, t_us });
            }
        }
        let received = card.pcie_received_bytes_per_s;
        let pcie = received.zip(card.pcie_sent_bytes_per_s);
        let nvlink = card.nvlink_received_bytes.zip(card.nvlink_sent_bytes);
        if (pcie.is_none() && nvlink.is_none())
            || (self.links.len() >= MAX_CARDS && !self.links.contains_key(&card.index))
        {
            return;
        }
        let links = self.links.entry(card.index).or_default();
        if let Some((received, sent)) = pcie {
            let (most_received, most_sent) = links.pcie_peak_per_s.unwrap_or_default();
            links.pcie_peak_per_s = Some((received.max(most_received), sent.max(most_sent)));
        }
        links.nvlink = nvlink.or(links.nvlink);
    }
}
