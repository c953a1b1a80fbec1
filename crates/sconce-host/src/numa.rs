//! Where on a machine with several memory nodes a run is best off: next to its cards.
//!
//! The kernel says on which node a card is (`/sys/bus/pci/devices/ADDRESS/numa_node`) and which CPUs
//! a node has (`/sys/devices/system/node/nodeN/cpulist`), see Documentation/ABI/stable/
//! sysfs-devices-node and Documentation/ABI/testing/sysfs-bus-pci.

use sconce_schema::request::NumaPlacement;
use sconce_schema::{Millicores, NumberSet};

use crate::nvidia::GpuDevice;
use crate::roots::Roots;
use crate::small_files;

/// A memory node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumaNode {
    /// The N of `/sys/devices/system/node/nodeN`.
    pub number: u32,
    /// Its CPUs; none on a node that has memory alone.
    pub cpus: NumberSet,
}

/// The machine's nodes that have memory; empty where the kernel does not tell.
#[must_use]
pub fn read_nodes(roots: &Roots) -> Vec<NumaNode> {
    let folder = roots.sys.join("devices/system/node");
    let list = |name: &str| -> Option<NumberSet> {
        small_files::read_line(&folder.join(name))?.parse().ok()
    };
    let Some(numbers) = list("has_memory").or_else(|| list("online")) else {
        return Vec::new();
    };
    let node = |number| NumaNode {
        number,
        cpus: list(&format!("node{number}/cpulist")).unwrap_or_default(),
    };
    numbers.iter().map(node).collect()
}

/// The node of each card; `None` for one whose node is not known (the kernel writes −1).
#[must_use]
pub fn nodes_of(cards: &[&GpuDevice], roots: &Roots) -> Vec<Option<u32>> {
    let of = |card: &&GpuDevice| {
        let address = card.bus_id.as_deref()?;
        let devices = roots.sys.join("bus/pci/devices");
        small_files::read_line(&devices.join(address).join("numa_node"))?
            .parse()
            .ok()
    };
    cards.iter().map(of).collect()
}

/// Where a run with cards on these nodes is best off, or `None` where that says nothing: no card,
/// one node, a card whose node is not known, or cards on all nodes.
///
/// `allowed` are the CPUs that the caller may use at all. CPUs are named only where there are as
/// many as `asked`: next to the cards with too few CPUs is not better off.
#[must_use]
pub fn place_near_gpus(
    nodes: &[NumaNode],
    cards: &[Option<u32>],
    allowed: Option<&NumberSet>,
    asked: Option<Millicores>,
) -> Option<NumaPlacement> {
    let wanted: NumberSet = cards.iter().copied().collect::<Option<_>>()?;
    let mut near = nodes
        .iter()
        .filter(|node| wanted.contains(node.number))
        .peekable();
    near.peek()?;
    let (mut numbers, mut cpus) = (NumberSet::default(), NumberSet::default());
    for node in near {
        numbers.insert(node.number);
        cpus = cpus.union(&node.cpus);
    }
    if numbers != wanted || numbers.len() as usize == nodes.len() {
        return None;
    }
    let cpus = allowed.map_or(cpus, |allowed| cpus.intersection(allowed));
    let enough = asked.is_none_or(|asked| f64::from(cpus.len()) >= asked.as_cores());
    Some(NumaPlacement {
        nodes: numbers,
        cpus: (enough && !cpus.is_empty()).then_some(cpus),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes as a server with two sockets has them, written as its /sys is.
    fn recorded() -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        for (path, text) in [
            ("devices/system/node/online", "0-1\n"),
            ("devices/system/node/has_memory", "0-1\n"),
            ("devices/system/node/node0/cpulist", "0-15,32-47\n"),
            ("devices/system/node/node1/cpulist", "16-31,48-63\n"),
            ("bus/pci/devices/0000:3b:00.0/numa_node", "0\n"),
            ("bus/pci/devices/0000:b1:00.0/numa_node", "1\n"),
            ("bus/pci/devices/0000:c1:00.0/numa_node", "-1\n"),
            ("bus/pci/devices/0000:d1:00.0/numa_node", "7\n"),
        ] {
            let path = roots.sys.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (folder, roots)
    }

    fn card(address: Option<&str>) -> GpuDevice {
        GpuDevice {
            index: 0,
            bus_id: address.map(str::to_owned),
            minor: None,
            uuid: None,
            name: None,
            memory: None,
            node: None,
        }
    }

    fn set(text: &str) -> NumberSet {
        text.parse().unwrap()
    }

    /// As [`place_near_gpus`], for cards at these addresses.
    fn placed(
        addresses: &[&str],
        allowed: Option<&str>,
        asked: Option<u32>,
    ) -> Option<NumaPlacement> {
        let (_folder, roots) = recorded();
        let cards: Vec<GpuDevice> = addresses.iter().map(|a| card(Some(a))).collect();
        let cards = nodes_of(&cards.iter().collect::<Vec<_>>(), &roots);
        let allowed = allowed.map(set);
        place_near_gpus(
            &read_nodes(&roots),
            &cards,
            allowed.as_ref(),
            asked.map(|n| Millicores(n * 1000)),
        )
    }

    #[test]
    fn one_card_or_two_on_a_node() {
        let near = placed(&["0000:b1:00.0"], None, None).unwrap();
        assert_eq!(
            (near.nodes, near.cpus),
            (set("1"), Some(set("16-31,48-63")))
        );
        let both = placed(&["0000:b1:00.0", "0000:b1:00.0"], Some("0-19"), Some(4)).unwrap();
        assert_eq!(
            both.cpus,
            Some(set("16-19")),
            "only what the caller may use"
        );
    }

    #[test]
    fn more_cpus_asked_for_than_are_near() {
        let near = placed(&["0000:3b:00.0"], None, Some(48)).unwrap();
        assert_eq!((near.nodes, near.cpus), (set("0"), None));
        let near = placed(&["0000:3b:00.0"], Some("16-31"), None).unwrap();
        assert_eq!(near.cpus, None, "the caller may use none of them");
    }

    #[test]
    fn where_there_is_nothing_to_say() {
        for addresses in [
            &[][..],
            &["0000:3b:00.0", "0000:b1:00.0"],
            &["0000:c1:00.0"],
            &["0000:3b:00.0", "0000:c1:00.0"],
            &["0000:d1:00.0"],
            &["0000:ff:00.0"],
        ] {
            assert_eq!(placed(addresses, None, None), None, "{addresses:?}");
        }
        let (_folder, roots) = recorded();
        assert_eq!(nodes_of(&[&card(None)], &roots), [None]);
        let one = [NumaNode {
            number: 0,
            cpus: set("0-3"),
        }];
        assert_eq!(
            place_near_gpus(&one, &[Some(0)], None, None),
            None,
            "one node"
        );
        assert_eq!(read_nodes(&Roots::from_dir("/no-such-machine")), []);
    }
}
