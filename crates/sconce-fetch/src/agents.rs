//! The HTTP client's agents: certificates, proxies, time limits.

use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;

use super::names::DnsCache;
use super::url::redact_url;
use super::{FetchConfig, FetchError};

/// One agent for each way out of this machine. They follow no redirects, take no status for an
/// error and add no credentials: all of that is for whoever uses them.
#[derive(Debug)]
pub struct Agents {
    direct: Agent,
    http: Option<Agent>,
    https: Option<Agent>,
    bypass: Vec<String>,
}

impl Agents {
    /// Agents with these settings. `retries`, `credentials` and `offline` are not theirs to heed.
    ///
    /// # Errors
    /// [`FetchError::Setting`] for a proxy that is no URL and for certificates that cannot be read.
    pub fn new(config: &FetchConfig) -> Result<Self, FetchError> {
        let roots = match &config.extra_ca {
            None => RootCerts::PlatformVerifier,
            Some(path) => {
                let unusable = |why: String| FetchError::Setting {
                    setting: "extra_ca",
                    why: format!("{}: {why}", path.display()),
                };
                let pem = std::fs::read(path).map_err(|e| unusable(e.to_string()))?;
                let mut all = certificates(&pem).map_err(unusable)?;
                if all.is_empty() {
                    return Err(unusable("it holds no certificate".to_owned()));
                }
                let native = rustls_native_certs::load_native_certs();
                all.extend(
                    native
                        .certs
                        .iter()
                        .map(|der| Certificate::from_der(der).to_owned()),
                );
                RootCerts::new_with_certs(&all)
            }
        };
        let agent = |proxy: Option<(&'static str, &str)>| {
            let proxy = proxy
                .map(|(setting, url)| {
                    ureq::Proxy::new(url).map_err(|_| FetchError::Setting {
                        setting,
                        why: format!("`{}` is not a proxy's URL", redact_url(url)),
                    })
                })
                .transpose()?;
            let built = Agent::config_builder()
                .tls_config(TlsConfig::builder().root_certs(roots.clone()).build())
                .proxy(proxy)
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .user_agent(concat!("sconce/", env!("CARGO_PKG_VERSION")))
                // Bytes must arrive as they are: their SHA-256 is of the file, not of its encoding.
                .accept_encoding("identity")
                .timeout_connect(Some(config.connect_timeout))
                .timeout_recv_response(Some(config.idle_timeout))
                .timeout_per_read(Some(config.idle_timeout))
                .timeout_per_write(Some(config.idle_timeout))
                .max_idle_connections_per_host(8)
                .build();
            Ok(Agent::with_parts(
                built,
                DefaultConnector::default(),
                DnsCache::default(),
            ))
        };
        Ok(Self {
            direct: agent(None)?,
            http: config
                .proxies
                .http
                .as_deref()
                .map(|url| agent(Some(("proxies.http", url))))
                .transpose()?,
            https: config
                .proxies
                .https
                .as_deref()
                .map(|url| agent(Some(("proxies.https", url))))
                .transpose()?,
            bypass: config.proxies.bypass.clone(),
        })
    }

    /// The agent for `uri`: through the proxy of its scheme, unless its host is to be asked
    /// directly. `None` when its scheme is neither http nor https.
    #[must_use]
    pub fn agent_for(&self, uri: &Uri) -> Option<&Agent> {
        let proxied = match uri.scheme_str() {
            Some("http") => self.http.as_ref(),
            Some("https") => self.https.as_ref(),
            _ => return None,
        };
        Some(match uri.host() {
            Some(host) if self.bypassed(host) => &self.direct,
            _ => proxied.unwrap_or(&self.direct),
        })
    }

    /// The agent that uses no proxy.
    #[must_use]
    pub fn direct_agent(&self) -> &Agent {
        &self.direct
    }

    fn bypassed(&self, host: &str) -> bool {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        self.bypass.iter().any(|entry| {
            let entry = entry.trim().to_ascii_lowercase();
            let domain = entry.trim_start_matches("*.").trim_start_matches('.');
            entry == "*"
                || (!domain.is_empty()
                    && (host == domain
                        || host
                            .strip_suffix(domain)
                            .is_some_and(|before| before.ends_with('.'))))
        })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut all = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(one) = item.map_err(|e| e.to_string())? {
            all.push(one);
        }
    }
    Ok(all)
}
