//! The machine in some twenty lines.

use sconce_schema::facts::{DriverFlavour, FeatureState, GpuFacts, RlimitPair};
use sconce_schema::{Bytes, HostFacts};

use crate::text_layout::TextLayout;

/// A figure that is not known.
const MISSING: &str = "–";

/// The column that values begin in.
const VALUE: usize = 12;

/// Facts below their names; what is not there at all has no line.
pub(super) fn render_host_facts(
    host: &HostFacts,
    more: &[(&'static str, String)],
    page: &TextLayout,
) -> String {
    let mut lines: Vec<(&str, String)> = vec![
        ("system", system(host)),
        ("processor", processor(host)),
        ("memory", memory(host)),
        ("driver", driver(host)),
    ];
    lines.extend(cards(host));
    lines.extend([
        ("cuda", cuda(host)),
        ("nodes", nodes(host)),
        ("/dev/shm", shm(host)),
        (
            "open files",
            limit(host.limits.as_ref().and_then(|limits| limits.open_files)),
        ),
        ("cgroup", cgroup(host)),
        ("store", store(host)),
    ]);
    if !host.system_cudnn.is_empty() {
        lines.push((
            "cuDNN",
            format!("the system's: {}", host.system_cudnn.join(" ")),
        ));
    }
    for (name, version) in &host.other_drivers {
        lines.push(("driver", format!("{name} {version}").trim_end().to_owned()));
    }
    if let Some(toolkit) = &host.toolkit {
        let version = toolkit.version.as_deref().unwrap_or("version unknown");
        let cdi: Vec<&str> = toolkit.cdi.iter().map(|file| file.path.as_str()).collect();
        lines.push(("toolkit", listed(&[version.to_owned(), cdi.join(" ")])));
    }
    if let Some(xids) = host.xids.as_ref().filter(|xids| !xids.is_empty()) {
        let codes: Vec<String> = xids.iter().map(|xid| xid.code.to_string()).collect();
        lines.push(("Xids", codes.join(", ")));
    }
    for (name, value) in &host.variables {
        lines.push(("variable", format!("{name}={value}")));
    }
    lines.extend(more.iter().cloned());
    let line = |(name, value): (&str, String)| {
        let value = sconce_base::text::to_printable(&value, 600);
        let value = page.wrap_text(&value, VALUE, VALUE);
        format!("{}  {value}\n", page.style.dim(&format!("{name:10}")))
    };
    lines.into_iter().map(line).collect()
}

fn listed(parts: &[String]) -> String {
    let there: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    match there.is_empty() {
        true => MISSING.to_owned(),
        false => there.join(", "),
    }
}

fn or_missing<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |value| value.to_string())
}

fn system(host: &HostFacts) -> String {
    let kernel = host.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
    let glibc = host
        .glibc
        .as_ref()
        .map(|version| format!("glibc {version}"));
    let container = host.container.as_ref().map(|kind| format!("in {kind}"));
    listed(&[host.system.clone(), kernel, glibc, container].map(Option::unwrap_or_default))
}

fn processor(host: &HostFacts) -> String {
    let cpus = host.cpus.map(|cpus| format!("{cpus} CPUs usable"));
    let details = host.processor.as_ref();
    let cores = details.and_then(|processor| {
        let sockets = several(processor.sockets? as usize, "socket");
        Some(format!(
            "{} in {sockets}",
            several(processor.cores? as usize, "core")
        ))
    });
    // What PyTorch's own kernels for CPUs are chosen by, the newest first.
    let known = ["amx_tile", "avx512f", "avx2", "sve", "asimd"];
    let has = |flag: &&str| details.is_some_and(|all| all.flags.iter().any(|one| one == flag));
    let best = known.into_iter().find(has).map(str::to_owned);
    let machine = host.architecture.clone();
    listed(&[host.cpu_model.clone(), cpus, cores, best, machine].map(Option::unwrap_or_default))
}

fn memory(host: &HostFacts) -> String {
    let limit = host.cgroup.as_ref().and_then(|cgroup| cgroup.memory);
    let limit = limit.map(|limit| format!("limited to {limit}"));
    let free = host.memory_available.map(|free| format!("{free} free"));
    listed(&[host.memory.map(|all| all.to_string()), free, limit].map(Option::unwrap_or_default))
}

