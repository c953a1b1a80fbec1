//! What a run waited for.

use sconce_schema::Bytes;
use serde::Serialize;

use super::seconds;
use crate::contention::ContentionReport;

#[derive(Serialize)]
pub(super) struct LoadShape {
    waited_for_cpu_seconds: Option<f64>,
    waited_for_memory_seconds: Option<f64>,
    stopped_for_memory_seconds: Option<f64>,
    waited_for_disk_seconds: Option<f64>,
    stopped_for_disk_seconds: Option<f64>,
    peak_swap_bytes: Option<Bytes>,
    network_received_bytes: Option<u64>,
    network_sent_bytes: Option<u64>,
    links: Vec<LinksShape>,
    /// The first of them.
    xids: Vec<XidShape>,
}

#[derive(Serialize)]
struct LinksShape {
    card: u32,
    pcie_received_peak_bytes_per_second: Option<u64>,
    pcie_sent_peak_bytes_per_second: Option<u64>,
    nvlink_received_bytes: Option<u64>,
    nvlink_sent_bytes: Option<u64>,
}

#[derive(Serialize)]
struct XidShape {
    card: u32,
    xid: u64,
    at_seconds: f64,
}

impl From<&ContentionReport> for LoadShape {
    fn from(load: &ContentionReport) -> Self {
        let pressure = load.pressure.unwrap_or_default();
        let links = load.links.iter().map(|(&card, links)| LinksShape {
            card,
            pcie_received_peak_bytes_per_second: links.pcie_peak_per_s.map(|pair| pair.0),
            pcie_sent_peak_bytes_per_second: links.pcie_peak_per_s.map(|pair| pair.1),
            nvlink_received_bytes: links.nvlink.map(|pair| pair.0),
            nvlink_sent_bytes: links.nvlink.map(|pair| pair.1),
        });
        let xids = load.xids.iter().map(|xid| XidShape {
            card: xid.value.0,
            xid: xid.value.1,
            at_seconds: seconds(xid.t_us),
        });
        Self {
            waited_for_cpu_seconds: pressure.cpu_some_us.map(seconds),
            waited_for_memory_seconds: pressure.memory_some_us.map(seconds),
            stopped_for_memory_seconds: pressure.memory_full_us.map(seconds),
            waited_for_disk_seconds: pressure.io_some_us.map(seconds),
            stopped_for_disk_seconds: pressure.io_full_us.map(seconds),
            peak_swap_bytes: load.swap_peak,
            network_received_bytes: load.network.map(|pair| pair.0),
            network_sent_bytes: load.network.map(|pair| pair.1),
            links: links.collect(),
            xids: xids.collect(),
        }
    }
}
