//! What stands in a user's own settings: logins, and pip's options. Written by other tools, and
//! what is wrong in them must not become a login for another host.

#[path = "../../crates/sconce-app/src/pip/conf.rs"]
mod conf;
#[path = "../../crates/sconce-app/src/network/logins.rs"]
mod logins;

use crate::bytes::text;

pub(crate) fn netrc(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let words: Vec<&str> = text.split_whitespace().collect();
    for login in logins::parse_netrc(text) {
        let machine = ["machine", &login.host];
        assert!(words.windows(2).any(|pair| pair == machine), "{text}");
        for (key, value) in [("login", &login.user), ("password", &login.password)] {
            let given = words.windows(2).any(|pair| pair == [key, value]);
            assert!(given || value.is_empty(), "{text}");
        }
    }
}

pub(crate) fn netrc_seeds() -> Vec<Vec<u8>> {
    vec![
        b"# mine\nmachine a.example.org login me password s3cret\nmachine b.example.org\n\tlogin you\n\
          \taccount x\n\tpassword p\n"
            .to_vec(),
        b"macdef init\ncd /\nmachine fake login x password y\n\nmachine c.example.org login z\n\
          default login anonymous password guest\n"
            .to_vec(),
    ]
}

pub(crate) fn login(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(login) = logins::in_url(text) {
        assert!(!login.host.is_empty());
        assert!(!login.host.contains(['/', '@', '?', '#']), "{}", login.host);
        // The host is what follows the login, not a part of it.
        let after = text.rsplit('@').any(|rest| rest.contains(&login.host));
        assert!(after, "{text}: {}", login.host);
    }
}

pub(crate) fn login_seeds() -> Vec<Vec<u8>> {
    [
        "https://me:p%40ss@pkg.example.org:8443/simple",
        "http://me:x@[::1]:80/",
        "https://token@pkg.example.org/?a=b@c#d",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn pip(data: &[u8]) {
    let Some(text) = text(data) else { return };
    for (name, value) in conf::parse_options(text) {
        assert_eq!(name.trim(), name);
        assert_eq!(value.trim(), value);
        assert!(!name.contains(['\n', '_', '=']), "{name}");
        assert!(!value.contains('\n'), "{value}");
        assert!(text.contains("[global]") || text.contains("[install]"));
    }
}

pub(crate) fn pip_seeds() -> Vec<Vec<u8>> {
    vec![
        b"# mine\n[global]\nindex_url = https://a.example.org/simple\nextra-index-url =\n    \
          https://b.example.org/x\n    https://c.example.org/x\n[install]\nno-index: true\n\
          [list]\nformat = json\n"
            .to_vec(),
    ]
}
