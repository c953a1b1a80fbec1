//! Who asks: Basic, and Bearer tokens from a token server (distribution, "Token authentication" and
//! "OAuth2 token authentication").
//!
//! A login goes to the registry that it is for, and to the token server that this registry names,
//! which is how the protocol is; it goes nowhere else, and nowhere without TLS but for hosts that
//! the settings except.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sconce_fetch::redact_url;
use serde::Deserialize;
use tracing::debug;
use ureq::http::{HeaderMap, Method};

use super::challenge::parse_challenges;
use super::client::Endpoint;
use super::error::RegistryError;
use super::logins::{Login, LoginSources};
use super::wire::{HttpTransport, RequestBody, RequestTimeouts};

/// The largest answer of a token server that is read, bytes.
const MAX_ANSWER_BYTES: u64 = 256 << 10;
/// The longest token that is sent, bytes.
const MAX_TOKEN_BYTES: usize = 32 << 10;
/// The longest realm and service, bytes.
const MAX_PARAMETER_BYTES: usize = 2048;
/// A token lives this long where the server does not say (distribution's token specification).
const DEFAULT_LIFETIME_S: u64 = 60;
/// The longest life that is believed, seconds.
const MAX_LIFETIME_S: u64 = 3600;
/// A token is renewed when it has no longer than this to live.
const RENEWAL_MARGIN: Duration = Duration::from_secs(10);
/// The most scopes that are asked for at once.
const MAX_SCOPES: usize = 8;

/// How a registry wants to be told who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AuthScheme {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

/// A token, and until when it serves.
#[derive(Clone)]
struct Token {
    text: String,
    until: Instant,
}

/// What tokens are kept by: registry, repository, scopes.
type TokenKey = (String, String, Vec<String>);

/// Logins and what they were exchanged for.
pub(super) struct RegistryAuth {
    logins: LoginSources,
    ways: Mutex<HashMap<String, AuthScheme>>,
    tokens: Mutex<HashMap<TokenKey, Token>>,
}

impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.logins.fmt(f)
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<serde_json::Number>,
}

impl RegistryAuth {
    pub(super) fn new(logins: LoginSources) -> Self {
        Self {
            logins,
            ways: Mutex::default(),
            tokens: Mutex::default(),
        }
    }

    /// The `Authorization` header for a request, as far as is known what the registry wants.
    pub(super) fn authorization_header(
        &self,
        wire: &HttpTransport,
        place: &Endpoint,
        scopes: &[String],
    ) -> Result<Option<String>, RegistryError> {
        let way = self.way(place);
        match way {
            None => Ok(None),
            Some(AuthScheme::Basic) => {
                let found = self.logins.find_login(&place.host, &place.repository);
                Ok(found.login.as_ref().and_then(basic))
            }
            Some(AuthScheme::Bearer { realm, service }) => {
                let key = key(place, scopes);
                // Held while a token is fetched: four threads need one token, not four.
                let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(token) = tokens.get(&key)
                    && token.until > Instant::now() + RENEWAL_MARGIN
                {
                    return Ok(Some(bearer(token)));
                }
                let token = self.fetch(wire, place, &realm, service.as_deref(), scopes)?;
                let header = bearer(&token);
                tokens.insert(key, token);
                Ok(Some(header))
            }
        }
    }

