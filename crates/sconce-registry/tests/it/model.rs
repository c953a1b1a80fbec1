//! A registry in memory that keeps to the distribution specification, but for what a test makes it
//! do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sconce_oci::{Digest, media};

use super::server::{Request, Server};

/// What it holds. Repositories share one store of manifests; blobs belong to a repository.
#[derive(Default)]
pub(crate) struct Held {
    /// By `REPOSITORY@DIGEST`.
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    /// Media type and bytes, by tag and by digest.
    pub(crate) manifests: BTreeMap<String, (String, Vec<u8>)>,
    uploads: BTreeMap<usize, Vec<u8>>,
    begun: usize,
}

/// What happens instead of what should.
pub(crate) enum Fault {
    /// This answer: status line with headers, and a body.
    Answer(String, Vec<u8>),
    /// This many bytes of the request's body are taken up; then the connection ends.
    CutRequest(usize),
    /// This many bytes of the answer's body are sent; then the connection ends.
    CutAnswer(usize),
    /// It does what it was asked to, and says nothing.
    Silence,
}

pub(crate) fn answer(head: &str, body: impl AsRef<[u8]>) -> Option<Fault> {
    Some(Fault::Answer(head.to_owned(), body.as_ref().to_vec()))
}

/// A registry and its server.
pub(crate) struct Model {
    pub(crate) server: Server,
    pub(crate) held: Arc<Mutex<Held>>,
}

impl Model {
    /// A registry that does all it should.
    pub(crate) fn good() -> Self {
        Self::with(|_, _| None)
    }

    /// A registry with faults. The closure is given the request and how many requests with the same
    /// method and path were there before.
    pub(crate) fn with(
        fault: impl Fn(&Request, usize) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        let held = Arc::new(Mutex::new(Held::default()));
        let shared = Arc::clone(&held);
        let counts = Mutex::new(BTreeMap::new());
        let server = Server::start(move |request, conn| {
            let key = format!("{} {}", request.method, request.path());
            let before = {
                let mut counts = counts.lock().unwrap();
                let count: &mut usize = counts.entry(key).or_default();
                *count += 1;
                *count - 1
            };
            let fault = match request.target.as_str() {
                "/v2/" => None,
                _ => fault(request, before),
            };
            if let Some(Fault::Answer(head, body)) = fault {
                return conn.answer(&head, &body);
            }
            let most = match fault {
                Some(Fault::CutRequest(most)) => most,
                _ => usize::MAX,
            };
            let body = conn.body(most);
            let (head, content) = shared.lock().unwrap().respond(request, body, most);
            match fault {
                Some(Fault::CutRequest(_) | Fault::Silence) => {}
                Some(Fault::CutAnswer(most)) => {
                    conn.answer_some(&head, content.len(), &content[..most.min(content.len())]);
                }
                _ if request.method == "HEAD" => conn.answer_some(&head, content.len(), &[]),
                // RFC 9110: 204 has no length.
                _ if head.starts_with("204") => {
                    conn.raw(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes());
                }
                _ => conn.answer(&head, &content),
            }
        });
        Self { server, held }
    }

    pub(crate) fn host(&self) -> String {
        self.server.host()
    }

    pub(crate) fn put_blob(&self, repository: &str, bytes: &[u8]) {
        let key = format!("{repository}@{}", Digest::hash_bytes(bytes));
        self.held.lock().unwrap().blobs.insert(key, bytes.to_vec());
    }

    pub(crate) fn has_blob(&self, repository: &str, bytes: &[u8]) -> bool {
        let key = format!("{repository}@{}", Digest::hash_bytes(bytes));
        self.held.lock().unwrap().blobs.get(&key).map(Vec::as_slice) == Some(bytes)
    }

    pub(crate) fn put_manifest(&self, tag: &str, media_type: &str, bytes: &[u8]) {
        let mut held = self.held.lock().unwrap();
        for name in [tag.to_owned(), Digest::hash_bytes(bytes).to_string()] {
            let value = (media_type.to_owned(), bytes.to_vec());
            held.manifests.insert(name, value);
        }
    }

    pub(crate) fn manifest(&self, name: &str) -> Option<Vec<u8>> {
        let held = self.held.lock().unwrap();
        held.manifests.get(name).map(|(_, bytes)| bytes.clone())
    }
}

