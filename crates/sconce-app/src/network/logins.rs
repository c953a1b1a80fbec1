//! Logins for hosts, as netrc files and URLs hold them. Nothing here reads a file.

/// User and password for one host.
pub struct Login {
    /// Host name, without port; not empty.
    pub host: String,
    /// User, not encoded.
    pub user: String,
    /// Password, or a token.
    pub password: String,
}

/// The user and password that a URL carries.
pub fn in_url(url: &str) -> Option<Login> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (login, host) = authority.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let host = match host.strip_prefix('[') {
        Some(ipv6) => ipv6.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| Login {
        host: host.to_owned(),
        user: percent_decoded(user),
        password: percent_decoded(password),
    })
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| (*byte as char).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The machines of a netrc file. `macdef` bodies and the `default` entry are passed over: a
/// password for "everyone else" is not sent to whoever a package's URL names.
pub fn parse_netrc(text: &str) -> Vec<Login> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    let mut open: Option<Login> = None;
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "machine" => {
                    found.extend(open.take());
                    let host = words.next().unwrap_or_default().to_owned();
                    open = Some(Login {
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
    found.retain(|login| !login.host.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(logins: &[Login]) -> Vec<(&str, &str, &str)> {
        logins
            .iter()
            .map(|l| (&*l.host, &*l.user, &*l.password))
            .collect()
    }

    #[test]
    fn netrc_machines_are_read() {
        let text = "# mine\nmachine a.example.org login me password secret\n\
                    macdef init\nmachine fake login x password y\n\nmachine b.example.org\n\
                    login you account z\npassword p\ndefault login anonymous password guest\n";
        assert_eq!(
            plain(&parse_netrc(text)),
            [
                ("a.example.org", "me", "secret"),
                ("b.example.org", "you", "p")
            ]
        );
        assert_eq!(plain(&parse_netrc("machine")), []);
        assert_eq!(plain(&parse_netrc("login x password y")), []);
    }

    #[test]
    fn a_url_can_carry_a_login() {
        let found = |url: &str| in_url(url).map(|l| (l.host, l.user, l.password));
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
        // Neither two digits nor a sign and a digit.
        assert_eq!(found("http://a%4:%+5%@b"), expect("b", "a%4", "%+5%"));
        assert_eq!(found("https://me:x@/simple"), None);
        assert_eq!(found("https://pkg.example.org/a@b"), None);
        assert_eq!(found("not a url"), None);
    }
}
