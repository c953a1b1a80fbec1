//! The network as this user has set it up: proxies, and passwords of private indexes.

pub mod logins;

use sconce_base::Env;
use sconce_fetch::{Credential, FetchConfig, Fetcher, Proxies, redact_url};
use sconce_schema::{Hint, exit};

use crate::context::AppContext;
use crate::failure::Result;
use logins::{Login, in_url, parse_netrc};

/// A fetcher with this user's proxies and credentials. `indexes` are the addresses in force, whose
/// user and password, where they carry them, are used for their host.
pub fn build_fetcher(context: &AppContext, indexes: &[String]) -> Result<Fetcher> {
    Ok(Fetcher::new(fetch_config(
        context.offline,
        indexes,
        &context.env,
    ))?)
}

/// The settings of such a fetcher.
pub fn fetch_config(offline: bool, indexes: &[String], env: &Env) -> FetchConfig {
    let mut logins: Vec<Login> = indexes.iter().filter_map(|url| in_url(url)).collect();
    let file = env
        .path_var("NETRC")
        .or_else(|| Some(env.home_dir()?.join(".netrc")));
    if let Some(text) = file.and_then(|file| crate::input::read_text(&file).ok()) {
        logins.extend(parse_netrc(&text));
    }
    let credential = |login: Login| Credential {
        host: login.host,
        user: login.user,
        password: login.password,
    };
    FetchConfig {
        offline,
        credentials: logins.into_iter().map(credential).collect(),
        proxies: proxies(env),
        ..FetchConfig::default()
    }
}

/// `http_proxy` and the like, in either case, as curl reads them.
fn proxies(env: &Env) -> Proxies {
    let variable = |name: &str| {
        [name.to_owned(), name.to_ascii_uppercase()]
            .into_iter()
            .find_map(|name| {
                env.var(&name)
                    .filter(|value| !value.is_empty())
                    .map(str::to_owned)
            })
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

/// uv's variables for indexes, by the name that uv's documentation gives them. A list is split by
/// white space, and an index may have a name before it: `NAME=URL`.
pub fn uv_indexes(env: &Env) -> Vec<(&'static str, String)> {
    let names = [
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
    ];
    let values = names
        .into_iter()
        .filter_map(|name| Some((name, env.var(name)?)));
    let split = values.flat_map(|(name, value)| {
        let words = value.split_whitespace().map(|word| (name, unnamed(word)));
        words.collect::<Vec<_>>()
    });
    split.collect()
}

/// The URL of `NAME=URL`. A URL's own `=` comes after its scheme.
fn unnamed(index: &str) -> String {
    let url = match index.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => url,
        _ => index,
    };
    url.to_owned()
}

/// Whether packages can be fetched from there: an http or https URL with a host, or a file URL.
pub fn is_address(text: &str) -> bool {
    let host = |rest: &str| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        !host.is_empty() && !host.starts_with(':')
    };
    let scheme = |scheme: &str| {
        let start = text.get(..scheme.len())?;
        start
            .eq_ignore_ascii_case(scheme)
            .then(|| &text[scheme.len()..])
    };
    let web = scheme("https://").or_else(|| scheme("http://"));
    !text.contains(|c: char| c.is_whitespace() || c.is_control())
        && (web.is_some_and(host) || scheme("file:/").is_some())
}

/// A setting that should be an address and is none.
#[derive(Debug, thiserror::Error)]
#[error(
    "{setting} is `{}`: packages cannot be fetched from there",
    redact_url(value)
)]
pub struct AddressError {
    /// What it stands in, as people know it.
    pub setting: &'static str,
    /// What it says.
    pub value: String,
}

impl Hint for AddressError {
    fn hint(&self) -> Option<String> {
        Some("write a URL that begins with https://, http:// or file:///".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_text() {
        for text in [
            "https://index.example.org/simple",
            "HTTP://me:secret@[::1]:8080",
            "file:///srv/debian",
        ] {
            assert!(is_address(text), "{text}");
        }
        for text in [
            "",
            "hello",
            "ftp://x",
            "htps://index.example.org",
            "https://",
            "https:///simple",
            "http://user@/simple",
            "http://a b",
            "/srv/debian",
            "é",
        ] {
            assert!(!is_address(text), "{text}");
        }
    }

    #[test]
    fn an_index_may_have_a_name() {
        assert_eq!(
            unnamed("mine=https://a.example.org"),
            "https://a.example.org"
        );
        for url in ["https://a.example.org/?b=c", "hello"] {
            assert_eq!(unnamed(url), url);
        }
    }

    #[test]
    fn a_wrong_address_is_named_without_its_login() {
        let error = AddressError {
            setting: "`--index`",
            value: "ftp://me:secret@x".to_owned(),
        };
        let text = error.to_string();
        assert!(text.starts_with("`--index` is `ftp://x`"), "{text}");
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
    }
}
