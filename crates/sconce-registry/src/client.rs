//! Requests to a registry as whoever asks: logins, redirects, retries.

use sconce_fetch::{join_url, redact_url};
use sconce_schema::Progress;
use ureq::http::{Method, Uri};

use super::auth::RegistryAuth;
use super::error::{RegistryError, printable_text};
use super::reference::{Reference, check_host, check_path};
use super::wire::{HttpTransport, Origin, RegistryResponse, RequestBody, RequestTimeouts};
use super::{Mirror, RegistrySettings};
use sconce_oci::{Digest, MAX_DOCUMENT_BYTES, media};

/// A redirect chain longer than this is a loop.
const MAX_REDIRECTS: usize = 10;
/// The longest `Location` that is followed, bytes.
const MAX_LOCATION_BYTES: usize = 8 << 10;
/// What a manifest may be.
const ACCEPTED: [&str; 4] = [
    media::MANIFEST,
    media::INDEX,
    media::DOCKER_MANIFEST,
    media::DOCKER_LIST,
];

/// A repository at a registry or at a mirror.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// `https://HOST[:PORT]`.
    pub(super) base: String,
    /// `HOST[:PORT]`, as logins are looked for.
    pub(super) host: String,
    /// The repository there.
    pub(super) repository: String,
}

impl Endpoint {
    /// The URL of something in the repository.
    pub(super) fn resource_url(&self, rest: &str) -> String {
        format!("{}/v2/{}/{rest}", self.base, self.repository)
    }

    pub(super) fn pull_scopes(&self) -> Vec<String> {
        vec![format!("repository:{}:pull", self.repository)]
    }

    pub(super) fn push_scopes(&self) -> Vec<String> {
        vec![format!("repository:{}:pull,push", self.repository)]
    }
}

/// A request, but for who asks.
pub(super) struct RegistryRequest<'a> {
    pub(super) method: Method,
    pub(super) url: &'a str,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) scopes: Vec<String>,
    pub(super) times: RequestTimeouts,
    /// Whether a redirect is itself the answer.
    pub(super) stays: bool,
}

impl<'a> RegistryRequest<'a> {
    pub(super) fn new(method: Method, url: &'a str, scopes: Vec<String>) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            scopes,
            times: RequestTimeouts::default(),
            stays: false,
        }
    }

    pub(super) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A manifest or an index as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestDocument {
    /// Its media type.
    pub media_type: String,
    /// Its bytes. Its digest is of these.
    pub bytes: Vec<u8>,
}

impl ManifestDocument {
    /// Its digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::hash_bytes(&self.bytes)
    }
}

/// Asks registries and mirrors.
#[derive(Debug)]
pub(super) struct RegistryClient {
    pub(super) settings: RegistrySettings,
    pub(super) wire: HttpTransport,
    auth: RegistryAuth,
}

impl RegistryClient {
    pub(super) fn new(settings: RegistrySettings) -> Result<Self, RegistryError> {
        for mirror in &settings.mirrors {
            mirror_parts(mirror).map_err(|why| RegistryError::Setting {
                setting: "mirrors",
                why: format!(
                    "`{}`: {why}",
                    printable_text(&redact_url(&mirror.base), 200)
                ),
            })?;
        }
        Ok(Self {
            wire: HttpTransport::new(settings.fetch.clone(), &settings.insecure)?,
            auth: RegistryAuth::new(settings.logins.clone()),
            settings,
        })
    }

    /// The registry itself.
    pub(super) fn resolve_endpoint(
        &self,
        reference: &Reference,
    ) -> Result<Endpoint, RegistryError> {
        let host = reference.host().to_ascii_lowercase();
        let scheme = self.wire.detect_scheme(&host)?;
        Ok(Endpoint {
            base: format!("{scheme}://{host}"),
            host,
            repository: reference.path().to_owned(),
        })
    }