fn driver(host: &HostFacts) -> String {
    let Some(driver) = &host.driver else {
        return match host.unloaded_libraries.is_empty() {
            true => "none".to_owned(),
            false => "none loaded, though its libraries are there".to_owned(),
        };
    };
    let flavour = driver.flavour.map(|flavour| match flavour {
        DriverFlavour::Open => "open kernel module",
        DriverFlavour::Closed => "closed kernel module",
        DriverFlavour::Nouveau => "nouveau",
        DriverFlavour::Wsl => "Windows' driver",
    });
    let cuda = driver.cuda.map(|cuda| format!("for CUDA up to {cuda}"));
    listed(&[
        or_missing(driver.version),
        flavour.unwrap_or_default().to_owned(),
        cuda.unwrap_or_default(),
    ])
}

/// A line a card; of several that are alike, what they have in common stands once.
fn cards(host: &HostFacts) -> Vec<(&'static str, String)> {
    let common = |card: &GpuFacts| listed(&kind(card));
    match host.cards.as_slice() {
        [] => vec![("cards", "none".to_owned())],
        [first, rest @ ..]
            if !rest.is_empty()
                && host.cards.iter().all(|card| card.lost.is_none())
                && rest.iter().all(|card| common(card) == common(first)) =>
        {
            let all = format!("{} × {}", host.cards.len(), common(first));
            let each = |card: &GpuFacts| ("card", numbered(card, &own(card, None)));
            std::iter::once(("cards", all))
                .chain(host.cards.iter().map(each))
                .collect()
        }
        all => {
            let whole = |card: &GpuFacts| {
                let [name, capability, _, watts, ecc, mig, links] = kind(card);
                let [used, degrees, uuid, lost] = own(card, card.memory);
                let parts = [
                    name, capability, used, watts, degrees, ecc, mig, links, uuid, lost,
                ];
                ("card", numbered(card, &parts))
            };
            all.iter().map(whole).collect()
        }
    }
}

fn numbered(card: &GpuFacts, parts: &[String]) -> String {
    format!("{}: {}", card.index, listed(parts))
}

/// What cards of a kind have in common: name, capability, memory, power limit, ECC, MIG, links.
fn kind(card: &GpuFacts) -> [String; 7] {
    let name = card.name.clone().unwrap_or_else(|| "NVIDIA GPU".to_owned());
    let watts = |milliwatts: u32| format!("{} W", milliwatts / 1000);
    let switched = |name: &str, mode: Option<FeatureState>| match mode {
        Some(FeatureState::On) => format!("{name} on"),
        Some(FeatureState::Off) => format!("{name} off"),
        None => String::new(),
    };
    let mig = card.mig.as_ref().filter(|mig| mig.enabled);
    let links = card.nvlinks.as_ref().filter(|links| !links.is_empty());
    [
        name,
        card.capability
            .map(|capability| format!("capability {capability}"))
            .unwrap_or_default(),
        card.memory.map(|all| all.to_string()).unwrap_or_default(),
        card.power_limit_mw.map(watts).unwrap_or_default(),
        switched("ECC", card.ecc),
        mig.map(|mig| format!("MIG with {}", several(mig.instances.len(), "instance")))
            .unwrap_or_default(),
        links
            .map(|links| several(links.len(), "NVLink"))
            .unwrap_or_default(),
    ]
}

/// What a card has for itself: memory in use (of `all`), temperature, UUID, why it is lost.
fn own(card: &GpuFacts, all: Option<Bytes>) -> [String; 4] {
    let memory = match (card.memory_used, all) {
        (Some(used), Some(all)) => format!("{used} of {all} used"),
        (Some(used), None) => format!("{used} used"),
        (None, Some(all)) => all.to_string(),
        (None, None) => String::new(),
    };
    [
        memory,
        card.temperature_c
            .map(|degrees| format!("{degrees} °C"))
            .unwrap_or_default(),
        card.uuid.clone().unwrap_or_default(),
        card.lost
            .as_ref()
            .map(|why| format!("lost: {why}"))
            .unwrap_or_default(),
    ]
}

