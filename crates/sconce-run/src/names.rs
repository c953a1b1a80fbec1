//! The files of /etc that say what this machine is called and how it finds others.

use sconce_schema::request::{Network, RunRequest};

/// Names and contents. On the host's network the host's own files are taken over.
pub(crate) fn files(request: &RunRequest) -> Vec<(&'static str, Vec<u8>)> {
    let hosts = match request.network {
        Network::Host => std::fs::read("/etc/hosts").unwrap_or_default(),
        Network::None => Vec::new(),
    };
    let mut files = vec![
        ("hostname", format!("{}\n", request.id).into_bytes()),
        ("hosts", with_own_name(hosts, &request.id)),
    ];
    if request.network == Network::Host
        && let Ok(resolvers) = std::fs::read("/etc/resolv.conf")
    {
        files.push(("resolv.conf", resolvers));
    }
    files
}

/// torch.distributed looks its own host name up; it must lead to the loopback.
fn with_own_name(hosts: Vec<u8>, name: &str) -> Vec<u8> {
    let mut text = format!("127.0.0.1 localhost {name}\n::1 localhost {name}\n").into_bytes();
    text.extend(hosts);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_finds_itself_before_the_hosts_own_entries() {
        let text = with_own_name(b"10.0.0.7 storage\n".to_vec(), "digits-1");
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("127.0.0.1 localhost digits-1\n"));
        assert!(text.ends_with("10.0.0.7 storage\n"));
    }
}
