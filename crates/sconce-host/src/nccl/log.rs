//! What NCCL's log says of its network. The lines are those of NCCL 2.14 to 2.30: `src/debug.cc` writes what comes before
//! a line, the lines are in `src/init.cc`, `src/net.cc` (from 2.27 on `src/plugin/net.cc`), `src/graph/topo.cc`,
//! `src/misc/param.cc`, `src/misc/socket.cc`, `src/transport/net_ib.cc` and `net_socket.cc`.

use std::collections::BTreeMap;

use sconce_base::text::to_printable;
use sconce_schema::network::NcclNetwork;

/// A longer line is none of those that are looked for: NCCL's buffers of a line have 1,024 and 2,048 bytes.
const MAX_LINE_BYTES: usize = 4096;
/// Names and versions are cut here, characters.
const MAX_NAME_CHARS: usize = 64;
/// Devices that are kept of a network.
const MAX_DEVICES: usize = 32;
/// Settings that choose or refuse a network.
const SETTINGS: [&str; 8] = [
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "NCCL_IBEXT_DISABLE",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_SOCKET_IFNAME",
];

/// The log of one process, read as it grows.
#[derive(Debug, Default)]
pub struct NcclLog {
    /// A line that is not whole yet.
    line: Vec<u8>,
    /// It is too long to be one.
    is_too_long: bool,
    found: NcclNetwork,
    /// The devices of each network that said some.
    devices: BTreeMap<&'static str, Vec<String>>,
}

impl NcclLog {
    /// Takes the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    if !std::mem::take(&mut self.is_too_long) {
                        self.add_line(&String::from_utf8_lossy(&line));
                    }
                }
                _ if self.line.len() == MAX_LINE_BYTES => self.is_too_long = true,
                byte => self.line.push(*byte),
            }
        }
    }

    /// Returns what the log says so far of process `pid`; `None` before it has chosen a network.
    #[must_use]
    pub fn network(&self, pid: u32) -> Option<NcclNetwork> {
        if self.found.network.is_empty() {
            return None;
        }
        // A plugin that drives InfiniBand says its devices as NCCL's own transport does.
        let devices = (self.devices.get(transport_of(&self.found.network))).cloned();
        Some(NcclNetwork {
            inner_pid: pid,
            devices: devices.unwrap_or_default(),
            ..self.found.clone()
        })
    }

    fn add_line(&mut self, line: &str) {
        // Lines of the level VERSION have nothing before them.
        let text = match line.split_once(" NCCL INFO ") {
            Some((_, text)) => text.trim(),
            None if line.starts_with("NCCL version ") => line.trim(),
            None => return,
        };
        if let Some(version) = text.strip_prefix("NCCL version ") {
            self.found.version = Some(name(version));
        } else if let Some(network) = text.strip_prefix("Using network ") {
            self.found.network = name(network);
        } else if let Some(list) = text.strip_prefix("NET/IB : Using ") {
            let list = list.split(';').next().unwrap_or_default();
            self.devices.insert("IB", devices(list));
        } else if let Some(list) = text.strip_prefix("NET/Socket : Using ") {
            let names = devices(list).into_iter();
            // What follows a name is an address.
            let names = names.map(|one| one.split(':').next().unwrap_or_default().to_owned());
            self.devices.insert("Socket", names.collect());
        } else if let Some(provider) = selected_provider(text) {
            self.devices.insert("OFI", vec![provider]);
        } else if let Some(is_enabled) = gpu_direct(text) {
            // One card that is reached is enough: those far from a device go by others.
            let before = self.found.gpu_direct.unwrap_or(false);
            self.found.gpu_direct = Some(before || is_enabled);
        } else if let Some((name, value)) = setting(text) {
            self.found.settings.insert(name.to_owned(), value);
        } else {
            self.add_communicator(text);
        }
    }

    /// `… comm 0x… rank 3 nranks 16 …`, and from 2.20 on `comm 0x… rank 3 nRanks 16 nNodes 2 … MNNVL 0`.
    fn add_communicator(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().take(32).collect();
        let number = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse::<u32>().ok()
        };
        let (true, Some(rank), Some(ranks)) = (
            words.contains(&"comm"),
            number("rank"),
            number("nRanks").or_else(|| number("nranks")),
        ) else {
            return;
        };
        // Groups of fewer ranks come and go; the largest is that of all.
        if self.found.ranks.is_some_and(|before| before > ranks) || rank >= ranks {
            return;
        }
        if self.found.ranks != Some(ranks) {
            self.found.multi_node_nvlink = None;
        }
        (self.found.rank, self.found.ranks) = (Some(rank), Some(ranks));
        if let Some(joined) = number("MNNVL") {
            self.found.multi_node_nvlink = Some(joined != 0);
        }
    }
}

/// Whose lines name the devices of a network: `IBext_v8` is that of NVIDIA's RDMA and SHARP plugin, `AWS Libfabric` and
/// `Libfabric` those of aws-ofi-nccl.
fn transport_of(network: &str) -> &'static str {
    match network {
        "Socket" => "Socket",
        name if name.ends_with("Libfabric") => "OFI",
        name if name.starts_with("IB") => "IB",
        _ => "",
    }
}

/// `[0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]`: what follows each number. An interface may be called anything without blanks.
fn devices(list: &str) -> Vec<String> {
    let devices = list.split_whitespace().filter_map(|word| {
        let (number, device) = word.strip_prefix('[')?.split_once(']')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !device.is_empty()).then(|| name(device))
    });
    devices.take(MAX_DEVICES).collect()
}

/// `NET/OFI Selected Provider is efa (found 4 nics)`, of aws-ofi-nccl; later ones write `provider`, and a comma behind it.
fn selected_provider(text: &str) -> Option<String> {
    let said = text.strip_prefix("NET/OFI Selected ")?;
    let (_, provider) = said.split_once("rovider is ")?;
    let provider = provider.split([' ', ',']).next()?;
    (!provider.is_empty()).then(|| name(provider))
}

/// `NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'`.
fn gpu_direct(text: &str) -> Option<bool> {
    let (_, said) = text
        .strip_prefix("NET/")?
        .split_once(" : GPU Direct RDMA ")?;
    match said.split(' ').next()? {
        "Enabled" => Some(true),
        "Disabled" => Some(false),
        _ => None,
    }
}

/// `NCCL_IB_DISABLE set by environment to 1.`, `NCCL_IB_HCA set to mlx5_0`.
fn setting(text: &str) -> Option<(&'static str, String)> {
    let (variable, value) = text.split_once(" set ")?;
    let known = SETTINGS.into_iter().find(|known| *known == variable)?;
    let value = value.strip_prefix("by environment ").unwrap_or(value);
    let value = value.strip_prefix("to ")?;
    Some((known, name(value.strip_suffix('.').unwrap_or(value))))
}

/// Those of a process's variables that choose or refuse a network.
pub(super) fn settings_of(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = SETTINGS.into_iter();
    known
        .filter_map(|variable| Some((variable.to_owned(), name(env.get(variable)?))))
        .collect()
}

fn name(text: &str) -> String {
    to_printable(text.trim(), MAX_NAME_CHARS)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
