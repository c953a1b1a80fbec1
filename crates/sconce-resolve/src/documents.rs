//! What the resolver reads from elsewhere, behind a trait, so that tests need no network.

use std::time::SystemTime;

use sconce_fetch::{FetchError, Fetcher, file_path, redact_url};
use sconce_schema::Sha256;
use sconce_store::Store;
use tracing::debug;

use crate::http_cache::{self, ResponseCache};

/// A document whose bytes change under one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestDocument {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// When they were fetched, if that was not now: there is no network, and these are the last
    /// ones.
    pub kept_since: Option<SystemTime>,
}

/// A source of documents.
pub trait DocumentSource: Send + Sync {
    /// The bytes under `url`, at most `limit_bytes` of them. A document that the server does not
    /// have is [`FetchError::NotFound`].
    fn get(&self, url: &str, limit_bytes: u64) -> Result<Vec<u8>, FetchError>;

    /// The bytes under a `url` where they change, as [`DocumentSource::get`]; without network the last
    /// ones that it gave. They have not been checked.
    fn latest(&self, url: &str, limit_bytes: u64) -> Result<LatestDocument, FetchError> {
        let bytes = self.get(url, limit_bytes)?;
        Ok(LatestDocument {
            bytes,
            kept_since: None,
        })
    }

    /// The size of what is under `url`, where it can be had without its bytes.
    fn size(&self, url: &str) -> Option<u64> {
        let _ = url;
        None
    }

    /// Whether there is something under `url`, as far as this can be known: without a network, everything is.
    fn is_reachable(&self, url: &str) -> bool {
        let _ = url;
        true
    }

    /// The bytes with this digest, where an earlier [`DocumentSource::keep`] still holds them. The
    /// caller checks the digest.
    fn kept(&self, sha256: &Sha256) -> Option<Vec<u8>> {
        let _ = sha256;
        None
    }

    /// Keeps bytes for a later [`DocumentSource::kept`]. Only a cache: a failure costs time, no more.
    fn keep(&self, sha256: &Sha256, bytes: &[u8]) {
        let _ = (sha256, bytes);
    }
}

/// Documents from the network, and kept in the store.
#[derive(Debug, Clone, Copy)]
pub struct StoreDocuments<'a> {
    /// Brings them.
    pub fetcher: &'a Fetcher,
    /// Keeps them.
    pub store: &'a Store,
}

impl StoreDocuments<'_> {
    fn by_address(&self) -> ResponseCache {
        ResponseCache::new(http_cache::cache_dir(self.store.root()))
    }
}

impl DocumentSource for StoreDocuments<'_> {
    fn get(&self, url: &str, limit_bytes: u64) -> Result<Vec<u8>, FetchError> {
        self.fetcher.get(url, limit_bytes)
    }

    fn latest(&self, url: &str, limit_bytes: u64) -> Result<LatestDocument, FetchError> {
        let kept = self.by_address();
        match self.get(url, limit_bytes) {
            Ok(bytes) => {
                kept.store_response(url, Some(&bytes));
                Ok(LatestDocument {
                    bytes,
                    kept_since: None,
                })
            }
            Err(FetchError::Offline { url: named }) => {
                let found = kept.get(url).ok_or(FetchError::Offline { url: named })?;
                debug!(url = redact_url(url), "offline: the last answer serves");
                let bytes = found.bytes.ok_or_else(|| FetchError::NotFound {
                    url: redact_url(url),
                    status: 404,
                })?;
                Ok(LatestDocument {
                    bytes,
                    kept_since: Some(found.asked),
                })
            }
            Err(error) => {
                if matches!(error, FetchError::NotFound { .. }) {
                    kept.store_response(url, None);
                }
                Err(error)
            }
        }
    }

    fn size(&self, url: &str) -> Option<u64> {
        // The size is kept like a document of its own.
        let (kept, name) = (self.by_address(), format!("size of {}", redact_url(url)));
        match self.fetcher.request_size(url) {
            Ok(size) => {
                let size = size?;
                kept.store_response(&name, Some(size.to_string().as_bytes()));
                Some(size)
            }
            Err(FetchError::Offline { .. }) => String::from_utf8(kept.get(&name)?.bytes?)
                .ok()?
                .parse()
                .ok(),
            Err(_) => None,
        }
    }

    fn is_reachable(&self, url: &str) -> bool {
        match file_path(url) {
            Some(path) => path.exists(),
            None => matches!(
                self.fetcher.request_size(url),
                Ok(_) | Err(FetchError::Offline { .. })
            ),
        }
    }

    fn kept(&self, sha256: &Sha256) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.store.find_blob(sha256)?).ok()?;
        debug!(%sha256, bytes = bytes.len(), "the store has the document");
        Some(bytes)
    }

    fn keep(&self, sha256: &Sha256, bytes: &[u8]) {
        // Only a cache: a full disk is told by whoever needs the room.
        let _ = self.store.put_blob(bytes, sha256);
    }
}

