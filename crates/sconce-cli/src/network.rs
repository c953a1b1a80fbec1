//! The network as this user has set it up: proxies, and passwords of private indexes.

use std::env;
use std::path::PathBuf;

use sconce_store::fetch::{Credential, FetchConfig, Fetcher, Proxies};

use crate::failure::Result;
use crate::places;

/// A fetcher with this user's proxies and credentials. `indexes` are the addresses in force, whose
/// user and password, where they carry them, are used for their host.
pub(crate) fn fetcher(offline: bool, indexes: &[String]) -> Result<Fetcher> {
    let mut credentials: Vec<Credential> = indexes.iter().filter_map(|url| in_url(url)).collect();
    let file = env::var_os("NETRC")
        .map(PathBuf::from)
        .or_else(|| Some(places::home()?.join(".netrc")));
    if let Some(text) = file.and_then(|file| std::fs::read_to_string(file).ok()) {
        credentials.extend(netrc(&text));
    }
    let config = FetchConfig {
        offline,
        credentials,
        proxies: proxies(),
        ..FetchConfig::default()
    };
    Ok(Fetcher::new(config)?)
}

/// `http_proxy` and the like, in either case, as curl reads them.
fn proxies() -> Proxies {
    let variable = |name: &str| {
        [name.to_owned(), name.to_ascii_uppercase()]
            .into_iter()
            .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    };
    let all = variable("all_proxy");
    Proxies {
        http: variable("http_proxy").or_else(|| all.clone()),
        https: variable("https_proxy").or(all),
        bypass: variable("no_proxy")
            .map(|list| list.split(',').map(|host| host.trim().to_owned()).collect())
            .unwrap_or_default(),
    }
}

/// The user and password that a URL carries.
fn in_url(url: &str) -> Option<Credential> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (login, host) = authority.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let host = match host.strip_prefix('[') {
        Some(ipv6) => ipv6.split(']').next()?,
        None => host.split(':').next()?,
    };
    let decode = |text: &str| percent_decoded(text);
    Some(Credential {
        host: host.to_owned(),
        user: decode(user),
        password: decode(password),
    })
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| {
                text.get(at + 1..at + 3)
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            })
            .flatten();
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The machines of a netrc file. `macdef` bodies and the `default` entry are passed over: a
/// password for "everyone else" is not sent to whoever a package's URL names.
fn netrc(text: &str) -> Vec<Credential> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    let mut open: Option<Credential> = None;
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "machine" => {
                    found.extend(open.take());
                    let host = words.next().unwrap_or_default().to_owned();
                    open = Some(Credential {
                        host,
                        user: String::new(),
                        password: String::new(),
                    });
                }
                "default" => found.extend(open.take()),
                "login" | "password" => {
                    let value = words.next().unwrap_or_default().to_owned();
                    if let Some(open) = &mut open {
                        if word == "login" {
                            open.user = value
                        } else {
                            open.password = value
                        }
                    }
                }
                "account" => drop(words.next()),
                "macdef" => {
                    // A macro ends at an empty line.
                    lines.by_ref().find(|line| line.trim().is_empty());
                    break;
                }
                comment if comment.starts_with('#') => break,
                _ => {}
            }
        }
    }
    found.extend(open);
    found.retain(|credential| !credential.host.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(credentials: &[Credential]) -> Vec<(&str, &str, &str)> {
        credentials
            .iter()
            .map(|c| (&*c.host, &*c.user, &*c.password))
            .collect()
    }

    #[test]
    fn netrc_machines_are_read() {
        let text = "# mine\nmachine a.example.org login me password secret\n\
                    macdef init\nmachine fake login x password y\n\nmachine b.example.org\n\
                    login you account z\npassword p\ndefault login anonymous password guest\n";
        assert_eq!(
            plain(&netrc(text)),
            [
                ("a.example.org", "me", "secret"),
                ("b.example.org", "you", "p")
            ]
        );
        assert_eq!(plain(&netrc("machine")), []);
        assert_eq!(plain(&netrc("login x password y")), []);
    }

    #[test]
    fn a_url_can_carry_a_login() {
        let found = |url: &str| in_url(url).map(|c| (c.host, c.user, c.password));
        let expect = |h: &str, u: &str, p: &str| Some((h.into(), u.into(), p.into()));
        assert_eq!(
            found("https://me:p%40ss@pkg.example.org:8443/simple"),
            expect("pkg.example.org", "me", "p@ss")
        );
        assert_eq!(
            found("https://token@pkg.example.org/"),
            expect("pkg.example.org", "token", "")
        );
        assert_eq!(found("http://me:x@[::1]:80/"), expect("::1", "me", "x"));
        assert_eq!(found("https://pkg.example.org/a@b"), None);
        assert_eq!(found("not a url"), None);
    }
}