/// `1 device`, `8 devices`.
fn several(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

fn cuda(host: &HostFacts) -> String {
    let Some(init) = &host.cuda_init else {
        return "cuInit was not tried: there is no libcuda.so.1".to_owned();
    };
    let devices = init.devices.map(|count| several(count as usize, "device"));
    let result = match (init.result, &init.error) {
        (Some(0), _) => "cuInit succeeds".to_owned(),
        (Some(code), _) => format!("cuInit says {code}"),
        (None, Some(error)) => format!("cuInit: {error}"),
        (None, None) => MISSING.to_owned(),
    };
    listed(&[result, devices.unwrap_or_default()])
}

fn nodes(host: &HostFacts) -> String {
    let Some(nodes) = &host.nodes else {
        return MISSING.to_owned();
    };
    let node = |node: &sconce_schema::facts::DeviceNodeFacts| match (&node.open_error, node.usable)
    {
        (Some(error), _) => format!("{} ({error})", node.path),
        (None, false) => format!("{} (not for this user)", node.path),
        (None, true) => node.path.clone(),
    };
    match nodes.is_empty() {
        true => "none".to_owned(),
        false => nodes.iter().map(node).collect::<Vec<_>>().join(" "),
    }
}

fn shm(host: &HostFacts) -> String {
    let shm = host.shm.clone().unwrap_or_default();
    let free = shm.free.map(|free| format!("{free} free"));
    listed(&[shm.size.map(|size| size.to_string()), free, shm.kind].map(Option::unwrap_or_default))
}

fn limit(limit: Option<RlimitPair>) -> String {
    let number = |number: Option<u64>| number.map_or("no limit".to_owned(), |n| n.to_string());
    limit.map_or(MISSING.to_owned(), |limit| {
        format!("{}, at most {}", number(limit.soft), number(limit.hard))
    })
}

fn cgroup(host: &HostFacts) -> String {
    let Some(cgroup) = &host.cgroup else {
        return MISSING.to_owned();
    };
    let version = cgroup
        .version
        .map(|version| format!("{version:?}").to_lowercase());
    let delegated = match cgroup.delegated.is_empty() {
        true => "nothing delegated".to_owned(),
        false => format!("delegated: {}", cgroup.delegated.join(" ")),
    };
    listed(&[version.unwrap_or_default(), delegated])
}

fn store(host: &HostFacts) -> String {
    let store = host.store.clone().unwrap_or_default();
    let free = store.free.map(|free| format!("{free} free"));
    listed(&[
        store.path,
        store.kind.unwrap_or_default(),
        free.unwrap_or_default(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_that_are_alike_are_named_once() {
        let card = |index, used| GpuFacts {
            index,
            name: Some("NVIDIA H100 80GB HBM3".to_owned()),
            memory: Some(Bytes::from_gib(80)),
            memory_used: Some(Bytes::from_gib(used)),
            uuid: Some(format!("GPU-{index}")),
            ..GpuFacts::default()
        };
        let mut host = HostFacts {
            cards: vec![card(0, 2), card(1, 0)],
            ..HostFacts::default()
        };
        let said = |host: &HostFacts| -> Vec<String> {
            cards(host)
                .into_iter()
                .map(|(name, text)| format!("{name} {text}"))
                .collect()
        };
        assert_eq!(
            said(&host),
            [
                "cards 2 × NVIDIA H100 80GB HBM3, 80 GiB",
                "card 0: 2 GiB used, GPU-0",
                "card 1: 0 B used, GPU-1",
            ]
        );
        host.cards[1].lost = Some("GPU is lost".to_owned());
        assert_eq!(
            said(&host),
            [
                "card 0: NVIDIA H100 80GB HBM3, 2 GiB of 80 GiB used, GPU-0",
                "card 1: NVIDIA H100 80GB HBM3, 0 B of 80 GiB used, GPU-1, lost: GPU is lost",
            ]
        );
        host.cards.clear();
        assert_eq!(said(&host), ["cards none"]);
    }
}
