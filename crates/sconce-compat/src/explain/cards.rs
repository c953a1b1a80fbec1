//! Which card a line of the driver, or of what watches it, speaks of.

use std::collections::BTreeSet;

/// How a line names a card. Names of different kinds cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CardName {
    /// `PCI:0000:3b:00`, `00000000:3B:00.0`.
    Pci { domain: u32, bus: u32, device: u32 },
    /// `GPU 3`, `gpu="3"`.
    Index(u32),
}

/// The cards that a line names.
pub(super) fn find_cards(line: &str) -> BTreeSet<CardName> {
    let in_address = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let addresses = line.split(|c| !in_address(c)).filter_map(parse_address);
    addresses.chain(find_indexes(line)).collect()
}

/// Whether a fault of the cards `of` can be why there is one of `card`: it is one of them, or nothing tells.
pub(super) fn may_explain(of: &BTreeSet<CardName>, card: CardName) -> bool {
    let same_kind =
        |other: &CardName| std::mem::discriminant(other) == std::mem::discriminant(&card);
    of.contains(&card) || !of.iter().any(same_kind)
}

/// Domain, bus and device; the function is left out, which is 0 for a card. A time of day has a shorter first part.
fn parse_address(text: &str) -> Option<CardName> {
    let mut parts = text.trim_matches([':', '.']).rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next()?);
    let device = device.split('.').next()?;
    if !(4..=8).contains(&domain.len()) || bus.len() != 2 || device.len() != 2 {
        return None;
    }
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(CardName::Pci {
        domain: number(domain)?,
        bus: number(bus)?,
        device: number(device)?,
    })
}

fn find_indexes(line: &str) -> impl Iterator<Item = CardName> {
    let lower = line.to_ascii_lowercase();
    let after: Vec<String> = lower.split("gpu").skip(1).map(str::to_owned).collect();
    after.into_iter().filter_map(|rest| {
        let rest = rest.trim_start_matches([' ', '=', ':', '"', '#']);
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let digits = &rest[..end.unwrap_or(rest.len())];
        // More of them are an address, `GPU0000:3B:00.0`.
        let index = (1..=3).contains(&digits.len()).then(|| digits.parse().ok());
        index.flatten().map(CardName::Index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pci(bus: u32) -> CardName {
        CardName::Pci {
            domain: 0,
            bus,
            device: 0,
        }
    }

    #[test]
    fn cards_are_named_in_several_ways() {
        for (line, expected) in [
            (
                "[ 12.5] NVRM: Xid (PCI:0000:3b:00): 45, pid=7",
                vec![pci(0x3b)],
            ),
            ("NVRM: Xid (0000:3B:00): 31, Ch 10", vec![pci(0x3b)]),
            (
                "device handle for GPU0000:4F:00.0: Unknown Error",
                vec![pci(0x4f)],
            ),
            (
                "2026-09-14T20:30:27-0400 GPU 3: Xid 94",
                vec![CardName::Index(3)],
            ),
            (
                r#"X{gpu="0",pci_bus_id="00000000:3B:00.0"} 79"#,
                vec![pci(0x3b), CardName::Index(0)],
            ),
            ("Xid=48 on Device=GPU-34d7319c-5b19-1e75", vec![]),
            ("12:30:27 nothing of 10.0.0.1:80", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(find_cards(line), BTreeSet::from_iter(expected), "{line}");
        }
    }

    #[test]
    fn names_of_one_kind_alone_are_compared() {
        let one = BTreeSet::from([pci(0x3b)]);
        assert!(may_explain(&one, pci(0x3b)) && !may_explain(&one, pci(0xaf)));
        assert!(may_explain(&one, CardName::Index(1)));
        assert!(may_explain(&BTreeSet::new(), pci(0xaf)));
    }
}