/// SHA-256 of bytes.
pub(crate) fn compute_sha256(bytes: &[u8]) -> Sha256 {
    use sha2::Digest;
    Sha256(sha2::Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_fetch::FetchConfig;
    use std::io::{Read as _, Write as _};

    /// A server that gives every request the next of these answers.
    fn serve(answers: Vec<&'static str>) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        format!("http://{address}")
    }

    #[test]
    fn without_network_the_last_answer_serves() {
        let base = serve(vec![
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nold",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nnew",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 77\r\nConnection: close\r\n\r\n",
        ]);
        let (there, gone) = (format!("{base}/there"), format!("{base}/gone"));
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let fetcher = |offline| {
            Fetcher::new(FetchConfig {
                offline,
                ..FetchConfig::default()
            })
            .unwrap()
        };
        let (online, offline) = (fetcher(false), fetcher(true));
        let documents = |fetcher| StoreDocuments {
            fetcher,
            store: &store,
        };
        let error = documents(&offline).latest(&there, 9).unwrap_err();
        assert!(matches!(error, FetchError::Offline { .. }), "{error}");
        for bytes in [b"old", b"new"] {
            let latest = documents(&online).latest(&there, 9).unwrap();
            assert_eq!((&latest.bytes[..], latest.kept_since), (&bytes[..], None));
        }
        assert!(documents(&online).latest(&gone, 9).is_err());
        assert_eq!(documents(&online).size(&there), Some(77));
        let latest = documents(&offline).latest(&there, 9).unwrap();
        assert_eq!(latest.bytes, b"new");
        assert!(latest.kept_since.is_some());
        let error = documents(&offline).latest(&gone, 9).unwrap_err();
        assert!(matches!(error, FetchError::NotFound { .. }), "{error}");
        assert_eq!(documents(&offline).size(&there), Some(77));
        assert_eq!(documents(&offline).size(&gone), None);
    }
}

#[cfg(test)]
pub(crate) mod memory {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Documents in memory, and which of them were asked for.
    #[derive(Debug, Default)]
    pub(crate) struct MemoryDocuments {
        pub(crate) documents: BTreeMap<String, Vec<u8>>,
        pub(crate) asked: Mutex<Vec<String>>,
        pub(crate) cache: Mutex<BTreeMap<Sha256, Vec<u8>>>,
        /// Without network: documents are from then.
        pub(crate) kept_since: Option<SystemTime>,
    }

    /// The base address of the test archive's main half, and of its security half.
    pub(crate) const MAIN: &str = "https://deb.example.org/debian";
    pub(crate) const SECURITY: &str = "https://deb.example.org/debian-security";

    impl MemoryDocuments {
        /// The archive that tests/data/archive/make.sh makes.
        pub(crate) fn with_test_archive() -> Self {
            let mut memory = Self::default();
            macro_rules! suite {
                ($base:expr, $suite:literal) => {
                    let mut add = |path: &str, bytes: &[u8]| {
                        memory.documents.insert(
                            format!("{}/dists/{}/{path}", $base, $suite),
                            bytes.to_owned(),
                        );
                    };
                    add(
                        "InRelease",
                        include_bytes!(concat!(
                            "../tests/data/archive/dists/",
                            $suite,
                            "/InRelease"
                        )),
                    );
                    let index: &[u8] = include_bytes!(concat!(
                        "../tests/data/archive/dists/",
                        $suite,
                        "/main/binary-amd64/Packages.xz"
                    ));
                    add("main/binary-amd64/Packages.xz", index);
                    add(
                        &format!("main/binary-amd64/by-hash/SHA256/{}", compute_sha256(index)),
                        index,
                    );
                };
            }
            suite!(MAIN, "trixie");
            suite!(MAIN, "trixie-updates");
            suite!(SECURITY, "trixie-security");
            memory
        }
    }

    impl DocumentSource for MemoryDocuments {
        fn get(&self, url: &str, limit_bytes: u64) -> Result<Vec<u8>, FetchError> {
            self.asked.lock().unwrap().push(url.to_owned());
            let not_found = || FetchError::NotFound {
                url: url.to_owned(),
                status: 404,
            };
            let bytes = self.documents.get(url).ok_or_else(not_found)?;
            if bytes.len() as u64 > limit_bytes {
                return Err(FetchError::TooLarge {
                    url: url.to_owned(),
                    limit: limit_bytes,
                });
            }
            Ok(bytes.clone())
        }

        fn latest(&self, url: &str, limit_bytes: u64) -> Result<LatestDocument, FetchError> {
            let bytes = self.get(url, limit_bytes)?;
            Ok(LatestDocument {
                bytes,
                kept_since: self.kept_since,
            })
        }

        fn kept(&self, sha256: &Sha256) -> Option<Vec<u8>> {
            self.cache.lock().unwrap().get(sha256).cloned()
        }

        fn keep(&self, sha256: &Sha256, bytes: &[u8]) {
            self.cache.lock().unwrap().insert(*sha256, bytes.to_owned());
        }
    }
}
