//! A card's metrics, by our names and by those of NVIDIA's dcgm-exporter.

use sconce_schema::Bytes;

use super::{MachineGpuSample, Page, Value, bytes, few, many};

pub(super) fn add_gpu_metrics(page: &mut Page, card: &MachineGpuSample) {
    let sample = &card.sample;
    let index = sample.index.to_string();
    let labels = [("gpu", index.as_str()), ("uuid", &card.uuid)];
    let model = card.name.as_deref().unwrap_or_default();
    let driver = card.driver.as_deref().unwrap_or_default();
    let bus = card.bus_id.as_deref().unwrap_or_default();
    let about = [
        labels[0],
        labels[1],
        ("model", model),
        ("driver", driver),
        ("pci_bus_id", bus),
    ];
    page.put("sconce_gpu_info", &about, Some(Value::Whole(1)));
    let share =
        |percent: Option<u32>| percent.map(|percent| Value::Real(f64::from(percent) / 100.0));
    let hertz = |mhz: Option<u32>| mhz.map(|mhz| Value::Whole(u64::from(mhz) * 1_000_000));
    for (name, value) in [
        (
            "sconce_gpu_utilization_ratio",
            share(sample.utilisation_percent),
        ),
        (
            "sconce_gpu_memory_utilization_ratio",
            share(sample.memory_utilisation_percent),
        ),
        ("sconce_gpu_memory_used_bytes", bytes(sample.memory_used)),
        ("sconce_gpu_memory_total_bytes", bytes(card.memory)),
        (
            "sconce_gpu_power_watts",
            sample.power_mw.map(|mw| Value::Real(f64::from(mw) / 1e3)),
        ),
        (
            "sconce_gpu_energy_joules_total",
            sample.energy_mj.map(|mj| Value::Real(mj as f64 / 1e3)),
        ),
        ("sconce_gpu_temperature_celsius", few(sample.temperature_c)),
        ("sconce_gpu_sm_clock_hertz", hertz(sample.sm_clock_mhz)),
        (
            "sconce_gpu_memory_clock_hertz",
            hertz(sample.memory_clock_mhz),
        ),
        (
            "sconce_gpu_pcie_receive_bytes_per_second",
            many(sample.pcie_received_bytes_per_s),
        ),
        (
            "sconce_gpu_pcie_transmit_bytes_per_second",
            many(sample.pcie_sent_bytes_per_s),
        ),
    ] {
        page.put(name, &labels, value);
    }
    for reason in sample.throttle.iter().flatten() {
        let labels = [labels[0], labels[1], ("reason", reason)];
        page.put("sconce_gpu_clock_held_down", &labels, Some(Value::Whole(1)));
    }
}

/// The names, units and labels of dcgm-exporter's default list, as far as NVML tells their figures.
/// Grafana's dashboard 12239 asks for the first six; its panel of tensor cores needs a figure that NVML
/// does not have.
pub(super) fn add_dcgm_metrics(page: &mut Page, card: &MachineGpuSample) {
    let sample = &card.sample;
    let index = sample.index.to_string();
    let device = format!("nvidia{index}");
    let labels = [
        ("gpu", index.as_str()),
        ("UUID", &card.uuid),
        ("pci_bus_id", card.bus_id.as_deref().unwrap_or_default()),
        ("device", &device),
        ("modelName", card.name.as_deref().unwrap_or_default()),
        ("Hostname", &card.hostname),
    ];
    let mib = |bytes: Bytes| Value::Whole(bytes.0 >> 20);
    let free = card.memory.zip(sample.memory_used);
    let free = free.and_then(|(all, used)| Some(Bytes(all.0.checked_sub(used.0)?)));
    for (name, value) in [
        ("DCGM_FI_DEV_GPU_TEMP", few(sample.temperature_c)),
        (
            "DCGM_FI_DEV_POWER_USAGE",
            sample.power_mw.map(|mw| Value::Real(f64::from(mw) / 1e3)),
        ),
        ("DCGM_FI_DEV_SM_CLOCK", few(sample.sm_clock_mhz)),
        ("DCGM_FI_DEV_GPU_UTIL", few(sample.utilisation_percent)),
        ("DCGM_FI_DEV_FB_USED", sample.memory_used.map(mib)),
        ("DCGM_FI_DEV_FB_FREE", free.map(mib)),
        ("DCGM_FI_DEV_MEM_CLOCK", few(sample.memory_clock_mhz)),
        (
            "DCGM_FI_DEV_MEM_COPY_UTIL",
            few(sample.memory_utilisation_percent),
        ),
        (
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            many(sample.energy_mj),
        ),
    ] {
        page.put(name, &labels, value);
    }
}
