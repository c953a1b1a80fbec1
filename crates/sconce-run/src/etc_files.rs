//! The files of /etc that say what this machine is called and how it finds others.

use std::net::IpAddr;
use std::path::Path;

use sconce_schema::request::NetworkMode;

/// Names of the files that [`render_files`] may give.
const NAMES: [&str; 3] = ["hostname", "hosts", "resolv.conf"];
/// Folders over which a run has file systems of its own.
const MOUNTED: [&str; 3] = ["dev", "proc", "sys"];

/// Whether a path in a run's writable layer, relative to it, is there because of the run itself and
/// not because of its command: mount points, and the files that name the machine.
#[must_use]
pub fn is_machinery(path: &Path) -> bool {
    MOUNTED.iter().any(|folder| path.starts_with(folder))
        || (path.parent() == Some(Path::new("etc"))
            && NAMES.iter().any(|name| path.ends_with(name)))
}

/// Names and contents for a run that is called `name` inside, and that others reach by `address`. On the
/// host's network the host's own files are taken over.
pub(crate) fn render_files(
    network: NetworkMode,
    name: &str,
    address: Option<IpAddr>,
) -> Vec<(&'static str, Vec<u8>)> {
    let hosts = match network {
        NetworkMode::Host => std::fs::read("/etc/hosts").unwrap_or_default(),
        NetworkMode::None | NetworkMode::Own => Vec::new(),
    };
    let mut files = vec![
        ("hostname", format!("{name}\n").into_bytes()),
        ("hosts", with_own_name(hosts, name, address)),
    ];
    let resolvers = match network {
        NetworkMode::Host => std::fs::read("/etc/resolv.conf").ok(),
        NetworkMode::Own => Some(format!("nameserver {}\n", crate::usernet::RESOLVER).into_bytes()),
        NetworkMode::None => None,
    };
    files.extend(resolvers.map(|resolvers| ("resolv.conf", resolvers)));
    files
}

/// torch.distributed looks its own host name up: alone, it must lead to the loopback; with others on other
/// machines, to what these reach.
fn with_own_name(hosts: Vec<u8>, name: &str, address: Option<IpAddr>) -> Vec<u8> {
    let mut text = match address {
        None => format!("127.0.0.1 localhost {name}\n::1 localhost {name}\n"),
        Some(address) => format!("127.0.0.1 localhost\n::1 localhost\n{address} {name}\n"),
    }
    .into_bytes();
    text.extend(hosts);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_run_itself_puts_there_is_known() {
        for path in ["dev", "proc", "sys/kernel", "etc/hosts", "etc/resolv.conf"] {
            assert!(is_machinery(Path::new(path)), "{path}");
        }
        for path in ["etc", "etc/passwd", "devel", "usr/etc/hosts", "etc/hosts/x"] {
            assert!(!is_machinery(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_run_finds_itself_before_the_hosts_own_entries() {
        let text = with_own_name(b"10.0.0.7 storage\n".to_vec(), "digits-1", None);
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("127.0.0.1 localhost digits-1\n"));
        assert!(text.ends_with("10.0.0.7 storage\n"));
    }

    #[test]
    fn with_others_its_name_is_no_loopback() {
        let text = with_own_name(Vec::new(), "digits-1", Some([10, 0, 0, 7].into()));
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("digits-1"))
            .collect();
        assert_eq!(lines, ["10.0.0.7 digits-1"]);
        assert!(text.contains("127.0.0.1 localhost\n"));
    }
}