    /// The mirrors of a repository in their order, then the registry itself. One that does not even
    /// say how it is to be asked is passed over while there is another.
    pub(super) fn list_pull_endpoints(
        &self,
        reference: &Reference,
        progress: &dyn Progress,
    ) -> Result<Vec<Endpoint>, RegistryError> {
        let mut all = Vec::new();
        for mirror in &self.settings.mirrors {
            if !mirror.of.eq_ignore_ascii_case(reference.host()) {
                continue;
            }
            let Ok((scheme, host, prefix)) = mirror_parts(mirror) else {
                continue; // It was refused at the beginning.
            };
            let base = format!("{scheme}://{host}");
            if let Err(e) = self.wire.parse_permitted_url(&base) {
                progress.note(&format!("the mirror {host} is not asked: {e}"));
                continue;
            }
            all.push(Endpoint {
                base,
                host: host.to_ascii_lowercase(),
                repository: format!("{prefix}{}", reference.path()),
            });
        }
        match self.resolve_endpoint(reference) {
            Ok(place) => all.push(place),
            Err(e) if all.is_empty() => return Err(e),
            Err(e) => progress.note(&format!("only mirrors are asked: {e}")),
        }
        for place in &all {
            tracing::debug!(
                base = place.base,
                repository = place.repository,
                "a source of the image"
            );
        }
        Ok(all)
    }

    /// Asks once, as whoever is logged in. Redirects of what only reads are followed; no login goes
    /// to another origin than the place's.
    pub(super) fn send_once(
        &self,
        place: &Endpoint,
        ask: &RegistryRequest<'_>,
        mut payload: RequestBody<'_>,
    ) -> Result<RegistryResponse, RegistryError> {
        let own = place
            .base
            .parse()
            .ok()
            .and_then(|uri| Origin::from_uri(&uri));
        let reads = matches!(ask.method, Method::GET | Method::HEAD);
        let mut url = ask.url.to_owned();
        let mut scopes = ask.scopes.clone();
        let mut renewed = 0;
        for _ in 0..=MAX_REDIRECTS {
            let uri = self.wire.parse_permitted_url(&url)?;
            let is_own = own.is_some() && Origin::from_uri(&uri) == own;
            let mut headers = ask.headers.clone();
            let authorization = match is_own {
                true => self.auth.authorization_header(&self.wire, place, &scopes)?,
                false => None,
            };
            headers.extend(authorization.clone().map(|text| ("authorization", text)));
            let reply =
                self.wire
                    .send_request(&ask.method, &url, &headers, &mut payload, ask.times)?;
            let used = authorization.as_deref();
            match reply.status {
                401 if is_own && renewed < 2 => {
                    renewed += 1;
                    if !self
                        .auth
                        .apply_challenges(place, &mut scopes, &reply.headers, used)
                    {
                        return Err(self.failed(place, reply, used));
                    }
                    reply.drain_body();
                }
                301 | 302 | 303 | 307 | 308 if reads && !ask.stays => {
                    url = redirected(&uri, &reply)?;
                    reply.drain_body();
                }
                // 304 cannot be: nothing was asked under a condition.
                300..=399 if !ask.stays => {
                    return Err(RegistryError::Redirect {
                        url: redact_url(&url),
                        why: "what changes a registry goes where it was meant to go",
                    });
                }
                200..=399 => return Ok(reply),
                _ => return Err(self.failed(place, reply, used)),
            }
        }
        Err(RegistryError::Redirect {
            url: redact_url(ask.url),
            why: "there are too many in a row",
        })
    }

    /// Asks for a document, again where that may help. The body is at most `limit` bytes.
    pub(super) fn request_document(
        &self,
        place: &Endpoint,
        ask: &RegistryRequest<'_>,
        limit: u64,
    ) -> Result<(ResponseMetadata, Vec<u8>), RegistryError> {
        self.wire.retry_transient(|| {
            let reply = self.send_once(place, ask, RequestBody::None)?;
            let about = ResponseMetadata {
                url: reply.redacted_url(),
                kind: reply.header("content-type").map(str::to_owned),
                digest: reply.header("docker-content-digest").map(str::to_owned),
                link: reply.header("link").map(str::to_owned),
            };
            Ok((about, reply.into_bytes(limit)?))
        })
    }

    /// A manifest or index by digest or tag. A digest is checked; with a tag, the digest that the
    /// registry states is.
    pub(super) fn fetch_manifest(
        &self,
        place: &Endpoint,
        wanted: &str,
    ) -> Result<ManifestDocument, RegistryError> {
        let url = place.resource_url(&format!("manifests/{wanted}"));
        let ask = RegistryRequest::new(Method::GET, &url, place.pull_scopes())
            .with_header("accept", ACCEPTED.join(", "));
        let (about, bytes) = self.request_document(place, &ask, MAX_DOCUMENT_BYTES as u64)?;
        let stated = about.digest.as_deref().and_then(|text| text.parse().ok());
        let expected = wanted.parse().ok().or(stated);
        let found = Digest::hash_bytes(&bytes);
        if let Some(wanted) = expected
            && wanted != found
        {
            return Err(RegistryError::Digest {
                url: about.url,
                wanted,
                found,
            });
        }
        let media_type =
            kind(about.kind.as_deref(), &bytes).map_err(|kind| RegistryError::Kind {
                url: about.url,
                kind: printable_text(&kind, 200),
            })?;
        Ok(ManifestDocument { media_type, bytes })
    }