const MISSING: &str = "404 Not Found";

impl Held {
    fn respond(&mut self, request: &Request, body: Vec<u8>, most: usize) -> (String, Vec<u8>) {
        let path = request.path();
        let missing = (
            MISSING.to_owned(),
            br#"{"errors":[{"code":"UNKNOWN"}]}"#.to_vec(),
        );
        if path == "/v2/" {
            return ("200 OK".to_owned(), b"{}".to_vec());
        }
        let Some((repository, rest)) = ["/blobs/", "/manifests/"].iter().find_map(|kind| {
            let at = path.find(kind)?;
            Some((path[..at].trim_start_matches("/v2/"), &path[at + 1..]))
        }) else {
            return missing;
        };
        let empty = |head: String| (head, Vec::new());
        if rest == "blobs/uploads/" {
            if let (Some(digest), Some(from)) = (request.query("mount"), request.query("from"))
                && let Some(bytes) = self.blobs.get(&format!("{from}@{digest}")).cloned()
            {
                self.blobs.insert(format!("{repository}@{digest}"), bytes);
                return empty("201 Created".to_owned());
            }
            self.begun += 1;
            self.uploads.insert(self.begun, Vec::new());
            let number = self.begun;
            return empty(format!(
                "202 Accepted\r\nLocation: /v2/{repository}/blobs/uploads/{number}?state=a%2Fb"
            ));
        }
        if let Some(number) = rest.strip_prefix("blobs/uploads/") {
            assert_eq!(request.query("state").as_deref(), Some("a/b"));
            return empty(self.upload(request, repository, number.parse().unwrap(), body, most));
        }
        if let Some(digest) = rest.strip_prefix("blobs/") {
            let Some(bytes) = self.blobs.get(&format!("{repository}@{digest}")) else {
                return missing;
            };
            let range = request.header("range");
            let from = range.and_then(|text| {
                text.strip_prefix("bytes=")?
                    .strip_suffix('-')?
                    .parse::<usize>()
                    .ok()
            });
            return match from {
                None => ("200 OK".to_owned(), bytes.clone()),
                Some(from) => (
                    format!(
                        "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
                        bytes.len() - 1,
                        bytes.len()
                    ),
                    bytes[from..].to_vec(),
                ),
            };
        }
        let name = rest.trim_start_matches("manifests/");
        if request.method == "PUT" {
            let kind = request.header("content-type").unwrap_or(media::MANIFEST);
            let digest = Digest::hash_bytes(&body);
            for name in [name.to_owned(), digest.to_string()] {
                self.manifests.insert(name, (kind.to_owned(), body.clone()));
            }
            return empty(format!("201 Created\r\nDocker-Content-Digest: {digest}"));
        }
        match self.manifests.get(name) {
            None => missing,
            Some((kind, bytes)) => (
                format!(
                    "200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {}",
                    Digest::hash_bytes(bytes)
                ),
                bytes.clone(),
            ),
        }
    }

    fn upload(
        &mut self,
        request: &Request,
        repository: &str,
        number: usize,
        body: Vec<u8>,
        most: usize,
    ) -> String {
        let Some(bytes) = self.uploads.get_mut(&number) else {
            return MISSING.to_owned();
        };
        if let Some(range) = request.header("content-range") {
            let from: usize = range.split('-').next().unwrap().parse().unwrap();
            if from != bytes.len() {
                return "416 Range Not Satisfiable".to_owned();
            }
        }
        bytes.extend(body);
        let location = format!(
            "Location: {}",
            request.target.split("&digest").next().unwrap()
        );
        let range = format!("{location}\r\nRange: 0-{}", bytes.len().max(1) - 1);
        match request.method.as_str() {
            "GET" => format!("204 No Content\r\n{range}"),
            "PATCH" => format!("202 Accepted\r\n{range}"),
            "PUT" if most < usize::MAX => String::new(),
            "PUT" => {
                let digest = request.query("digest").unwrap();
                let bytes = self.uploads.remove(&number).unwrap();
                if Digest::hash_bytes(&bytes).to_string() != digest {
                    return "400 Bad Request".to_owned();
                }
                self.blobs.insert(format!("{repository}@{digest}"), bytes);
                "201 Created".to_owned()
            }
            _ => "405 Method Not Allowed".to_owned(),
        }
    }
}
