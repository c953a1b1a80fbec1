//! Cards: what the kernel module's files tell, completed by NVML.

use sconce_schema::HostFacts;
use sconce_schema::facts::{Driver, GpuFacts};

use super::nvml::NvmlReply;
use crate::nvidia::{NvidiaDriver, bus_address};

/// /proc/driver/nvidia/gpus/*/information, else the nodes /dev/nvidiaN.
pub(super) fn of_kernel(nvidia: Option<&NvidiaDriver>) -> Vec<GpuFacts> {
    let card = |card: &crate::nvidia::GpuDevice| GpuFacts {
        index: card.index,
        name: card.name.clone(),
        uuid: card.uuid.clone(),
        bus_id: card.bus_id.clone(),
        minor: card.minor,
        ..GpuFacts::default()
    };
    nvidia.map_or(Vec::new(), |nvidia| nvidia.cards.iter().map(card).collect())
}

/// Puts NVML's answers into the facts: the driver's version where no file told it, and the cards.
///
/// A card that NVML knows is the one of the kernel with its UUID, else with its PCI address, else
/// with its minor number. A card for which NVML has only an error has none of these: both sides
/// count by PCI address, so the errors belong to the kernel's cards that are left, in order.
pub(super) fn merge_nvml_reply(facts: &mut HostFacts, told: NvmlReply) {
    let version = told.driver.as_deref().and_then(|text| text.parse().ok());
    if facts.driver.is_none() && version.is_some() {
        // A sandbox without /proc/driver and /sys/module.
        facts.driver = Some(Driver {
            libraries: std::mem::take(&mut facts.unloaded_libraries),
            ..Driver::default()
        });
    }
    if let Some(driver) = &mut facts.driver {
        driver.version = driver.version.or(version);
        driver.cuda = told.cuda;
    }
    let mut library = told.library;
    if library.version.is_none() {
        library.version = library_version(facts);
    }
    facts.nvml = Some(library);

    let mut left = std::mem::take(&mut facts.cards);
    let (known, errors): (Vec<_>, Vec<_>) = told.cards.into_iter().partition(|a| a.error.is_none());
    for answer in known {
        let card = answer.card;
        let place = left.iter().position(|other| same(other, &card));
        let of_kernel = place.map(|place| left.remove(place));
        facts.cards.push(joined(card, of_kernel));
    }
    let mut left = left.into_iter();
    for answer in errors {
        let of_kernel = left.next();
        // Of a card that the caller may not see nothing is said, unless the kernel shows it.
        if answer.forbidden {
            facts.cards.extend(of_kernel);
            continue;
        }
        let mut card = joined(answer.card, of_kernel);
        card.lost = answer.error;
        facts.cards.push(card);
    }
    facts.cards.extend(left);
    facts.cards.sort_by_key(|card| card.index);
}

/// Where NVML did not start, the version in the name of its file.
fn library_version(facts: &HostFacts) -> Option<String> {
    let loaded = facts.driver.iter().flat_map(|driver| &driver.libraries);
    let mut libraries = loaded.chain(&facts.unloaded_libraries);
    let wins = libraries.find(|library| library.name == "libnvidia-ml.so.1" && library.wins)?;
    wins.version.map(|version| version.to_string())
}

fn same(kernel: &GpuFacts, nvml: &GpuFacts) -> bool {
    let address = |card: &GpuFacts| card.bus_id.as_deref().and_then(bus_address);
    match (&kernel.uuid, &nvml.uuid, address(kernel), address(nvml)) {
        (Some(kernel), Some(nvml), ..) => kernel == nvml,
        (_, _, Some(kernel), Some(nvml)) => kernel == nvml,
        _ => kernel.minor.is_some() && kernel.minor == nvml.minor,
    }
}

/// NVML's card, with the kernel's word where NVML has none.
fn joined(nvml: GpuFacts, kernel: Option<GpuFacts>) -> GpuFacts {
    let Some(kernel) = kernel else {
        return nvml;
    };
    GpuFacts {
        name: nvml.name.or(kernel.name),
        uuid: nvml.uuid.or(kernel.uuid),
        bus_id: nvml.bus_id.or(kernel.bus_id),
        minor: nvml.minor.or(kernel.minor),
        ..nvml
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::nvml::NvmlGpuReply;
    use sconce_schema::Bytes;

    fn kernel(index: u32, uuid: Option<&str>, bus_id: &str) -> GpuFacts {
        GpuFacts {
            index,
            uuid: uuid.map(str::to_owned),
            bus_id: Some(bus_id.to_owned()),
            minor: Some(index),
            ..GpuFacts::default()
        }
    }

    #[test]
    fn a_lost_card_is_the_one_that_is_left() {
        let mut facts = HostFacts {
            cards: vec![
                kernel(0, Some("GPU-a"), "0000:17:00.0"),
                kernel(1, Some("GPU-b"), "0000:3b:00.0"),
                kernel(2, None, "0000:65:00.0"),
            ],
            driver: Some(Driver::default()),
            ..HostFacts::default()
        };
        let answer = |index, uuid: &str, bus_id: &str| NvmlGpuReply {
            card: GpuFacts {
                memory: Some(Bytes::from_gib(80)),
                minor: None,
                ..kernel(index, Some(uuid), bus_id)
            },
            ..NvmlGpuReply::default()
        };
        let told = NvmlReply {
            driver: Some("580.65.06".to_owned()),
            cards: vec![
                answer(0, "GPU-a", "0000:17:00.0"),
                NvmlGpuReply {
                    card: GpuFacts {
                        index: 1,
                        ..GpuFacts::default()
                    },
                    error: Some("GPU is lost".to_owned()),
                    forbidden: false,
                },
                answer(2, "GPU-c", "0000:65:00.0"),
            ],
            ..NvmlReply::default()
        };
        merge_nvml_reply(&mut facts, told);
        let uuids: Vec<_> = facts
            .cards
            .iter()
            .map(|card| card.uuid.as_deref())
            .collect();
        assert_eq!(uuids, [Some("GPU-a"), Some("GPU-b"), Some("GPU-c")]);
        assert_eq!(facts.cards[1].lost.as_deref(), Some("GPU is lost"));
        assert_eq!(facts.cards[1].bus_id.as_deref(), Some("0000:3b:00.0"));
        assert_eq!(facts.cards[2].minor, Some(2), "the kernel's word");
        assert_eq!(facts.driver.unwrap().version, "580.65.06".parse().ok());
    }

    #[test]
    fn a_card_that_may_not_be_seen() {
        let answer = NvmlGpuReply {
            error: Some("Insufficient Permissions".to_owned()),
            forbidden: true,
            ..NvmlGpuReply::default()
        };
        let told = NvmlReply {
            cards: vec![answer],
            ..NvmlReply::default()
        };
        let mut facts = HostFacts::default();
        merge_nvml_reply(&mut facts, told.clone());
        assert_eq!(facts.cards, []);
        facts.cards = vec![kernel(0, None, "0000:17:00.0")];
        merge_nvml_reply(&mut facts, told);
        assert_eq!((facts.cards.len(), &facts.cards[0].lost), (1, &None));
    }
}
