//! The addresses of this machine's interfaces (getifaddrs(3)).

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;

/// An address, and the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// `eth0`.
    pub interface: String,
    /// One of its addresses.
    pub address: IpAddr,
}

/// Lists the addresses by which other machines may reach this one: neither loopback nor link-local, in the kernel's
/// order, those of IPv4 first.
///
/// # Errors
/// The kernel's refusal.
pub fn list_addresses() -> std::io::Result<Vec<InterfaceAddress>> {
    let found = getifaddrs()?.filter_map(|one| {
        let address = one.address?;
        let address = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(four), _) => IpAddr::V4(four.ip()),
            (_, Some(six)) => IpAddr::V6(six.ip()),
            (None, None) => return None,
        };
        Some(InterfaceAddress {
            interface: one.interface_name,
            address,
        })
    });
    let mut addresses: Vec<_> = found.filter(|one| is_reachable(one.address)).collect();
    addresses.sort_by_key(|one| one.address.is_ipv6());
    Ok(addresses)
}

/// Whether other machines may reach an address: RFC 3927 and RFC 4291, section 2.5.6, have those that they do not.
#[must_use]
pub fn is_reachable(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    !address.is_loopback() && !address.is_unspecified() && !is_link_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_link_local_are_nobodys_to_reach() {
        for (address, is) in [
            ("10.0.0.7", true),
            ("fd00::7", true),
            ("127.0.1.1", false),
            ("::1", false),
            ("169.254.3.4", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_reachable(address.parse().unwrap()), is, "{address}");
        }
    }

    #[test]
    fn this_machines_list_has_no_loopback() {
        let addresses = list_addresses().unwrap();
        assert!(
            addresses
                .iter()
                .all(|one| one.interface != "lo" && is_reachable(one.address))
        );
    }
}