    /// Takes up what a 401 answer asks for. Returns whether asking again may go better than it did
    /// with the header `used`. Scopes that the registry names are added to `scopes`.
    pub(super) fn apply_challenges(
        &self,
        place: &Endpoint,
        scopes: &mut Vec<String>,
        headers: &HeaderMap,
        used: Option<&str>,
    ) -> bool {
        let lines = headers.get_all("www-authenticate").iter().take(8);
        let asked: Vec<_> = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(parse_challenges)
            .collect();
        let short = |text: &&str| !text.is_empty() && text.len() <= MAX_PARAMETER_BYTES;
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        for challenge in asked.iter().filter(|c| c.scheme == "bearer") {
            let Some(realm) = challenge.get("realm").filter(short) else {
                continue;
            };
            for scope in challenge.get("scope").unwrap_or_default().split(' ') {
                // `repository:NAME:pull` is covered by `repository:NAME:pull,push`.
                let covered = scopes.iter().any(|own| own.starts_with(scope));
                if short(&scope) && !covered && scopes.len() < MAX_SCOPES {
                    scopes.push(scope.to_owned());
                }
            }
            let way = AuthScheme::Bearer {
                realm: realm.to_owned(),
                service: challenge.get("service").filter(short).map(str::to_owned),
            };
            ways.insert(place.base.clone(), way);
            drop(ways);
            // Whoever was told no with this very token needs another one.
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            tokens.retain(|_, token| used != Some(bearer(token).as_str()));
            return true;
        }
        if asked.iter().any(|c| c.scheme == "basic") {
            ways.insert(place.base.clone(), AuthScheme::Basic);
            drop(ways);
            let found = self.logins.find_login(&place.host, &place.repository);
            let header = found.login.as_ref().and_then(basic);
            return header.is_some() && header.as_deref() != used;
        }
        false
    }

    /// Whether there is a login for a place, why not, and what of it must never be shown.
    pub(super) fn login_diagnostics(
        &self,
        place: &Endpoint,
        used: Option<&str>,
    ) -> (bool, Option<String>, Vec<String>) {
        if self.way(place).is_none() {
            return (false, None, Vec::new());
        }
        let found = self.logins.find_login(&place.host, &place.repository);
        let mut hidden = found.login.as_ref().map(secrets).unwrap_or_default();
        hidden.extend(
            used.and_then(|used| used.split_once(' '))
                .map(|(_, text)| text.to_owned()),
        );
        (found.login.is_some(), found.trouble, hidden)
    }

    fn way(&self, place: &Endpoint) -> Option<AuthScheme> {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.get(&place.base).cloned()
    }

    /// Asks the token server.
    fn fetch(
        &self,
        wire: &HttpTransport,
        place: &Endpoint,
        realm: &str,
        service: Option<&str>,
        scopes: &[String],
    ) -> Result<Token, RegistryError> {
        let found = self.logins.find_login(&place.host, &place.repository);
        let has_login = found.login.is_some();
        debug!(
            realm = redact_url(realm),
            ?scopes,
            has_login,
            "asks for a token"
        );
        let mut form = Vec::new();
        form.extend(service.map(|service| ("service", service.to_owned())));
        let query = |mut form: Vec<(&str, String)>| {
            form.extend(scopes.iter().map(|scope| ("scope", scope.clone())));
            encode_form(&form)
        };
        wire.retry_transient(|| {
            let reply = if let Some(Login::Identity { token }) = &found.login {
                let mut form = form.clone();
                form.push(("grant_type", "refresh_token".to_owned()));
                form.push(("client_id", "sconce".to_owned()));
                form.push(("refresh_token", token.clone()));
                // One field, its scopes with spaces between (RFC 6749, section 3.3).
                form.push(("scope", scopes.join(" ")));
                let kind = "application/x-www-form-urlencoded".to_owned();
                let body = encode_form(&form);
                let payload = &mut RequestBody::Bytes(body.as_bytes());
                wire.send_request(
                    &Method::POST,
                    realm,
                    &[("content-type", kind)],
                    payload,
                    RequestTimeouts::default(),
                )?
            } else {
                let between = if realm.contains('?') { '&' } else { '?' };
                let url = format!("{realm}{between}{}", query(form.clone()));
                let header = found.login.as_ref().and_then(basic);
                let headers: Vec<_> = header.map(|h| ("authorization", h)).into_iter().collect();
                wire.send_request(
                    &Method::GET,
                    &url,
                    &headers,
                    &mut RequestBody::None,
                    RequestTimeouts::default(),
                )?
            };
            match reply.status {
                200 => token(realm, &reply.into_bytes(MAX_ANSWER_BYTES)?),
                // A login goes where the registry said, and no further.
                300..=399 => Err(RegistryError::Redirect {
                    url: redact_url(realm),
                    why: "token servers are asked where the registry says",
                }),
                _ => {
                    let hidden = found.login.as_ref().map(secrets).unwrap_or_default();
                    Err(reply.into_error(&hidden, found.login.is_some(), found.trouble.clone()))
                }
            }
        })
    }
}

