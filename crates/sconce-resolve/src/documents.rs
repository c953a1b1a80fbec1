//! What the resolver reads from elsewhere, behind a trait, so that tests need no network.

use sconce_schema::Sha256;
use sconce_store::Store;
use sconce_store::fetch::{FetchError, Fetcher};

/// A source of documents.
pub trait Documents: Send + Sync {
    /// The bytes under `url`, at most `limit_bytes` of them. A document that the server does not
    /// have is [`FetchError::NotFound`].
    fn get(&self, url: &str, limit_bytes: u64) -> Result<Vec<u8>, FetchError>;

    /// The size of what is under `url`, where it can be had without its bytes.
    fn size(&self, url: &str) -> Option<u64> {
        let _ = url;
        None
    }

    /// The bytes with this digest, where an earlier [`Documents::keep`] still holds them. The
    /// caller checks the digest.
    fn kept(&self, sha256: &Sha256) -> Option<Vec<u8>> {
        let _ = sha256;
        None
    }

    /// Keeps bytes for a later [`Documents::kept`]. Only a cache: a failure costs time, no more.
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

impl Documents for StoreDocuments<'_> {
    fn get(&self, url: &str, limit_bytes: u64) -> Result<Vec<u8>, FetchError> {
        self.fetcher.get(url, limit_bytes)
    }

    fn size(&self, url: &str) -> Option<u64> {
        self.fetcher.size(url).ok().flatten()
    }

    fn kept(&self, sha256: &Sha256) -> Option<Vec<u8>> {
        std::fs::read(self.store.blob(sha256)?).ok()
    }

    fn keep(&self, sha256: &Sha256, bytes: &[u8]) {
        // Only a cache: a full disk is told by whoever needs the room.
        let _ = self.store.put_blob(bytes, sha256);
    }
}

/// SHA-256 of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> Sha256 {
    use sha2::Digest;
    Sha256(sha2::Sha256::digest(bytes).into())
}

#[cfg(test)]
pub(crate) mod memory {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Documents in memory, and which of them were asked for.
    #[derive(Debug, Default)]
    pub(crate) struct Memory {
        pub(crate) documents: BTreeMap<String, Vec<u8>>,
        pub(crate) asked: Mutex<Vec<String>>,
        pub(crate) cache: Mutex<BTreeMap<Sha256, Vec<u8>>>,
    }

    /// The base address of the test archive's main half, and of its security half.
    pub(crate) const MAIN: &str = "https://deb.example.org/debian";
    pub(crate) const SECURITY: &str = "https://deb.example.org/debian-security";

    impl Memory {
        /// The archive that tests/data/archive/make.sh makes.
        pub(crate) fn archive() -> Self {
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
                        &format!("main/binary-amd64/by-hash/SHA256/{}", sha256(index)),
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

    impl Documents for Memory {
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

        fn kept(&self, sha256: &Sha256) -> Option<Vec<u8>> {
            self.cache.lock().unwrap().get(sha256).cloned()
        }

        fn keep(&self, sha256: &Sha256, bytes: &[u8]) {
            self.cache.lock().unwrap().insert(*sha256, bytes.to_owned());
        }
    }
}
