//! What an address gave last, kept for when there is no network.
//!
//! A folder of files, each whole or not there, named by the digest of its address. They are
//! read by nobody else, and yet nothing in them is believed: a release file's signature is
//! checked on every use. They may be removed at any time.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sconce_fetch::redact_url;
use sconce_schema::Sha256;

use crate::documents::compute_sha256;

/// Stands for "the server said that it has no such document".
const ABSENT: &[u8] = b"absent\n";

/// The folder.
#[derive(Debug, Clone)]
pub(crate) struct ResponseCache(PathBuf);

/// What an address gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedResponse {
    /// The document; `None` where the server had none.
    pub(crate) bytes: Option<Vec<u8>>,
    /// When it was asked.
    pub(crate) asked: SystemTime,
}

impl ResponseCache {
    /// In this folder, which is made with the first document.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// What `url` gave last. A file that a power loss has spoiled counts as none.
    pub(crate) fn get(&self, url: &str) -> Option<CachedResponse> {
        let path = self.file(url);
        let text = fs::read(&path).ok()?;
        let asked = path.metadata().ok()?.modified().ok()?;
        let bytes = match text.as_slice() {
            ABSENT => None,
            present => Some(checked(present)?.to_owned()),
        };
        Some(CachedResponse { bytes, asked })
    }

    /// Keeps what `url` gave; `None`: the server has no such document. A failure costs an offline
    /// lock, no more.
    pub(crate) fn store_response(&self, url: &str, bytes: Option<&[u8]>) {
        let _ = self.try_put(url, bytes);
    }

    fn try_put(&self, url: &str, bytes: Option<&[u8]>) -> std::io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        match bytes {
            None => file.write_all(ABSENT)?,
            Some(bytes) => {
                writeln!(file, "{}", compute_sha256(bytes))?;
                file.write_all(bytes)?;
            }
        }
        file.persist(self.file(url))?;
        Ok(())
    }

    /// A login in the address is no part of the name.
    fn file(&self, url: &str) -> PathBuf {
        self.0
            .join(compute_sha256(redact_url(url).as_bytes()).to_string())
    }
}

/// Where documents are kept in a store.
pub(crate) fn cache_dir(store: &Path) -> PathBuf {
    store.join("cache").join("documents")
}

/// A line with the digest of the rest, then the rest.
fn checked(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|&byte| byte == b'\n')?;
    let (digest, rest) = (&text[..end], &text[end + 1..]);
    let digest: Sha256 = std::str::from_utf8(digest).ok()?.parse().ok()?;
    (compute_sha256(rest) == digest).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://deb.example.org/dists/trixie/InRelease";

    #[test]
    fn the_last_answer_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ResponseCache::new(folder.path().join("a/b"));
        assert_eq!(kept.get(URL), None);
        let bytes = |kept: &ResponseCache| kept.get(URL).map(|found| found.bytes);
        for document in [Some(&b"one\n"[..]), Some(b""), None, Some(b"absent\n")] {
            kept.store_response(URL, document);
            assert_eq!(bytes(&kept), Some(document.map(<[u8]>::to_owned)));
        }
        assert_eq!(kept.get(&URL.replace("trixie", "bookworm")), None);
        assert_eq!(
            fs::read_dir(&kept.0).unwrap().count(),
            1,
            "nothing lies about"
        );
    }

    #[test]
    fn a_login_is_neither_needed_nor_kept() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ResponseCache::new(folder.path().to_owned());
        kept.store_response(&URL.replace("//", "//me:secret@"), Some(b"text"));
        assert_eq!(kept.get(URL).unwrap().bytes.as_deref(), Some(&b"text"[..]));
    }

    #[test]
    fn a_spoiled_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let kept = ResponseCache::new(folder.path().to_owned());
        kept.store_response(URL, Some(b"some text"));
        let whole = fs::read(kept.file(URL)).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        for spoiled in [
            &[][..],
            &[0; 200],
            &whole[..whole.len() - 1],
            &changed,
            b"\n",
        ] {
            fs::write(kept.file(URL), spoiled).unwrap();
            assert_eq!(kept.get(URL), None);
        }
    }
}