fn key(place: &Endpoint, scopes: &[String]) -> TokenKey {
    (
        place.base.clone(),
        place.repository.clone(),
        scopes.to_vec(),
    )
}

fn bearer(token: &Token) -> String {
    format!("Bearer {}", token.text)
}

fn basic(login: &Login) -> Option<String> {
    match login {
        Login::Basic { user, password } => Some(format!(
            "Basic {}",
            STANDARD.encode(format!("{user}:{password}"))
        )),
        Login::Identity { .. } => None,
    }
}

fn secrets(login: &Login) -> Vec<String> {
    let mut all: Vec<String> = basic(login)
        .and_then(|header| Some(header.split_once(' ')?.1.to_owned()))
        .into_iter()
        .collect();
    all.push(match login {
        Login::Basic { password, .. } => password.clone(),
        Login::Identity { token } => token.clone(),
    });
    all
}

/// Reads a token server's answer.
fn token(realm: &str, body: &[u8]) -> Result<Token, RegistryError> {
    let bad = |why| RegistryError::Token {
        url: redact_url(realm),
        why,
    };
    let answer: TokenResponse =
        serde_json::from_slice(body).map_err(|_| bad("its answer does not read"))?;
    let text = [answer.token, answer.access_token]
        .into_iter()
        .flatten()
        .find(|text| !text.is_empty())
        .ok_or_else(|| bad("its answer holds none"))?;
    // Anything else would end the header and begin another.
    if text.len() > MAX_TOKEN_BYTES || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(bad("it is one that no header can hold"));
    }
    let life = answer.expires_in.and_then(|life| life.as_u64());
    let life = Duration::from_secs(
        life.unwrap_or(DEFAULT_LIFETIME_S)
            .clamp(DEFAULT_LIFETIME_S, MAX_LIFETIME_S),
    );
    Ok(Token {
        text,
        until: Instant::now() + life,
    })
}

/// `application/x-www-form-urlencoded`, which serves as a query too.
pub(super) fn encode_form(form: &[(&str, String)]) -> String {
    let mut out = String::new();
    for (name, value) in form {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(byte as char);
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_what_a_header_can_hold() {
        let realm = "https://auth.example.org/token?a=secret";
        let read = |text: &str| token(realm, text.as_bytes());
        assert_eq!(
            read(r#"{"token":"a.b-c","expires_in":300}"#).unwrap().text,
            "a.b-c"
        );
        assert_eq!(read(r#"{"access_token":"x"}"#).unwrap().text, "x");
        assert_eq!(
            read(r#"{"token":"","access_token":"x"}"#).unwrap().text,
            "x"
        );
        for odd in ["-5", "1e400", "99999999999999999999", "0.5"] {
            assert!(
                read(&format!(r#"{{"token":"x","expires_in":{odd}}}"#)).is_ok() || odd == "1e400"
            );
        }
        let long = format!(r#"{{"token":"{}"}}"#, "x".repeat(MAX_TOKEN_BYTES + 1));
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"token":5}"#,
            r#"{"token":""}"#,
            r#"{"token":"a\r\nHost: b"}"#,
            r#"{"token":"a b"}"#,
            r#"{"token":"ä"}"#,
            &long,
        ] {
            let error = read(wrong).err().expect(wrong);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        let form = [
            ("service", "a b&c".to_owned()),
            ("scope", "repository:x/y:pull,push".to_owned()),
        ];
        assert_eq!(
            encode_form(&form),
            "service=a%20b%26c&scope=repository%3Ax%2Fy%3Apull%2Cpush"
        );
    }
}