    /// The digest that a tag has now, where the registry knows the tag and says it.
    pub(super) fn request_manifest_digest(
        &self,
        place: &Endpoint,
        wanted: &str,
    ) -> Result<Option<Digest>, RegistryError> {
        let url = place.resource_url(&format!("manifests/{wanted}"));
        let ask = RegistryRequest::new(Method::HEAD, &url, place.pull_scopes())
            .with_header("accept", ACCEPTED.join(", "));
        let reply = self
            .wire
            .retry_transient(|| self.send_once(place, &ask, RequestBody::None));
        match reply {
            Ok(reply) => {
                let digest = reply.header("docker-content-digest");
                Ok(digest.and_then(|text| text.parse().ok()))
            }
            Err(RegistryError::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn failed(
        &self,
        place: &Endpoint,
        reply: RegistryResponse,
        used: Option<&str>,
    ) -> RegistryError {
        let (login, trouble, hidden) = self.auth.login_diagnostics(place, used);
        reply.into_error(&hidden, login, trouble)
    }
}

/// Where a redirect leads.
fn redirected(from: &Uri, reply: &RegistryResponse) -> Result<String, RegistryError> {
    let no = |why| RegistryError::Redirect {
        url: reply.redacted_url(),
        why,
    };
    let target =
        resolve_location(from, reply.header("location")).ok_or_else(|| no("it names no target"))?;
    if from.scheme_str() == Some("https") && !target.starts_with("https://") {
        return Err(no("it leads from https to http"));
    }
    Ok(target)
}

/// What is worth knowing of an answer once its body was read.
pub(super) struct ResponseMetadata {
    pub(super) url: String,
    pub(super) kind: Option<String>,
    pub(super) digest: Option<String>,
    pub(super) link: Option<String>,
}

/// A `Location` as seen from the URL that gave it.
pub(super) fn resolve_location(from: &Uri, header: Option<&str>) -> Option<String> {
    let header = header?.trim();
    let plain = !header.is_empty()
        && header.len() <= MAX_LOCATION_BYTES
        && header.bytes().all(|b| b.is_ascii_graphic());
    plain.then(|| join_url(from, header)).flatten()
}

/// What a document is: what its header says, held against what it says itself. A document that is
/// read as one thing here and as another thing there is how two tools are made to see two images.
fn kind(header: Option<&str>, bytes: &[u8]) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ManifestShape {
        media_type: Option<String>,
        config: Option<serde::de::IgnoredAny>,
        layers: Option<serde::de::IgnoredAny>,
        manifests: Option<serde::de::IgnoredAny>,
    }
    let header = header.unwrap_or_default();
    let header = header.split(';').next().unwrap_or_default().trim();
    let header = header.to_ascii_lowercase();
    let own: ManifestShape =
        serde_json::from_slice(bytes).map_err(|_| "no JSON object".to_owned())?;
    let is_list = own.manifests.is_some();
    if is_list && (own.config.is_some() || own.layers.is_some()) {
        return Err("both a manifest and an index".to_owned());
    }
    let named = |name: &str| ACCEPTED.contains(&name).then(|| name.to_owned());
    let shape = if is_list {
        media::INDEX
    } else {
        media::MANIFEST
    };
    let found = match (named(&header), own.media_type) {
        (Some(header), Some(own)) if own != header => {
            return Err(format!("{header}, and {own} within"));
        }
        (Some(header), _) => header,
        // Plain file servers that act as registries.
        (None, Some(own)) if is_vague(&header) => named(&own).ok_or(own)?,
        (None, None) if is_vague(&header) => shape.to_owned(),
        (None, _) => return Err(header),
    };
    let says_list = found == media::INDEX || found == media::DOCKER_LIST;
    match says_list == is_list {
        true => Ok(found),
        false => Err(format!("{found}, but of another shape")),
    }
}

fn is_vague(header: &str) -> bool {
    matches!(
        header,
        "" | "application/json" | "application/octet-stream" | "text/plain"
    )
}

/// Scheme, host and path prefix (`a/b/`) of a mirror.
fn mirror_parts(mirror: &Mirror) -> Result<(&str, &str, String), &'static str> {
    check_host(&mirror.of)?;
    let (scheme, rest) = mirror.base.split_once("://").ok_or("it is not a URL")?;
    if !matches!(scheme, "http" | "https") {
        return Err("its scheme is neither http nor https");
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    check_host(host)?;
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok((scheme, host, String::new()));
    }
    check_path(path)?;
    Ok((scheme, host, format!("{path}/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn locations_are_relative_absolute_and_with_queries() {
        let from: Uri = "https://registry.example.org/v2/a/blobs/uploads/"
            .parse()
            .unwrap();
        for (header, want) in [
            (
                "/v2/a/blobs/uploads/1?s=x%2F",
                Some("https://registry.example.org/v2/a/blobs/uploads/1?s=x%2F"),
            ),
            (
                "https://else.example.org/u?a=b&c",
                Some("https://else.example.org/u?a=b&c"),
            ),
            (
                "1?s",
                Some("https://registry.example.org/v2/a/blobs/uploads/1?s"),
            ),
            ("//else.example.org/u", Some("https://else.example.org/u")),
            ("", None),
            ("ftp://else.example.org/", None),
            ("/a b", None),
            ("/ä", None),
        ] {
            assert_eq!(
                resolve_location(&from, Some(header)).as_deref(),
                want,
                "{header}"
            );
        }
        assert_eq!(resolve_location(&from, None), None);
        assert_eq!(
            resolve_location(&from, Some(&format!("/{}", "a".repeat(9000)))),
            None
        );
    }

    #[test]
    fn a_document_is_one_thing() {
        let manifest = br#"{"schemaVersion":2,"config":{},"layers":[]}"#;
        let index = br#"{"schemaVersion":2,"manifests":[]}"#;
        let typed = br#"{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
        let both = br#"{"config":{},"manifests":[]}"#;
        let of = |header: &str, bytes: &[u8]| kind(Some(header), bytes).ok();
        assert_eq!(
            of(media::MANIFEST, manifest).as_deref(),
            Some(media::MANIFEST)
        );
        assert_eq!(
            of(media::DOCKER_MANIFEST, manifest).as_deref(),
            Some(media::DOCKER_MANIFEST)
        );
        assert_eq!(
            of("application/json; charset=utf-8", index).as_deref(),
            Some(media::INDEX)
        );
        assert_eq!(kind(None, typed).as_deref(), Ok(media::INDEX));
        assert_eq!(of(media::MANIFEST, index), None);
        assert_eq!(of(media::INDEX, manifest), None);
        assert_eq!(of(media::DOCKER_LIST, typed), None);
        assert_eq!(of("application/json", both), None);
        assert_eq!(of("text/html", manifest), None);
        assert_eq!(
            of(
                "application/vnd.docker.distribution.manifest.v1+prettyjws",
                manifest
            ),
            None
        );
        assert_eq!(of(media::MANIFEST, b"<html>"), None);
    }

    #[test]
    fn mirrors_are_addresses_with_a_prefix() {
        let parts = |base: &str| {
            let mirror = Mirror {
                of: "registry.example.org".to_owned(),
                base: base.to_owned(),
            };
            mirror_parts(&mirror)
                .map(|(s, h, p)| format!("{s} {h} {p}"))
                .ok()
        };
        assert_eq!(
            parts("https://m.example.org").as_deref(),
            Some("https m.example.org ")
        );
        assert_eq!(
            parts("http://m.example.org:5000/a/b/").as_deref(),
            Some("http m.example.org:5000 a/b/")
        );
        for wrong in [
            "m.example.org",
            "ftp://m.example.org",
            "https://u:p@m.example.org",
            "https://m.example.org/A",
            "https://m.example.org/a?b",
        ] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_location_panics(text in "\\PC{0,60}") {
            let from: Uri = "https://registry.example.org/v2/a/blobs/uploads/?x".parse().unwrap();
            if let Some(to) = resolve_location(&from, Some(&text)) {
                prop_assert!(to.starts_with("http"));
            }
        }
    }
}
